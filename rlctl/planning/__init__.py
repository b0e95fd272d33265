"""What a config comes to in a run, before anything starts: batches, schedules, memory, devices, what the runtime supports."""
