"""The controller's own share of a step: the real loop and roles, with workers that answer at once.

    python benchmarks/controller.py                        # 1,024 workers, 8,192 responses of 128 to 1,024 tokens
    python benchmarks/controller.py --workers 2 --prompts 32 --tokens 64

Everything that a run does between its workers happens: prompts, requests, responses, texts, rewards, samples, advantages, shares,
metrics, the event log. What crosses to a worker is packed and unpacked with Ray's own serializer. What a worker does is not
counted: neither unpacking its arguments, nor making its answer, nor packing it. Sending is not simulated; ``--ray`` measures what
a call of an actor costs the caller on this machine, which is counted once for every call.

The share is of a step of the same batch on the GPUs that the workers stand for, as ``rlctl plan`` estimates it for a 7B model
on H100s (arithmetic at 40 % of peak, decoding at 60 % of memory bandwidth). That is the longest response decoded token by
token, and forward and backward passes: no pass for log-probs, no weight sync, no reward, no waiting. A real step is longer.
The controller's time is processor time, of all its threads together, so that other load changes it less; what several cores
do at a time counts in full.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from rlctl.config import Config, config_from, stages_of
from rlctl.planning import memory
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.plan import make_plan
from rlctl.runtime import build, stage_inputs
from rlctl.runtime.garbage import loaded_set_aside
from rlctl.runtime.loop import run_stage
from rlctl.runtime.profiling.usage import CallLog, Watch
from rlctl.runtime.quickstart import make_quickstart
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.texts import with_texts
from rlctl.runtime.serialization.records import Records
from rlctl.runtime.serialization.sequences import ResponseGroups, Values
from rlctl.runtime.stage_context import StageContext
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.sync.sender import Message
from rlctl.runtime.types import Request, Response

VOCABULARY = 32_000
SEVEN_B = {  # Qwen2.5-7B's config.json
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


class Simulated:
    """Workers of a role that answer at once. ``away`` is the time that would be theirs."""

    def __init__(
        self, role: str, count: int, answer: Callable[[str, tuple[Any, ...]], Any], profile: cProfile.Profile | None
    ) -> None:
        self.names: Sequence[str] = [f"{role}-{rank}" for rank in range(count)]
        self.log = CallLog()
        self.turn = nullcontext()
        self.away, self.calls, self.packed = 0.0, 0, 0
        self._answer = answer
        self._profile = profile

    def __len__(self) -> int:
        return len(self.names)

    def each(self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: Any = None) -> list[Any]:
        return self._call(method, dict(enumerate(arguments)))

    def begin(self, method: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]], **_: Any) -> Any:
        found = self._call(method, arguments)
        return SimpleNamespace(wait=lambda: found)

    def processes_of(self) -> range:
        return range(len(self.names))

    def share(self, value: Any) -> Any:
        return value

    def _call(self, method: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        sent = [_pack(share) for share in arguments.values()]
        if self._profile is not None:
            self._profile.disable()
        began = time.process_time()
        received = []
        for index, share in zip(arguments, sent, strict=True):
            watch = Watch()
            with watch.around():
                received.append(_pack(self._answer(method.__name__, _unpack(share))))
            self.log.add(self.names[index], method.__name__, watch.usage)
        self.calls += len(sent)
        self.packed += sum(map(_size, sent)) + sum(map(_size, received))
        self.away += time.process_time() - began
        if self._profile is not None:
            self._profile.enable()
        return [_unpack(value) for value in received]

    def one(self, index: int, method: Callable[..., Any], *args: Any) -> Any:
        raise AssertionError("no worker is lost here")

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self.each(method, [args] * len(self.names))

    fetch = all

    def close(self) -> None:
        """There is no process."""


Packed = tuple[bytes, list[Any]]


def _pack(value: Any) -> Packed:
    buffers: list[Any] = []
    return cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


def _unpack(packed: Packed) -> Any:
    return cloudpickle.loads(packed[0], buffers=packed[1])


def _size(packed: Packed) -> int:
    return len(packed[0]) + sum(int(buffer.raw().nbytes) for buffer in packed[1])


def rollout(tokens: int, tokenizer: Any) -> Callable[[str, tuple[Any, ...]], Any]:
    """Engines whose responses are of ``tokens`` / 8 to ``tokens`` tokens."""
    generator = np.random.default_rng(0)

    def respond(request: Request) -> list[Response]:
        found = []
        for _ in range(request.n):
            length = int(generator.integers(max(1, tokens // 8), tokens, endpoint=True))
            ids = tuple(generator.integers(VOCABULARY, size=length).tolist())
            drawn = tuple((generator.random(length, np.float32) - 1).tolist())
            found.append(Response(ids, drawn, "stop", 0))
        return with_texts(found, tokenizer)

    return lambda method, args: ResponseGroups(map(respond, args[0])) if method == "generate" else None


def trainer(method: str, args: tuple[Any, ...]) -> Any:
    """A worker that trains nothing, finds log-probs of 0 and has its weights in one bucket."""
    if method == "begin_weights":
        return Message(None, last=True)
    if method == "train_step":
        return [dict.fromkeys(("loss", "policy_loss", "grad_norm", "lr", "mismatch_kl"), 0.0) for _ in args[0]]
    zeros = (
        Values.of([torch.zeros(len(sample)) for sample in args[0]]) if method in ("log_probs", "statistics") else None
    )
    return [zeros for _ in args[1]] if method == "statistics" else zeros


def rewarder(method: str, args: tuple[Any, ...]) -> Any:
    return Records(Score(float(index % 3 == 0), {"reward": 0.0}) for index, _ in enumerate(args[0]))


def tokenizer() -> Any:
    """One whose vocabulary is of a usual size."""
    words = {f"word{index} ": index for index in range(VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token="word0 "))
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="word1 ")


def config_of(options: argparse.Namespace, folder: Path, **model: Any) -> Config:
    return config_from(
        {
            "run": {"name": "controller", "folder": str(folder / "runs")},
            "model": {"path": str(folder / "quickstart/model"), **model},
            "data": {"train": [{"path": str(folder / "quickstart/train.parquet")}], "max_prompt_tokens": 16},
            "batch": {
                "prompts_per_step": options.prompts,
                "responses_per_prompt": options.group,
                "mini_batch_responses": options.prompts * options.group // options.mini_batches,
            },
            "schedule": {"total_steps": options.steps},
            "algorithm": {"kl_in_loss": {"coefficient": 0.001}},
            "rollout": {"engine": "transformers", "max_response_tokens": options.tokens},
            "rewards": [{"type": "rule", "name": "reward", "rule": "gsm8k"}],
            "placement": {"device": "cpu", "nodes": 1, "devices_per_node": options.workers},
            "checkpoint": {"every": None, "at_end": False, "export": "never"},
            "tracking": [],
        }
    )


def estimated_step(options: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """Seconds of generation and of training in the same step with a 7B model on as many H100s."""
    (folder / "seven").mkdir()
    (folder / "seven" / "config.json").write_text(json.dumps(SEVEN_B))
    nodes, each = max(1, options.workers // 8), min(8, options.workers)
    config = config_of(options, folder, path=str(folder / "seven"))
    config = replace(config, placement=replace(config.placement, device="cuda", nodes=nodes, devices_per_node=each))
    cost = memory.cost_of(config, cluster=Cluster(nodes, each, "cuda", gpu="H100"))
    assert cost is not None
    assert cost.training_seconds is not None
    assert cost.generation_seconds is not None
    return cost.generation_seconds, cost.training_seconds


def run(
    options: argparse.Namespace, folder: Path, profile: cProfile.Profile | None
) -> tuple[Mapping[str, Simulated], list[float]]:
    """The groups, and the controller's own seconds of each step."""
    config = config_of(options, folder)
    stage, plan = stages_of(config)[0], make_plan(config).stages[0]
    words = tokenizer()
    groups = {
        "policy": Simulated("policy", options.workers, trainer, profile),
        "reference": Simulated("reference", options.workers, trainer, profile),
        "rollout": Simulated("rollout", options.workers, rollout(options.tokens, words), profile),
        "reward": Simulated("reward", 1, rewarder, profile),
    }
    own: list[float] = []
    mark = [time.process_time(), 0.0]

    def observe(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            now, away = time.process_time(), sum(group.away for group in groups.values())
            own.append(now - mark[0] - (away - mark[1]))
            mark[:] = [now, away]
        elif event["kind"] == "stage_started":
            mark[:] = [time.process_time(), sum(group.away for group in groups.values())]

    (folder / "run").mkdir()
    events = Events(folder / "run" / "events.jsonl", observe)
    read = replace(stage_inputs.read_materials(stage, plan, events), tokenizer=words)
    given = StageContext(stage, plan, "cpu", read, folder / "run", events, StopSwitch(folder))
    with loaded_set_aside():
        run_stage(build.make_run(given, groups))  # type: ignore[arg-type]
    events.close()
    return groups, own


def seconds_of_a_call(calls: int = 2000) -> float:
    """What calling an actor and taking its answer costs the caller; many calls are under way at a time."""
    import ray

    from rlctl.runtime.processes.group import RayGroup, spawn

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    names = [f"worker-{index}" for index in range(4)]
    group = RayGroup(names, lambda index: spawn({}, "/dev/null", num_cpus=0), lambda: False)
    group.build(dict, [()] * len(names)).wait()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls // len(names)):
        group.all(dict.copy)
    seconds, busy = time.perf_counter() - began, time.process_time() - cpu
    group.close()
    ray.shutdown()
    print(
        f"a call of an actor: {busy / calls * 1e6:.0f} us of the caller's processor, {seconds / calls * 1e6:.0f} us in all"
    )
    return busy / calls


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1024, help="of policy, reference and rollout each")
    parser.add_argument("--prompts", type=int, default=1024, help="a step")
    parser.add_argument("--group", type=int, default=8, help="responses a prompt")
    parser.add_argument("--tokens", type=int, default=1024, help="of the longest response; the shortest has an eighth")
    parser.add_argument("--mini-batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="the first is not counted")
    parser.add_argument("--ray", action="store_true", help="measure a call of an actor here, and count it")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    per_call = seconds_of_a_call() if options.ray else 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_quickstart(folder / "quickstart", seed=0)
        profile = cProfile.Profile(time.process_time) if options.profile else None
        groups, own = run(options, folder, profile)
        generation, training = estimated_step(options, folder)
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumtime").print_stats("rlctl.runtime|pickle", 45)
    counted = own[1:] or own
    calls = sum(group.calls for group in groups.values()) / options.steps
    phases: dict[str, float] = defaultdict(float)
    print(f"{options.workers} workers, {options.prompts} x {options.group} responses, {calls:.0f} calls a step")
    print(
        f"packed in both directions: {sum(group.packed for group in groups.values()) / options.steps / 2**20:.0f} MiB a step"
    )
    for name, group in groups.items():
        phases[name] = group.packed / options.steps / 2**20
    print("  " + ", ".join(f"{name} {size:.0f} MiB" for name, size in phases.items()))
    seconds = median(counted) + calls * per_call
    print(f"controller: {seconds:.3f} s a step (min {min(counted):.3f}, max {max(counted):.3f})")
    print(
        f"a step of a 7B model on {options.workers} H100s, estimated: {generation:.1f} s drawn, {training:.1f} s trained"
    )
    print(f"share   {seconds / (generation + training):.1%}")


if __name__ == "__main__":
    main()
