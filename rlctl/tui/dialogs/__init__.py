"""Dialogs: what is asked over a screen, and answered or left."""
