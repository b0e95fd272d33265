"""The programs that a traced script finds instead of the real ones: they record their command line or fail, and do no more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlctl.common import quoting
from rlctl.sandbox import PATH, Mount

FOLDER, RECORD = "/run/trace", "/run/trace/record"
"""In the sandbox: the stand-ins, and what they record."""
_FAILING = ("nvidia-smi", "rocm-smi", "npu-smi", "ping", "nc", "ssh", "pgrep", "squeue", "scontrol")
"""They ask about the machine or others, and get no answer."""
_RECORDING = """
    python python2 python3 python3.8 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14
    torchrun uv uvx ray accelerate deepspeed trinity srun sbatch mpirun mpiexec pip pip3 conda mamba
    huggingface-cli hf modelscope wget curl git scp rsync aws gsutil hdfs wandb swanlab
    docker sudo apt apt-get yum kill pkill killall tmux screen nvidia-cuda-mps-control systemctl sysctl modprobe mount umount
""".split()  # noqa: SIM905 - a hundred lines as a list
_FORGIVING = ("mkdir", "rm", "cp", "mv", "ln", "touch", "chmod", "chown", "tee", "unzip", "tar")
"""They do what they can; outside the script's folder that is nothing, and a script must not end there."""

_RECORD_TEXT = f"""#!/bin/sh
name=${{0##*/}}
file={RECORD}/call.$(/bin/date +%s%N).$$
printf '%s\\0' "$name" "$@" > "$file"
case $name in
  python*) case " $* " in *" -c "*) exit 1 ;; esac ;;
esac
exit 0
"""
_FAIL_TEXT = "#!/bin/sh\nexit 1\n"
_FORGIVE_TEXT = f'#!/bin/sh\nPATH={PATH}\n"${{0##*/}}" "$@" 2>/dev/null\nexit 0\n'
_START_TEXT = "ulimit() { :; }\nsleep() { :; }\nexport -f ulimit sleep\n"
_MAIN = Path(__file__).with_name("main.sh")


def write_stand_ins(folder: Path, fixed: Mapping[str, str]) -> tuple[Mount, ...]:
    """Write them into a folder, and return how the sandbox shows them: in a folder of its own, and over the real programs."""
    texts = dict.fromkeys(_RECORDING, _RECORD_TEXT)
    texts |= dict.fromkeys(_FAILING, _FAIL_TEXT)
    texts |= dict.fromkeys(_FORGIVING, _FORGIVE_TEXT)
    (folder / "bin").mkdir()
    for name, text in texts.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "start.sh").write_text(_START_TEXT + _fixing(fixed))
    (folder / "main.sh").write_text(_MAIN.read_text())
    (folder / "record").mkdir()
    folder.chmod(0o755)
    real = {
        str((Path(place) / name).resolve()): name
        for place in PATH.split(":")
        for name in _RECORDING
        if (Path(place) / name).is_file()
    }
    over = (Mount(str(folder / "bin" / name), path) for path, name in sorted(real.items()))
    return (Mount(str(folder), FOLDER), *over)


def _fixing(variables: Mapping[str, str]) -> str:
    """Assignments that bash repeats before each command."""
    if not variables:
        return ""
    values = "; ".join(f"{name}={quoting.word(value)}" for name, value in variables.items())
    return f"rlctl_fixed() {{ {values}; }}\ntrap rlctl_fixed DEBUG\nset -o functrace\n"


def environment() -> dict[str, str]:
    """The variables with which a script finds them."""
    return {"PATH": f"{FOLDER}/bin:{PATH}", "BASH_ENV": f"{FOLDER}/start.sh", "TMPDIR": "/tmp"}
