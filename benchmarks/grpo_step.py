"""Responses per second of a whole GRPO step here and in TRL's GRPOTrainer: same model, data, batch, lengths and cores, in turn.

    python benchmarks/grpo_step.py                                   # 32 prompts x 8 responses of the quickstart's 4 tokens
    python benchmarks/grpo_step.py --response-tokens 64 --full-length
    python benchmarks/grpo_step.py --response-tokens 112 --spread-lengths
    python benchmarks/grpo_step.py --trl-processes 2                 # TRL as two processes of accelerate
    python benchmarks/grpo_step.py --processor-time                  # where the cores are busy with other things too
    python benchmarks/grpo_step.py --exact                           # run.deterministic: prompts computed for each response

Both sides start from the quickstart's model after some steps of SFT, take one optimizer step on each step's responses, and
are warm before anything is measured. With ``--spread-lengths`` it is the model before SFT, which ends a response after any
token with the same chance of 1 in 75: most are short, and some as long as they may be, as where models reason. Both sides take
turns of ``--steps`` steps, one waiting while the other works. A turn's time is the wall time of all that happens in it. The
ratio is the median of the rounds' ratios, over the quiet rounds where there are any: those in which the cores did nothing else.
What else is busy slows both sides, but not alike: threads that meet at a barrier suffer more, and Linux shares its cores out by
session, of which a Ray cluster has several. With ``--processor-time`` the ratio is of the processor time of each side's
processes, whatever the cores do beside. Needs ``rlctl[dev]`` and no network.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket
from statistics import fmean, median
from typing import Any

import psutil

QUIET = 0.1
"""Cores busy with other things, at most, in a round that counts as quiet."""
SEED = 7
LEARNING_RATE = 2e-4
SFT_STEPS = 300
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str.strip()[:len(ground_truth)] == ground_truth)
"""
REWARD_BEFORE_SFT = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return sum(character.isdigit() for character in solution_str) / max(1, len(solution_str))
"""
PHASES = ("rollout", "reward", "advantages", "train", "sync")


@dataclass(frozen=True)
class Settings:
    """What both sides are given."""

    folder: Path
    prompts: int
    group: int
    response_tokens: int
    full_length: bool
    spread_lengths: bool
    cores: int
    trl_processes: int
    trl_micro: int
    warm_up: int
    steps: int
    rounds: int
    processor_time: bool
    exact: bool

    @property
    def responses(self) -> int:
        return self.prompts * self.group

    @property
    def total_steps(self) -> int:
        return self.warm_up + self.steps * self.rounds


@dataclass(frozen=True)
class Step:
    """What one step did."""

    phases: dict[str, float]
    """Seconds."""
    reward: float
    tokens: float
    """Mean length of a response."""
    loss: float


@dataclass(frozen=True)
class Turn:
    """Some steps of one side."""

    seconds: float
    steps: list[Step]
    others: float = 0.0
    """Cores that were busy with other things than this comparison."""
    processor: float = 0.0
    """Seconds of processor time of the side's processes."""


class Player:
    """One side's end of the turn-taking: lets it work while it is its turn."""

    def __init__(
        self, settings: Settings, connection: Connection | None, meet: Callable[[], None] | None = None
    ) -> None:
        """Begin the warm-up.

        Args:
            settings: the lengths of turns.
            connection: to the referee; None in the further processes of a side.
            meet: waits for the further processes of this side.
        """
        self._connection, self._meet = connection, meet
        self._length, self._next_length = settings.warm_up, settings.steps
        self._steps: list[Step] = []
        self._began = time.perf_counter()

    def step_over(self, step: Step) -> None:
        """Count a step; at the end of the turn, wait for the next."""
        self._steps.append(step)
        if len(self._steps) < self._length:
            return
        if self._connection is not None:
            self._connection.send(Turn(time.perf_counter() - self._began, self._steps))
            self._connection.recv()
        if self._meet is not None:
            self._meet()
        self._steps, self._length = [], self._next_length
        self._began = time.perf_counter()


def common_config(settings: Settings, name: str, model: Path) -> dict[str, Any]:
    return {
        "run": {"name": name, "folder": str(settings.folder / "runs")},
        "model": {"path": str(model)},
        "placement": {"devices_per_node": settings.cores, "device": "cpu"},
        "tracking": [],
    }


def train_config(learning_rate: float) -> dict[str, Any]:
    return {
        "precision": {"compute": "float32"},
        "memory": {"recompute_activations": False},
        "optimizer": {"lr": learning_rate},
        # A model this small is gathered whole, in one message instead of one a layer.
        "engine": {"type": "fsdp2", "wrap_min_parameters": 10_000_000},
    }


def make_start(settings: Settings) -> None:
    """Write the quickstart's data and the model that both sides start from, where they are not there yet, and the reward."""
    from rlctl.runtime.quickstart import make_quickstart

    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reward.py").write_text(REWARD_BEFORE_SFT if settings.spread_lengths else REWARD)
    if not (folder / "quickstart").exists():
        make_quickstart(folder / "quickstart", seed=0)
    if start_model(settings).exists():
        return
    data = {
        "train": [{"path": str(folder / "quickstart/sft.parquet"), "messages_key": "messages"}],
        "max_sequence_tokens": 32,
        "max_prompt_tokens": 16,
    }
    config = {
        **common_config(settings, "sft", folder / "quickstart/model"),
        "data": data,
        "batch": {"prompts_per_step": 64},
        "schedule": {"total_steps": SFT_STEPS},
        "algorithm": {"objective": "sft"},
        "train": train_config(2e-3) | {"lr_scheduler": {"type": "cosine", "warmup_ratio": 0.05}},
    }
    run_ours(config, lambda event: None)


def start_model(settings: Settings) -> Path:
    return settings.folder / ("quickstart/model" if settings.spread_lengths else "runs/sft/checkpoints/main/hf")


def run_ours(config: dict[str, Any], observer: Callable[[dict[str, Any]], None]) -> None:
    from rlctl import runs
    from rlctl.config import Loaded, config_from

    loaded = Loaded(config_from(config))
    result = runs.start(loaded, plan=runs.prepare(loaded), observer=observer, new=True)
    if result.status != "finished":
        sys.exit(f"our side {result.status}: {result.cause}")


def ours(settings: Settings, connection: Connection) -> None:
    """One rollout and one training process a core, which take turns on it."""
    player = Player(settings, connection)
    folder, tokens = settings.folder, settings.response_tokens

    def observe(event: dict[str, Any]) -> None:
        if event["kind"] != "step":
            return
        metrics = event["metrics"]
        phases = {name: metrics[f"time/{name}"] for name in PHASES}
        player.step_over(Step(phases, metrics["reward/mean"], metrics["response/length_mean"], metrics["policy/loss"]))

    config = {
        **common_config(settings, "grpo", start_model(settings)),
        "data": {"train": [{"path": str(folder / "quickstart/train.parquet")}], "max_prompt_tokens": 16},
        "batch": {"prompts_per_step": settings.prompts, "responses_per_prompt": settings.group},
        "schedule": {"total_steps": settings.total_steps},
        "checkpoint": {"every": None, "at_end": False, "export": "never"},
        "rollout": {
            "max_response_tokens": tokens,
            "precision": "float32",
            "sampling": {"min_response_tokens": tokens if settings.full_length else 0},
        },
        "rewards": [{"type": "function", "path": str(folder / "reward.py")}],
        "train": train_config(LEARNING_RATE),
    }
    config["run"]["deterministic"] = settings.exact
    run_ours(config, observe)


def trl(settings: Settings, connection: Connection | None, rank: int, port: int) -> None:
    """TRL's trainer in float32, without checkpointing of activations, logging, evaluation or a reference model."""
    world = settings.trl_processes
    if world > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig

    torch.set_num_threads(max(1, settings.cores // world))
    trainer_class = timed_trainer()
    micro = settings.trl_micro or settings.responses // world
    arguments = GRPOConfig(
        output_dir=str(settings.folder / "trl"),
        use_cpu=True,
        ddp_backend="gloo" if world > 1 else None,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.responses // (world * micro),
        num_generations=settings.group,
        max_completion_length=settings.response_tokens,
        generation_kwargs={"min_new_tokens": settings.response_tokens} if settings.full_length else None,
        max_steps=settings.total_steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        max_grad_norm=1.0,
        temperature=1.0,
        beta=0.0,
        loss_type="dapo",  # the mean over all tokens of the batch, as aggregation token_mean
        disable_dropout=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=SEED,
    )
    trainer = trainer_class(
        model=str(start_model(settings)),
        args=arguments,
        reward_funcs=trl_reward(settings.folder / "reward.py"),
        train_dataset=Dataset.from_parquet(str(settings.folder / "quickstart/train.parquet")),
        processing_class=AutoTokenizer.from_pretrained(start_model(settings)),
    )
    player = Player(settings, connection, torch.distributed.barrier if world > 1 else None)

    class Report(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            player.step_over(trainer.take())

    trainer.add_callback(Report())
    trainer.train()


def trl_reward(path: Path) -> Callable[..., list[float]]:
    """The same reward file, called as TRL calls rewards."""
    namespace: dict[str, Any] = {}
    exec(path.read_text(), namespace)
    score = namespace["compute_score"]

    def reward(completions: list[list[dict[str, str]]], reward_model: list[dict[str, str]], **_: Any) -> list[float]:
        pairs = zip(completions, reward_model, strict=True)
        return [score("addition", completion[0]["content"], model["ground_truth"]) for completion, model in pairs]

    return reward


@dataclass
class Watch:
    """Seconds by phase; a phase inside another is taken out of the outer one."""

    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began, inside = time.perf_counter(), sum(self.phases.values())
        yield
        self.phases[name] += time.perf_counter() - began - (sum(self.phases.values()) - inside)


def timed_trainer() -> Any:
    """GRPOTrainer with a watch around the methods that are its phases."""
    from trl import GRPOTrainer

    class TimedTrainer(GRPOTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.watch = Watch()
            self.seen: dict[str, list[float]] = defaultdict(list)
            super().__init__(*args, **kwargs)

        def take(self) -> Step:
            """The step that is over."""
            seen = {name: fmean(values) for name, values in self.seen.items()}
            step = Step(dict(self.watch.phases), seen["reward"], seen["tokens"], seen["loss"])
            self.watch, self.seen = Watch(), defaultdict(list)
            return step

        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            with self.watch.phase("rollout"):
                found = super()._generate(*args, **kwargs)
            self.seen["tokens"].append(fmean(len(ids) for ids in found[1]))
            return found

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            with self.watch.phase("reward"):
                found = super()._calculate_rewards(*args, **kwargs)
            self.seen["reward"].append(found.mean().item())
            return found

        def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
            with self.watch.phase("advantages"):
                return super()._generate_and_score_completions(*args, **kwargs)

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            with self.watch.phase("train"):
                loss = super().training_step(*args, **kwargs)
            self.seen["loss"].append(loss.item())
            return loss

    return TimedTrainer


def busy_elsewhere() -> float:
    """Core-seconds so far that did not go to this process and those it started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system - processor_time(os.getpid()))


def processor_time(*pids: int) -> float:
    """Core-seconds so far of some processes and those they started."""
    seconds = 0.0
    for pid in pids:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error):
                seconds += sum(process.cpu_times()[:2])
    return seconds


class Referee:
    """Starts both sides, lets them take turns, and keeps the times."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spawn = get_context("spawn")
        self.turns: dict[str, list[Turn]] = {"rlctl": [], "TRL": []}
        self._pids: dict[str, list[int]] = {"rlctl": [], "TRL": []}

    def play(self) -> None:
        """Warm up one after the other, then all rounds; who begins alternates."""
        ends = {"rlctl": self._start("rlctl", ours), "TRL": self._start_trl()}
        for round_number in range(self._settings.rounds):
            for name in list(ends)[:: 1 if round_number % 2 else -1]:
                turn = self._turn(name, ends[name])
                self.turns[name].append(turn)
                told = f"{self._speed(turn):7.1f} responses/s, {turn.others:.2f} cores busy with other things"
                print(f"round {round_number + 1:2d}  {name:6s} {told}", file=sys.stderr)
        for end in ends.values():
            end.send("end")

    def _turn(self, name: str, end: Connection) -> Turn:
        before, own, began = busy_elsewhere(), processor_time(*self._pids[name]), time.perf_counter()
        end.send("go")
        turn = self._receive(end)
        others = (busy_elsewhere() - before) / (time.perf_counter() - began)
        return replace(turn, others=others, processor=processor_time(*self._pids[name]) - own)

    def _start_trl(self) -> Connection:
        with socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank in range(1, self._settings.trl_processes):
            self._process("TRL", trl, None, rank, port)
        return self._start("TRL", trl, 0, port)

    def _process(self, name: str, side: Callable[..., None], *args: Any) -> None:
        process = self._spawn.Process(target=side, args=(self._settings, *args))
        process.start()
        assert process.pid is not None, "it has started"
        self._pids[name].append(process.pid)

    def _start(self, name: str, side: Callable[..., None], *args: Any) -> Connection:
        here, there = self._spawn.Pipe()
        self._process(name, side, there, *args)
        there.close()
        self._receive(here)
        return here

    def _receive(self, end: Connection) -> Turn:
        try:
            turn: Turn = end.recv()
        except EOFError:
            sys.exit("a side ended before its turn was over; see its message above")
        return turn

    def _speed(self, turn: Turn) -> float:
        return self._settings.responses * len(turn.steps) / turn.seconds


def report(settings: Settings, turns: dict[str, list[Turn]]) -> None:
    rounds = list(zip(turns["rlctl"], turns["TRL"], strict=True))
    quiet = [pair for pair in rounds if max(turn.others for turn in pair) <= QUIET]
    counted = dict(zip(turns, zip(*(quiet or rounds), strict=True), strict=True))
    print(table(settings, counted))
    for name, mine in turns.items():
        first, last = (fmean(step.reward for step in turn.steps) for turn in (mine[0], mine[-1]))
        tokens = fmean(step.tokens for turn in mine for step in turn.steps)
        largest = max(abs(step.loss) for turn in mine for step in turn.steps)
        print(f"{name:8s}tokens a response {tokens:.2f}; reward {first:.3f} -> {last:.3f}; largest loss {largest:.2g}")
    if settings.processor_time:
        for name, mine in turns.items():
            print(f"{name:8s}processor time {fmean(turn.processor for turn in mine) / settings.steps:.4f} s/step")
        ratios = [theirs.processor / ours_.processor for ours_, theirs in rounds]
        print(f"ratio   {median(ratios):.2f} of processor time (min {min(ratios):.2f}, max {max(ratios):.2f})")
        return
    ratios = [theirs.seconds / ours_.seconds for ours_, theirs in quiet or rounds]
    which = f"{len(quiet)} quiet rounds of {len(rounds)}" if quiet else f"{len(rounds)} rounds, NONE QUIET: no measure"
    print(f"ratio   {median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f}; {which})")


def table(settings: Settings, turns: Mapping[str, Sequence[Turn]]) -> str:
    """Seconds of a step by phase."""
    header = ("", "responses/s", "s/step", *PHASES, "rest")
    lines = [("{:8s}" + "{:>12s}" * (len(header) - 1)).format(*header)]
    for name, mine in turns.items():
        seconds = fmean(turn.seconds for turn in mine) / settings.steps
        phases = [fmean(step.phases.get(phase, 0.0) for turn in mine for step in turn.steps) for phase in PHASES]
        numbers = [seconds, *phases, seconds - sum(phases)]
        lines.append(f"{name:8s}{settings.responses / seconds:12.1f}" + "".join(f"{n:12.4f}" for n in numbers))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=32, help="a step")
    parser.add_argument("--group", type=int, default=8, help="responses a prompt")
    parser.add_argument("--response-tokens", type=int, default=8, help="at most")
    parser.add_argument("--full-length", action="store_true", help="no end token before --response-tokens")
    parser.add_argument("--spread-lengths", action="store_true", help="responses of any length up to --response-tokens")
    parser.add_argument("--steps", type=int, default=10, help="a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=10, help="steps before the first turn")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--trl-processes", type=int, default=1)
    parser.add_argument("--trl-micro", type=int, default=0, help="responses of one forward pass; 0 is all of a process")
    parser.add_argument(
        "--processor-time", action="store_true", help="compare processor time, on cores that others use"
    )
    parser.add_argument(
        "--exact", action="store_true", help="run.deterministic: compute a prompt for each response, as TRL does"
    )
    parser.add_argument("--folder", type=Path, help="keep data and models here for further calls")
    return parser.parse_args()


def main() -> None:
    options = vars(arguments())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cores"]])
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.pop("folder") or Path(temporary)).absolute()
        settings = Settings(folder=folder, **options)
        make_start(settings)
        referee = Referee(settings)
        referee.play()
    report(settings, referee.turns)


if __name__ == "__main__":
    main()
