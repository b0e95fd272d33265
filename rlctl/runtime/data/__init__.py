"""Data sets as the run reads them: files to rows, rows to prompts or training sequences, and the order they are drawn in.

    sources.py, custom.py ──▶ rows ──▶ prompts.py ──▶ Prompt ─┐
                                  ├──▶ sft.py ──────▶ Sample ─┴──▶ stream.py ──▶ step batches
                                  └──▶ recorded.py ─▶ Prompt with its responses, for evaluation

Importing the package loads nothing heavy; ``datasets`` and ``transformers`` are imported where they are called.
"""
