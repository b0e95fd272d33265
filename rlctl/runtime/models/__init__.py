"""What is particular to a kind of model before an engine loads it."""
