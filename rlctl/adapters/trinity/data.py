"""Trinity: task sets, experience buffers and the rewards that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import EVALUATION_FIELDS, SOURCE_FIELDS, Partly
from rlctl.adapters.trinity import experiences
from rlctl.adapters.trinity.agents import has_agent, read_agent_of, shared_agent, workflow_of, write_agent_of
from rlctl.adapters.trinity.batch import supervised
from rlctl.adapters.trinity.experiences import STORAGE, B, label
from rlctl.adapters.trinity.keys import STORAGES, answer_column, model_temperature
from rlctl.adapters.trinity.rewards import THINK_PENALTY, rows_name_functions, written_function
from rlctl.adapters.trinity.workflows import (
    REWARDS,
    RUBRIC,
    RUBRIC_PROMPT,
    TEACHING_PLAIN,
    E,
    Spelling,
    Task,
    eval_tasksets,
    rated,
    scorings,
    spelled,
    task,
    tasksets,
    taught,
)
from rlctl.common.messages.reasons import said
from rlctl.documents import dotted

FORMAT = {
    "prompt_key": ("prompt_key", "prompt"),
    "response_key": ("answer_key", "response"),
    "image_key": ("image_key", None),
    "video_key": ("video_key", None),
}


def _whole(value: Any) -> Any:
    if value is not None and not isinstance(value, int):
        raise BadValueError(said("is {value!r}; expected an integer", value=value))
    return value if value is not None and value > 0 else None


def _source(
    view: Reading, to: tuple[Any, ...], this: Task, reward: str, *, first: Reading | None = None
) -> Iterator[Flow]:
    """One task set, with keys counted from it.

    Args:
        view: the text.
        to: the canonical place.
        this: what the task set means.
        reward: the reward that scores it; empty where all task sets have one.
        first: the first task set of training; None for one of evaluation.
    """
    for key, field in (("name", "name"), ("path", "path"), ("split", "split"), ("subset_name", "subset")):
        default = {"split": "train", "name": None, "subset_name": None, "path": ""}[key]
        value = view.get(key, default)
        yield Flow((*to, field), value or ("" if key == "path" else None), (view.path(key),), same=True)
    yield Flow(
        (*to, "format"), STORAGE.get(str(view.get("storage_type", "file")), "auto"), (view.path("storage_type"),)
    )
    for key, (field, default) in FORMAT.items():
        yield Flow((*to, field), view.get(f"format.{key}", default), (view.path(f"format.{key}"),), same=True)
    by_row = view.get("format.reward_fn_key", "")
    yield Flow((*to, "source_key"), by_row or None, (view.path("format.reward_fn_key"),))
    yield from _prompt(view, to, this)
    yield from _arguments(view, this)
    yield from _evaluation_sampling(view, to) if first is None else _sampling(view, to, first)
    if reward and not by_row:
        yield Flow((*to, "reward"), reward, this.reward_keys)


def _prompt(view: Reading, to: tuple[Any, ...], this: Task) -> Iterator[Flow]:
    """The system prompt: what the task set says, or what its workflow implies."""
    prompts, columns = (view.path("format.system_prompt"),), (view.path("format.system_prompt_key"),)
    if this.prompt_keys:
        note = said(
            "Trinity's {value} uses this system prompt", value=this.row.names[0] if this.row else "the workflow"
        )
        yield Flow((*to, "system_prompt"), this.prompt, this.prompt_keys, "derived", note, implied=True)
        if view.get("format.system_prompt", None):
            yield Flow((), None, prompts, "dead", note, misleads=True)
    else:
        yield Flow((*to, "system_prompt"), this.prompt, prompts, same=this.prompt is not None)
    yield Flow((*to, "system_prompt_key"), None, ())
    yield Flow((), None, columns, "dead", "Trinity's workflows use format.system_prompt, not a column", misleads=True)


def _arguments(view: Reading, this: Task) -> Iterator[Flow]:
    """The arguments of a workflow of one question and one answer; those of others are an agent's."""
    args = view.get("workflow_args", None)
    if this.row is None:
        return
    for key in args if isinstance(args, Mapping) else ():
        used = ((*view.path("workflow_args"), key),)
        known = key in this.row.takes
        note = "" if known else said("{names} does not read it", names=this.row.names[0])
        yield Flow((), None, used, "mapped" if known else "dead", note, misleads=not known)


def _sampling(view: Reading, to: tuple[Any, ...], first: Reading) -> Iterator[Flow]:
    """Sampling of a task set of training, where it is not that of the first one, which is the run's."""
    if to[-1] == 0:
        return
    given: dict[str, Any] = {}
    for name, default in (("temperature", 1.0), ("top_p", 1.0), ("top_k", -1)):
        key = f"rollout_args.{name}"
        usual = default if name == "top_k" else _model(view, name, default)
        own, shared = (found if found is not None else usual for found in (view.get(key, None), first.get(key, None)))
        if own != shared:
            given[name] = own
        else:
            yield Flow((), None, (view.path(key),), "mapped", "same as in the first task set")
    yield Flow((*to, "sampling"), given, tuple(view.path(f"rollout_args.{name}") for name in given))
    for name in ("logprobs", "max_tokens", "n"):
        place = view.path(f"rollout_args.{name}")
        kept = ("extensions", "trinity", dotted(place))
        if view.written(f"rollout_args.{name}"):
            yield Flow(
                kept,
                view.get(f"rollout_args.{name}"),
                (place,),
                note="only the first task set's setting applies to the run",
            )


def _evaluation_sampling(view: Reading, to: tuple[Any, ...]) -> Iterator[Flow]:
    def value(name: str, default: Any) -> Any:
        given = view.get(f"rollout_args.{name}", None)
        return given if given is not None else default

    place = (*to, "evaluation_sampling")
    yield Flow(
        (*place, "temperature"),
        value("temperature", _model(view, "temperature", 1.0)),
        (view.path("rollout_args.temperature"),),
        same=True,
    )
    yield Flow(
        (*place, "top_p"), value("top_p", _model(view, "top_p", 1.0)), (view.path("rollout_args.top_p"),), same=True
    )
    yield Flow((*place, "top_k"), _whole(value("top_k", -1)), (view.path("rollout_args.top_k"),))
    yield Flow(
        (*place, "max_response_tokens"),
        value("max_tokens", None),
        (view.path("rollout_args.max_tokens"),),
        same=True,
    )
    yield Flow((*to, "responses_per_prompt"), view.get("repeat_times", 1), (view.path("repeat_times"),), same=True)
    yield Flow(
        (),
        None,
        (view.path("rollout_args.logprobs"), view.path("rollout_args.n")),
        "dead",
        "not used in evaluation",
    )


def _model(view: Reading, name: str, default: Any) -> Any:
    root = getattr(view, "values", {}).get("model")
    value = root.get(name) if isinstance(root, Mapping) else None
    return default if value is None else value


def _read_train(view: Reading) -> Iterator[Flow]:
    if supervised(view) or (view.get("mode") == "train" and not tasksets(view)):
        yield from experiences.read(view)
        return
    rewards = _reward_names(view)
    for index, place in enumerate(tasksets(view)):
        to = ("data", "train", index)
        inside, this = view.inside(place, ()), task(view, place, evaluation=False)
        yield from _source(inside, to, this, rewards.get(place, ""), first=view.inside(tasksets(view)[0], ()))
        yield from read_agent_of(view, to, this, place)
        if index:
            continue
        yield from experiences.read_task_order(inside)
    if len(tasksets(view)) > 1:
        yield Flow(("data", "mixing"), "weighted", ())


def _read_eval(view: Reading) -> Iterator[Flow]:
    several = view.get(f"{E}.eval_tasksets")
    if isinstance(several, list) and not several:
        yield Flow(("data", "eval"), [], (view.path(f"{E}.eval_tasksets"),))
    rewards = _reward_names(view)
    for index, place in enumerate(eval_tasksets(view)):
        this = task(view, place, evaluation=True)
        to = ("data", "eval", index)
        yield from _source(view.inside(place, ()), to, this, rewards.get(place, ""))
        yield from read_agent_of(view, to, this, place)


def _reward_names(view: Reading) -> dict[Any, str]:
    """The reward of each task set, where they have several."""
    found = [] if supervised(view) else scorings(view)
    return {place: one.name for one in found for place in one.places} if len(found) > 1 else {}


# Writing


def _write_train(view: Writing) -> Iterator[Out]:
    objective = view.config.algorithm.objective.choice
    sources = view.get("data.train")
    if objective in ("sft", "dpo"):
        if sources:
            yield from experiences.write(view, sources[0], objective)
        for index in range(1, len(sources)):
            yield Inexpressible((("data", "train", index),), "Trinity trains sft and dpo on one dataset")
        for index, source in enumerate(view.get("data.eval")):
            place, reason = ("data", "eval", index), "Trinity does not evaluate while it trains with sft or dpo"
            yield Inexpressible(((*place, "path"),), reason)
            yield Flow((), None, tuple((*place, field) for field in source if field != "path"), "derived", reason)
        return
    single = len(sources) == 1
    for index, source in enumerate(sources):
        root = view.path(f"{E}.taskset") if single else (*view.path(f"{E}.tasksets"), index)
        yield from _write_source(view, root, ("data", "train", index), source)
        yield from experiences.write_task_order(view, root)
    if len(sources) > 1 and view.get("data.mixing") == "weighted_exact":
        yield Inexpressible(
            (view.to("data.mixing"),), "Trinity cannot fix how many prompts of a batch come from each task set"
        )


def _write_source(view: Writing, root: Any, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    def used(field: str) -> tuple[Any, ...]:
        return ((*place, field),)

    evaluation = place[1] == "eval"
    yield Flow(
        (*root, "name"),
        label(source, f"{place[1]}_{place[2]}", view.get(f"data.{place[1]}")),
        used("name"),
        same=source["name"] is not None,
        always=True,
    )
    kind = "sql" if source["format"] == "sql" else "file"
    guessed = source["format"] not in ("auto", "sql")
    note = "Trinity detects the format from the path's suffix" if guessed else ""
    yield Flow((*root, "storage_type"), kind, used("format"), "derived" if guessed else "mapped", note, always=True)
    if source["format"] == "episodes":
        note = "Trinity starts an episode for each row of a task set, but the source has no rows"
        named = "${oc.env:TRINITY_TASKSET_PATH}"
        yield Flow((*root, "path"), named, used("path"), "derived", note, always=True)
        yield Inexpressible((*used("format"), *used("max_samples")), note, idle=True)
    else:
        yield Flow((*root, "path"), source["path"], used("path"), same=True, always=True)
    yield Flow((*root, "split"), source["split"] or "train", used("split"), same=source["split"] is not None)
    if source["subset"]:
        yield Flow((*root, "subset_name"), source["subset"], used("subset"), same=True)
    yield from _write_format(view, root, place, source)
    if evaluation:
        yield from _write_evaluation(view, root, place, source)
    elif place[2]:
        for key, value in source["sampling"].items():
            yield Flow((*root, "rollout_args", key), value, used("sampling"))
    if source["sampling"] and (evaluation or not place[2]):
        whose = "the engine's evaluation settings" if evaluation else "the first task set's sampling for all"
        yield Inexpressible(used("sampling"), said("Trinity uses {whose}", whose=whose))
    yield from _write_workflow(view, root, place, source)
    how: Provenance = "mapped" if evaluation or place[2] else "derived"
    if source["reward"]:
        name = function_scoring(view, source) or source["reward"]
        yield Flow((*root, "default_reward_fn_type"), name, used("reward"), how, same=name == source["reward"])
    taking = REWARDS.get(function_scoring(view, source) or source["reward"] or "math_reward")
    for key, value in source["reward_args"].items():
        if taking is not None and key not in (taking.takes or ()):
            yield Inexpressible(used("reward_args"), said("Trinity's reward function has no {key}", key=key))
        else:
            yield Flow((*root, "reward_fn_args", key), value, used("reward_args"), how)
    yield from _lost_columns(view, place, source)


def _write_workflow(view: Writing, root: Any, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    """The workflow of a task set where it is not that of all, what it takes, and the system prompt that it leaves to say."""
    own = (*root, "default_workflow_type")
    prompt, columns = ((*place, "system_prompt"),), ((*place, "system_prompt_key"),)
    if source["system_prompt_key"]:
        yield Inexpressible(columns, "Trinity's workflows have one system prompt for all rows of a task set")
    else:
        yield Flow((), None, columns)
    yield from write_agent_of(view, root, place, source)
    if has_agent(view.config, source):
        written = source["system_prompt"]
    else:
        spelling = spelling_of(view, source)
        written = spelling.prompt
        default = workflow_of(shared_agent(view.config))
        if spelling.workflow != (default or spelling_of_all(view).workflow):
            yield Flow(own, spelling.workflow, prompt, "derived", "it implies no system prompt", always=True)
        for key, value in spelling.args.items():
            yield Flow((*root, "workflow_args", key), value, (("rewards",),), "derived", always=True)
    if written is not None:
        yield Flow(
            (*root, "format", "system_prompt"), written, prompt, same=written == source["system_prompt"], always=True
        )
    else:
        yield Flow((), None, prompt, "mapped", "implied by the workflow" if source["system_prompt"] else "")


def function_scoring(view: Writing, source: Mapping[str, Any]) -> str:
    """The reward function of Trinity's that scores a source; empty where the workflow's own does."""
    rewards = view.get("rewards")
    chosen = [reward for reward in rewards if reward["name"] == source["reward"]] if source["reward"] else rewards
    return written_function(view, chosen[0]) if len(chosen) == 1 else ""


def spelling_of(view: Writing, source: Mapping[str, Any]) -> Spelling:
    """How a source without a workflow of its own is written."""
    if taught(view.config) is not None:
        return Spelling(TEACHING_PLAIN, prompt=source["system_prompt"])
    if rated(view.config):
        implied = source["system_prompt"] == RUBRIC_PROMPT
        return Spelling(RUBRIC, prompt=None if implied else source["system_prompt"] or "")
    rewards, name = view.get("rewards"), function_scoring(view, source)
    chosen = [reward for reward in rewards if not source["reward"] or reward["name"] == source["reward"]]
    penalty = chosen[0].get("args", {}).get(THINK_PENALTY, 0.0) if name == "math_boxed_reward" else 0.0
    masks = any(item["type"] == "overlong" for item in view.get("algorithm.filters"))
    return spelled(name, source["system_prompt"], penalty, masks, view.version)


def masked_by_workflow(view: Writing) -> bool:
    """Whether the workflow of every source leaves responses that were cut at the limit out of the loss."""
    sources = view.get("data.train")
    if any(has_agent(view.config, source) for source in sources):
        return False
    return bool(sources) and all(spelling_of(view, source).masks for source in sources)


def spelling_of_all(view: Writing) -> Spelling:
    """How the first source is written, which decides the workflow of all that say no other."""
    sources = [*view.get("data.train"), *view.get("data.eval")]
    free = next((source for source in sources if not has_agent(view.config, source)), None)
    return spelling_of(view, free) if free is not None else Spelling("math_workflow")


def _write_format(view: Writing, root: Any, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    form = (*root, "format")
    for key, (field, default) in FORMAT.items():
        value = source[field]
        if key in ("image_key", "video_key") and not view.explicit(f"data.{place[1]}.{place[2]}.{field}"):
            yield Flow((), None, ((*place, field),), "mapped", "read only if the column exists")
        elif key == "response_key" and value is None:
            note = "the source does not say which column has the answer: name it in format.response_key"
            yield Flow((*form, key), answer_column(value), ((*place, field),), "derived", note, always=True)
        elif key == "response_key" and "." in value and not view.explicit(f"data.{place[1]}.{place[2]}.{field}"):
            note = said("Trinity reads columns of the row itself: move {value} there", value=value)
            yield Flow((*form, key), answer_column(value), ((*place, field),), "derived", note, always=True)
        elif value is not None:
            yield Flow((*form, key), value, ((*place, field),), same=True)
        elif default is None:
            yield Flow((), None, ((*place, field),))
    if source["source_key"] and rows_name_functions(view.get("rewards"), view.version):
        yield Flow((*form, "reward_fn_key"), source["source_key"], ((*place, "source_key"),), same=True)
    elif source["source_key"] in (None, "data_source"):
        yield Flow((), None, ((*place, "source_key"),), "mapped", "metrics are split by task set")
    else:
        yield Inexpressible(((*place, "source_key"),), "Trinity splits metrics by task set, not by a column", idle=True)


def _write_evaluation(view: Writing, root: Any, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    sampling = source["evaluation_sampling"]
    at = (*place, "evaluation_sampling")
    yield Flow((*root, "repeat_times"), source["responses_per_prompt"], ((*place, "responses_per_prompt"),), same=True)
    if sampling["temperature"] == model_temperature(view):
        yield Flow((), None, ((*at, "temperature"),), "mapped", "the model's default")
    else:
        key = (*root, "rollout_args", "temperature")
        yield Flow(key, sampling["temperature"], ((*at, "temperature"),), same=True, always=True)
    if sampling["top_p"] == view.config.rollout.sampling.top_p:
        yield Flow((), None, ((*at, "top_p"),), "mapped", "the model's default")
    else:
        yield Flow((*root, "rollout_args", "top_p"), sampling["top_p"], ((*at, "top_p"),), same=True, always=True)
    yield Flow(
        (*root, "rollout_args", "top_k"), sampling["top_k"] or -1, ((*at, "top_k"),), same=sampling["top_k"] is not None
    )
    if sampling["max_response_tokens"]:
        yield Flow(
            (*root, "rollout_args", "max_tokens"),
            sampling["max_response_tokens"],
            ((*at, "max_response_tokens"),),
            same=True,
        )


def _lost_columns(view: Writing, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    usual = {
        "weight": 1.0,
        **({} if source["format"] == "episodes" else {"max_samples": None}),
        "prompt_type": "auto",
        "response_key": None,
        "messages_key": None,
        "tools_key": None,
        "chosen_key": "chosen",
        "rejected_key": "rejected",
        "tag_key": None,
        "extra_key": "extra_info",
    }
    for field, value in usual.items():
        if source[field] == value:
            yield Flow((), None, ((*place, field),))
        else:
            yield Inexpressible(((*place, field),), said("Trinity's task sets have no {field}", field=field))
    if source["audio_key"] not in (None, "audios"):
        yield Inexpressible(((*place, "audio_key"),), "Trinity's task sets have no audio")


def _write_eval(view: Writing) -> Iterator[Out]:
    if view.config.algorithm.objective.choice in ("sft", "dpo"):
        return
    for index, source in enumerate(view.get("data.eval")):
        root = (*view.path(f"{E}.eval_tasksets"), index)
        yield from _write_source(view, root, ("data", "eval", index), source)


TASKSET_KEYS: tuple[tuple[str, Any], ...] = (
    ("name", ""),
    ("path", None),
    ("split", "train"),
    ("subset_name", None),
    ("default_workflow_type", None),
    ("default_reward_fn_type", None),
    ("workflow_args", {}),
    ("workflow_args.**", ABSENT),
    ("reward_fn_args", {}),
    ("reward_fn_args.**", ABSENT),
    ("rollout_args.temperature", None),
    ("rollout_args.top_p", None),
    ("rollout_args.top_k", -1),
    ("rollout_args.max_tokens", None),
    ("rollout_args.logprobs", None),
    *experiences.selector_keys(experiences.SELECTOR),
    *experiences.selector_keys(experiences.OLD_SELECTOR),
    ("format.reward_fn_key", ""),
    ("format.system_prompt", None),
    ("format.system_prompt_key", None),
    ("format.workflow_key", ""),
    *((f"format.{key}", default) for key, (_, default) in FORMAT.items()),
)


def taskset(root: str, *, evaluation: bool = False) -> tuple[DialectKey, ...]:
    """The keys of one task set."""
    names = [*TASKSET_KEYS, *([("repeat_times", FROM_SCHEMA)] if evaluation else [])]
    in_list = root.endswith("*")  # the one task set is null by default, so that its schema has no defaults of its keys
    # 0.6.0 common/config.py, TasksetConfig
    storage = DialectKey(f"{root}.storage_type", FROM_SCHEMA if in_list else "file", takes=STORAGES)
    return (
        storage,
        *(
            # 0.6.0 common/config.py, TasksetConfig, GenerationConfig, DataSelectorConfig and FormatConfig
            DialectKey(f"{root}.{name}", FROM_SCHEMA if in_list and default is not ABSENT else default)
            for name, default in names
        ),
    )


FILLED = {
    "storage_type": "format",
    "name": "name",
    "path": "path",
    "split": "split",
    "subset_name": "subset",
    "default_workflow_type": "agent",
    "default_reward_fn_type": "reward",
    "format.reward_fn_key": "source_key",
    "format.system_prompt": "system_prompt",
    "format.workflow_key": "agent_key",
    **{f"format.{key}": field for key, (field, _) in FORMAT.items()},
}
"""The fields of a source that the keys of a task set fill."""
PROMPTING = ("default_workflow_type", "default_reward_fn_type")
"""Keys whose classes have a system prompt."""
SAMPLED = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_response_tokens"}


def meanings(root: str, kind: str) -> dict[str, str | tuple[str, ...]]:
    """The canonical keys that the keys of one task set fill."""
    to = f"data.{kind}[]"
    found: dict[str, str | tuple[str, ...]] = {f"{root}.{key}": f"{to}.{field}" for key, field in FILLED.items()}
    found |= {f"{root}.{key}": (f"{to}.{FILLED[key]}", f"{to}.system_prompt") for key in PROMPTING}
    if kind == "train":
        return (
            found
            | experiences.order_meanings(root, experiences.SELECTOR, experiences.OLD_SELECTOR)
            | {f"{root}.rollout_args.{key}": f"{to}.sampling" for key in ("temperature", "top_p", "top_k")}
        )
    sampled = {f"{root}.rollout_args.{key}": f"{to}.evaluation_sampling.{field}" for key, field in SAMPLED.items()}
    return found | sampled | {f"{root}.repeat_times": f"{to}.responses_per_prompt"}


RULES: list[Rule] = [
    CustomRule(
        "training data",
        (*taskset(f"{E}.taskset"), *taskset(f"{E}.tasksets.*"), *experiences.KEYS),
        (
            *(f"data.train[].{field}" for field in SOURCE_FIELDS),
            "data.curriculum.order",
            "data.curriculum.keys",
            "data.curriculum.args",
            "data.seed",
            "data.mixing",
        ),
        _read_train,
        _write_train,
        "task sets, or the experience buffer of sft and dpo",
        by_key={
            **dict.fromkeys((f"{E}.{key}" for key in PROMPTING), "data.train[].system_prompt"),
            **meanings(f"{E}.taskset", "train"),
            **meanings(f"{E}.tasksets.*", "train"),
            **experiences.MEANINGS,
        },
        why="Task sets, or the buffer of supervised training, are a list of sources, each in the form of its workflow.",
    ),
    CustomRule(
        "evaluation data",
        (DialectKey(f"{E}.eval_tasksets"), *taskset(f"{E}.eval_tasksets.*", evaluation=True)),
        (*(f"data.eval[].{field}" for field in (*SOURCE_FIELDS, *EVALUATION_FIELDS)),),
        _read_eval,
        _write_eval,
        by_key={
            **{f"{E}.{key}": "data.eval[].system_prompt" for key in (*PROMPTING, "default_eval_workflow_type")},
            f"{E}.default_reward_fn_type": ("data.eval[].system_prompt", "data.eval[].reward"),
            f"{E}.eval_tasksets": "data.eval",
            f"{E}.eval_tasksets.*": (),
            **meanings(f"{E}.eval_tasksets.*", "eval"),
        },
        why="Task sets are a list of sources, each in the form of its workflow.",
    ),
    Dropped("data.overlong_prompts", "Trinity-RFT cannot filter overlong prompts: filter the dataset before training"),
    Dropped("data.truncation", "Trinity truncates overlong prompts from the right and excludes them from training"),
    Dropped("data.shuffle_evaluation", "Trinity evaluates in file order"),
    *(
        Dropped(
            key,
            "Trinity samples all rows of a task set alike, whichever reward scores them: repeat rows to keep the shares",
        )
        for key in ("data.domain_weights", "data.domain_weights.**")
    ),
    Dropped("data.last_batch", "Trinity carries an incomplete last batch into the next epoch", "carry", matters=True),
    Dropped("data.loader_workers", "Trinity reads its data itself", idle=True),
    Dropped("data.filter_workers", "Trinity cannot filter prompts", idle=True),
    Dropped("data.evaluation_batch_prompts", "Trinity evaluates whole datasets", idle=True),
    Dropped("data.sequence_truncation", "Trinity truncates sequences at max_model_len"),
    # 0.6.0 common/config.py, FormatConfig
    Key(
        f"{B}.format.enable_concatenated_multi_turn",
        "data.multi_turn_loss",
        False,
        Partly({False: "last_assistant", True: "all_assistant"}),
        quiet=True,
    ),
    Dropped("data.custom", "in Trinity, data readers are plug-ins", None),
    Dropped("data.custom.**", "in Trinity, data readers are plug-ins"),
    Dropped("data.stage_in_shared_memory", "Trinity does not copy data", idle=True),
    Dropped("data.trust_remote_code", "Trinity has no key for this; its own default applies"),
]
