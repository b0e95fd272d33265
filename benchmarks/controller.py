"""The controller's own share of a step: the real loop, roles and groups, with workers that answer at once.

    python benchmarks/controller.py --workers 256 --prompts 256 --tokens 2048 --ray   # 2,048 responses of 256 to 2,048 tokens
    python benchmarks/controller.py --workers 2 --prompts 32 --tokens 64

Everything that a run does between its workers happens: prompts, requests, responses, texts, rewards, samples, advantages,
shares, calls, metrics, the event log. What crosses to a worker is packed and unpacked with Ray's own serializer. What a worker
does is not counted: unpacking its arguments, making its answer, packing it. Handles on actors and values are stand-ins, so what
Ray does with a call or an object is not in it. ``--ray`` measures that on this machine with actors that do nothing, for the mean
sizes of this run, and counts it for every call and every object.

The share is of a step of the same batch on the GPUs that the workers stand for, as ``rlctl plan`` estimates it for a 7B model
on H100s: the longest response decoded token by token at 60 % of memory bandwidth, and log-prob passes and updates at 40 % of
peak, with recomputed activations and every sequence as long as the longest one may be, which is 1.8 times the arithmetic of this
batch. Weight syncs, rewards and waiting are not in it. With 1,024 GPUs decoding is nine tenths of it.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

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
from rlctl.runtime.processes.calls import Outcome
from rlctl.runtime.processes.group import RayGroup
from rlctl.runtime.processes.parcels import Parcel
from rlctl.runtime.profiling.usage import Watch
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


Packed = tuple[bytes, list[Any]]


class Workers(RayGroup):
    """The real group of a role over actors that answer at once, as ``Actor`` does."""

    def __init__(
        self, role: str, count: int, answer: Callable[[str, tuple[Any, ...]], Any], profile: cProfile.Profile | None
    ) -> None:
        self.away = 0.0
        self.sent, self.received = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        """Bytes of the arguments and the answer of each call, by method."""
        self.answer, self._profile = answer, profile
        super().__init__([f"{role}-{rank}" for rank in range(count)], lambda index: Actor(self, index), lambda: False)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Time that is a worker's."""
        if self._profile is not None:
            self._profile.disable()
        began = time.process_time()
        yield
        self.away += time.process_time() - began
        if self._profile is not None:
            self._profile.enable()


class Actor:
    """Stands for the handle of a worker's actor: runs its calls in this process and outside the count."""

    def __init__(self, group: Workers, rank: int) -> None:
        self._group, self._rank = group, rank
        self.call = self.keep = Method(group, self._call)
        self.process = Method(group, lambda: None)  # workers that answer at once are asked for no heartbeat

    def _call(self, method: str, *args: Any) -> Outcome:
        watch = Watch()
        with watch.around():
            own = tuple(argument.fetch() if isinstance(argument, Parcel) else argument for argument in args)
            value = self._group.answer(method, own)
        if isinstance(value, Message) and self._rank > 0:  # weights in host memory come from the first worker
            value = None
        return Outcome(value, usage=watch.usage)


class Method:
    """A remote method: packs the arguments that are sent and the answer that is received."""

    def __init__(self, group: Workers, function: Callable[..., Any]) -> None:
        self._group, self._function = group, function

    def options(self, **_: Any) -> Method:
        return self

    def remote(self, *args: Any) -> Answer:
        sent = _pack(args)
        with self._group.elsewhere():
            received = _pack(self._function(*_unpack(sent)))
            self._group.sent[args[0]].append(_size(sent))
            self._group.received[args[0]].append(_size(received))
        return Answer(received)


@dataclass(eq=False)
class Answer:
    """Stands for Ray's handle on what a call returns."""

    packed: Packed

    def value(self) -> Any:
        return _unpack(self.packed)


STORE: list[Any] = []
"""Stands for Ray's object store; a handle on an object is its place."""


def put(value: Any) -> int:
    STORE.append(value)
    return len(STORE) - 1


@contextmanager
def without_ray() -> Iterator[None]:
    """Let Ray's functions take ``Answer`` and places in ``STORE`` instead of Ray's handles."""

    def wait(calls: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return calls, []

    def get(handle: Any) -> Any:
        return STORE[handle] if isinstance(handle, int) else [each.value() for each in handle]

    with patch("ray.get", get), patch("ray.wait", wait), patch("ray.put", put):
        yield


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
    frequencies = 1 / np.arange(1, VOCABULARY + 1)  # as words have in texts (Zipf)
    frequencies /= frequencies.sum()

    def respond(request: Request) -> list[Response]:
        found = []
        for _ in range(request.n):
            length = int(generator.integers(max(1, tokens // 8), tokens, endpoint=True))
            ids = tuple(generator.choice(VOCABULARY, size=length, p=frequencies).tolist())
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
) -> tuple[Mapping[str, Workers], list[float]]:
    """The groups, and the controller's own seconds of each step."""
    config = config_of(options, folder)
    stage, plan = stages_of(config)[0], make_plan(config).stages[0]
    words = tokenizer()
    groups = {
        "policy": Workers("policy", options.workers, trainer, profile),
        "reference": Workers("reference", options.workers, trainer, profile),
        "rollout": Workers("rollout", options.workers, rollout(options.tokens, words), profile),
        "reward": Workers("reward", 1, rewarder, profile),
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
    with loaded_set_aside(), without_ray():
        run_stage(build.make_run(given, groups))
    events.close()
    return groups, own


class RayCosts:
    """What Ray does with calls and objects on this machine, in seconds of the caller's processor."""

    def __init__(self) -> None:
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        self._actors = [ray.remote(num_cpus=0)(Nothing).remote() for _ in range(ACTORS)]
        self._call_all(ACTORS, 0, 0)

    def _call_all(self, count: int, sent: int, received: int) -> None:
        import ray

        payload = np.zeros(sent, np.uint8)
        calls = [self._actors[place % ACTORS].answer.remote(payload, received) for place in range(count)]
        ray.wait(calls, num_returns=count, timeout=60.0)
        ray.get(calls)

    def of_calls(self, count: int, sent: int, received: int, rounds: int = 4) -> float:
        """To make so many calls at a time, each with this many bytes of arguments, and to take answers of this many bytes."""
        began = time.process_time()
        for _ in range(rounds):
            self._call_all(count, sent, received)
        return (time.process_time() - began) / rounds

    def of_object(self, size: int, rounds: int = 4) -> float:
        """To put an object of this many bytes into the store."""
        import ray

        content = np.zeros(size, np.uint8)
        began = time.process_time()
        for _ in range(rounds):
            handle = ray.put(content)
        seconds = time.process_time() - began
        del handle
        return seconds / rounds


ACTORS = 8
"""That ``RayCosts`` calls: this machine has no room for as many as a run has workers."""


class Nothing:
    """An actor that only answers."""

    def answer(self, payload: Any, size: int) -> Any:
        return np.zeros(size, np.uint8)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=256, help="of policy, reference and rollout each")
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
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_quickstart(folder / "quickstart", seed=0)
        config_file = folder / "quickstart/model/config.json"
        positions = {
            "max_position_embeddings": 2 * options.tokens
        }  # the quickstart's model has no room for such responses
        config_file.write_text(json.dumps(json.loads(config_file.read_text()) | positions))
        profile = cProfile.Profile(time.process_time) if options.profile else None
        groups, own = run(options, folder, profile)
        generation, training = estimated_step(options, folder)
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumtime").print_stats("rlctl.runtime|pickle", 70)
    counted = own[1:] or own
    print(f"{options.workers} workers, {options.prompts} x {options.group} responses; a step:")
    rays, costs = 0.0, RayCosts() if options.ray else None
    for name, group in groups.items():
        for method, sent in group.sent.items():
            count = max(1, round(len(sent) / options.steps))
            mean_sent, mean_received = (sum(each) // len(sent) for each in (sent, group.received[method]))
            seconds = 0.0 if costs is None else costs.of_calls(count, mean_sent, mean_received)
            sizes = f"{mean_sent / 2**10:.1f} KiB to a worker, {mean_received / 2**10:.1f} KiB from it"
            print(f"    {count} calls of {name}.{method}, {sizes}, {seconds:.3f} s of Ray's")
            rays += seconds
    count, size = len(STORE) // options.steps, sum(map(len, STORE)) // len(STORE)
    seconds = 0.0 if costs is None else count * costs.of_object(size)
    print(f"    {count} objects of {size / 2**20:.1f} MiB, {seconds:.3f} s of Ray's")
    rays += seconds
    print(f"rlctl's part: {median(counted):.3f} s a step" + (f", Ray's: {rays:.3f} s" if options.ray else ""))
    seconds = median(counted) + rays
    print(f"controller: {seconds:.3f} s a step (min {min(counted):.3f}, max {max(counted):.3f})")
    print(
        f"a step of a 7B model on {options.workers} H100s, estimated: {generation:.1f} s drawn, {training:.1f} s trained"
    )
    print(f"share   {seconds / (generation + training):.1%}")


if __name__ == "__main__":
    main()
