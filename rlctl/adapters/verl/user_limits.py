"""What verl refuses of the user's data and reward function: names of data sources, columns of images, kinds of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.model_limits import shape_at
from rlctl.adapters.engine.requirements import IGNORES, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl.requirement_values import MODEL, ROLLOUT
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.report import Level
from rlctl.config.reward_returns import MAPPING, NOTHING, NUMBER, SEQUENCE, TEXT, Returned, Returns, returns_of
from rlctl.config.reward_signatures import BATCH_ARGUMENTS, VERL_ARGUMENTS, parameters_of
from rlctl.planning.parquet_footer import parquet_fields, parquet_texts

SCORES = "verl/utils/reward_score/__init__.py, default_compute_score"
DATASET = "verl/utils/dataset/rl_dataset.py, RLHFDataset._build_messages"
FUNCTIONS = ("custom_reward_function", "reward.custom_reward_function")
MANAGERS = ("reward.reward_manager.name", "reward_manager.name", "reward_model.reward_manager")
PER_ROW = (None, "naive", "dapo")
"""Reward managers that call the function once for each response and read a mapping's ``score``."""
BUILT_IN = (
    *("openai/gsm8k", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "numina_aops_forum"),
    *("numina_synthetic_math", "numina_amc_aime", "numina_synthetic_amc", "numina_cn_k12", "numina_olympiads"),
    *("codecontests", "apps", "codeforces", "taco", "hiyouga/geometry3k"),
)
SEARCH = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
MORE_BUILT_IN = {
    "0.4": ("math_dapo", *(f"searchR1_{name}" for name in SEARCH)),
    "0.5": ("HuggingFaceH4/MATH-500",),
    "0.6": ("math", "math_dapo_reasoning"),
}
"""Data sources that a release scores and the one before does not; since 0.4 also all that begin with ``aime``."""
LARGEST_TEXT = 64
"""Characters of a value that statistics surely hold whole."""


def _function(values: Values) -> str:
    """The file of the user's reward function; empty without one."""
    return next((str(values[f"{key}.path"]) for key in FUNCTIONS if values[f"{key}.path"]), "")


def _scores_itself(values: Values) -> bool:
    """Whether verl's own rules score the rows: no function, reward model, tools or environment of the user's does."""
    return scores_rows(values) and not _function(values)


def _scores_elsewhere(values: Values) -> bool:
    """Whether a reward model, tools, agents or rows of the user's make that a manager does not read the rows itself."""
    models = values["reward_model.enable"] or values["reward.reward_model.enable"]
    agents = values[f"{ROLLOUT}.multi_turn.enable"] or values[f"{ROLLOUT}.agent.agent_loop_config_path"]
    return bool(models or agents or values["data.custom_cls.path"])


def _manager(values: Values) -> Any:
    return next((values[key] for key in MANAGERS if values.written(key)), None)


def _texts(values: Values, key: str, *column: str) -> Iterator[tuple[str, str]]:
    """Some of the values of a text column of local Parquet files, each with its file."""
    for name in files_of(values[key]):
        path = expanded(str(name).removeprefix("file://"))
        if path.suffix == ".parquet" and path.is_file():
            for text in parquet_texts(path, column):
                if len(text) < LARGEST_TEXT:
                    yield text, str(name)


def _unscored(key: str, known: tuple[str, ...], prefix: str) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        column = str(values["data.reward_fn_key"] or "data_source")
        texts = dict.fromkeys(text for text, _ in _texts(values, key, column)) if _scores_itself(values) else {}
        return ", ".join(
            f"'{text}'" for text in texts if text not in known and not (prefix and text.startswith(prefix))
        )

    return found


def _sources() -> Iterator[Requirement]:
    """Data sources that a release has no reward for."""
    known: tuple[str, ...] = BUILT_IN
    starts = ["0.3", *MORE_BUILT_IN]
    for start, end in zip(starts, ["0.3", "0.4", "0.5", ""], strict=True):
        known += MORE_BUILT_IN.get(start, ())
        for key, when in (("data.train_files", "rollout"), ("data.val_files", "validation")):
            unscored = _unscored(key, known, "aime" if start != "0.3" else "")
            yield Requirement(
                key,
                unscored,
                said(
                    "rows of {key} have the data_source {{sources}}, for which verl has no reward function",
                    key=key,
                ),
                SCORES,
                "set custom_reward_function.path to a file with a function compute_score, or change data_source",
                numbers={"sources": unscored},
                when=when,
                since=start,
                until=end,
            )


def _column_row(key: str, default: str, needed: Callable[[Values], bool], since: str) -> Requirement:
    """A column that the reward manager reads from each row."""

    def missing(values: Values) -> str:
        column = str((values[key] if key else None) or default)
        lacks = (file for file, columns in _columns(values) if column not in columns)
        return next(lacks, "") if needed(values) else ""

    return Requirement(
        key or "data.train_files",
        missing,
        "{file} has no column '{column}', which verl reads for each reward",
        "verl/workers/reward_manager/naive.py, NaiveRewardManager.__call__",
        "rewrite the data with this column, as verl's examples/data_preprocess do",
        numbers={"file": missing, "column": lambda values: (values[key] if key else None) or default},
        check_code="data-column",
        since=since,
        when="rollout",
    )


def _columns(values: Values) -> Iterator[tuple[str, set[str]]]:
    """The local Parquet files of training, each with its columns."""
    for name in files_of(values["data.train_files"]):
        path = expanded(str(name).removeprefix("file://"))
        if path.suffix == ".parquet" and path.is_file():
            yield str(name), {names[0] for names in parquet_fields(path)}


def scores_rows(values: Values) -> bool:
    """Whether a manager scores rows by a function, verl's or the user's."""
    return _manager(values) in (*PER_ROW, "prime", "batch") and not _scores_elsewhere(values)


def _plain_prompt(values: Values) -> str:
    """A training file whose prompts are text, not lists of messages."""
    prompt = str(values["data.prompt_key"] or "prompt")
    texts = _texts(values, "data.train_files", prompt) if not values["data.custom_cls.path"] else ()
    return next((file for _, file in texts), "")


COLUMN_ROWS: tuple[Requirement, ...] = (
    _column_row("data.reward_fn_key", "data_source", scores_rows, "0.4"),
    _column_row("", "reward_model", scores_rows, "0.3"),
    Requirement(
        "data.prompt_key",
        _plain_prompt,
        "the prompts of {file} are text, and verl takes lists of chat messages: the run stops, or its prompts lack the text",
        "verl/utils/dataset/rl_dataset.py, RLHFDataset.__getitem__",
        """rewrite each prompt as [{"role": "user", "content": TEXT}]""",
        numbers={"file": _plain_prompt},
        since="0.3",
    ),
    Requirement(
        MANAGERS[2],
        lambda v: _manager(v) == "batch" and not _function(v) and not _scores_elsewhere(v),
        "the reward manager is batch, and no custom_reward_function is set: it passes lists, which verl's own rewards do not "
        "take, and the run stops after the first rollout",
        "verl/workers/reward_manager/batch.py, BatchRewardManager.verify",
        "set custom_reward_function.path to a function of lists, or the reward manager to naive",
        since="0.4",
        until="0.7",
        when="rollout",
    ),
)

MEDIA = (("image_key", "images", "<image>"), ("video_key", "videos", "<video>"))


def _lost_media(name: str, usual: str, mark: str) -> Requirement:
    """Rows with a place for an image, and no column that holds it."""
    key = f"data.{name}"

    def column(values: Values) -> str:
        return str(values[key] or usual)

    def found(values: Values) -> str:
        prompt = str(values["data.prompt_key"] or "prompt")
        for text, file in _all_texts(values, prompt):
            columns = {names[0] for names in parquet_fields(expanded(file))}
            if mark in text and column(values) not in columns and not values["data.custom_cls.path"]:
                return file
        return ""

    def near(values: Values) -> str:
        columns = {names[0] for names in parquet_fields(expanded(found(values)))}
        return next((each for each in sorted(columns) if each.rstrip("s") == usual.rstrip("s")), usual)

    return Requirement(
        key,
        found,
        said(
            "prompts of {{file}} have {mark}, but the file has no column '{{column}}' ({key}): verl trains on the text alone",
            mark=mark,
            key=key,
        ),
        DATASET,
        Remedy(key, near),
        numbers={"file": found, "column": column},
        since="0.3" if name == "image_key" else "0.4",
        code=IGNORES,
        level=Level.WARNING,
    )


def _all_texts(values: Values, prompt: str) -> Iterator[tuple[str, str]]:
    """Parts of some prompts of the training files, of any length."""
    for name in files_of(values["data.train_files"]):
        path = expanded(str(name).removeprefix("file://"))
        if path.suffix == ".parquet" and path.is_file():
            yield from ((text, str(path)) for text in parquet_texts(path, (prompt, "*", "content")))


def _returns(values: Values, managers: tuple[str | None, ...] = PER_ROW) -> Returns | None:
    key = next((key for key in FUNCTIONS if values[f"{key}.path"]), "")
    if not key or _manager(values) not in managers:
        return None
    file = expanded(str(values[f"{key}.path"]).removeprefix("file://"))
    return returns_of(Path(file), str(values[f"{key}.name"] or "compute_score")) if file.is_file() else None


def _some(wrong: Callable[[Returns], str]) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        returns = _returns(values)
        return wrong(returns) if returns is not None else ""

    return found


SHOWN: Mapping[str, Callable[[Returned], str]] = {
    SEQUENCE: lambda value: said("a list or tuple in line {line}", line=value.line),
    MAPPING: lambda value: said("a dict in line {line}", line=value.line),
    NUMBER: lambda value: said("a number in line {line}", line=value.line),
    NOTHING: lambda value: said("nothing in line {line}", line=value.line),
    TEXT: lambda value: said("text in line {line}", line=value.line),
}
"""How a value that a function returns is named."""


def _shown(returns: Returns, *kinds: str) -> str:
    found = (value for kind in kinds if (value := returns.first(kind)) is not None)
    return together((SHOWN[value.kind](value) for value in found), COMMAS)


def _mixed(returns: Returns) -> str:
    if {MAPPING, NUMBER} <= set(returns.kinds):
        return _shown(returns, MAPPING, NUMBER)
    if (pair := returns.uneven) is not None:
        first, other = pair
        return together(
            (
                said("a dict with {keys} in line {line}", keys=", ".join(sorted(each.keys or ())), line=each.line)
                for each in (first, other)
            ),
            COMMAS,
        )
    return ""


def _function_row(found: Callable[[Values], str], message: str, source: str, hint: str, **others: Any) -> Requirement:
    return Requirement(
        FUNCTIONS[0] + ".path", found, message, source, hint, numbers={"values": found}, when="rollout", **others
    )


def _without_score(returns: Returns) -> str:
    """Mappings without the key that is the reward."""
    return together(
        (
            said("a dict with {keys} in line {line}", keys=", ".join(sorted(value.keys)), line=value.line)
            for value in returns.values
            if value.keys and "score" not in value.keys
        ),
        COMMAS,
    )


def _called_otherwise(values: Values) -> str:
    """The parameters of a function that takes lists where the manager passes one response, or the other way round."""
    key = next((key for key in FUNCTIONS if values[f"{key}.path"]), "")
    file = expanded(str(values[f"{key}.path"]).removeprefix("file://")) if key else Path()
    takes = parameters_of(file, str(values[f"{key}.name"] or "compute_score")) if file.is_file() else None
    manager = _manager(values)
    if takes is None or takes.anything or manager not in (*PER_ROW, "batch"):
        return ""
    wanted = BATCH_ARGUMENTS if manager == "batch" else VERL_ARGUMENTS
    lists = set(VERL_ARGUMENTS if manager == "batch" else BATCH_ARGUMENTS) & takes.names
    return str(takes) if lists and not set(wanted) <= takes.names else ""


FUNCTION_ROWS: tuple[Requirement, ...] = (
    _function_row(
        _some(lambda returns: "" if _mixed(returns) else _shown(returns, MAPPING)),
        "the reward function returns {values}; verl 0.3.0 takes a number only, and stops after the first rollout",
        "verl/workers/reward_manager/naive.py, NaiveRewardManager.__call__",
        "return the score alone, as a float, or use verl 0.4",
        since="0.3",
        until="0.3",
        level=Level.NOTE,
    ),
    _function_row(
        _some(_mixed),
        "the reward function returns different kinds of values ({values}): verl makes a column of each key, and stops "
        "after the first rollout or validation in which a response lacks one",
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker._postprocess",
        "return a dict with the same keys on every path, or a number on every path",
        since="0.7",
        older={"0.3": "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.fit"},
    ),
    _function_row(
        _some(lambda returns: _shown(returns, NOTHING, TEXT, SEQUENCE)),
        "the reward function returns {values}, which is no reward: verl stops after the first rollout that reaches this line",
        "verl/workers/reward_manager/naive.py, NaiveRewardManager.__call__",
        "return a number on every path, such as 0.0",
        since="0.3",
    ),
    _function_row(
        _some(lambda returns: "async" if returns.is_async else ""),
        "the reward function is {values}, and verl calls it without awaiting it: the run stops after the first rollout",
        "verl/workers/reward_manager/naive.py, NaiveRewardManager.__call__",
        "define it with def",
        since="0.3",
        until="0.6",
    ),
    _function_row(
        _some(_without_score),
        "the reward function returns {values}, and verl reads the key 'score': the run stops after the first rollout",
        "verl/workers/reward_manager/naive.py, NaiveRewardManager.__call__",
        "put the reward under the key score",
        since="0.4",
    ),
    _function_row(
        _called_otherwise,
        "the reward function takes {values}: the reward manager batch passes lists, data_sources, solution_strs, ground_truths "
        "and "
        "extra_infos, and the others one response, data_source, solution_str, ground_truth and extra_info. The run stops after "
        "the "
        "first rollout",
        "verl/workers/reward_manager/batch.py, BatchRewardManager.verify",
        "change the parameters, or reward_model.reward_manager",
        since="0.4",
        until="0.7",
        check_code="code-signature",
    ),
)


READ = (".parquet", ".json", ".jsonl")
"""Files that verl's dataset of prompts reads."""


def _unread(key: str) -> Callable[[Values], str]:
    return lambda values: (
        ""
        if values["data.custom_cls.path"]
        else next((f for f in files_of(values[key]) if Path(f).suffix and not f.endswith(READ)), "")
    )


def _unseen_images(values: Values) -> str:
    """A training file with images, if the model is known to have no vision tower."""
    shape = shape_at(values, f"{MODEL}.path")
    if shape is None or shape.vision_parameters or "vl" in shape.family or values["data.custom_cls.path"]:
        return ""
    column = str(values["data.image_key"] or "images")
    return next((file for file, columns in _columns(values) if column in columns), "")


def _unreturned(values: Values) -> str:
    """Parts of GDPO's reward that the user's function surely does not return."""
    returns = _returns(values, ("gdpo", *PER_ROW))
    mapping = returns.first(MAPPING) if returns is not None else None
    if mapping is None or mapping.keys is None or values["algorithm.adv_estimator"] != "gdpo":
        return ""
    return ", ".join(name for name in values["algorithm.gdpo_reward_keys"] or () if name not in mapping.keys)


NEWEST_ROWS: tuple[Requirement, ...] = (
    *(
        Requirement(
            key,
            _unread(key),
            said(
                "{key} names {{file}}; verl reads {types}, and stops when it loads the data",
                key=key,
                types=", ".join(READ),
            ),
            "verl/utils/dataset/rl_dataset.py, RLHFDataset._read_files_and_tokenize",
            "convert it to Parquet",
            numbers={"file": _unread(key)},
        )
        for key in ("data.train_files", "data.val_files")
    ),
    Requirement(
        "data.image_key",
        _unseen_images,
        said(
            "{{file}} has a column of images, and the model {{{model}}} reads none: verl stops at the first row with an image",
            model=f"{MODEL}.path",
        ),
        DATASET,
        said("set {model} to a model with vision, or remove the column", model=f"{MODEL}.path"),
        numbers={"file": _unseen_images},
        level=Level.WARNING,
    ),
    Requirement(
        "reward.custom_reward_function.path",
        lambda v: (returns := _returns(v, ("remote",))) is not None and returns.is_async,
        "the reward function is async, and the reward manager remote takes none: verl stops when it starts the reward workers",
        "verl/experimental/reward_loop/reward_manager/remote.py, RemoteRewardManager.__init__",
        "define it with def, or set reward.reward_manager.name to naive",
    ),
    Requirement(
        "algorithm.gdpo_reward_keys",
        _unreturned,
        "algorithm.gdpo_reward_keys names {names}, which the reward function does not return: verl stops after the first rollout",
        "verl/trainer/ppo/core_algos.py, compute_gdpo_outcome_advantage",
        "return them, or remove them from algorithm.gdpo_reward_keys",
        numbers={"names": _unreturned},
        when="rollout",
    ),
)

ROWS: tuple[Requirement, ...] = (
    *NEWEST_ROWS,
    *COLUMN_ROWS,
    *_sources(),
    *(_lost_media(*each) for each in MEDIA),
    *FUNCTION_ROWS,
)
