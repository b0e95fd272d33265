"""Time of ``rlctl convert`` against the libraries it is made of, both sides in one run, in turns.

    python benchmarks/convert.py                     # a cold start, a corpus of generated files, a file of 1,000 keys
    python benchmarks/convert.py --corpus DIR        # the YAML files below DIR instead of generated ones

A cold start is processor time of a whole process; its libraries, typer, omegaconf and ruamel.yaml, are imported in a process of
their own. The corpus is converted in one process, against PyYAML's load and dump of the same
files, the pure Python ones and those of libyaml.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.rules import ABSENT, Absent, DefaultFrom, version_of
from rlctl.adapters.engine.tree import find, put
from rlctl.common.errors import RlctlError
from rlctl.config import presets
from rlctl.documents import write_yaml
from rlctl.translation.translate import translate

IMPORTS = "import typer, omegaconf, ruamel.yaml"


def cpu(arguments: list[str]) -> float:
    """Processor seconds of a process, which finds its modules compiled as an installed program does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime


def cold(path: Path, target: str, rounds: int) -> tuple[float, float, float]:
    """Seconds of a conversion, of importing its libraries, and their ratio, as medians of rounds in turns."""
    ours = [sys.executable, "-m", "rlctl", "convert", str(path), "--to", target]
    theirs = [sys.executable, "-c", IMPORTS]
    cpu(ours), cpu(theirs)  # compiled modules and a warm disk
    pairs = [(cpu(ours), cpu(theirs)) for _ in range(rounds)]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a / b for a, b in pairs)


def timed(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def against_yaml(files: list[Path], target: str, rounds: int, loader: Any, dumper: Any) -> tuple[float, float, float]:
    """Seconds of converting files, of PyYAML's load and dump of them, and their ratio."""

    def ours() -> None:
        for path in files:
            translate(path, target, options={"dataset_rows": "10000"}, environment={"HOME": "/root"})

    def theirs() -> None:
        for path in files:
            yaml.dump(yaml.load(path.read_text(encoding="utf-8"), loader), Dumper=dumper)

    ours(), theirs()
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a / b for a, b in pairs)


def generated(folder: Path) -> list[Path]:
    """Every preset in every dialect that can hold it."""
    made = []
    for preset in presets.names():
        source = folder / f"{preset.name}.yaml"
        source.write_text(presets.text(preset.name), encoding="utf-8")
        for target in ("verl", "trinity"):
            try:
                done = translate(source, target, options={"dataset_rows": "10000"})
            except RlctlError:
                continue
            if done.text is not None:
                path = folder / f"{preset.name}.{target}.yaml"
                path.write_text(done.text, encoding="utf-8")
                made.append(path)
    return made


def thousand(folder: Path) -> Path:
    """A verl file with every key of its newest release."""
    verl = dialect("verl")
    table, version = verl.tables["ppo"], version_of(verl.newest)
    values: dict[str, Any] = {}
    for path in sorted(table.known, key=len):
        if verl.newest in table.known[path] and isinstance(find(values, path[:-1]), (dict, Absent)):
            default = table.default_at(path, version)
            put(values, path, None if default is ABSENT or isinstance(default, (Absent, DefaultFrom)) else default)
    put(values, ("actor_rollout_ref", "model", "path"), "org/model")
    target = folder / "thousand.yaml"
    target.write_text(write_yaml(values), encoding="utf-8")
    return target


def readable(files: list[Path], target: str) -> list[Path]:
    """The files that are configs and can be written in the target."""
    found = []
    for path in files:
        try:
            if (
                translate(path, target, options={"dataset_rows": "10000"}, environment={"HOME": "/root"}).text
                is not None
            ):
                found.append(path)
        except (RlctlError, yaml.YAMLError):
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="convert the YAML files below this folder")
    parser.add_argument("--to", default="rlctl")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = generated(folder)
        files = sorted(args.corpus.rglob("*.yaml")) if args.corpus else made
        files = readable(files, args.to)
        longest = max((path for path in made if ".verl." in path.name), key=lambda path: path.stat().st_size)
        print(f"cold, {len(longest.read_text().splitlines())} lines of verl to trinity")
        print("  {:.3f} s, its libraries {:.3f} s: {:.1f} x".format(*cold(longest, "trinity", args.rounds)))
        sides = {"PyYAML": (yaml.SafeLoader, yaml.SafeDumper), "libyaml": (yaml.CSafeLoader, yaml.CSafeDumper)}
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        print(f"corpus, {len(files)} files of {lines} lines to {args.to}, in one process")
        for side, (loader, dumper) in sides.items():
            numbers = against_yaml(files, args.to, args.rounds, loader, dumper)
            print("  {:.3f} s, {} {:.3f} s: {:.1f} x".format(numbers[0], side, *numbers[1:]))
        whole = thousand(folder)
        keys = sum(1 for line in whole.read_text().splitlines() if not line.rstrip().endswith(":"))
        print(f"one file of {keys} keys, verl to rlctl")
        for side, (loader, dumper) in sides.items():
            numbers = against_yaml([whole], "rlctl", args.rounds, loader, dumper)
            print("  {:.3f} s, {} {:.3f} s: {:.1f} x".format(numbers[0], side, *numbers[1:]))


if __name__ == "__main__":
    main()
