"""The calculator that the model learns to call."""

import re


def calculate(expression: str) -> str:
    """Calculate a product of two whole numbers.

    Args:
        expression: Two numbers with * between them.
    """
    found = re.fullmatch(r"\s*(\d+)\s*\*\s*(\d+)\s*", expression)
    if found is None:
        raise ValueError(f"expected a product such as 12*34, not {expression}")
    return str(int(found[1]) * int(found[2]))
