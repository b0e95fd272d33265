"""Why a library could not write a file: torch says of a full disk that positions in its file differ, safetensors a number."""

from __future__ import annotations

import errno
import os
import re

_NUMBER = re.compile(r"\[Errno (\d+)\]|\(os error (\d+)\)")
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_CUT = re.compile(r"inline_container\.cc.* unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing")


def cause(text: str) -> str:
    """What the system refused, of an error's text; empty if it tells of nothing like that."""
    numbers = [int(first or second) for first, second in _NUMBER.findall(text)]
    known = next((number for number in reversed(numbers) if number in _OF_THE_DISK), None)
    if known is not None:
        return os.strerror(known)
    if _CUT.search(text):
        return "a file could not be written to its end: the disk is full, or a quota or file size limit is reached"
    return ""
