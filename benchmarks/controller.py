"""The controller's own share of a step: the real loop, roles and groups, with workers that answer at once.

    python benchmarks/controller.py --prompts 256 --steps 20 --ray     # 1,024 workers, 2,048 responses of 128 to 1,024 tokens
    python benchmarks/controller.py --workers 2 --prompts 32 --tokens 64

Everything that a run does between its workers happens: prompts, requests, responses, texts, rewards, samples, advantages, shares,
calls by way of other workers, metrics, the event log. What crosses to a worker is packed and unpacked with Ray's own serializer.
What a worker does is not counted: unpacking its arguments, relaying them to others, making its answer, packing it, nor what it
leaves in the object store for other workers. Handles on actors and values are stand-ins, so what Ray does with a call is not in
it. ``--ray`` measures that on this machine with actors that do nothing, whose arguments, answers and handles are of the mean
sizes of this run, and counts it for every call.

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
from rlctl.runtime.processes.calls import Outcome, Reply
from rlctl.runtime.processes.group import RayGroup
from rlctl.runtime.processes.relays import BRANCHES, RelayOrder, filled, left_of
from rlctl.runtime.profiling.usage import Usages, Watch
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
        self.away, self.calls, self.handles, self.sent, self.received = 0.0, 0, 0, 0, 0
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
    """Stands for the handle of a worker's actor: runs its calls, relayed ones too, in this process and outside the count."""

    def __init__(self, group: Workers, rank: int) -> None:
        self._group, self._rank = group, rank
        self.call = self.keep = self.process = Method(group, self._call)
        self.forward, self.adopt = Method(group, self._forward), Method(group, self._adopt)

    def _call(self, method: str, *args: Any) -> Outcome:
        return self._outcome(self._rank, method, args)

    def _outcome(self, rank: int, method: str, args: tuple[Any, ...]) -> Outcome:
        watch = Watch()
        with watch.around():
            value = self._group.answer(method, args)
        if isinstance(value, Message) and rank > 0:  # weights in host memory come from the first worker
            value = None
        return Outcome(value, usage=watch.usage)

    def _forward(self, order: RelayOrder, *arrays: Any) -> Any:
        errand = filled(order.errand, arrays)
        found = [
            _unpack(_pack(self._outcome(index, errand.method, _unpack(_pack(errand.arguments.of(index))))))
            for index in errand.arguments.indices
        ]
        values = [each.value for each in found]
        usages = Usages.of([each.usage for each in found])
        reply = Reply(values if errand.join is None else errand.join(values), usages)
        return reply if errand.leave is None else left_of(reply, errand.leave)

    def _adopt(self, *branch: Any) -> None:
        """A worker needs to know no branch here: `_forward` answers for all of them."""


class Method:
    """A remote method: packs the arguments that are sent and the answer that is received."""

    def __init__(self, group: Workers, function: Callable[..., Any], returns: int = 1) -> None:
        self._group, self._function, self._returns = group, function, returns

    def options(self, num_returns: int = 1, **_: Any) -> Method:
        return Method(self._group, self._function, num_returns)

    def remote(self, *args: Any) -> Any:
        adopts = self._function.__name__ == "_adopt"  # when the workers start, which is no part of a step
        stored = [each for each in args if isinstance(each, Answer)]  # these cross between workers
        sent = _pack(() if adopts else args[: len(args) - len(stored)])
        with self._group.elsewhere():
            found: Any = None if adopts else self._function(*_unpack(sent), *(_unpack(each.packed) for each in stored))
            received = [_pack(each) for each in (found if self._returns > 1 else (found,))]
            self._group.calls += not adopts
            self._group.handles += len(stored)
            self._group.sent += _size(sent)
            self._group.received += _size(received[0])
        answers = list(map(Answer, received))
        return answers if self._returns > 1 else answers[0]


@dataclass(eq=False)
class Answer:
    """Stands for Ray's handle on a value."""

    packed: Packed


@contextmanager
def without_ray() -> Iterator[None]:
    """Let Ray's functions take ``Answer`` instead of Ray's handles."""

    def wait(calls: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return calls, []

    with (
        patch("ray.get", lambda answer: _unpack(answer.packed)),
        patch("ray.wait", wait),
        patch("ray.put", lambda value: value),
    ):
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


def seconds_of_a_call(sent: int, received: int, handles: int, calls: int = 400) -> float:
    """What calling an actor and taking its answer costs the caller; some calls are under way at a time, as in a run.

    Args:
        sent: bytes of its arguments.
        received: bytes of its answer; it leaves a MiB in the object store, under a handle that the caller drops.
        handles: on values in the object store among its arguments.
        calls: that are made.
    """
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    actors = [ray.remote(num_cpus=0)(Nothing).remote() for _ in range(BRANCHES)]
    actors = [actor.answer.options(num_returns=2) for actor in actors]
    payload = np.zeros(sent, np.uint8)
    stored = [ray.put(np.zeros(1 << 20, np.uint8)) for _ in range(handles)]
    ray.get([actor.remote(payload, received, *stored)[0] for actor in actors])
    began = time.process_time()
    for _ in range(calls // len(actors)):
        for call, _left in [actor.remote(payload, received, *stored) for actor in actors]:
            ray.get(call)
    seconds = (time.process_time() - began) / (calls // len(actors) * len(actors))
    ray.shutdown()
    sizes = f"{sent / 2**20:.2f} MiB to it and {received / 2**20:.2f} MiB from it"
    print(f"a call of an actor, {sizes}, {handles} handles: {seconds * 1e3:.2f} ms of the caller's processor")
    return seconds


class Nothing:
    """An actor that only answers."""

    def answer(self, payload: Any, size: int, *stored: Any) -> Any:
        return np.zeros(size, np.uint8), np.zeros(1 << 20, np.uint8)


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
    calls = sum(group.calls for group in groups.values()) / options.steps
    sent = sum(group.sent for group in groups.values()) / options.steps
    received = sum(group.received for group in groups.values()) / options.steps
    print(f"{options.workers} workers, {options.prompts} x {options.group} responses, {calls:.0f} calls a step")
    print(f"{sent / 2**20:.0f} MiB to workers and {received / 2**20:.0f} MiB from them a step")
    handles = sum(group.handles for group in groups.values()) / options.steps
    rays = (
        calls * seconds_of_a_call(int(sent / calls), int(received / calls), round(handles / calls))
        if options.ray
        else 0.0
    )
    print(f"rlctl's part: {median(counted):.3f} s a step" + (f", Ray's: {rays:.3f} s" if options.ray else ""))
    seconds = median(counted) + rays
    print(f"controller: {seconds:.3f} s a step (min {min(counted):.3f}, max {max(counted):.3f})")
    print(
        f"a step of a 7B model on {options.workers} H100s, estimated: {generation:.1f} s drawn, {training:.1f} s trained"
    )
    print(f"share   {seconds / (generation + training):.1%}")


if __name__ == "__main__":
    main()
