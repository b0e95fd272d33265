"""What verl's reward managers refuse, or score as nothing, by release; and names that agent loops must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlctl.adapters.engine.requirements import IGNORES, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl.requirement_values import MODEL, ROLLOUT, gpus, serves, strategy
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.parquet_footer import parquet_fields

MANAGER, FUNCTION = "reward_model.reward_manager", "custom_reward_function.path"
OVERLONG, LIMIT = "reward_model.reward_kwargs.overlong_buffer_cfg", "reward_model.reward_kwargs.max_resp_len"
PENALTY = ("enable", "len", "penalty_factor", "log")
"""Keys of the penalty on long responses."""
DAPO = "verl/workers/reward_manager/dapo.py, DAPORewardManager.__init__"
PRIME = "verl/workers/reward_manager/prime.py, single_compute_score"
REGISTRY = "verl/workers/reward_manager/registry.py, get_reward_manager_cls"
KNOWN = {"0.3": ("naive", "prime"), "0.4": ("naive", "prime", "batch", "dapo")}
"""The reward managers of a release and those after it, until the reward loop of 0.7 replaced them."""
TOKENIZER = "reward_model.model.input_tokenizer"
LOOPS = ("single_turn_agent", "tool_agent")
FILES = (
    f"{ROLLOUT}.multi_turn.tool_config_path",
    f"{ROLLOUT}.multi_turn.interaction_config_path",
    f"{ROLLOUT}.agent.agent_loop_config_path",
)
"""Files that an agent loop opens."""


def _manager(values: Values) -> str:
    return str(values[MANAGER] or "naive")


def _starts_main(values: Values) -> bool:
    """Whether the program passes a manager what ``reward_kwargs`` hold: those of the recipes pass other keys."""
    return values.program in ("", "verl.trainer.main_ppo")


def _has_penalty(values: Values) -> bool:
    return any(values.written(f"{OVERLONG}.{name}") for name in PENALTY)


def _managers() -> Iterator[Requirement]:
    for (since, names), until in zip(KNOWN.items(), ("0.3", "0.6"), strict=True):
        yield Requirement(
            MANAGER,
            lambda v, names=names: values_of_main(v) and _manager(v) not in names,  # type: ignore[misc]
            said(
                "{key} is {{{key}}}, and verl has {names}: it stops when it starts, unless code of yours registers the manager",
                key=MANAGER,
                names=", ".join(names),
            ),
            "verl/trainer/main_ppo.py, TaskRunner.run" if since == "0.3" else REGISTRY,
            said("set {key} to one of them", key=MANAGER),
            since=since,
            until=until,
            level=Level.WARNING,
        )


def values_of_main(values: Values) -> bool:
    """Whether rows are scored by a manager of the release: the user's own sections choose none."""
    return _starts_main(values) and not values.written("reward.reward_manager.name")


def _dapo(values: Values) -> bool:
    return _manager(values) == "dapo" and _starts_main(values)


def _penalties() -> Iterator[Requirement]:
    yield Requirement(
        LIMIT,
        lambda v: _dapo(v) and _has_penalty(v) and v[LIMIT] is None,
        said(
            "{limit} is not set, and the reward manager dapo needs it as soon as overlong_buffer_cfg is set, even if its penalty "
            "is off",
            limit=LIMIT,
        ),
        DAPO,
        said("set {limit} to data.max_response_length, or remove overlong_buffer_cfg", limit=LIMIT),
        since="0.4",
        until="0.8",
    )
    yield Requirement(
        MANAGER,
        lambda v: _dapo(v) and not _has_penalty(v),
        said(
            "the reward manager is dapo, and {overlong} is not set: verl stops at the first reward",
            overlong=OVERLONG,
        ),
        "verl/workers/reward_manager/dapo.py, DAPORewardManager.__call__",
        said(
            "set {overlong}.enable to false, .len and max_resp_len, or {manager} to naive",
            overlong=OVERLONG,
            manager=MANAGER,
        ),
        since="0.4",
        until="0.6",
        when="rollout",
    )
    longer = said(
        "{key} ({{{key}}}) is more than {limit} ({{{limit}}})",
        key=f"{OVERLONG}.len",
        limit=LIMIT,
    )

    def is_longer(values: Values) -> bool:
        lengths = values[f"{OVERLONG}.len"], values[LIMIT]
        return _dapo(values) and None not in lengths and int(lengths[0]) > int(lengths[1])

    fix = said("set {key} to a part of {limit}", key=f"{OVERLONG}.len", limit=LIMIT)
    yield Requirement(f"{OVERLONG}.len", is_longer, longer, DAPO, fix, since="0.5", until="0.8")
    yield Requirement(
        f"{OVERLONG}.len",
        lambda v: is_longer(v) and v[f"{OVERLONG}.enable"] is True,
        said("{longer}: every response loses some of its reward, however short it is", longer=longer),
        "verl/workers/reward_manager/dapo.py, DAPORewardManager.__call__",
        fix,
        since="0.4",
        until="0.4",
        level=Level.WARNING,
        code=IGNORES,
    )


def _without_source(values: Values) -> str:
    """A training file without the column that the manager prime reads, whatever reward_fn_key says."""
    if _manager(values) != "prime" or values["data.reward_fn_key"] in (None, "data_source"):
        return ""
    for name in files_of(values["data.train_files"]):
        path = expanded(str(name).removeprefix("file://"))
        if path.suffix == ".parquet" and path.is_file() and "data_source" not in {f[0] for f in parquet_fields(path)}:
            return str(name)
    return ""


def _prime() -> Iterator[Requirement]:
    yield Requirement(
        MANAGER,
        lambda v: _manager(v) == "prime" and bool(v[FUNCTION]) and _starts_main(v),
        said(
            "{key} is prime, which sends the reward function to other processes: a function of {function} cannot be sent, and "
            "every response gets the reward 0",
            key=MANAGER,
            function=FUNCTION,
        ),
        PRIME,
        Remedy(MANAGER, "naive"),
        since="0.3",
        until="0.5",
        code=IGNORES,
    )
    yield Requirement(
        "data.reward_fn_key",
        _without_source,
        said(
            "data.reward_fn_key is {{data.reward_fn_key}}, and the reward manager prime reads the column 'data_source' as well, "
            "which {{file}} lacks"
        ),
        "verl/workers/reward_manager/prime.py, PrimeRewardManager.__call__",
        "add the column data_source, or set the reward manager to naive",
        numbers={"file": _without_source},
        since="0.4",
        until="0.6",
        when="rollout",
        check_code="data-column",
    )


def _is_registered_elsewhere(values: Values) -> bool:
    keys = (f"{ROLLOUT}.agent.agent_loop_config_path", f"{ROLLOUT}.agent.agent_loop_manager_class")
    return any(values[key] for key in (*keys, f"{MODEL}.external_lib"))


def _loops() -> Iterator[Requirement]:
    key = f"{ROLLOUT}.agent.default_agent_loop"

    def row(used: Callable[[Values], bool], since: str, until: str) -> Requirement:
        return Requirement(
            key,
            lambda v: used(v) and v[key] is not None and v[key] not in LOOPS and not _is_registered_elsewhere(v),
            said("{key} is {{{key}}}; expected one of {names}", key=key, names=", ".join(LOOPS)),
            "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker._run_agent_loop",
            Remedy(key, LOOPS[0]),
            since=since,
            until=until,
            when="generation",
            level=Level.WARNING,
        )

    yield row(serves, "0.6", "0.6")
    yield row(lambda v: v[f"{ROLLOUT}.name"] in ("vllm", "sglang"), "0.7", "0.8")
    yield Requirement(
        f"{ROLLOUT}.multi_turn.enable",
        lambda v: v[f"{ROLLOUT}.multi_turn.enable"] is True and v[f"{ROLLOUT}.name"] == "vllm" and not serves(v),
        said(
            "{rollout}.multi_turn.enable is true, but {rollout}.mode is sync, its default, where vLLM answers once: no tool is "
            "called and no turn follows",
            rollout=ROLLOUT,
        ),
        "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py, vLLMRollout.generate_sequences",
        Remedy(f"{ROLLOUT}.mode", "async"),
        since="0.4",
        until="0.6",
        level=Level.WARNING,
        code=IGNORES,
    )


def _is_no_file(values: Values, key: str) -> bool:
    path = values[key]
    return isinstance(path, str) and bool(path) and not expanded(path).exists() and "://" not in path


def _opened() -> Iterator[Requirement]:
    for key in FILES:
        yield Requirement(
            key,
            lambda v, key=key: _is_no_file(v, key),  # type: ignore[misc]
            said("{key} {{{key}}} is not a file on this machine", key=key),
            "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker.__init__",
            said("correct {key}, or check where the run starts", key=key),
            since="0.4",
            level=Level.WARNING,
        )


CHAT = Requirement(
    "data.return_raw_chat",
    lambda v: (
        bool(v["reward_model.enable"])
        and v["reward_model.strategy"] != "megatron"
        and strategy(v) != "megatron"
        and not v["data.return_raw_chat"]
        and not (v.written(TOKENIZER) and v[TOKENIZER] is None)
    ),
    said(
        "data.return_raw_chat is false, its default, and the reward model reads the chat messages of each row to write them "
        "in its own template: verl stops at the first reward",
    ),
    "verl/workers/fsdp_workers.py, RewardModelWorker._switch_chat_template",
    said("set data.return_raw_chat to true, or {key} to null if both models have one template", key=TOKENIZER),
    since="0.3",
    until="0.6",
    when="rollout",
)
SERVED_DAPO = Requirement(
    f"{ROLLOUT}.mode",
    lambda v: v.program == "recipe.dapo.main_dapo" and serves(v),
    said(
        "{rollout}.mode is async, and the trainer of the DAPO recipe asks the workers of the engine itself: verl stops at the "
        "first rollout",
        rollout=ROLLOUT,
    ),
    "recipe/dapo/dapo_ray_trainer.py, RayDAPOTrainer.fit",
    Remedy(f"{ROLLOUT}.mode", "sync"),
    since="0.4",
    until="0.6",
    when="generation",
)


def _prompts(values: Values) -> int:
    """Prompts that a step sends to the engine."""
    return values.number("data.gen_batch_size", values.number("data.train_batch_size", 0))


SENT = Requirement(
    "data.train_batch_size",
    lambda v: strategy(v) in ("fsdp", "fsdp2") and not serves(v) and _prompts(v) % gpus(v),
    "a step sends {prompts} prompts to {gpus} GPUs in equal parts, and they do not divide: this release repeats prompts in the "
    "engine, after they are sent",
    "verl/single_controller/base/decorator.py, dispatch_dp_compute_data_proto",
    "set data.train_batch_size to a multiple of the GPUs",
    numbers={"prompts": _prompts, "gpus": gpus},
    since="0.3",
    until="0.4",
    when="generation",
)
ROWS: tuple[Requirement, ...] = (*_managers(), *_penalties(), *_prime(), *_loops(), *_opened(), CHAT, SERVED_DAPO, SENT)
