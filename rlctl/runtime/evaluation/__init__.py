"""Prompts that are answered and scored, and not trained on."""
