"""How one value changes between a dialect and the canonical config: converters that tables share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

from rlctl.adapters.engine.implied import MANAGERS
from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    Computed,
    Dropped,
    Inexpressible,
    InexpressibleError,
    Key,
    Provenance,
    Reading,
    Same,
    Writing,
    not_one_of,
)
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.numbers import is_number, natural
from rlctl.common.records import record
from rlctl.config.fields import Interval
from rlctl.documents.scalars import plain_value
from rlctl.planning import arithmetic

CORRECTION_FIELDS = tuple(
    f"algorithm.rollout_correction.{name}"
    for name in (
        "importance_sampling.level",
        "importance_sampling.threshold",
        "importance_sampling.lower_threshold",
        "importance_sampling.normalize",
        "rejection",
        "rejection_bounds",
        "veto_threshold",
        "use_policy_gradient",
    )
)
"""The canonical fields of a correction between rollout and training."""


def manager_rule(framework: str) -> FollowsFrom:
    """verl's reward manager in a framework that has none: lost unless it only calls the reward for each response."""
    to = "reward_loop.manager"

    def does(view: Writing) -> Any:
        row = MANAGERS.get(str(view.get(to)))
        return view.get(to) if row is not None and row.one_response else "naive"

    def reason(view: Writing) -> str:
        name = view.get(to)
        row = MANAGERS.get(str(name))
        does = said(", which {does}", does=row.does) if row is not None else ""
        return said("{framework} has no reward manager {name}{does}", framework=framework, name=name, does=does)

    return FollowsFrom(
        to,
        reads=lambda view: "naive",
        writes=does,
        reason=reason,
        note=said("{framework} calls its reward for each response too", framework=framework),
        formula="each response is scored separately",
    )


def serves_teacher(name: str) -> bool:
    """Whether an argument of a distillation says where and how the teacher runs, which no result depends on."""
    return name in ("nnodes", "n_gpus_per_node") or name.startswith("teacher_engine.") or ".inference." in name


NORMALIZE = "normalize rewards before it estimates advantages"
SHAPED: Mapping[str, str] = {
    "shift": "shift rewards",
    "scale": "scale rewards",
    "clip": "clip rewards",
    **dict.fromkeys(("normalize.mean", "normalize.std", "normalize_per_domain", "whiten", "group_by"), NORMALIZE),
    "length_penalty": "penalize long responses",
}
"""What the keys of ``algorithm.reward_shaping`` do, but for the overlong penalty."""


def shaping_dropped(framework: str, instead: str) -> list[Dropped]:
    """The rules of a dialect that shapes no rewards by keys, but for the overlong penalty; what can do it ``instead``."""
    return [
        Dropped(
            f"algorithm.reward_shaping.{name}",
            said("{framework} does not {what}; {instead} can", framework=framework, what=what, instead=instead),
        )
        for name, what in SHAPED.items()
    ]


@record
class Names:
    """Another name for the same thing. A canonical name is written as the first of the dialect's names for it."""

    names: Mapping[Any, Any]
    missing: str = ""
    """What is said of a canonical name that the dialect has none for."""
    fallback: Any = ABSENT
    """What the framework itself does at any other name, as the canonical value."""
    carries: bool = False
    """Whether a name that is not in the list is kept for converting back; otherwise it is refused."""
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        if isinstance(value, str) and value not in self.names and value.lower() in self.names:
            value = value.lower()
        if _hashable(value) and value in self.names:
            return self.names[value]
        if self.fallback is not ABSENT:
            return self.fallback
        if self.carries:
            return Computed(ABSENT, how="carried")
        raise BadValueError(not_one_of(value, self.names))

    def write(self, value: Any, view: Writing) -> Any:
        for name, canonical in self.names.items():
            if canonical == value and type(canonical) is type(value):
                return name
        raise InexpressibleError(self.missing or said("cannot be named {value!r} in this format", value=value))


@record
class Partly:
    """A few values have another name; the others are the same on both sides."""

    names: Mapping[Any, Any]
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return self.names[value] if _hashable(value) and value in self.names else value

    def write(self, value: Any, view: Writing) -> Any:
        return next((name for name, canonical in self.names.items() if canonical == value), value)


@record
class Off:
    """A number that stands for off, where the canonical config has null; it and everything below reads as null."""

    sentinel: int | float = -1
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        if is_number(value) and value <= max(self.sentinel, 0):
            return None
        return value

    def write(self, value: Any, view: Writing) -> Any:
        return self.sentinel if value is None else value


NEVER_CLIPS = 1.0e9
"""A bound that nothing reaches, where a dialect has no word for none."""


class NoClip(Same):
    """A bound of gradients that never acts stands for none; 0 would leave nothing of any gradient, so it is no off."""

    def read(self, value: Any, view: Reading) -> Any:
        if value == 0:
            raise BadValueError("is 0, which clips every gradient to zero; expected a number above 0")
        return None if isinstance(value, (int, float)) and value >= NEVER_CLIPS else value

    def write(self, value: Any, view: Writing) -> Any:
        return NEVER_CLIPS if value is None else value


class Unclipped(NoClip):
    """As a gradient's bound, but 0 is one too: values stay where they were."""

    def read(self, value: Any, view: Reading) -> Any:
        return value if value == 0 else super().read(value, view)


@record
class Not:
    """The opposite."""

    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, (bool, int, NoneType)):
            raise BadValueError(said("is {value!r}; expected true or false", value=value))
        return value if value is None else not value

    def write(self, value: Any, view: Writing) -> Any:
        return value if value is None else not value


NAMES = re.compile(r"[\w.-]+(, *[\w.-]+)+")


@record
class Listed:
    """A list that the dialect may write as one value, or as null for none."""

    single: bool = False
    """Write one value without a list."""
    empty: Any = None
    """What is written for none."""
    how: Provenance = "mapped"
    note: str = ""
    commas: bool = False
    """Names may be one text, with commas between them."""

    def read(self, value: Any, view: Reading) -> Any:
        if value is None:
            return []
        if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
            return _items(value)
        if self.commas and isinstance(value, str) and NAMES.fullmatch(value):
            return [name.strip() for name in value.split(",")]
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def write(self, value: Any, view: Writing) -> Any:
        if not value:
            return self.empty
        return value[0] if self.single and len(value) == 1 else list(value)


COUNTED = {"steps": "{value} steps", "optimizer_steps": "{value} optimizer steps", "epochs": "{value} epochs"}
"""An interval in each of its units."""


@record
class Steps:
    """An interval in steps, where the dialect has a number that means never."""

    never: int = -1
    how: Provenance = "mapped"
    note: str = ""
    each_epoch: str = ""
    """The dialect's word for once an epoch, if it has one."""

    def read(self, value: Any, view: Reading) -> Any:
        if self.each_epoch and value == self.each_epoch:
            return {"epochs": 1}
        there = isinstance(value, int) and value > 0 and not 0 < self.never <= value
        return value if there else None

    def write(self, value: Any, view: Writing) -> Any:
        if value is None:
            return self.never
        if isinstance(value, int):
            return value
        if self.each_epoch and Interval(**value) == Interval(epochs=1):
            return self.each_epoch
        steps = arithmetic.interval_in_steps(Interval(**value), view.config, rows(view.options))
        if steps is None:
            raise InexpressibleError("an interval in epochs needs the number of training rows: state dataset_rows")
        counted = together((said(COUNTED[name], value=count) for name, count in value.items() if count), COMMAS)
        return Computed(steps, said("every {counted} = every {value} steps, rounded", counted=counted, value=steps))


@record
class IfWritten(Same):
    """The value that is written at a key, whose absence says nothing of the canonical one."""

    key: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return value if view.written(self.key) else ABSENT


@record
class NullReads:
    """Null in the dialect means its default; ABSENT says nothing."""

    value: Any = ABSENT
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return self.value if value is None else value

    def write(self, value: Any, view: Writing) -> Any:
        return value


@record
class Emptied:
    """Null here is an empty text, number or mapping there."""

    empty: Any = ""
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return None if value == self.empty else value

    def write(self, value: Any, view: Writing) -> Any:
        return self.empty if value is None else value


DTYPES = Names(
    {
        "fp32": "float32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "float32": "float32",
        "bfloat16": "bfloat16",
        "float16": "float16",
        "float": "float32",
        "half": "float16",
    }
)
LONG_DTYPES = Names(
    {
        "float32": "float32",
        "bfloat16": "bfloat16",
        "float16": "float16",
        "auto": "auto",
        "half": "float16",
        "float": "float32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "float32",
    }
)


@record
class OrDefault:
    """Another name for each value; one canonical value leaves the key to the dialect's default."""

    names: Names
    left: Any
    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return self.names.read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        return ABSENT if value == self.left else self.names.write(value, view)


ENGINE_DTYPES = OrDefault(LONG_DTYPES, "auto")
FILTERED: Mapping[str, str] = {
    "zero_variance_groups": "groups of equal scores",
    "group_mean": "groups by their mean reward",
    "overlong": "responses cut at the length limit",
    "difficulty_mask": "responses to prompts that are too easy or too hard",
    "long_incorrect": "long wrong responses",
}
"""What the filters leave out of training, by type."""
BY_STEP = ("gigpo", "step_reinforce", "segment_reinforce")
"""Estimators whose discount is from step to step, not from token to token."""
AGGREGATIONS = Names(
    {
        "token-mean": "token_mean",
        "token-sum": "token_sum",
        "seq-mean-token-sum": "seq_mean_token_sum",
        "seq-mean-token-mean": "seq_mean_token_mean",
        "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
    }
)


EVALUATION_FIELDS = (
    "responses_per_prompt",
    *(f"evaluation_sampling.{name}" for name in ("temperature", "top_p", "top_k", "max_response_tokens")),
)
"""What a source of evaluation has beside ``SOURCE_FIELDS``."""
SOURCE_FIELDS: tuple[str, ...] = (
    "path",
    "name",
    "format",
    "split",
    "subset",
    "weight",
    "max_samples",
    "prompt_key",
    "prompt_type",
    "system_prompt",
    "system_prompt_key",
    "answer_key",
    "response_key",
    "messages_key",
    "tools_key",
    "chosen_key",
    "rejected_key",
    "source_key",
    "tag_key",
    "extra_key",
    "image_key",
    "video_key",
    "audio_key",
    "agent",
    "agent_key",
    "reward",
    "reward_args",
    "sampling",
)
"""What every source of data has."""
REWARD_FIELDS: tuple[str, ...] = (
    "name",
    "weight",
    "applies_to",
    "timeout",
    "workers",
    "on_error",
    "rule",
    "args",
    "score_right",
    "score_wrong",
    "path",
    "function",
    "signature",
    "tokenizer",
    "chat_template",
    "max_tokens",
    "micro_batch_size",
    "trust_remote_code",
    "overrides",
    "url",
    "max_concurrent",
    "memory_limit_mib",
    "partial_credit",
    "auxiliary_model",
    "base_url",
    "model",
    "api_key",
    "prompt",
    "scoring",
    "sampling",
    "replicas",
    "tensor_parallel_size",
    "engine",
    "engine_args",
    "max_context_tokens",
    "isolation",
    "method",
    "tests_together",
    "kind",
)
"""What rewards of any type have."""


def _items(text: str) -> list[Any]:
    """A list that came as text, because a shell's quotes went with it."""
    items = [item.strip().strip("'\"") for item in text[1:-1].split(",") if item.strip()]
    return [plain_value(item) for item in items]


def interval(key: str, to: str, never: int = -1, *, always: bool = False, each_epoch: str = "") -> Key:
    """How often something happens, in whole steps; what is counted otherwise is rounded to them.

    Args:
        key: of the dialect.
        to: the canonical key.
        never: the dialect's number for never.
        always: whether it is written even if it is the dialect's default.
        each_epoch: the dialect's word for once an epoch.
    """
    how_often = Steps(never, each_epoch=each_epoch)
    formula = "rounded to whole steps, at least 1"
    return Key(key, to, convert=how_often, always=always, words=bool(each_epoch), formula=formula)


def rows(options: Mapping[str, str]) -> int | None:
    """The number of training rows, where an option says it."""
    return natural(options.get("dataset_rows", ""))


def more_optimizer_steps(view: Writing, steps: int | None) -> Iterator[Inexpressible]:
    """What whole steps add to a run that is counted in optimizer steps."""
    total, each = view.config.schedule.total_optimizer_steps, arithmetic.optimizer_steps_per_step(view.config)
    if total is not None and total % each and steps == -(-total // each):
        told = said(
            "{total} optimizer steps are {exact:g} steps of {each}, rounded up to {steps}",
            total=total,
            exact=total / each,
            each=each,
            steps=steps,
        )
        yield Inexpressible((view.to("schedule.total_optimizer_steps"),), told, rounded=True)


def offload(parameters: Any, optimizer: Any) -> str:
    """Two switches as one word."""
    if parameters and optimizer:
        return "both"
    return "parameters" if parameters else "optimizer" if optimizer else "none"


def _hashable(value: Any) -> bool:
    return not isinstance(value, (list, dict))


def files_of(value: Any) -> list[Any]:
    """The files of a key that may hold one, a list, or none."""
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
