"""What a run tells in its folder: events, metrics, and the responses that people are shown."""
