"""Names of Transformers that older releases of verl import; runs in the Python of a framework."""

from __future__ import annotations


def restore() -> None:
    """Give Transformers the name that verl up to 0.7.0 imports and Transformers 5 has renamed."""
    import transformers

    if not hasattr(transformers, "AutoModelForVision2Seq"):
        transformers.AutoModelForVision2Seq = transformers.AutoModelForImageTextToText
