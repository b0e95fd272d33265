"""Commands that do not run anything load nothing heavy: seen in ``sys.modules`` of a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "transformers", "vllm", "textual", "datasets", "numpy", "pyarrow", "swanlab", "wandb")
PROGRAM = """
import sys
from rlctl.cli import main
sys.argv = ["rlctl", *sys.argv[1:]]
code = main()
print("CODE", code, "MODULES", " ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["convert", "--help"],
        ["convert", "{config}", "--to", "verl"],
        ["check", "{config}"],
        ["diff", "{config}", "{config}"],
        ["batch", "{config}"],
        ["set", "{config}", "run.seed=1", "--dry-run"],
        ["plan", "{config}", "--cluster", "1x8"],
        ["explain", "train.optimizer"],
        ["schema"],
        ["doctor"],
        ["presets", "list"],
        ["runs", "list"],
        ["cluster", "slurm", "{config}"],
        ["cluster", "kuberay", "{config}", "--image", "i"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded(arguments: list[str], config_file: Path) -> None:
    filled = [argument.format(config=config_file) for argument in arguments]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *filled],
        capture_output=True, text=True, timeout=120, check=True, cwd=ROOT,
    )  # fmt: skip
    code, _, modules = ended.stderr.rpartition("CODE ")[2].partition(" MODULES ")
    assert int(code) in (0, 1, 3), ended.stderr
    assert "bug in rlctl" not in ended.stderr
    assert "typer" in modules.split()
    assert not set(HEAVY) & set(modules.split())


def test_help_loads_no_config_nor_yaml(config_file: Path) -> None:
    program = PROGRAM.replace('{name.partition(".")[0] for name in sys.modules}', "sys.modules")
    ended = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    modules = ended.stderr.split()
    assert "rlctl.cli" in modules
    assert not {"rlctl.config", "rlctl.documents", "omegaconf", "ruamel.yaml", "hydra"} & set(modules)
