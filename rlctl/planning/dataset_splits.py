"""The splits of a folder of data files, as the library datasets names them by the names of files and folders."""

from __future__ import annotations

import re
from pathlib import Path

from rlctl.planning.dataset_rows import SPLITS

DATA = (".parquet", ".json", ".jsonl", ".csv", ".arrow", ".txt")
OWN_LISTS = ("README.md", "dataset_dict.json", "state.json", "dataset_info.json")
"""Files that may name splits in another way."""
MOST_FILES = 2000
WORDS = re.compile(r"[a-z]+")


def splits_in(folder: Path) -> frozenset[str]:
    """The splits of a folder of data files; empty where something else may decide them."""
    files = [path for _, path in zip(range(MOST_FILES), folder.rglob("*"), strict=False) if path.is_file()]
    data = [path for path in files if path.suffix in DATA and not path.name.startswith((".", "_"))]
    named = {path.name for path in files}
    if not data or named & set(OWN_LISTS) or f"{folder.name}.py" in named or len(files) == MOST_FILES:
        return frozenset()
    words = {word for path in data for word in WORDS.findall(str(path.relative_to(folder).with_suffix("")).lower())}
    return frozenset(SPLITS[word] for word in words if word in SPLITS) or frozenset({"train"})
