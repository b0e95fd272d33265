"""Trinity: micro-batches, in tokens or responses of a GPU, of training and of the passes around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Rule,
    Version,
    VersionedDefault,
    Writing,
)
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.trinity.keys import ACTOR, REF, TC
from rlctl.adapters.trinity.model import lengths
from rlctl.adapters.trinity.train import deciding, strategy
from rlctl.common.messages.reasons import said
from rlctl.planning import arithmetic


def _share(view: Reading) -> tuple[int, str]:
    """GPUs that share one sequence, and the key that says so."""
    key = "trainer.megatron.context_parallel_size"
    if strategy(view) == "megatron":
        own = f"{ACTOR}.megatron.context_parallel_size"
        key = own if view.written(own) or view.version < (0, 6) else key
    else:
        own = f"{ACTOR}.ulysses_sequence_parallel_size"
        key = deciding(view, own, "trainer.ulysses_sequence_parallel_size")
    size = view.get(key)
    return (size if isinstance(size, int) and size > 1 else 1), key


def _read_micro(view: Reading) -> Iterator[Flow]:
    dynamic = deciding(view, f"{ACTOR}.use_dynamic_bsz", "trainer.use_dynamic_bsz")
    limit = deciding(view, f"{ACTOR}.ppo_max_token_len_per_gpu", "trainer.max_token_len_per_gpu")
    on = bool(view.get(dynamic))
    tokens, rows = view.path(limit), (view.path(f"{ACTOR}.ppo_micro_batch_size_per_gpu"),)
    yield Flow(view.to("batch.micro_batch.unit"), "tokens" if on else "responses", (view.path(dynamic),))
    for key, common in ((dynamic, "trainer.use_dynamic_bsz"), (limit, "trainer.max_token_len_per_gpu")):
        if key != common and view.written(common):
            yield Flow((), None, (view.path(common),), "dead", said("{key} decides", key=key))
    if on:
        yield from _read_tokens(view, limit)
        yield Flow((), None, rows, "dead", "use_dynamic_bsz is true")
        return
    size = view.get(f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    if size is not None:
        yield Flow(view.to("batch.micro_batch.size"), size, rows, same=True)
    yield Flow((), None, (tokens,), "dead", "use_dynamic_bsz is false")


def _least_sequences(version: Version) -> int:
    """How many longest sequences Trinity makes room for, whatever the file says: two in 0.4, one in 0.5, and none since."""
    return 2 if version < (0, 5) else int(version < (0, 6))


def _read_tokens(view: Reading, key: str) -> Iterator[Flow]:
    """Tokens of a GPU times the GPUs that share a sequence, which releases before 0.6 raise to a least number."""
    (share, _), to, used = _share(view), view.to("batch.micro_batch.size"), (view.path(key),)
    limit = view.get(key)
    total, prompt, response = lengths(view)
    longest = total or (prompt + response if isinstance(prompt, int) and isinstance(response, int) else None)
    if not isinstance(limit, int):
        if isinstance(longest, int):
            yield Flow(to, 2 * longest, used, "derived", "twice the longest sequence, as Trinity sets it")
        return
    least = longest * _least_sequences(view.version) if isinstance(longest, int) else 0
    if limit * share < least:
        note = said(
            "raised to {least} tokens, as in Trinity, for a longest sequence of {longest}", least=least, longest=longest
        )
        yield Flow(to, -(-least // share) * share, used, "derived", note)
        return
    note = said("{limit} tokens per GPU x {share}", limit=limit, share=share) if share > 1 else ""
    yield Flow(to, limit * share, used, "derived" if note else "mapped", note, same=not note)


def _write_micro(view: Writing) -> Iterator[Out]:
    micro = view.get("batch.micro_batch")
    by, size = (view.to("batch.micro_batch.unit"),), (view.to("batch.micro_batch.size"),)
    yield Flow(view.path("trainer.use_dynamic_bsz"), micro["unit"] == "tokens", by)
    if micro["unit"] == "responses":
        key = view.path(f"{ACTOR}.ppo_micro_batch_size_per_gpu")
        yield Flow(key, micro["size"], size, same=True, always=True)
        return
    share = arithmetic.devices_per_sequence(view.config.train.engine)
    tokens, note = max(1, micro["size"] // share), ""
    config = view.config
    longest = config.model.max_context_tokens or config.data.max_prompt_tokens + config.rollout.max_response_tokens
    least = longest * _least_sequences(view.version)
    if tokens * share < least:
        tokens = -(-least // share)
        note = said(
            "Trinity raises it to {least} tokens, for a longest sequence of {longest}", least=least, longest=longest
        )
    elif share > 1:
        note = said("{size} tokens per replica / {share} GPUs", size=micro["size"], share=share)
    if tokens == -(-2 * longest // share) and not view.explicit("batch.micro_batch.size"):
        yield Flow((), None, size, "mapped", "twice the longest sequence, as Trinity sets it")
        return
    how: Provenance = "derived" if note else "mapped"
    yield Flow(view.path("trainer.max_token_len_per_gpu"), tokens, size, how, note, same=not note, always=True)


def other_micro(name: str, to: str, dynamic: str, tokens: str, responses: str) -> CustomRule:
    """The micro-batch of another pass, which since 0.6 follows the trainer's but for the responses of one."""

    def read(view: Reading) -> Iterator[Flow]:
        used = tuple(view.path(key) for key in (dynamic, tokens, responses))
        if not view.written(dynamic, tokens, responses):
            yield Flow(view.to(to), None, ())
            return
        on = view.get(dynamic) if view.version < (0, 6) else None
        on = view.get("trainer.use_dynamic_bsz") if on is None else on
        size = view.get(tokens if on else responses)
        if not isinstance(size, int):
            yield Flow(view.to(to), None, used, "dead", said("use_dynamic_bsz is {bool}", bool=str(bool(on)).lower()))
            return
        yield Flow(view.to(to), {}, used)
        yield Flow(view.to(f"{to}.unit"), "tokens" if on else "responses", used[:1])
        yield Flow(view.to(f"{to}.size"), size, (used[1] if on else used[2],), same=True)
        yield Flow(
            (),
            None,
            (used[2] if on else used[1],),
            "dead",
            said("use_dynamic_bsz is {bool}", bool=str(bool(on)).lower()),
        )

    def write(view: Writing) -> Iterator[Out]:
        micro, policy = view.get(to), view.get("batch.micro_batch")
        if not isinstance(micro, Mapping):
            yield Flow((), None, (view.to(to),) if micro is None else (), "mapped", "the same as the trainer's")
            return
        by, size = (view.to(to), view.to(f"{to}.unit")), (view.to(f"{to}.size"),)
        if view.version >= (0, 6) and (micro["unit"] == "tokens" or policy["unit"] == "tokens"):
            same = dict(micro) == dict(policy)
            reason = "since 0.6, Trinity's other passes use the trainer's token limit"
            yield (
                Flow((), None, (*by, *size), "mapped", "the same as the trainer's")
                if same
                else Inexpressible((*by, *size), reason)
            )
            return
        if view.version < (0, 6) and view.path(dynamic) in schema("trinity", "run"):
            yield Flow(view.path(dynamic), micro["unit"] == "tokens", by, always=True)
        else:
            yield Flow((), None, by, "mapped", "the same as the trainer's")
        key = tokens if micro["unit"] == "tokens" else responses
        yield Flow(view.path(key), micro["size"], size, same=True, always=True)

    own = (  # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
        DialectKey(dynamic, None, until="0.5", takes=bool),
        DialectKey(tokens, None, until="0.5"),
        DialectKey(responses, None),
    )
    return CustomRule(
        name,
        own,
        (to, f"{to}.unit", f"{to}.size"),
        read,
        write,
        by_key={dynamic: f"{to}.unit", tokens: f"{to}.size", responses: f"{to}.size"},
        why="A switch, which the release may take from the trainer, says which of two numbers counts.",
    )


MICRO: list[Rule] = [
    other_micro(
        "log-prob micro-batch",
        "reference.micro_batch",
        f"{REF}.log_prob_use_dynamic_bsz",
        f"{REF}.log_prob_max_token_len_per_gpu",
        f"{REF}.log_prob_micro_batch_size_per_gpu",
    ),
    CustomRule(
        "micro-batch",
        (
            DialectKey("trainer.use_dynamic_bsz"),
            DialectKey("trainer.max_token_len_per_gpu"),
            # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config and FROZEN_KEYS
            DialectKey(f"{ACTOR}.use_dynamic_bsz", None, until="0.5"),
            # the same places: 0.5.2 trainer/verl/verl_config.py, 0.6.0 trainer/verl/config.py
            DialectKey(f"{ACTOR}.ppo_max_token_len_per_gpu", None, until="0.5"),
            # the same places: 0.5.2 trainer/verl/verl_config.py, 0.6.0 trainer/verl/config.py
            DialectKey(f"{ACTOR}.ppo_micro_batch_size_per_gpu", VersionedDefault({"0.5": 1, "0.6": None})),
        ),
        ("batch.micro_batch.unit", "batch.micro_batch.size"),
        _read_micro,
        _write_micro,
        "tokens a GPU x GPUs of a replica",
        by_key={
            "trainer.use_dynamic_bsz": "batch.micro_batch.unit",
            "trainer.max_token_len_per_gpu": "batch.micro_batch.size",
            f"{ACTOR}.use_dynamic_bsz": "batch.micro_batch.unit",
            f"{ACTOR}.ppo_max_token_len_per_gpu": "batch.micro_batch.size",
            f"{ACTOR}.ppo_micro_batch_size_per_gpu": "batch.micro_batch.size",
        },
        why="A switch says which of two numbers counts, and Trinity raises one of them to the longest sequence.",
    ),
    other_micro(
        "rollout log-prob micro-batch",
        "batch.log_prob_micro_batch",
        f"{TC}.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
        f"{TC}.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
        f"{TC}.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
    ),
]
