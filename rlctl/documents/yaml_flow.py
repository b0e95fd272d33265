"""Plain scalars with ':' inside '[...]' and '{...}', which OmegaConf's loader reads and ruamel.yaml's C parser refuses.

That parser descends from libyaml 0.1: ``[cuda:0]`` and ``{url: http://host:80}`` are errors in it. Texts that it accepts mean the
same to both. So a text that it refuses is parsed a second time, with each such ':' replaced by a character that is none of YAML's
indicators: every position stays as it is.
"""

from __future__ import annotations

import re

_STAND_IN = "\ue03a"
_MAX_CHARACTERS = 1 << 20
"""A longer text that the parser refuses is not parsed again; replacing would take seconds in one that is mostly colons."""
_PART = re.compile(
    r"""(?:^|(?<=[\s,\[\]{}]))[!&*%][^\s,\[\]{}]*    # a tag, an anchor, an alias or a directive stays
      | (?<=[^\s,\[\]{}"']):(?=[^\s,\[\]{}?])        # text on both sides: no end of a key
    """,
    re.VERBOSE,
)


def with_stand_ins(text: str) -> str:
    """Return a text of the same length without ':' inside plain scalars; the text itself if that is impossible."""
    if _STAND_IN in text or len(text) > _MAX_CHARACTERS:
        return text
    return _PART.sub(lambda part: _STAND_IN if part[0] == ":" else part[0], text)


def without_stand_ins(value: str) -> str:
    """Return a scalar of such a text as the original text has it."""
    return value.replace(_STAND_IN, ":")
