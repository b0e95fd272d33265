"""ROLL: batches, lengths, synchronisation and when it evaluates.

ROLL has no key for the mini-batch: it is the responses of one optimizer step on one rank, per_device_train_batch_size x
gradient_accumulation_steps, times the D ranks of actor_train, which follow from its devices and parallel sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from rlctl.adapters.engine.agents import plays
from rlctl.adapters.engine.combined_rows import SwitchedKey
from rlctl.adapters.engine.conditions import never
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, WriteOnly
from rlctl.adapters.engine.rules import (
    BadValueError,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reader,
    Reading,
    Rule,
    Same,
    When,
    Writer,
    Writing,
)
from rlctl.adapters.engine.values import Steps, interval
from rlctl.adapters.roll.numbers import shuffled_by_seed
from rlctl.adapters.roll.run import NEVER, TOTAL
from rlctl.adapters.roll.workers import data_parallel, largest_divisor, ranks, rolls_out
from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said, together
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.agents import EnvironmentAgent
from rlctl.planning import arithmetic

A = "actor_train"
T = f"{A}.training_args"
PER_DEVICE, ACCUMULATE = f"{T}.per_device_train_batch_size", f"{T}.gradient_accumulation_steps"
DYNAMIC, TOKENS = f"{A}.use_dynamic_batching_in_train", f"{A}.max_tokens_per_microbatch_in_train"
DYNAMIC_INFER, TOKENS_INFER = f"{A}.use_dynamic_batching_in_infer", f"{A}.max_tokens_per_microbatch_in_infer"


def kept(view: Reading | Writing, key: str) -> str:
    """The name under which a key of the text is kept for the way back."""
    return ".".join(str(part) for part in view.path(key))


def keeps(view: Writing, key: str) -> bool:
    """Whether the file had this switch on. Dynamic batching is written again only then, as it changes ROLL's optimizer steps."""
    return view.config.carried_for("roll").get(kept(view, key)) is True


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def _on_rank(view: Reading) -> int:
    return _whole(view.get(PER_DEVICE), 8) * _whole(view.get(ACCUMULATE), 1)


def mini(view: Reading) -> tuple[int, str, str]:
    """The responses of an optimizer step, with the arithmetic, and what is not certain of it."""
    count = data_parallel(view, A)
    size = _on_rank(view) * (count or 1)
    note = said(
        "{per_device} per rank x {accumulate} accumulated x {count} ranks = {size}",
        per_device=view.get(PER_DEVICE),
        accumulate=view.get(ACCUMULATE),
        count=count or 1,
        size=size,
    )
    doubt = "" if count else "actor_train has no device_mapping; one rank is assumed"
    if view.get(DYNAMIC):
        doubt = "with dynamic batching an optimizer step has a fixed number of token micro-batches; its responses vary"
    return size, note, doubt


def how_many(note: str, doubt: str) -> str:
    """How the responses of an optimizer step were computed, and what is not certain of it."""
    return said("{note}; {doubt}", note=note, doubt=doubt) if doubt else note


def _read_mini(view: Reading) -> Iterator[Flow]:
    size, note, doubt = mini(view)
    used = (view.path(PER_DEVICE), view.path(ACCUMULATE))
    yield Flow(view.to("batch.mini_batch_responses"), size, used, "derived", how_many(note, doubt))


def _read_micro(view: Reading) -> Iterator[Flow]:
    dynamic = bool(view.get(DYNAMIC))
    yield Flow(view.to("batch.micro_batch.unit"), "tokens" if dynamic else "responses", (view.path(DYNAMIC),))
    if dynamic:
        yield Flow(("extensions", "roll", kept(view, DYNAMIC)), True, (view.path(DYNAMIC),))
        yield Flow(
            ("extensions", "roll", kept(view, PER_DEVICE)), _whole(view.get(PER_DEVICE), 8), (view.path(PER_DEVICE),)
        )
        size = view.get(TOKENS)
        yield Flow(view.to("batch.micro_batch.size"), _whole(size, 1), (view.path(TOKENS),), same=True)
        return
    yield Flow(view.to("batch.micro_batch.size"), _whole(view.get(PER_DEVICE), 8), (view.path(PER_DEVICE),), same=True)
    if view.written(TOKENS):
        yield Flow((), None, (view.path(TOKENS),), "dead", said("{dynamic} is off", dynamic=DYNAMIC))


def split(view: Writing, total: int, source: str) -> Iterator[Out]:
    """A mini-batch as micro-batches, accumulated, on the ranks of the policy."""
    micro = view.config.batch.micro_batch
    places = (view.to(source), view.to("batch.micro_batch.size"), view.to("batch.micro_batch.unit"))
    try:
        count = ranks(view)
    except PlanError as error:
        yield Inexpressible(places, said("ROLL counts responses on each rank: {error}", error=error.message))
        return
    share, rest = divmod(total, count)
    if rest or not share:
        near = arithmetic.nearest_multiples(total, count)
        reason = said(
            "{total} responses cannot be shared evenly by {count} ranks ({total} / {count} = {value:g})",
            total=total,
            count=count,
            value=total / count,
        )
        yield Inexpressible((view.to(source),), said("{reason}; {near} responses can", reason=reason, near=near))
        share = max(1, round(total / count))
    if micro.unit == "tokens" and keeps(view, DYNAMIC):
        yield Flow(view.path(DYNAMIC), True, places[2:])
        yield Flow(view.path(TOKENS), micro.size, places[1:2], same=True)
        each, note = _kept_size(view, share), said("{total} responses / {count} ranks", total=total, count=count)
    elif micro.unit == "tokens":
        most = longest(view)
        fitting = max(1, micro.size // most)
        each = largest_divisor(share, fitting)
        note = together(
            [
                _fitting(micro.size, fitting, most),
                said("{each} divides the {share} responses of a rank", each=each, share=share)
                if each != fitting
                else "",
                "ROLL's own dynamic batching would change the number of responses of an optimizer step",
            ]
        )
        yield Inexpressible((view.to("batch.micro_batch"),), note, idle=True)
    else:
        each = largest_divisor(share, micro.size)
        note = said(
            "{total} responses / {count} ranks = {share}, in micro-batches of {each}",
            total=total,
            count=count,
            share=share,
            each=each,
        )
    how: Provenance = "mapped" if micro.unit == "responses" and each == micro.size else "derived"
    yield Flow(view.path(PER_DEVICE), each, places[1:], how, note if how == "derived" else "", always=True)
    formula = said(
        "{total} responses / ({each} per rank x {count} ranks) = {value}",
        total=total,
        each=each,
        count=count,
        value=share // each,
    )
    yield Flow(view.path(ACCUMULATE), share // each, (places[0],), "derived", formula, always=True)


def _kept_size(view: Writing, share: int) -> int:
    """Where dynamic batching cuts, only the accumulation counts: one micro-batch is one response of it."""
    size = view.config.carried_for("roll").get(kept(view, PER_DEVICE))
    return size if isinstance(size, int) and size > 0 and share % size == 0 else 1


def longest(view: Writing) -> int:
    config = view.config
    if not rolls_out(config) and config.data.max_sequence_tokens:
        return config.data.max_sequence_tokens
    return config.data.max_prompt_tokens + config.rollout.max_response_tokens


def is_stepwise(config: Config) -> bool:
    """Whether ROLL's step-wise manager plays, which trains on each turn with its own prompt."""
    return any(
        isinstance(agent, EnvironmentAgent) and agent.history_turns is not None for agent in config.rollout.agents
    )


def _write_mini(view: Writing) -> Iterator[Out]:
    mini, step = arithmetic.mini_batch_responses(view.config), arithmetic.responses_per_step(view.config)
    if is_stepwise(view.config):
        step = max(
            mini, step
        )  # each turn of a trajectory is a sample of ROLL's, so a step may have more than it has responses
    if mini > step:
        reason = said(
            "a ROLL step has {step} responses, too few for a mini-batch of {mini}. Wrote {step}", step=step, mini=mini
        )
        yield Inexpressible((view.to("batch.mini_batch_responses"),), reason)
    yield from split(view, min(mini, step), "batch.mini_batch_responses")


def mini_rule(reader: Reader, writer: Writer, fills: tuple[str, ...]) -> CustomRule:
    """An optimizer step, in responses, and the micro-batches that it is split into."""

    def read(view: Reading) -> Iterator[Flow]:
        yield from _read_micro(view)
        yield from reader(view)

    return CustomRule(
        "mini-batch",
        (DialectKey(DYNAMIC), DialectKey(TOKENS), DialectKey(PER_DEVICE), DialectKey(ACCUMULATE)),
        ("batch.micro_batch.unit", "batch.micro_batch.size", *fills),
        read,
        writer,
        "per_device_train_batch_size x gradient_accumulation_steps x ranks = responses",
        by_key={
            DYNAMIC: "batch.micro_batch.unit",
            TOKENS: "batch.micro_batch.size",
            PER_DEVICE: ("batch.micro_batch.size", fills[0]),
            ACCUMULATE: fills[0],
        },
        why="Two keys hold the micro-batch and its count on a rank, and the ranks follow from devices and parallel sizes.",
    )


# Log-prob passes


def _read_log_probs(view: Reading) -> Iterator[Flow]:
    to, dynamic = view.to("batch.log_prob_micro_batch"), bool(view.get(DYNAMIC_INFER))
    size = f"{A}.infer_batch_size"
    yield Flow(to, {}, ())
    yield Flow((*to, "unit"), "tokens" if dynamic else "responses", (view.path(DYNAMIC_INFER),))
    if dynamic:
        yield Flow((*to, "size"), _whole(view.get(TOKENS_INFER), 1), (view.path(TOKENS_INFER),), same=True)
        if view.written(size):
            yield Flow((), None, (view.path(size),), "dead", said("{dynamic_infer} is on", dynamic_infer=DYNAMIC_INFER))
        return
    yield Flow((*to, "size"), _whole(view.get(size), 16), (view.path(size),), same=True)
    if view.written(TOKENS_INFER):
        yield Flow(
            (), None, (view.path(TOKENS_INFER),), "dead", said("{dynamic_infer} is off", dynamic_infer=DYNAMIC_INFER)
        )


def _fitting(tokens: int, fitting: int, most: int) -> str:
    if tokens < most:
        return said(
            "the longest sequences ({most} tokens) exceed {tokens} tokens, so each is alone", most=most, tokens=tokens
        )
    return said(
        "{tokens} tokens hold {fitting} of the longest sequences ({most} tokens)",
        tokens=tokens,
        fitting=fitting,
        most=most,
    )


def _write_log_probs(view: Writing) -> Iterator[Out]:
    micro = view.config.batch.log_prob_micro_batch or view.config.batch.micro_batch
    own = view.config.batch.log_prob_micro_batch is not None
    root = "batch.log_prob_micro_batch" if own else "batch.micro_batch"
    used = (view.to(f"{root}.size"), view.to(f"{root}.unit"))
    if micro.unit == "tokens" and (own or keeps(view, DYNAMIC_INFER)):
        yield Flow(view.path(DYNAMIC_INFER), True, used[1:])
        yield Flow(view.path(TOKENS_INFER), micro.size, used[:1], same=True)
        return
    if micro.unit == "tokens":
        most = longest(view)
        each = max(1, micro.size // most)
        note = _fitting(micro.size, each, most)
        yield Flow(view.path(f"{A}.infer_batch_size"), each, used, "derived", note, always=True)
        yield Inexpressible((view.to("batch.log_prob_micro_batch"),), note, idle=True)
        return
    yield Flow(view.path(DYNAMIC_INFER), False, used[1:])
    yield Flow(view.path(f"{A}.infer_batch_size"), micro.size, used[:1], same=True, always=True)


LOG_PROBS = CustomRule(
    "log-prob micro-batch",
    (DialectKey(f"{A}.infer_batch_size"), DialectKey(DYNAMIC_INFER), DialectKey(TOKENS_INFER)),
    ("batch.log_prob_micro_batch", "batch.log_prob_micro_batch.unit", "batch.log_prob_micro_batch.size"),
    _read_log_probs,
    _write_log_probs,
    by_key={
        f"{A}.infer_batch_size": "batch.log_prob_micro_batch.size",
        DYNAMIC_INFER: "batch.log_prob_micro_batch.unit",
        TOKENS_INFER: "batch.log_prob_micro_batch.size",
    },
    why="A switch decides which of two keys holds the size, and null follows the micro-batch of training.",
)


def _is_dynamic(view: Reading) -> bool:
    return bool(view.get(DYNAMIC))


def _writes_dynamic(view: Writing) -> bool:
    return view.config.batch.micro_batch.unit == "tokens" and keeps(view, DYNAMIC)


ROUNDING: list[Rule] = [
    When(
        (Key(f"{A}.sequence_length_round_in_train", "batch.round_tokens_to"),),
        _is_dynamic,
        _writes_dynamic,
        "read only with dynamic batching",
    ),
    Dropped("batch.round_tokens_to", "ROLL rounds lengths only with dynamic batching", 1),
]


# Lengths


def lengths(view: Reading) -> tuple[int, int]:
    """Prompt and whole sequence in tokens; a response is what is left."""
    prompt = _whole(view.get("prompt_length"), 1024)
    whole = view.get("sequence_length")
    if isinstance(whole, int) and whole > 0:
        return prompt, whole
    return prompt, prompt + _whole(view.get("response_length"), 512)


def _read_lengths(view: Reading) -> Iterator[Flow]:
    prompt, whole = lengths(view)
    cut = prompt if prompt < whole else whole // 2
    note = (
        ""
        if cut == prompt
        else said("prompt_length {prompt} has no effect here; half of sequence_length is used", prompt=prompt)
    )
    yield Flow(
        view.to("data.max_prompt_tokens"),
        cut,
        (view.path("prompt_length"),),
        "derived" if note else "mapped",
        note,
        same=not note,
    )
    to = view.to("rollout.max_response_tokens")
    if isinstance(view.get("sequence_length"), int):
        note = said("{whole} tokens - {cut} of the prompt", whole=whole, cut=cut)
        yield Flow(to, whole - cut, (view.path("sequence_length"),), "derived", note)
        if view.written("response_length"):
            yield Flow((), None, (view.path("response_length"),), "dead", "sequence_length decides")
    else:
        yield Flow(to, whole - cut, (view.path("response_length"),), same=True)


def _write_lengths(view: Writing) -> Iterator[Out]:
    prompt, response = view.config.data.max_prompt_tokens, view.config.rollout.max_response_tokens
    yield Flow(view.path("prompt_length"), prompt, (view.to("data.max_prompt_tokens"),), same=True, always=True)
    to, used = view.path("response_length"), (view.to("rollout.max_response_tokens"),)
    yield Flow(to, response, used, same=True, always=True)


def _write_whole(view: Writing) -> Iterator[Out]:
    """Agentic files say the length of the whole trajectory."""
    prompt, response = view.config.data.max_prompt_tokens, view.config.rollout.max_response_tokens
    places = (view.to("data.max_prompt_tokens"), view.to("rollout.max_response_tokens"))
    yield Flow(view.path("prompt_length"), prompt, places[:1], same=True, always=True)
    note = said("{prompt} of the prompt + {response} of the response", prompt=prompt, response=response)
    yield Flow(view.path("sequence_length"), prompt + response, places, "derived", note, always=True)


def _length_rule(writer: Any) -> CustomRule:
    return CustomRule(
        "lengths",
        (
            DialectKey("prompt_length"),
            DialectKey("response_length", takes=float),
            DialectKey("sequence_length", takes=float),
        ),
        ("data.max_prompt_tokens", "rollout.max_response_tokens"),
        _read_lengths,
        writer,
        "sequence_length = prompt + response",
        by_key={
            "prompt_length": "data.max_prompt_tokens",
            "response_length": "rollout.max_response_tokens",
            "sequence_length": "rollout.max_response_tokens",
        },
        why="The whole sequence decides over the response, which is then what the prompt leaves of it.",
    )


LENGTHS, TRAJECTORY = _length_rule(_write_lengths), _length_rule(_write_whole)


# Evaluation and synchronisation


EVERY = interval("eval_steps", "schedule.evaluate_every", NEVER, always=True)
LAST = Dropped(
    "schedule.evaluate_at_end", "ROLL evaluates before a step, so never after the last one", False, matters=True
)
EVALUATION: list[Rule] = [
    EVERY,
    Dropped(
        "schedule.evaluate_at_start",
        "ROLL evaluates at step 0, before training, if there is validation data",
        True,
    ),
    LAST,
]


@record
class EveryOrNone(Steps):
    """An interval in steps; 0, which only agentic runs know, turns off the evaluation at step 0 as well."""

    def write(self, value: Any, view: Writing) -> Any:
        if value is None and not view.get("schedule.evaluate_at_start"):
            return Computed(0, OFF, "mapped")
        return super().write(value, view)


OFF = "0 disables evaluation in agentic runs"


def _evaluates(view: Reading) -> bool:
    steps = view.get("eval_steps")
    return isinstance(steps, int) and steps > 0


def _will_evaluate(view: Writing) -> bool:
    first, every = view.get("schedule.evaluate_at_start"), view.get("schedule.evaluate_every")
    return bool(first or every is not None)


AGENTIC_EVALUATION: list[Rule] = [
    Key("eval_steps", "schedule.evaluate_every", convert=EveryOrNone(NEVER), always=True, formula="0 means never"),
    FollowsFrom(
        "schedule.evaluate_at_start",
        reads=_evaluates,
        writes=_will_evaluate,
        reason="if ROLL evaluates, it also evaluates at step 0, before training",
        note=lambda view: "ROLL evaluates at step 0" if _will_evaluate(view) else OFF,
        of=(DialectKey("eval_steps"),),
    ),
    LAST,
]


def _read_ahead(view: Reading) -> Iterator[Flow]:
    ratio, used = view.get("async_generation_ratio"), (view.path("async_generation_ratio"),)
    if not isinstance(ratio, (int, float)):
        raise BadValueError(
            said("is {ratio!r}; expected 0 for synchronous, or steps ahead of at least 1", ratio=ratio), key=used[0]
        )
    yield Flow(view.to("weight_sync.max_steps_ahead"), float(ratio), used, same=True)
    every = view.get(f"{A}.model_update_frequency", 1)
    oldest = ceil(ratio) + (every - 1 if isinstance(every, int) else 0)
    note = said("responses are at most {oldest} steps old", oldest=oldest) if oldest else ""
    yield Flow(view.to("weight_sync.max_staleness_steps"), oldest, used, "derived" if oldest else "mapped", note)
    if ratio and not view.written("train_env_manager"):
        yield Flow(view.to("weight_sync.in_flight_requests"), "continue", ())


def _write_ahead(view: Writing) -> Iterator[Out]:
    ahead, staleness = view.get("weight_sync.max_steps_ahead"), view.get("weight_sync.max_staleness_steps")
    used = (view.to("weight_sync.max_steps_ahead"),)
    agentic = bool(plays(view.config))
    if 0 < ahead < 1:
        yield Inexpressible(used, said("rollout runs {ahead:g} steps ahead; ROLL accepts 0, or 1 or more", ahead=ahead))
        ahead = 1
    elif agentic and ahead != int(ahead):
        yield Inexpressible(
            used,
            said(
                "rollout runs {ahead:g} steps ahead; ROLL's agentic runs accept whole steps: {ahead2} or {value}",
                ahead=ahead,
                ahead2=int(ahead),
                value=int(ahead) + 1,
            ),
        )
        ahead = ceil(ahead)
    whole = int(ahead) if ahead == int(ahead) else ahead
    yield Flow(view.path("async_generation_ratio"), whole, used, same=True)
    going = (view.to("weight_sync.in_flight_requests"),)
    if ahead and not agentic and view.get("weight_sync.in_flight_requests") == "continue":
        yield Flow((), None, going, "mapped", CONTINUED)
    elif ahead and not agentic:
        yield Inexpressible(going, CONTINUED)
    place = (view.to("weight_sync.max_staleness_steps"),)
    oldest = ceil(ahead) + view.config.weight_sync.every - 1
    if staleness is None or staleness == oldest:
        yield Flow((), None, place, "derived", "follows from async_generation_ratio")
    elif staleness and view.explicit("weight_sync.max_staleness_steps"):
        yield Inexpressible(
            place,
            said("ROLL keeps responses up to {oldest} steps old, as async_generation_ratio sets it", oldest=oldest),
        )


CONTINUED = "ROLL's asynchronous runs interrupt requests at a weight sync, and continue them with the new weights"
SYNC: list[Rule] = [
    Key(f"{A}.model_update_frequency", "weight_sync.every"),
    CustomRule(
        "steps ahead",
        (DialectKey("async_generation_ratio"),),
        ("weight_sync.max_steps_ahead", "weight_sync.max_staleness_steps", "weight_sync.in_flight_requests"),
        _read_ahead,
        _write_ahead,
        "staleness = steps ahead, rounded up, + steps between two syncs - 1",
        by_key={
            "async_generation_ratio": ("weight_sync.max_staleness_steps", "weight_sync.max_steps_ahead"),
        },
        why="The staleness follows from the steps ahead and the interval of syncs, and ROLL takes whole steps or none.",
    ),
    Key("model_update_buffer_size_mb", "weight_sync.bucket_mib"),
    *[
        Dropped(f"weight_sync.{name}", reason)
        for name, reason in (
            ("every_optimizer_steps", "ROLL syncs weights between steps"),
            ("on_stale", "ROLL's asynchronous runs wait instead of dropping"),
            ("style", "ROLL syncs weights at fixed steps"),
            ("in_flight_requests", "ROLL generates a whole step before a weight sync, so that no request is in flight"),
        )
    ],
    *[
        Dropped(f"weight_sync.{name}", reason, idle=True)
        for name, reason in (
            ("method", "ROLL chooses the weight transport by the placement of roles"),
            ("timeout", "ROLL waits up to rpc_timeout for a call"),
            ("args", "ROLL uses transfer_backend, which has no equivalent"),
        )
    ],
]


# Together

ALWAYS: list[Rule] = [
    Dropped("batch.shuffle", "ROLL always shuffles the responses of a step over its mini-batches", True, matters=True),
    shuffled_by_seed("batch.shuffle_seed"),
    Dropped("batch.balance", "ROLL always balances tokens across ranks", True, idle=True),
    Key("ppo_epochs", "batch.ppo_epochs", always=True),
    LOG_PROBS,
    *ROUNDING,
]
SCHEDULER: list[Rule] = [
    Key("max_running_requests", "rollout.max_running_prompts"),
    Dropped("rollout.oversampling.ratio", "ROLL waits for all prompts of a step"),
    Dropped("rollout.oversampling.wait_after_minimum", "ROLL waits for all prompts of a step"),
    Dropped("rollout.oversampling.generation_batch_prompts", "ROLL generates prompt by prompt"),
    Dropped("rollout.oversampling.max_generation_batches", "ROLL generates until the batch is full"),
    Key("critic_warmup", "schedule.critic_warmup_steps"),
]


def _refills(view: Writing) -> bool:
    """Whether filtered groups are replaced, for which ROLL needs additional prompts."""
    asks = not view.get("rollout.oversampling.additional_prompts")
    return asks and any(getattr(item, "refill", False) for item in view.config.algorithm.filters)


class SplitGroups(Same):
    """Whether responses of a group are separate requests, as they always are in asynchronous runs."""

    def read(self, value: Any, view: Reading) -> Any:
        forced = bool(view.get("async_generation_ratio")) and _whole(view.get("num_return_sequences_in_group"), 1) > 1
        return Computed(True, "ROLL switches it on in asynchronous runs", "mapped") if forced and not value else value


RLVR: list[Rule] = [
    Key("rollout_batch_size", "batch.prompts_per_step", always=True),
    Key("num_return_sequences_in_group", "batch.responses_per_prompt", always=True),
    mini_rule(_read_mini, _write_mini, ("batch.mini_batch_responses",)),
    *ALWAYS,
    LENGTHS,
    TOTAL,
    *EVALUATION,
    *SYNC,
    *SCHEDULER,
    SwitchedKey(
        "is_use_additional_prompts",
        "max_additional_running_prompts",
        "rollout.oversampling.additional_prompts",
        off=0,
    ),
    WriteOnly(
        "algorithm.filters",
        _refills,
        "filtered groups are replaced",
        key="is_use_additional_prompts",
        value=True,
    ),
    Key("is_num_return_sequences_expand", "rollout.split_groups", convert=SplitGroups()),
]


class Trajectories(Same):
    """ROLL counts the trajectories of all groups; without a limit, one of each group is assumed."""

    def read(self, value: Any, view: Reading) -> Any:
        group = _whole(view.get("train_env_manager.group_size"), 1)
        if not isinstance(value, int) or value <= 0:
            groups = _whole(view.get("train_env_manager.num_env_groups"), 128)
            return Computed(
                groups, said("no limit; one trajectory of each of {groups} groups is assumed", groups=groups)
            )
        if group == 1:
            return value
        return Computed(
            max(1, value // group), said("{count} trajectories / {group} of a group", count=value, group=group)
        )

    def write(self, value: Any, view: Writing) -> Any:
        group = view.get("batch.responses_per_prompt")
        if group == 1:
            return value
        return Computed(value * group, said("{prompts} groups x {group} trajectories", prompts=value, group=group))


AGENTIC: list[Rule] = [
    Key("train_env_manager.group_size", "batch.responses_per_prompt", write_when=never),
    Key(
        "rollout_batch_size",
        "batch.prompts_per_step",
        convert=Trajectories(),
        made_of=("batch.responses_per_prompt",),
        always=True,
        formula="prompts x responses = trajectories",
    ),
    mini_rule(_read_mini, _write_mini, ("batch.mini_batch_responses",)),
    *ALWAYS,
    TRAJECTORY,
    TOTAL,
    *AGENTIC_EVALUATION,
    *SYNC,
    *SCHEDULER,
    Dropped("rollout.oversampling.additional_prompts", "ROLL's agentic runs use group_size_redundancy"),
    Dropped("rollout.split_groups", "each environment sends its own requests", True),
]
