"""The records that cross processes at run time: what is asked of a rollout engine, what comes back, what is trained on.

    Prompt ──▶ Request ──▶ Response ──▶ reward ──▶ Sample ──▶ train engine

Plain data: no Ray, no engine, no config. Per-token tensors of a Sample are aligned with its ``token_ids``: the value at
position t is about token t (its log-prob given the tokens before it, its advantage, whether it is trained on).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import torch  # workers that only score text start without it

    Inputs = Mapping[str, torch.Tensor]
    """What a model reads of a prompt beside its token ids, under the names of the model's arguments; empty for text.

    Of a prompt with images: ``pixel_values`` float32 [patches, numbers of a patch], the patches of all its images end to end,
    and ``image_grid_thw`` int64 [images, 3], how many patches each has in time, height and width. The prompt's token ids hold
    the model's image token once for each place that an image fills, and a response never does. Samples of a group share them.
    """

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How responses are drawn; the names and the "off" values are vLLM's."""

    max_tokens: int
    """Response tokens at most, an ending token included."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 is off."""
    min_p: float = 0.0
    """Leave out tokens less likely than this share of the likeliest; before top-k and top-p."""
    min_tokens: int = 0
    """The ending tokens cannot be drawn, and no text ends a response, before this many tokens."""
    repetition_penalty: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end a response, the tokenizer's end token among them; the one drawn is part of the response."""
    stop: tuple[str, ...] = ()
    """Texts that end a response; the tokens that they were drawn with are part of it."""
    include_stop: bool = False
    """Whether the text that ended a response belongs to the response's text."""
    ignore_eos: bool = False
    """Go on to ``max_tokens`` whatever is drawn, or until a text of ``stop``."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task drawn from the data set, as the model will read it.

    Example: ``Prompt(index=17, source="arithmetic", token_ids=(1, 40, 41), text="12+34=", answer="46")``
    """

    index: int
    """Row in the data set, after filtering; stable over epochs."""
    source: str
    """Data source, by which rewards are routed and metrics split."""
    token_ids: tuple[int, ...]
    """The prompt through the chat template, generation prompt included."""
    text: str
    """The same as text."""
    answer: Any = None
    """Ground truth for the rewards, as the data set holds it."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further columns of the row that a reward may want (``extra_info``, ``tag``)."""
    messages: tuple[dict[str, Any], ...] = ()
    """The chat before the template, for models with a template of their own; empty where the row is raw text."""
    inputs: Inputs = field(default_factory=dict, compare=False)
    """Its images, as the model reads them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Prompt, _fields_of(self)  # a tenth of the time that dataclass takes for it


_fields_of = attrgetter(*(each.name for each in fields(Prompt)))


@dataclass(frozen=True, slots=True)
class Request:
    """Ask for ``n`` responses to one prompt."""

    token_ids: tuple[int, ...]
    sampling: Sampling
    n: int
    seed: int
    """Response j of a group draws from the stream (seed, j), whatever else is generated beside it."""
    first: int = 0
    """The group's first response that is asked for; above 0 where a group is split over requests."""
    inputs: Inputs = field(default_factory=dict, compare=False)
    """The prompt's."""
    row: Prompt | None = field(default=None, compare=False, repr=False)
    """The task, for an agent; engines don't get it."""


class Numbers(Sequence[Any]):
    """Numbers in an array, which read as a tuple of them does and are equal to it; copied or pickled they are one."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        found = self.array[place].tolist()
        return tuple(found) if isinstance(place, slice) else found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array.tolist())

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | Numbers) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.array.tolist(),)


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call of an agent: the tokens inserted before the generated ones, and how many it generated."""

    inserted: tuple[int, ...]
    """After the previous turn of the row; the whole prompt if the turn starts a row."""
    tokens: int
    """Generated, of ``Response.token_ids``."""
    starts_row: bool
    number: int = 0
    """Place among the calls in the order in which the agent made them."""
    weight_version: int = 0
    """The version of the weights that generated its last token."""
    reward: float = 0.0
    """What the environment gave for it."""
    state: str = ""
    """A mark of the state that it was an answer to, equal for equal ones; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Response:
    """One trajectory, with the log-probs of the distribution that its generated tokens were sampled from.

    Without an agent it is one completion of the prompt. An agent's trajectory has ``turns``: its tokens are the generated ones
    of all turns, row after row, without those that the agent inserted between them.

    ``log_probs[t]`` is log p(token_ids[t] | everything before it in its row) under the sampling temperature, before top-k,
    top-p and penalties (what the training engine computes for the same tokens).
    """

    token_ids: tuple[int, ...] | Numbers
    log_probs: tuple[float, ...] | Numbers
    finish_reason: FinishReason
    weight_version: int
    """The version of the weights that drew the last token."""
    first_version: int | None = None
    """The version that drew the first token, where the weights changed meanwhile; log-probs are as each token was drawn."""
    cut: str = ""
    """A text of ``Sampling.stop`` that ended the response and is left out of its text; its tokens stay."""
    text: str | None = None
    """Special tokens and ``cut`` left out; None where the worker that drew it has not decoded it. An agent's final answer."""
    turns: tuple[Turn, ...] = ()
    """Of an agent; empty for a completion of the prompt."""
    messages: tuple[dict[str, Any], ...] = ()
    """The conversation after the prompt, for rewards and users."""
    counts: dict[str, float] = field(default_factory=dict)
    """What the agent counted: calls of tools, failures by kind, inserted tokens."""
    stop: str = ""
    """Why an agent's trajectory ended: ``done``, ``turns``, ``time``, ``length`` or ``failed``."""
    reward: float | None = None
    """The part of its reward that the agent gives, as ``credit`` says; None leaves it to ``rewards``."""
    info: dict[str, Any] = field(default_factory=dict)
    """What the environment returned last, as plain data."""
    treatment: Literal["train", "mask", "zero_reward"] = "train"
    """What training makes of it, if a limit ended it or it failed."""
    failure: str = ""
    """Why it failed: a cause and what was raised; empty if it didn't."""
    routed_experts: torch.Tensor | None = field(default=None, compare=False)
    """uint8 or int16 [t, layers, k]: the experts that the tokens of prompt and response went to, but for the last, in each
    layer that has experts (``algorithm.router_replay: rollout``); None where they are not asked for."""

    @property
    def oldest_version(self) -> int:
        """The version that staleness counts from."""
        return self.weight_version if self.first_version is None else self.first_version


@dataclass(slots=True)
class Sample:
    """One training sequence.

    Example: prompt of 2 tokens, response of 3: ``token_ids=[5, 6, 7, 8, 2]``, ``mask=[0, 0, 1, 1, 1]``.
    """

    token_ids: torch.Tensor
    """int64 [T]."""
    mask: torch.Tensor
    """bool [T]: the tokens that the loss counts. Position 0 is never counted: nothing predicts it."""
    columns: dict[str, torch.Tensor] = field(default_factory=dict)
    """Per-token float32 [T]: ``rollout_log_probs``, ``old_log_probs``, ``reference_log_probs``, ``advantages``, ..."""
    counted: bool = True
    """Whether it counts as a sequence in means over sequences: not where a filter left it out. Workers are not told."""
    expert: bool = False
    """Whether it is an expert's response of mix; workers are told by the column ``expert``."""
    inputs: Inputs = field(default_factory=dict, compare=False)
    """The prompt's."""
    trajectory: int | None = field(default=None, compare=False)
    """Number of its trajectory in the step if an agent made it; trajectories with several rows have several samples, one after
    the other. Workers don't get it."""
    routed_experts: torch.Tensor | None = field(default=None, compare=False)
    """uint8 or int16 [t, layers, k]: the experts that its first t tokens go to, all that are fed, in each layer that has
    experts (``algorithm.router_replay``); None where the model chooses."""

    def __len__(self) -> int:
        return self.token_ids.numel()


def trajectories_of(samples: Sequence[Sample]) -> list[int]:
    """Which trajectory each sample belongs to, numbered from 0 in their order; a sample without one is a trajectory."""
    numbers: list[int] = []
    before: int | None = None
    for sample in samples:
        new = sample.trajectory is None or sample.trajectory != before
        numbers.append((numbers[-1] if numbers else -1) + new)
        before = sample.trajectory
    return numbers
