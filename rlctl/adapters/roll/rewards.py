"""ROLL: rewards are worker classes, one for each domain, and rows find their domain by tag; masks and filters by reward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import REWARD_FIELDS, manager_rule
from rlctl.adapters.roll.devices import DevicesError, parse_devices, print_devices
from rlctl.adapters.roll.numbers import number
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.planning import arithmetic

ROOT = "roll.pipeline.rlvr.rewards"
MATH = f"{ROOT}.math_rule_reward_worker.MathRuleRewardWorker"
_SANDBOX_DEFAULTS = {"max_concurrent": 64, "memory_limit_mib": 1024, "partial_credit": False, "tests_together": "run"}
SANDBOX = f"{ROOT}.code_sandbox_reward_worker.CodeSandboxRewardWorker"
JUDGE = f"{ROOT}.llm_judge_reward_worker.LLMJudgeRewardWorker"
CHOICE = f"{ROOT}.multiple_choice_boxed_rule_reward_worker.MultipleChoiceBoxedRuleRewardWorker"
CROSS_THINK = f"{ROOT}.crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker"
IFEVAL = f"{ROOT}.ifeval_rule_reward_worker.GeneralRuleRewardWorker"
RULES_OF: Mapping[str, tuple[str, dict[str, Any]]] = {
    MATH: ("math", {"method": "roll"}),
    CHOICE: ("multiple_choice", {"scores": "boxed"}),
    CROSS_THINK: ("multiple_choice", {"repetition_penalty": 0.5}),
    IFEVAL: ("ifeval", {"repetition_penalty": 0.5}),
}
"""Workers that a rule stands for, and its arguments."""
CROSS_THINK_KEYS = {"reward_type": "scores", "response_length_penalty_coef": "length_weight"}
JUDGED = "ROLL looks for yes or no in the judge's answer, whatever the prompt asks for"
MATH_RULES = ("auto", "math", "boxed", "gsm8k", "number", "dapo_math")
PROGRAM_SECONDS = 20.0
"""ROLL's limit of one test case (``cal_local_test``)."""
ENGINES = {"vllm": "vllm", "hf_infer": "transformers", "sglang": "auto"}
"""What ROLL serves a judge with, and the engine here."""
JUDGE_SAMPLING: Mapping[str, tuple[str, Any]] = {
    "max_new_tokens": ("max_tokens", 8192),
    "temperature": ("temperature", 0.95),
    "top_p": ("top_p", 0.7),
    "top_k": ("top_k", 50),
    "repetition_penalty": ("repetition_penalty", 1.0),
    "stop_strings": ("stop", None),
}
"""ROLL's ``GeneratingArguments``, the names of them in a judge's ``sampling``, and ROLL's defaults."""
ENDPOINT_SAMPLING = {"max_tokens": 2048, "temperature": 1.0, "top_p": 1.0, "top_k": -1}
"""What a judge that is served here draws by where its ``sampling`` is silent, and ROLL has other defaults."""
SECRET = "judge_api_key"
FALLBACK = "math_rule"
"""The domain of rows whose tag no reward names."""
FOREIGN = ("trinity.", "verl.")
"""Packages whose reward classes ROLL cannot start."""
FILTERS = "query_filter_config"
DEAD = ("response_filter_config",)


def _read(view: Reading) -> Iterator[Flow]:
    domains = view.get("rewards")
    if not isinstance(domains, Mapping):
        return
    for index, (name, settings) in enumerate(domains.items()):
        if isinstance(settings, Mapping):
            yield from _read_one(view, index, str(name), settings)


def _read_one(view: Reading, index: int, name: str, settings: Mapping[str, Any]) -> Iterator[Flow]:
    to, place = ("rewards", index), (*view.path("rewards"), name)
    kind = settings.get("worker_cls")
    cls = (*place, "worker_cls")
    reader = _reader(str(kind), settings)
    if reader is not None:
        yield from reader(to, place, settings)
    else:
        yield Flow((*to, "type"), "external", (cls,))
        yield Flow((*to, "kind"), kind or "roll", (cls,), same=True)
    yield Flow((*to, "name"), name, (cls,))
    tags = settings.get("tag_included")
    if tags and not isinstance(tags, list):
        # ROLL reads each letter of a text as a tag
        raise BadValueError(said("holds {tags!r}; expected a list of tags", tags=tags), key=(*place, "tag_included"))
    yield Flow((*to, "applies_to"), list(tags) if tags else None, ((*place, "tag_included"),))
    if isinstance(settings.get("world_size"), int):
        yield Flow((*to, "workers"), settings["world_size"], ((*place, "world_size"),), same=True)
    taken = ("worker_cls", "tag_included", "world_size", FILTERS, SECRET, *DEAD)
    for key, value in settings.items():
        if key == "model_args" and value == {"model_name_or_path": view.get("pretrain")}:
            yield Flow((), None, ((*place, key),), "mapped", "the policy's tokenizer")
        elif key not in taken and reader is None:
            yield Flow((*to, "args", key), value, ((*place, key),), same=True)


_Reader = Callable[[tuple[Any, ...], tuple[Any, ...], Mapping[str, Any]], Iterator[Flow]]


def _reader(kind: str, settings: Mapping[str, Any]) -> _Reader | None:
    """What reads a worker; None for one that nothing here stands for."""
    if kind in RULES_OF:
        return _read_rule
    if kind == SANDBOX and settings.get("use_local", True):
        return _read_sandbox
    if kind != JUDGE:
        return None
    if settings.get("judge_model_type") == "api":
        return _read_judge
    served = settings.get("judge_model_type") == "inference" and _judge_engine(settings) is not None
    return _read_served_judge if served else None


def _read_rule(to: tuple[Any, ...], place: tuple[Any, ...], settings: Mapping[str, Any]) -> Iterator[Flow]:
    """A worker that a rule stands for; what it is placed and fed by has no meaning elsewhere."""
    kind, cls = settings["worker_cls"], (*place, "worker_cls")
    rule, args = RULES_OF[kind]
    yield Flow((*to, "type"), "rule", (cls,))
    yield Flow((*to, "rule"), rule, (cls,))
    for name, value in args.items():
        yield Flow((*to, "args", name), value, (cls,), "derived", "computed in the same way as by ROLL's worker")
    for key, name in CROSS_THINK_KEYS.items() if kind == CROSS_THINK else ():
        if settings.get(key) is not None:
            yield Flow((*to, "args", name), settings[key], ((*place, key),), same=True)


def _read_sandbox(to: tuple[Any, ...], place: tuple[Any, ...], settings: Mapping[str, Any]) -> Iterator[Flow]:
    """Programs that run where ROLL's worker is: here in a process with limits, which ROLL does not set."""
    local = ((*place, "use_local"),) if "use_local" in settings else ()
    yield Flow((*to, "type"), "sandbox", ((*place, "worker_cls"), *local))
    yield Flow(
        (*to, "method"),
        "roll",
        ((*place, "worker_cls"),),
        "derived",
        "ROLL's test cases; rlctl runs the programs itself",
    )
    yield Flow((*to, "timeout"), PROGRAM_SECONDS, ((*place, "worker_cls"),), "derived", "ROLL's limit for one program")
    if "code_url" in settings:
        yield Flow((), None, ((*place, "code_url"),), "dead", "use_local is set: ROLL calls no service")


def _read_judge(to: tuple[Any, ...], place: tuple[Any, ...], settings: Mapping[str, Any]) -> Iterator[Flow]:
    cls = (*place, "worker_cls")
    yield Flow((*to, "type"), "judge", (cls, (*place, "judge_model_type")))
    yield Flow((*to, "scoring"), "yes_no", (cls,), "derived", JUDGED)
    for key, name in (("judge_api_url", "base_url"), ("judge_model_name", "model")):
        if settings.get(key) is not None:
            yield Flow((*to, name), settings[key], ((*place, key),), same=True)
    yield from _read_judge_prompt(place, settings)


def _read_judge_prompt(place: tuple[Any, ...], settings: Mapping[str, Any]) -> Iterator[Flow]:
    if settings.get("judge_prompt") is not None:
        note = "one of ROLL's built-in prompts; rlctl words its prompt differently; set 'prompt' to choose the words"
        yield Flow((), None, ((*place, "judge_prompt"),), "mapped", note)


def _inside(settings: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A block of a worker's settings; empty where there is none."""
    for name in names:
        found = settings.get(name)
        settings = found if isinstance(found, Mapping) else {}
    return settings


def _judge_engine(settings: Mapping[str, Any]) -> str | None:
    """The engine of a judge that ROLL serves itself; None where none is named that is here too."""
    return ENGINES.get(str(_inside(settings, "strategy_args").get("strategy_name")))


def _read_served_judge(to: tuple[Any, ...], place: tuple[Any, ...], settings: Mapping[str, Any]) -> Iterator[Flow]:
    """A judge that ROLL starts beside the policy, on devices of its own."""
    cls, strategy = (*place, "worker_cls"), (*place, "strategy_args")
    yield Flow((*to, "type"), "judge", (cls, (*place, "judge_model_type")))
    yield Flow((*to, "scoring"), "yes_no", (cls,), "derived", JUDGED)
    model = _inside(settings, "model_args").get("model_name_or_path")
    if model is not None:
        yield Flow((*to, "model"), model, ((*place, "model_args", "model_name_or_path"),), same=True)
    yield Flow((*to, "engine"), _judge_engine(settings), ((*strategy, "strategy_name"),))
    yield from _read_judge_prompt(place, settings)
    config = _inside(settings, "strategy_args", "strategy_config")
    tensor = config.get("tensor_parallel_size", 1)
    tensor = tensor if isinstance(tensor, int) and tensor > 0 else 1
    for key, value in config.items():
        name = {"tensor_parallel_size": ("tensor_parallel_size",), "max_model_len": ("max_context_tokens",)}.get(
            key, ("engine_args", key)
        )
        yield Flow((*to, *name), value, ((*strategy, "strategy_config", key),), same=True)
    if "strategy_config" in _inside(settings, "strategy_args") and not config:
        yield Flow((), None, ((*strategy, "strategy_config"),), "mapped", "null has no effect")
    yield from _read_judge_devices(to, place, settings, tensor)
    yield from _read_judge_sampling(to, (*place, "generating_args"), _inside(settings, "generating_args"))


def _read_judge_devices(
    to: tuple[Any, ...], place: tuple[Any, ...], settings: Mapping[str, Any], tensor: int
) -> Iterator[Flow]:
    try:
        count = len(parse_devices(settings.get("device_mapping") or "[]"))
    except DevicesError:
        return
    used = ((*place, "device_mapping"),) if settings.get("device_mapping") is not None else ()
    yield Flow(
        (*to, "replicas"),
        max(1, count // tensor),
        used,
        "derived",
        said("{count} devices, {tensor} per engine", count=count, tensor=tensor),
    )


def _read_judge_sampling(to: tuple[Any, ...], place: tuple[Any, ...], given: Mapping[str, Any]) -> Iterator[Flow]:
    """ROLL's sampling of the judge, its own defaults included: an endpoint has others."""
    for key, (name, usual) in JUDGE_SAMPLING.items():
        used = ((*place, key),) if key in given else ()
        value = given.get(key, usual)
        if value is not None:
            yield Flow((*to, "sampling", name), value, used)
    for key in ("num_beams", "num_return_sequences"):
        if given.get(key) == 1:
            yield Flow((), None, ((*place, key),), "mapped", "one answer is sampled")


def _write(view: Writing) -> Iterator[Out]:
    names: set[str] = set()
    for index, reward in enumerate(view.get("rewards")):
        yield from _write_one(view, index, reward, domain_name(reward, index, names))


def domain_name(reward: Mapping[str, Any], index: int, taken: set[str]) -> str:
    """The domain of a reward: its name, told apart from the others; the first for all rows is ROLL's fallback."""
    name = str(reward["name"])
    if not reward["applies_to"] and FALLBACK not in taken:
        name = FALLBACK
    name = name if name not in taken else f"{name}_{index}"
    taken.add(name)
    return name


def domains(view: Writing) -> list[str]:
    """The domains that are written, in order."""
    taken: set[str] = set()
    return [domain_name(reward, index, taken) for index, reward in enumerate(view.get("rewards"))]


def _write_one(view: Writing, index: int, reward: Mapping[str, Any], name: str) -> Iterator[Out]:
    place, to = ("rewards", index), (*view.path("rewards"), name)
    yield from _write_class(view, reward, place, to)
    tags = reward["applies_to"]
    if tags:
        yield Flow((*to, "tag_included"), list(tags), ((*place, "applies_to"),), same=True, always=True)
    else:
        note = said("rows whose tag no domain names go to {fallback}", fallback=FALLBACK) if name == FALLBACK else ""
        yield Flow((*to, "tag_included"), [name], ((*place, "applies_to"),), "derived", note, always=True)
    yield Flow((*to, "world_size"), reward["workers"], ((*place, "workers"),), same=True, always=True)
    served = reward["type"] == "judge" and not reward["base_url"]
    if "model_args" not in reward.get("args", {}) and not served:
        note = "ROLL's reward worker needs a tokenizer"
        used = (view.to("model.path"),)
        yield Flow((*to, "model_args", "model_name_or_path"), "${pretrain}", used, "derived", note, always=True)
    how: Provenance = "mapped" if name == reward["name"] else "derived"
    yield Flow((), None, ((*place, "name"),), how, said("the domain {name}", name=name))
    own = PROGRAM_SECONDS if reward["type"] == "sandbox" and reward["url"] is None else 30.0
    if reward["timeout"] == own == PROGRAM_SECONDS:
        yield Flow((), None, ((*place, "timeout"),), "mapped", "ROLL's limit for one program")
    for field, usual in (("weight", 1.0), ("timeout", own), ("on_error", "zero")):
        if reward[field] != usual:
            yield Inexpressible(
                ((*place, field),),
                said("ROLL's rewards have no {field}; a domain's rows get its reward unchanged", field=field),
            )
    for field in ("score_right", "score_wrong"):
        if field in reward and reward[field] != (1.0 if field == "score_right" else 0.0):
            yield Inexpressible(((*place, field),), "ROLL's worker scores 1 and 0")


def _write_class(
    view: Writing, reward: Mapping[str, Any], place: tuple[Any, ...], to: tuple[Any, ...]
) -> Iterator[Out]:
    kind = reward["type"]
    used = ((*place, "type"), (*place, "kind"), (*place, "rule"))
    named = str(reward.get("kind", ""))
    if kind == "external" and ("." in named or named == "roll") and not named.startswith(FOREIGN):
        if named != "roll":
            note = "" if named.startswith("roll.") else "name one of ROLL's reward workers"
            yield Flow((*to, "worker_cls"), named, used, note=note, always=True)
    elif kind == "rule" and _worker_of(reward):
        yield from _write_rule(reward, place, to)
        return
    elif kind == "sandbox":
        yield from _write_sandbox(reward, place, to)
    elif kind == "judge":
        yield from _write_judge(view, reward, place, to)
    else:
        what = {"rule": said("the rule {rule}", rule=reward.get("rule")), "external": reward.get("kind")}.get(
            kind, said("a {kind} as it is", kind=kind)
        )
        key = ".".join(map(str, (*to, "worker_cls")))
        reason = said(
            "ROLL scores with worker classes and has none for {what}: write one and set {key} to it", what=what, key=key
        )
        yield Inexpressible((*used, (*place, "path"), (*place, "function")), reason)
        fields = (
            "signature",
            "tokenizer",
            "chat_template",
            "max_tokens",
            "micro_batch_size",
            "trust_remote_code",
            "overrides",
            "args",
        )
        for field in fields:
            if field in reward and kind != "external":
                yield Inexpressible(((*place, field),), "a setting of that reward")
        if kind != "external":
            return
    for key, value in reward.get("args", {}).items():
        yield Flow((*to, key), value, ((*place, "args", key), (*place, "args")), same=True, always=True)


def _worker_of(reward: Mapping[str, Any]) -> str:
    """The worker that computes a rule, or the nearest; nothing where there is none."""
    args = reward["args"]
    for worker, (rule, own) in RULES_OF.items():
        if rule == reward["rule"] and own.items() <= args.items():
            return worker
    nearest = {"multiple_choice": CHOICE, "ifeval": IFEVAL}
    return MATH if reward["rule"] in MATH_RULES else nearest.get(reward["rule"], "")


def _write_rule(reward: Mapping[str, Any], place: tuple[Any, ...], to: tuple[Any, ...]) -> Iterator[Out]:
    worker = _worker_of(reward)
    rule, own = RULES_OF[worker]
    exact = rule == reward["rule"] and own.items() <= reward["args"].items()
    note = "" if exact else "ROLL parses and compares answers differently: scores may differ"
    used = ((*place, "type"), (*place, "rule"), *((*place, "args", name) for name in own if name in reward["args"]))
    yield Flow((*to, "worker_cls"), worker, used, "mapped" if exact else "derived", note, always=True)
    if not exact:
        yield Inexpressible(((*place, "rule"),), note, idle=True)
    keys = {name: key for key, name in CROSS_THINK_KEYS.items()} if worker == CROSS_THINK else {}
    for name, value in reward["args"].items():
        if name in keys:
            yield Flow((*to, keys[name]), value, ((*place, "args", name), (*place, "args")), same=True, always=True)
        elif name not in own:
            yield Inexpressible(
                ((*place, "args", name), (*place, "args")), said("ROLL's worker has no {name}", name=name)
            )
    if own and not reward["args"]:
        yield Flow((), None, ((*place, "args"),))


def _write_sandbox(reward: Mapping[str, Any], place: tuple[Any, ...], to: tuple[Any, ...]) -> Iterator[Out]:
    yield Flow((*to, "worker_cls"), SANDBOX, ((*place, "type"),), "derived", "ROLL's own sandbox worker", always=True)
    local = reward["url"] is None
    yield Flow((*to, "use_local"), local, ((*place, "url"),), "derived", always=True)
    if local and reward["method"] == "roll":
        yield Flow((), None, ((*place, "method"),), "mapped", "ROLL's own test cases")
    else:
        yield Inexpressible(
            ((*place, "method"),), "ROLL reads the columns case_type, test_cases and test_case_function"
        )
    if local:
        note = "ROLL runs programs without resource limits"
        yield Flow((), None, ((*place, "isolation"),), "mapped", note)
    else:
        yield Flow((*to, "code_url"), reward["url"], ((*place, "url"),), "derived", always=True)
    for field, usual in _SANDBOX_DEFAULTS.items():
        if reward[field] != usual:
            yield Inexpressible(((*place, field),), said("ROLL's sandbox worker has no {field}", field=field))


def _write_judge(
    view: Writing, reward: Mapping[str, Any], place: tuple[Any, ...], to: tuple[Any, ...]
) -> Iterator[Out]:
    yield Flow((*to, "worker_cls"), JUDGE, ((*place, "type"),), "derived", "ROLL's own judge", always=True)
    if reward["auxiliary_model"] is not None:
        found = _auxiliary(view, reward["auxiliary_model"])
        if found:
            reason = "ROLL starts a model for each of its judges"
            yield Flow((), None, ((*place, "auxiliary_model"),), "derived", reason)
        else:
            yield Inexpressible(((*place, "auxiliary_model"),), "ROLL serves models only for its rewards")
        reward = {**reward, **found}
    kind = "api" if reward["base_url"] else "inference"
    yield Flow((*to, "judge_model_type"), kind, ((*place, "base_url"),), "derived", always=True)
    if reward["scoring"] == "yes_no":
        yield Flow((), None, ((*place, "scoring"),), "mapped", JUDGED)
    else:
        yield Inexpressible(((*place, "scoring"),), JUDGED)
    if reward["prompt"]:
        yield Inexpressible(((*place, "prompt"),), "ROLL's judge takes the name of a built-in prompt, not a text")
    if reward["max_concurrent"] != 64:
        yield Inexpressible(((*place, "max_concurrent"),), "ROLL's judge handles one request at a time")
    if not reward["base_url"]:
        yield from _write_served_judge(view, reward, place, to)
        return
    names = {"base_url": "judge_api_url", "model": "judge_model_name", "api_key": SECRET}
    for field, key in names.items():
        if reward[field]:
            yield Flow((*to, key), reward[field], ((*place, field),), "derived", always=True)
    for key, value in reward["sampling"].items():
        yield Flow((*to, "generating_args", key), value, ((*place, "sampling"),), "derived", always=True)
    for field, usual in (
        *(
            ("replicas", 1),
            ("tensor_parallel_size", 1),
            ("engine", "auto"),
            ("engine_args", {}),
            ("max_context_tokens", None),
        ),
    ):
        if reward[field] != usual:
            yield Inexpressible(((*place, field),), "the endpoint serves the judge")


def _auxiliary(view: Writing, name: str) -> dict[str, Any]:
    """A judge's own settings that say what an auxiliary model does; empty if no auxiliary model has the name."""
    model = next((each for each in view.get("rollout.auxiliary_models") if name in (each["name"], each["path"])), None)
    if model is None:
        return {}
    same = ("base_url", "api_key", "engine", "replicas", "tensor_parallel_size", "max_context_tokens")
    return {**{key: model[key] for key in same}, "model": model["path"], "engine_args": model["settings"]}


def _write_served_judge(
    view: Writing, reward: Mapping[str, Any], place: tuple[Any, ...], to: tuple[Any, ...]
) -> Iterator[Out]:
    """A judge on devices of the run: those of the role ``judge`` or ``reward``, else the policy's."""
    engine = "hf_infer" if reward["engine"] == "transformers" else "vllm"
    strategy = (*to, "strategy_args")
    named = reward["model"] or None
    yield Flow((*to, "model_args", "model_name_or_path"), named, ((*place, "model"),), always=named is not None)
    yield Flow((*strategy, "strategy_name"), engine, ((*place, "engine"),), "derived", always=True)
    own = {"tensor_parallel_size": ("tensor_parallel_size", 1), "max_model_len": ("max_context_tokens", None)}
    for key, (field, usual) in own.items():
        if reward[field] != usual:
            yield Flow((*strategy, "strategy_config", key), reward[field], ((*place, field),), always=True)
    for key, value in reward["engine_args"].items():
        at = ((*place, "engine_args", key), (*place, "engine_args"))
        yield Flow((*strategy, "strategy_config", key), value, at, same=True, always=True)
    if engine == "vllm" and not reward["engine_args"]:
        yield Flow((), None, ((*place, "engine_args"),))
    count = reward["replicas"] * reward["tensor_parallel_size"]
    devices = arithmetic.devices_of(view.config, "judge")[:count]
    note = said(
        "{replicas} engines of {tensor_parallel_size} devices",
        replicas=reward["replicas"],
        tensor_parallel_size=reward["tensor_parallel_size"],
    )
    yield Flow((*to, "device_mapping"), print_devices(devices), ((*place, "replicas"),), "derived", note, always=True)
    keys, whole = {name: key for key, (name, _) in JUDGE_SAMPLING.items()}, (*place, "sampling")
    for name, value in reward["sampling"].items():
        at = ((*whole, name), whole)
        if name in keys:
            yield Flow((*to, "generating_args", keys[name]), value, at, always=True)
        else:
            yield Inexpressible(at, said("ROLL's judge has no {name}", name=name))
    for name, (key, usual) in ((name, (key, usual)) for key, (name, usual) in JUDGE_SAMPLING.items()):
        if name not in reward["sampling"] and usual is not None and name in ENDPOINT_SAMPLING:
            value = ENDPOINT_SAMPLING[name]
            yield Flow(
                (*to, "generating_args", key), value, (whole,), "derived", "the default of rlctl's judges", always=True
            )


REWARDS = CustomRule(
    "rewards",
    (DialectKey("rewards", ABSENT), DialectKey("rewards.**")),
    (
        "rewards",
        *(f"rewards[].{name}" for name in ("type", *REWARD_FIELDS)),
    ),
    _read,
    _write,
    by_key={"rewards": "rewards"},
    why="Domains by name, each with the class of a worker, are a list of rewards by kind, read and written for each kind.",
)


# Filters: masks of the loss, and groups left out by their rewards.


def _query_filter(view: Reading) -> tuple[dict[str, Any] | None, list[Any]]:
    """The filter that all domains share, with its places; None where there is none or they differ."""
    found, places = view.get("rewards"), []
    kinds: list[dict[str, Any]] = []
    for name, settings in (found if isinstance(found, Mapping) else {}).items():
        config = settings.get(FILTERS) if isinstance(settings, Mapping) else None
        if isinstance(config, Mapping) and config:
            places.append((*view.path("rewards"), name, FILTERS))
        kinds.append(
            _filter(config if isinstance(config, Mapping) else {}, bool(view.get("is_use_additional_prompts")))
        )
    same = bool(kinds) and all(kind == kinds[0] for kind in kinds)
    return (kinds[0] if same and kinds[0] else None), (places if same else [])


def _filter(config: Mapping[str, Any], refill: bool) -> dict[str, Any]:
    args = config.get("filter_args")
    args = args if isinstance(args, Mapping) else {}
    if config.get("type") == "std_filter":
        edge = args.get("std_threshold", -1)
        if not is_number(edge) or edge < 0:
            return {}  # no deviation is below 0: nothing is left out
        return {"type": "zero_variance_groups", "metric": "reward", "threshold": float(edge), "refill": refill}
    if config.get("type") == "mean_filter":
        low, high = args.get("threshold_down", -1), args.get("threshold_up", 1e9)
        return {"type": "group_mean", "low": number(low), "high": number(high), "refill": refill}
    return {}


MASKS = (
    "max_len_mask",
    "difficulty_mask",
    "difficulty_low_threshold",
    "difficulty_high_threshold",
    "error_max_len_clip",
    "error_max_len_threshold",
)


def _read_filters(view: Reading) -> Iterator[Flow]:
    found: list[dict[str, Any]] = []
    used: list[Any] = []
    group, places = _query_filter(view)
    if group:
        found.append(group)
        used += places
    if view.get("max_len_mask"):
        found.append({"type": "overlong"})
        used.append(view.path("max_len_mask"))
    if view.get("difficulty_mask"):
        low, high = view.get("difficulty_low_threshold"), view.get("difficulty_high_threshold")
        found.append({"type": "difficulty_mask", "low": number(low), "high": number(high)})
        used += [view.path(key) for key in MASKS[1:4]]
    if view.get("error_max_len_clip"):
        found.append({"type": "long_incorrect", "max_tokens": view.get("error_max_len_threshold")})
        used += [view.path(key) for key in MASKS[4:]]
    off = [view.path(key) for key in ("max_len_mask", "difficulty_mask", "error_max_len_clip") if not view.get(key)]
    yield Flow(view.to("algorithm.filters"), found, tuple(used) if found else tuple(off))
    if found:
        yield Flow((), None, tuple(off), "mapped", "off")
    for switch, keys in (("difficulty_mask", MASKS[2:4]), ("error_max_len_clip", MASKS[5:])):
        for key in keys:
            if not view.get(switch) and view.written(key):
                yield Flow((), None, (view.path(key),), "dead", said("{switch} is off", switch=switch))


def _write_filters(view: Writing) -> Iterator[Out]:
    filters, used = view.get("algorithm.filters"), (view.to("algorithm.filters"),)
    by_name = {item["type"]: item for item in filters}
    if len(by_name) < len(filters):
        yield Inexpressible(used, "ROLL has one filter of each kind")
    yield Flow(view.path("max_len_mask"), "overlong" in by_name, used, always="overlong" in by_name)
    difficulty = by_name.get("difficulty_mask")
    yield Flow(view.path("difficulty_mask"), difficulty is not None, used)
    if difficulty:
        yield Flow(view.path("difficulty_low_threshold"), difficulty["low"], used, always=True)
        yield Flow(view.path("difficulty_high_threshold"), difficulty["high"], used, always=True)
    error = by_name.get("long_incorrect")
    yield Flow(view.path("error_max_len_clip"), error is not None, used)
    if error:
        yield Flow(view.path("error_max_len_threshold"), error["max_tokens"], used)
    groups = [item for item in filters if item["type"] in ("zero_variance_groups", "group_mean")]
    if len(groups) > 1:
        yield Inexpressible(used, "ROLL has one group filter")
    for item in groups[:1]:
        yield from _write_groups(view, item, used)


def _write_groups(view: Writing, item: Mapping[str, Any], used: tuple[Any, ...]) -> Iterator[Out]:
    if item["type"] == "zero_variance_groups":
        config: dict[str, Any] = {"type": "std_filter", "filter_args": {"std_threshold": item["threshold"]}}
        if item["metric"] not in ("reward", "seq_reward", "seq_final_reward", "score"):
            yield Inexpressible(used, said("ROLL filters groups by the reward, not by {metric}", metric=item["metric"]))
    else:
        config = {"type": "mean_filter", "filter_args": {"threshold_down": item["low"], "threshold_up": item["high"]}}
    if not domains(view):
        yield Inexpressible(used, "ROLL filters by the domains of its rewards, but none is defined")
    for name in domains(view):
        yield Flow((*view.path("rewards"), name, FILTERS), config, used, always=True)
    if not item["refill"] and view.config.rollout.oversampling.additional_prompts:
        yield Inexpressible(used, "ROLL fills up with additional prompts")


FILTER_RULE = CustomRule(
    "filters",
    (
        DialectKey("max_len_mask"),
        DialectKey("difficulty_mask"),
        DialectKey("difficulty_low_threshold"),
        DialectKey("difficulty_high_threshold"),
        DialectKey("error_max_len_clip"),
        DialectKey("error_max_len_threshold"),
        DialectKey(f"rewards.*.{FILTERS}"),
        DialectKey(f"rewards.*.{FILTERS}.**"),
    ),
    ("algorithm.filters", "algorithm.filters[].**"),
    _read_filters,
    _write_filters,
    by_key={
        "max_len_mask": "algorithm.filters",
        "error_max_len_clip": "algorithm.filters[].max_tokens",
        "error_max_len_threshold": "algorithm.filters[].max_tokens",
        "difficulty_mask": "algorithm.filters",
        "difficulty_low_threshold": "algorithm.filters[].low",
        "difficulty_high_threshold": "algorithm.filters[].high",
        f"rewards.*.{FILTERS}": "algorithm.filters",
    },
    why="Masks of the whole file and a filter in each domain are one list of filters.",
)
LOOP: list[Rule] = [
    manager_rule("ROLL"),
    Dropped("reward_loop.**", "ROLL scores each response as soon as it is finished"),
]
RULES: list[Rule] = [REWARDS, FILTER_RULE, *LOOP]
