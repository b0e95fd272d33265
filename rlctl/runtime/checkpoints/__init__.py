"""Checkpoints of a run: written whole or not at all, checked, taken up again, exported."""
