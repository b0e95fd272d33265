"""Reinforcement-learning post-training of language models: one config, read from and written to several frameworks' own.

    text ──read──▶ Document ──adapter──▶ Config + Report ──check──▶ findings
                                           │
                         ┌─────────────────┼─────────────────┐
                       write             plan               edit
                         ▼                 ▼
                  text in any dialect    Plan ──▶ runtime ──▶ run folder ──▶ whoever watches

    errors  report  documents  config  arithmetic  support  adapters  checks  plan  translate  runs  runtime  cli

Importing the package loads nothing of it; ``docs/architecture.md`` says what each part promises and who may import whom.
"""

from __future__ import annotations

__version__ = "0.1.0"
"""The version in ``pyproject.toml``; a test compares them."""
