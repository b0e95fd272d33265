"""How far estimates of memory are from what people measured: in sample, and with each source left out of the fit.

    python benchmarks/estimates.py [--fit] [--each]

``measured/`` has the points with their sources. ``--fit`` searches the constants of ``rlctl/planning/memory/fitted.py`` again,
without each source in turn; ``--each`` prints every point.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from rlctl.adapters import memory_terms
from rlctl.cli.arguments import read_inputs
from rlctl.config import Config, config_from
from rlctl.planning.machines import named_cluster
from rlctl.planning.memory import MemoryPart, PhaseEstimate, fitted, phases_of
from rlctl.planning.memory_terms import OWN, MemoryTerms

MEASURED = Path(__file__).with_name("measured")
ACTOR = "actor_rollout_ref.actor"
SHARED = f"""
data.train_files=train.parquet data.val_files=test.parquet actor_rollout_ref.rollout.name=vllm trainer.total_epochs=1
algorithm.adv_estimator={{estimator}} data.max_prompt_length={{prompt}} data.max_response_length={{response}}
data.train_batch_size={{batch}} actor_rollout_ref.rollout.n={{n}} {ACTOR}.ppo_mini_batch_size={{mini}}
actor_rollout_ref.model.path={{path}} actor_rollout_ref.rollout.tensor_model_parallel_size={{tensor}}
actor_rollout_ref.rollout.gpu_memory_utilization={{share}} trainer.nnodes={{nodes}} trainer.n_gpus_per_node={{gpus}}
"""
FSDP = f"""
actor_rollout_ref.model.use_remove_padding=true actor_rollout_ref.model.enable_gradient_checkpointing={{recompute}}
{ACTOR}.strategy={{strategy}} {ACTOR}.fsdp_config.param_offload=true {ACTOR}.fsdp_config.optimizer_offload=true
{ACTOR}.ulysses_sequence_parallel_size={{ulysses}} {ACTOR}.entropy_coeff={{entropy}}
actor_rollout_ref.ref.fsdp_config.param_offload=true
"""
BASES: Mapping[str, str] = {
    "full": SHARED + FSDP,
    "lora": SHARED
    + FSDP
    + "actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=32 "
    + "actor_rollout_ref.rollout.load_format=safetensors "
    + f"actor_rollout_ref.model.target_modules=all-linear actor_rollout_ref.rollout.layered_summon=true {ACTOR}.use_kl_loss=true",
    "megatron": SHARED
    + f"model_engine=megatron {ACTOR}.megatron.tensor_model_parallel_size={{tensor}} {ACTOR}.megatron.param_offload=true "
    + f"{ACTOR}.megatron.grad_offload=true {ACTOR}.megatron.optimizer_offload=true {ACTOR}.use_kl_loss=true "
    + "actor_rollout_ref.ref.megatron.param_offload=true",
}
MOE = f"""
model_engine=megatron {ACTOR}.megatron.tensor_model_parallel_size={{train_tensor}} {ACTOR}.entropy_coeff=0
{ACTOR}.megatron.expert_model_parallel_size={{experts}} {ACTOR}.megatron.expert_tensor_parallel_size={{expert_tensor}}
{ACTOR}.megatron.param_offload=true {ACTOR}.megatron.grad_offload=true {ACTOR}.megatron.optimizer_offload=true
actor_rollout_ref.ref.megatron.param_offload=true +{ACTOR}.megatron.override_transformer_config.recompute_method=uniform
+{ACTOR}.megatron.override_transformer_config.recompute_granularity=full
+{ACTOR}.megatron.override_transformer_config.recompute_num_layers=1
"""
"""A mixture of experts, of which every layer is recomputed."""
MICRO = f" {ACTOR}.ppo_micro_batch_size_per_gpu={{micro}} actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={{micro}}"
TOTAL = f" {ACTOR}.ppo_micro_batch_size={{total}} actor_rollout_ref.rollout.log_prob_micro_batch_size={{total}}"
CRITIC = """ critic.model.path={path} critic.ulysses_sequence_parallel_size={ulysses} critic.use_dynamic_bsz=true
critic.fsdp.param_offload=true critic.fsdp.optimizer_offload=true"""
BUDGET = f" {ACTOR}.use_dynamic_bsz=true {ACTOR}.ppo_max_token_len_per_gpu={{budget}}"
UNSET: Mapping[str, Any] = {
    "estimator": "grpo", "strategy": "fsdp", "recompute": "true", "ulysses": 1, "entropy": 0, "n": 5
}  # fmt: skip
"""What a run has if its table does not say."""

LENGTHS = (*range(4096, 40961, 4096), *range(51200, 204801, 10240))
"""Context lengths that were tried: in steps of 4,096 up to the model's limit, then of a quarter of it."""
SEARCHED: Mapping[str, Sequence[float]] = {
    "USABLE": tuple(n / 100 for n in range(92, 99)),
    "FRAGMENTS": tuple(n / 100 for n in range(6, 25, 2)),
    "MEAN_LENGTH": tuple(n / 200 for n in range(26, 46)),
    "FROZEN_COPY": tuple(n / 10 for n in range(0, 31, 1)),
}
"""Values that the fit tries for each constant."""


@dataclass(frozen=True)
class Run:
    """A config on machines, and what a framework holds."""

    config: Config
    terms: MemoryTerms
    gib: float

    def phases(self) -> tuple[PhaseEstimate, ...]:
        return phases_of(self.config, gib=self.gib, terms=self.terms)

    def need(self) -> float:
        """What training needs, as a share of what may be filled; the engine's share is the user's choice."""
        return max(phase.gib + phase.asleep for phase in self.phases() if _trains(phase)) / (fitted.USABLE * self.gib)

    def peak(self, *, engine: bool) -> float:
        """GiB of tensors in the largest phase of training, or of any phase if the engine is in the same process."""
        return max(_allocated(phase) for phase in self.phases() if engine or _trains(phase))


def _trains(phase: PhaseEstimate) -> bool:
    return phase.phase in ("log_probs", "reference", "train")


def _allocated(phase: PhaseEstimate) -> float:
    return sum(part.gib for part in phase.parts if not _fragments(part))


def _fragments(part: MemoryPart) -> bool:
    return part.name.endswith("fragments")


@dataclass
class Errors:
    """Predicted and measured values."""

    peaks: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, predicted and measured GiB."""
    pairs: list[tuple[str, float, bool]] = field(default_factory=list)
    """Name, what training needs as a share of what may be filled, and whether it fit."""
    cells: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, place of the predicted and of the measured limit among ``LENGTHS``; -1 if none ran."""

    @property
    def ratios(self) -> list[float]:
        return [predicted / measured for _, predicted, measured in self.peaks]

    @property
    def close_peaks(self) -> float:
        """Share of peaks within 20 %."""
        return _share(0.8 <= ratio <= 1.2 for ratio in self.ratios)

    @property
    def right_pairs(self) -> float:
        return _share((need <= 1) == ran for _, need, ran in self.pairs)

    @property
    def close_cells(self) -> float:
        """Share of limits within one step."""
        return _share(abs(predicted - measured) <= 1 for _, predicted, measured in self.cells)

    @property
    def bias(self) -> float:
        """Mean distance of the predicted limits from the measured ones, in steps."""
        return sum(predicted - measured for _, predicted, measured in self.cells) / len(self.cells)

    def __add__(self, other: Errors) -> Errors:
        return Errors(self.peaks + other.peaks, self.pairs + other.pairs, self.cells + other.cells)

    def loss(self) -> float:
        """What the fit makes small: how far peaks and needs are off, as logarithms, and how many pairs and limits are missed."""
        found = 0.0
        if self.peaks:
            found += sum(abs(math.log(ratio)) for ratio in self.ratios) / len(self.peaks)
        if self.pairs:
            wrong = (abs(math.log(need)) for _, need, ran in self.pairs if (need <= 1) != ran)
            found += 1 - self.right_pairs + sum(wrong) / len(self.pairs)
        if self.cells:
            found += 1 - self.close_cells + 0.1 * abs(self.bias)
        return found


def _share(of: Iterable[bool]) -> float:
    values = list(of)
    return sum(values) / len(values) if values else 1.0


# The points


def runs() -> list[dict[str, Any]]:
    """The table of single runs."""
    table: list[dict[str, Any]] = tomllib.loads((MEASURED / "runs.toml").read_text(encoding="utf-8"))["run"]
    return table


def cells() -> list[dict[str, str]]:
    """The table of context lengths."""
    lines = (MEASURED / "context_lengths.tsv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t"))


def run_of(point: Mapping[str, Any], micro: int | None = None) -> Run:
    """A run of the table, with another micro-batch if one is given."""
    cluster = named_cluster(point["cluster"])
    assert cluster.gib_per_device is not None
    values = {**UNSET, **point["set"], "nodes": cluster.nodes, "gpus": cluster.devices_per_node}
    if point["base"] == "rlctl":
        return Run(_own(values), OWN, cluster.gib_per_device)
    if point["base"] in ("keys", "megatron moe"):
        text = SHARED + (MOE if point["base"] == "megatron moe" else "") + point["more"]
        return Run(*_read(text.format_map(values).split(), f"verl@{point['release']}"), cluster.gib_per_device)
    if micro is not None:
        values["micro"] = micro
    if point["base"] == "lora":
        values["entropy"] = 0.001
    values["total"] = values.get("micro", 1) * cluster.nodes * cluster.devices_per_node
    values = {"batch": values["total"], "mini": values["total"], **values}
    micros = BUDGET if "budget" in values else TOTAL if point["base"] == "lora" else MICRO
    text = BASES[point["base"]] + micros
    words = (text + (CRITIC if values["estimator"] == "gae" else "")).format_map(values).split()
    if "type" in values:
        words.append(f"{ACTOR}.fsdp_config.model_dtype={values['type']}")
    return Run(*_read(words, f"verl@{point['release']}"), cluster.gib_per_device)


def _own(values: Mapping[str, Any]) -> Config:
    return config_from(
        {
            "model": {"path": values["path"]},
            "data": {"train": [{"path": "train.jsonl"}], "max_prompt_tokens": values["prompt"]},
            "rollout": {"max_response_tokens": values["response"]},
            "batch": {
                "prompts_per_step": values["batch"],
                "responses_per_prompt": values["n"],
                "micro_batch": {"unit": "tokens", "size": values["budget"]},
            },
            "placement": {"nodes": values["nodes"], "devices_per_node": values["gpus"]},
        }
    )


def _read(words: Sequence[str], dialect: str) -> tuple[Config, MemoryTerms]:
    loaded, report = read_inputs(words, dialect=dialect)
    assert loaded is not None, report.findings
    return loaded.config, memory_terms(report)


@cache
def cell_run(setting: str, trainers: int, parallel: int, model: str) -> Run:
    """One cell of the table of context lengths, at the shortest length."""
    offload = setting == "fsdp2 offload"
    variables = {
        "GPU_NUM": trainers + 1,
        "SP_NUM": parallel,
        "MODEL_PATH": f"Qwen/{model}",
        "MAX_MODEL_LEN": LENGTHS[0],
        "REPEAT_TIMES": trainers // parallel * 8,
        "OFFLOAD": "true" if offload else "false",
        "STRATEGY": "fsdp2" if offload else "fsdp",
    }
    os.environ.update({name: str(value) for name, value in variables.items()})
    loaded, report = read_inputs([str(MEASURED / "context_lengths.yaml")], dialect="trinity@0.6")
    assert loaded is not None, report.findings
    terms = replace(memory_terms(report), expandable_segments=setting != "vanilla")
    return Run(loaded.config, terms, named_cluster("1x8:A100").gib_per_device or 0.0)


@cache
def cell_gib(setting: str, trainers: int, parallel: int, model: str, length: int) -> tuple[tuple[float, float], ...]:
    """Each phase of training at a length: the share of the device that is allocated, and the part of it that fragments."""
    run = cell_run(setting, trainers, parallel, model)
    config = run.config
    longer = replace(
        config,
        rollout=replace(config.rollout, max_response_tokens=length - config.data.max_prompt_tokens),
        batch=replace(config.batch, micro_batch=replace(config.batch.micro_batch, size=2 * length)),
    )
    phases = replace(run, config=longer).phases()
    trained = [phase for phase in phases if _trains(phase)]
    return tuple((_allocated(phase) / run.gib, _fragments_of(phase) / run.gib / fitted.FRAGMENTS) for phase in trained)


def _fragments_of(phase: PhaseEstimate) -> float:
    return sum(part.gib for part in phase.parts if _fragments(part))


def limit(cell: Mapping[str, str]) -> int:
    """The place of the longest length that fits, -1 if none does."""
    key = (cell["setting"], int(cell["trainer_gpus"]), int(cell["sequence_parallel"]), cell["model"])

    def fits(length: int) -> bool:
        return all(full + fitted.FRAGMENTS * part <= fitted.USABLE for full, part in cell_gib(*key, length))

    return next((place for place, length in enumerate(LENGTHS) if not fits(length)), len(LENGTHS)) - 1


# Errors, and the fit


@cache
def _runs_of(source: str) -> list[tuple[Mapping[str, Any], bool | None, Run]]:
    """The runs of a source: the point, whether it ran (None for a peak) and the run."""
    found: list[tuple[Mapping[str, Any], bool | None, Run]] = []
    for point in runs():
        if point["source"] != source:
            continue
        if "peak" in point:
            found.append((point, None, run_of(point)))
        found += [(point, ran, run_of(point, n)) for ran, n in _bisected(point)]
    return found


def _bisected(point: Mapping[str, Any]) -> Iterator[tuple[bool, int]]:
    yield from ((True, n) for n in point.get("ran", ()))
    yield from ((False, n) for n in point.get("failed", ()))


def sources() -> list[str]:
    """Of all points."""
    return [*dict.fromkeys(point["source"] for point in runs()), TRINITY]


TRINITY = "Trinity-RFT"


def errors_of(source: str) -> Errors:
    """Errors of the points of a source."""
    if source == TRINITY:
        return Errors(cells=[(" ".join(list(cell.values())[:4]), limit(cell), _place(cell["ran"])) for cell in cells()])
    found = Errors()
    for point, ran, run in _runs_of(source):
        if ran is None:
            found.peaks.append((point["name"], run.peak(engine=point.get("engine", False)), point["peak"]))
        else:
            found.pairs.append((point["name"], run.need(), ran))
    return found


def _place(length: str) -> int:
    return -1 if length == "-" else LENGTHS.index(int(length))


def together(names: Iterable[str]) -> Errors:
    """Errors of several sources."""
    return sum((errors_of(name) for name in names), Errors())


def fit(names: Sequence[str]) -> dict[str, float]:
    """The constants with the least loss over the points of some sources: one after the other, twice."""
    before = {name: getattr(fitted, name) for name in SEARCHED}
    for name in itertools.chain(SEARCHED, SEARCHED):
        setattr(fitted, name, min(SEARCHED[name], key=lambda value: _loss_with(name, value, names)))
    found = {name: getattr(fitted, name) for name in SEARCHED}
    for name, value in before.items():
        setattr(fitted, name, value)
    return found


def _loss_with(name: str, value: float, names: Sequence[str]) -> float:
    setattr(fitted, name, value)
    return together(names).loss()


def left_out() -> Iterator[tuple[str, dict[str, float], Errors]]:
    """Each source, the constants that are fitted without it, and its errors with these."""
    for source in sources():
        constants = fit([name for name in sources() if name != source])
        before = {name: getattr(fitted, name) for name in constants}
        _set(constants)
        yield source, constants, errors_of(source)
        _set(before)


def _set(constants: Mapping[str, float]) -> None:
    for name, value in constants.items():
        setattr(fitted, name, value)


# Output


def line(title: str, errors: Errors) -> str:
    """Errors as one line."""
    parts = []
    if errors.peaks:
        parts.append(
            f"peaks: median {median(errors.ratios):.2f}, {errors.close_peaks:.0%} of {len(errors.peaks)} within 20 %"
        )
    if errors.pairs:
        parts.append(f"ran or not: {errors.right_pairs:.0%} of {len(errors.pairs)} right")
    if errors.cells:
        parts.append(f"limits: {errors.close_cells:.0%} of {len(errors.cells)} within a step, bias {errors.bias:+.2f}")
    return f"{title:<22} {'; '.join(parts)}"


def each(errors: Errors, show: Callable[[str], None] = print) -> None:
    """Every point."""
    for name, predicted, measured in errors.peaks:
        show(f"  {predicted:7.1f} of {measured:7.1f} GiB  {predicted / measured:.2f}  {name}")
    for name, need, ran in errors.pairs:
        right = "" if (need <= 1) == ran else "WRONG"
        show(f"  {need:7.1%} of a GPU   {'ran' if ran else 'failed':<7} {right:<6} {name}")
    for name, predicted, measured in errors.cells:
        if predicted != measured:
            show(f"  {predicted - measured:+d} steps  {name}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fit", action="store_true")
    options.add_argument("--each", action="store_true")
    asked = options.parse_args()
    print("in sample:")
    for source in sources():
        print(line(f"  {source}", errors_of(source)))
        if asked.each:
            each(errors_of(source))
    print(line("  all", together(sources())))
    if asked.fit:
        print("fitted to all:", fit(sources()))
        print("each source with constants fitted without it:")
        total = Errors()
        for source, constants, errors in left_out():
            total += errors
            print(line(f"  {source}", errors), constants)
        print(line("  all", total))


if __name__ == "__main__":
    main()
