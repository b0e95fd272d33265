"""What crosses between processes, packed into a few large buffers a call."""
