"""The space between Chinese and Latin text, where a message is put together from parts: ``应为 true``, but ``应为整数``.

Parts are joined as they are inside: a path with Chinese and Latin characters stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

_CHINESE = "\u4e00-\u9fff"
_BEFORE_LATIN = re.compile(rf"[{_CHINESE}](?=[A-Za-z0-9'\"`$<\[{{/~+-])")
_AFTER_LATIN = re.compile(rf"[A-Za-z0-9'\"`%>\]}}](?=[{_CHINESE}])")


def joined(parts: Iterable[str], language: str) -> str:
    """Parts one after the other, in Chinese with a space between a Chinese character and a Latin one."""
    if language != "zh":
        return "".join(parts)
    text = ""
    for part in parts:
        border = text[-1:] + part[:1]
        text += f" {part}" if _BEFORE_LATIN.match(border) or _AFTER_LATIN.match(border) else part
    return text


def filled(template: str, values: Mapping[str, Any], language: str) -> str:
    """``template.format(**values)``, with the spacing of the language between text and values."""
    if language != "zh":
        return template.format(**values)
    parts = []
    for literal, name, spec, conversion in Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            field = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}"
            parts.append(field.format(**values))
    return joined(filter(None, parts), language)
