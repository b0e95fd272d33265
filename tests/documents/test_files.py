"""Files: every text a person may hand over is read or refused in plain words, and a write is whole or not at all."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlctl.common.errors import DocumentError
from rlctl.documents import read_text, write_atomic

TEXT = "a: 中文\r\nb: 😀\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_encodings_in_use_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(TEXT.encode(encoding))
    assert read_text(path) == TEXT
    path.write_bytes(b"\xfe\xff" + TEXT.encode("utf-16-be"))
    assert read_text(path) == TEXT


@pytest.mark.parametrize(
    ("data", "message", "line"),
    [
        (b"a: 1\nb: \xff\xfe\n", r"is not UTF-8: byte 8 \(0xff\)", 2),
        ("a: 中".encode("gbk"), "is not UTF-8: byte 3", 1),
        (b"\x7fELF\n\x00\x00", "is binary: byte 5 is zero", 2),
        ("a: 1".encode("utf-16-le"), "is binary", 1),
        (b"\xff\xfea", "is not UTF-16-LE", 1),
        (b"a" * (16 * 2**20 + 1), "is 16 MiB; the limit", 0),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, message: str, line: int) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    with pytest.raises(DocumentError, match=message) as caught:
        read_text(path)
    assert caught.value.at is not None
    assert (caught.value.at.file, caught.value.at.line) == (str(path), line)
    assert caught.value.hint


def test_a_file_of_100_gib_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(100 * 2**30)
    with pytest.raises(DocumentError, match="is 102400 MiB; the limit for a config is 16 MiB"):
        read_text(path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        tmp_path / "no": "no such file",
        tmp_path: "is a directory",
        tmp_path / "pipe": "is a named pipe",
        Path("/dev/zero"): "is a device",
        tmp_path / "loop": "cannot be read",
        tmp_path / ("x" * 5000): "cannot be read",
        "a\0b": "cannot be read",
    }
    for path, message in cases.items():
        with pytest.raises(DocumentError, match=message):
            read_text(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(DocumentError, match="Permission denied"):
        read_text(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert read_text("-") == TEXT
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(DocumentError, match="<stdin>:1: is not UTF-8"):
        read_text("-")


def test_endless_input_ends() -> None:
    code = "from rlctl.documents import read_text\ntry: read_text('-')\nexcept Exception as e: print(e)"
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=endless,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=Path(__file__).parents[2],
        )
    assert "is more than 16 MiB" in done.stdout


def test_a_write_is_whole_and_needs_force_to_replace(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    write_atomic(path, TEXT)
    assert path.read_bytes() == TEXT.encode()
    with pytest.raises(DocumentError, match=r"exists already\n  --force"):
        write_atomic(path, "other")
    assert path.read_bytes() == TEXT.encode()
    path.chmod(0o640)
    write_atomic(path, "other", force=True)
    assert path.read_text() == "other"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_atomic(tmp_path / "f", "x")
    assert (tmp_path / "f").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_write_goes_through_a_link_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", "new", force=True)
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    for path, message in {
        tmp_path / "no" / "f": "no folder",
        tmp_path: "directory",
        tmp_path / "s": "lone surrogate",
    }.items():
        with pytest.raises(DocumentError, match=message):
            write_atomic(path, "\ud800" if path.name == "s" else "x", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_pipe_or_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_atomic(pipe, "a: 1\n", force=True)
    reader.join(10)
    assert found == ["a: 1\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_atomic(Path(os.devnull), "a: 1\n")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
