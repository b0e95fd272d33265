"""Buffers: where answered prompts wait to be trained on, between the side that explores and the side that trains."""
