from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.whole_files import replacing, write_whole


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_whole(file, "old")

    def fail() -> None:
        with replacing(file) as partial:
            partial.write_text("half of the ne")
            assert file.read_text() == "old"
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        fail()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"state.json": "old"}


def test_text_is_written_as_utf_8(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "é")
    assert (tmp_path / "x").read_bytes() == b"\xc3\xa9"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
