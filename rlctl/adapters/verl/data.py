"""verl: data files and how prompts are read. Column names hold for all files alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.agents import games, plays
from rlctl.adapters.engine.conditions import negated
from rlctl.adapters.engine.implied import ENVIRONMENTS, told
from rlctl.adapters.engine.one_sided_rows import ReadOnly, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
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
    Switch,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.engine.values import EVALUATION_FIELDS, SOURCE_FIELDS, Names, Partly, files_of
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config
from rlctl.documents.paths import KeyPath

R = "actor_rollout_ref.rollout"
ANSWER = "reward_model.ground_truth"
COLUMNS = {
    "prompt_key": "data.prompt_key",
    "source_key": "data.reward_fn_key",
    "image_key": "data.image_key",
    "video_key": "data.video_key",
    "audio_key": "data.audio_key",
}


UNLISTED_COLUMNS = {"data.image_key": "images", "data.video_key": "videos"}
"""What ``RLHFDataset`` in ``verl/utils/dataset/rl_dataset.py`` reads where a release's config has no such key."""


def _files(kind: str, key: str, columns: dict[str, str], fixed: dict[str, Any]) -> CustomRule:
    """The files of one kind, each with the columns that hold for all."""

    def read(view: Reading) -> Iterator[Flow]:
        raw = view.get(key)
        for index, path in enumerate(files_of(raw)):
            to = ("data", kind, index)
            single = not isinstance(raw, (list, tuple))
            used = (view.path(key),)
            yield Flow((*to, "path"), path, used, same=single)
            for field, column in columns.items():
                yield Flow((*to, field), view.get(column), (view.path(column),), same=True)
            for field, value in fixed.items():
                yield Flow((*to, field), value, ())
        if not files_of(raw) and view.written(key):
            yield Flow(("data", kind), [], (view.path(key),))

    def write(view: Writing) -> Iterator[Out]:
        sources = view.get(f"data.{kind}")
        if any(source["format"] == "episodes" for source in sources):
            yield from _write_episodes(view, kind, key, sources)
            return
        paths = [source["path"] for source in sources]
        used = tuple(("data", kind, index, "path") for index in range(len(paths)))
        if len(paths) == 1:
            yield Flow(view.path(key), paths[0], used, same=True, always=True)
        elif paths:
            yield Flow(view.path(key), paths, used, always=True)
        else:  # without the key, verl reads a file of its own
            yield Flow(view.path(key), None, (("data", kind),), always=True)
        for index, source in enumerate(sources):
            yield from _columns(view, kind, index, source, columns)
            yield from _fixed(view, kind, index, source, sources, columns, fixed)

    return CustomRule(
        f"files of {kind}",
        (DialectKey(key, ABSENT), *column_keys(columns)),
        PER_SOURCE[kind],
        read,
        write,
        by_key={
            key: f"data.{kind}[].path",
            **{column: f"data.{kind}[].{field}" for field, column in columns.items()},
        },
        why="A list of files becomes a list of sources, each with columns and settings that hold for all files of verl's.",
    )


def _write_episodes(view: Writing, kind: str, key: str, sources: Any) -> Iterator[Out]:
    """Sources without rows, of which verl has none."""
    note = "verl starts an episode for each row of a file, but the source has no rows"
    named = f"${{oc.env:VERL_{'TRAIN' if kind == 'train' else 'VAL'}_FILES}}"
    formats = tuple(("data", kind, index, "format") for index in range(len(sources)))
    yield Flow(view.path(key), named, formats, "derived", note, always=True)
    for index, source in enumerate(sources):
        kept = ("agent", "agent_key", "responses_per_prompt", "evaluation_sampling")
        fields = tuple(("data", kind, index, field) for field in source if field not in kept)
        yield Inexpressible(fields, note, idle=True)


def _columns(view: Writing, kind: str, index: int, source: dict[str, Any], columns: Any) -> Iterator[Out]:
    for field, column in columns.items():
        # 0.3.0.post1 and 0.4.1 utils/dataset/rl_dataset.py, RLHFDataset
        default = view.default(DialectKey(column, UNLISTED_COLUMNS.get(column, FROM_SCHEMA)))
        first = view.get(f"data.{kind}")[0][field] if kind == "train" or not view.get("data.train") else None
        first = view.get("data.train")[0][field] if view.get("data.train") else first
        place = ("data", kind, index, field)
        if source[field] != first:
            yield Inexpressible((place,), said("verl has one {column} for all files", column=column))
        elif source[field] is None and default is not None and field.endswith(("image_key", "video_key", "audio_key")):
            yield Flow(
                (), None, (place,), "mapped", said("verl reads {column} only if the column exists", column=column)
            )
        elif source[field] is None and field == "source_key":
            yield Flow(
                (),
                None,
                (place,),
                "derived",
                said("verl needs a column that selects the reward; kept its default, '{default}'", default=default),
            )
        else:
            yield Flow(view.path(column), source[field], (place,), same=True)


def _fixed(view: Writing, kind: str, index: int, source: Any, sources: Any, columns: Any, fixed: Any) -> Iterator[Out]:
    plain = {"weight": 1.0, "format": "auto", "prompt_type": "auto", "chosen_key": "chosen", "rejected_key": "rejected"}
    reader = {"answer_key": (None, fixed.get("answer_key")), "extra_key": ("extra_info",)}
    turns = source.get("messages_key") if "messages_key" in columns else None
    handled = {"path", *columns, "max_samples", "responses_per_prompt", "evaluation_sampling", "agent", "agent_key"}
    for field, value in source.items():
        place = ("data", kind, index, field)
        if field in handled or not view.explicit(".".join(str(part) for part in place[:2])):
            continue
        if value in reader.get(field, (plain.get(field),)) or value == {} or value == fixed.get(field, ABSENT):
            yield Flow((), None, (place,), "mapped", "verl always does this")
        elif turns and field in ("prompt_key", "response_key"):
            yield Inexpressible((place,), said("the conversations in '{turns}' contain it", turns=turns), idle=True)
        elif "messages_key" in columns and field in ("prompt_key", "response_key"):
            yield Inexpressible((place,), "verl's SFT trainer reads conversations: write one column of chat messages")
        elif field == "prompt_type" and value == "messages":
            yield Inexpressible((place,), "verl's rows are chat messages", idle=True)
        elif field == "split" and not view.explicit(".".join(str(part) for part in place)):
            yield Flow((), None, (place,), "derived", "verl reads whole files")
        elif field == "name":
            yield Inexpressible((place,), "verl names datasets by their data_source column", idle=True)
        elif value is not None:
            yield Inexpressible(
                (place,), OTHERWISE.get(field, said("verl has no {field} for one file alone", field=field))
            )


OTHERWISE = {
    "answer_key": said("verl reads the answer from '{answer}'", answer=ANSWER),
    "split": "verl reads files, not splits: name the file of this split",
    "subset": "verl reads files, not subsets: name the file of this subset",
    "prompt_type": "verl reads prompts as chat messages",
    "sampling": "verl samples for all files alike, by the rollout's temperature, top_p and top_k",
    "system_prompt": "verl has no key for a system prompt: put it into the messages of the rows",
}
"""What verl does instead."""


def _rows_used(kind: str, files: str, key: str) -> CustomRule:
    """How many rows are used, which verl counts over all files of a kind."""

    number = DialectKey(key)

    def read(view: Reading) -> Iterator[Flow]:
        value = view.get(key)
        for index, _ in enumerate(files_of(view.get(files))):
            cut = value if isinstance(value, int) and value > 0 else None
            yield Flow(("data", kind, index, "max_samples"), cut, (view.path(key),))

    def write(view: Writing) -> Iterator[Out]:
        sources = view.get(f"data.{kind}")
        if any(source["format"] == "episodes" for source in sources):
            return
        wanted = [source["max_samples"] for source in sources]
        used = tuple(("data", kind, index, "max_samples") for index in range(len(wanted)))
        if not view.has(number):
            if any(wanted):
                yield Inexpressible(used, said("this release has no {key}", key=key))
        elif len(wanted) == 1:
            yield Flow(view.path(key), wanted[0] or -1, used)
        elif any(item is not None for item in wanted):
            yield Inexpressible(used, said("verl's {key} counts all files together", key=key))

    return CustomRule(
        f"rows of {kind}",
        (number,),
        (),
        read,
        write,
        by_key={key: f"data.{kind}[].max_samples"},
        why="One number of verl's holds for all sources, so different numbers per source cannot be written.",
    )


def _is_greedy(view: Reading) -> bool:
    """Whether evaluation is greedy whatever its temperature: until 0.6, where the engine answered in step, without do_sample."""
    in_step = view.get(f"{R}.mode", "sync") == "sync"
    return view.version < (0, 7) and in_step and not view.get(f"{R}.val_kwargs.do_sample")


def _read_evaluation(view: Reading) -> Iterator[Flow]:
    keys = {name: f"{R}.val_kwargs.{name}" for name in ("temperature", "top_p", "top_k", "n", "do_sample")}
    greedy, old = _is_greedy(view), view.version < (0, 7)
    for index, _ in enumerate(files_of(view.get("data.val_files"))):
        to = ("data", "eval", index, "evaluation_sampling")
        for name, off in (("temperature", 0.0), ("top_p", 1.0), ("top_k", None)):
            value = view.get(keys[name])
            if name == "top_k":
                value = value if isinstance(value, int) and value > 0 else None
            used = (view.path(keys[name]), *((view.path(keys["do_sample"]),) if old and name == "temperature" else ()))
            note = "do_sample is off: greedy" if greedy and value != off else ""
            how: Provenance = "derived" if note else "mapped"
            yield Flow((*to, name), off if greedy else value, used, how, note, same=not greedy and name != "top_k")
        yield Flow(
            ("data", "eval", index, "responses_per_prompt"), view.get(keys["n"]), (view.path(keys["n"]),), same=True
        )


def _write_evaluation(view: Writing) -> Iterator[Out]:
    sources = view.get("data.eval")
    if not sources:
        return
    first = sources[0]
    values = {
        "temperature": (first["evaluation_sampling"]["temperature"], "evaluation_sampling.temperature"),
        "top_p": (first["evaluation_sampling"]["top_p"], "evaluation_sampling.top_p"),
        "top_k": (first["evaluation_sampling"]["top_k"] or -1, "evaluation_sampling.top_k"),
        "n": (first["responses_per_prompt"], "responses_per_prompt"),
    }
    if view.version < (0, 7) and first["evaluation_sampling"]["temperature"] > 0:
        temperature = ("data", "eval", 0, "evaluation_sampling", "temperature")
        yield Flow(
            view.path(f"{R}.val_kwargs.do_sample"),
            True,
            (temperature,),
            "derived",
            "without it, verl evaluates greedily",
        )
    for name, (value, field) in values.items():
        used: list[KeyPath] = [("data", "eval", index, *field.split(".")) for index in range(len(sources))]
        yield Flow(view.path(f"{R}.val_kwargs.{name}"), value, tuple(used[:1]), same=name != "top_k")
        for index, source in enumerate(sources[1:], 1):
            if (
                source["evaluation_sampling"] != first["evaluation_sampling"]
                or source["responses_per_prompt"] != first["responses_per_prompt"]
            ):
                yield Inexpressible((used[index],), "verl samples all evaluation files with the same settings")
            else:
                yield Flow((), None, (used[index],), "mapped", "the same for all files")
    limit = tuple(("data", "eval", i, "evaluation_sampling", "max_response_tokens") for i in range(len(sources)))
    if any(source["evaluation_sampling"]["max_response_tokens"] for source in sources):
        yield Inexpressible(limit, "verl has one response length for training and evaluation")


def _leaves_cut(view: Writing) -> bool:
    """Whether prompts that are too long are not trained on although they stay in the data."""
    return view.get("data.overlong_prompts") == "keep" and view.get("data.train_on_truncated_prompts") is False


PROMPT_LENGTH, MAX_PROMPT = f"{R}.prompt_length", "data.max_prompt_length"


def _differs(view: Reading) -> bool:
    """Whether a prompt may be longer in rollout than in the data, whose own limit leaves none that is."""
    return bool(view.get(PROMPT_LENGTH) != view.get(MAX_PROMPT))


READ = (".parquet", ".json", ".jsonl")
TRAIN_FILES = "data.train_files"


def needs(config: Config) -> list[Finding]:
    """What verl asks of data that was made for another framework, or that is missing."""
    sources, found = [*config.data.train, *config.data.eval], []
    played = plays(config)
    if played:
        message = said(
            "verl has no environments: the written run answers each row of data.train_files once "
            "and scores the answer, and does not play {tags}",
            tags=", ".join(agent.name for agent in played),
        )
        for kind in games(config):
            message += told(ENVIRONMENTS, kind)
        hint = (
            "write a verl agent loop that plays them, or convert to a framework with environments; set VERL_TRAIN_FILES"
        )
        found.append(finding("other-environment", Level.WARNING, TRAIN_FILES, reason=message, advice=hint))
    shaped = [source for source in sources if source.path and source.answer_key not in (None, ANSWER)]
    if shaped:
        found.append(
            finding(
                "data-columns",
                Level.WARNING,
                TRAIN_FILES,
                framework="verl",
                expected=said(
                    "the prompt as chat messages, the reward's name from 'data_source' and the answer from '{answer}'",
                    answer=ANSWER,
                ),
                found=said(
                    "'{path}' has its answer in '{answer_key}'", path=shaped[0].path, answer_key=shaped[0].answer_key
                ),
                advice="rewrite the data with these columns; verl then scores with its own reward, or custom_reward_function",
            )
        )
    unread = [source.path for source in sources if source.path and not str(source.path).endswith(READ)]
    if unread:
        advice = "download the data and name its file"
        found.append(
            finding(
                "data-files",
                Level.WARNING,
                TRAIN_FILES,
                advice=advice,
                framework="verl",
                endings=", ".join(READ),
                path=f"'{unread[0]}'",
            )
        )
    if not config.data.eval and not played:
        found.append(finding("data-files_validation", Level.WARNING, "data.val_files"))
    return found


ORDER = Names(
    {True: "shuffle", False: "sequential"},
    "verl samples prompts shuffled or in file order; other orders need a sampler class",
)
PER_SOURCE = {
    "train": tuple(f"data.train[].{field}" for field in SOURCE_FIELDS),
    "eval": tuple(f"data.eval[].{field}" for field in (*SOURCE_FIELDS, *EVALUATION_FIELDS)),
}
"""The canonical keys of a kind of sources."""


def column_keys(columns: dict[str, str]) -> tuple[DialectKey, ...]:
    """The keys that name columns."""
    # 0.3.0.post1 and 0.4.1 utils/dataset/rl_dataset.py, RLHFDataset
    return tuple(DialectKey(key, UNLISTED_COLUMNS.get(key, FROM_SCHEMA)) for key in columns.values())


def source_rules(train: str, evaluation: str, columns: dict[str, str], fixed: dict[str, Any]) -> list[Rule]:
    """The files, and how many of their rows are used."""
    return [
        _files("train", train, columns, fixed),
        _files("eval", evaluation, columns, fixed),
        _rows_used("train", train, "data.train_max_samples"),
        _rows_used("eval", evaluation, "data.val_max_samples"),
    ]


CUSTOM: list[Rule] = [
    Switch("data.custom_cls.path", "data.custom", write_on=ABSENT, write_off=ABSENT),
    When(
        (
            Key("data.custom_cls.path", "data.custom.path"),
            Key("data.custom_cls.name", "data.custom.class_name", convert=Partly({None: ""})),
        ),
        lambda view: bool(view.get("data.custom_cls.path")),
        lambda view: view.get("data.custom") is not None,
        "",
    ),
]
"""A class of the user's, if its file is named."""

RULES: list[Rule] = [
    *source_rules("data.train_files", "data.val_files", COLUMNS, {"answer_key": ANSWER}),
    CustomRule(
        "evaluation sampling",
        (
            DialectKey(f"{R}.val_kwargs.temperature"),
            DialectKey(f"{R}.val_kwargs.top_p"),
            DialectKey(f"{R}.val_kwargs.top_k"),
            DialectKey(f"{R}.val_kwargs.n"),
            DialectKey(f"{R}.val_kwargs.do_sample"),
        ),
        (),
        _read_evaluation,
        _write_evaluation,
        by_key={
            **{
                f"{R}.val_kwargs.{name}": f"data.eval[].evaluation_sampling.{name}"
                for name in ("temperature", "top_p", "top_k")
            },
            f"{R}.val_kwargs.do_sample": "data.eval[].evaluation_sampling.temperature",
            f"{R}.val_kwargs.n": "data.eval[].responses_per_prompt",
        },
        why="One block of verl's samples for every evaluation source, and one of its switches makes it greedy.",
    ),
    Key("data.max_prompt_length", "data.max_prompt_tokens"),
    ReadOnly(
        PROMPT_LENGTH,
        lambda view: said(
            "{data} decides which prompts are used" if _differs(view) else "the same as {data}", data=MAX_PROMPT
        ),
        ABSENT,
        dead=_differs,
    ),
    Key(
        "data.filter_overlong_prompts",
        "data.overlong_prompts",
        convert=Names({True: "drop", False: "keep"}),
        write_when=negated(_leaves_cut),
    ),
    WriteOnly(
        "data.train_on_truncated_prompts",
        _leaves_cut,
        "verl trains on truncated prompts or fails on them. Wrote its filter, which also drops evaluation prompts",
        "data.filter_overlong_prompts",
        True,
        fills=True,
        formula="verl trains on truncated prompts",
    ),
    WriteOnly(
        "data.train_on_truncated_prompts",
        negated(_leaves_cut),
        lambda view: "no prompt is truncated" if view.get("data.overlong_prompts") == "drop" else "",
        how="mapped",
    ),
    Key("data.truncation", "data.truncation"),
    Key("data.shuffle", "data.curriculum.order", convert=ORDER),
    Key("data.seed", "data.seed"),
    Key("data.validation_shuffle", "data.shuffle_evaluation"),
    Key("data.dataloader_num_workers", "data.loader_workers"),
    Key("data.filter_overlong_prompts_workers", "data.filter_workers"),
    Key("data.use_shm", "data.stage_in_shared_memory"),
    Key("data.trust_remote_code", "data.trust_remote_code"),
    *CUSTOM,
    Tree("data.apply_chat_template_kwargs", "model.chat_template_args"),
    Key(
        "data.tokenizer",
        "model.tokenizer",
        also=(DialectKey("actor_rollout_ref.model.tokenizer_path"),),
    ),
    Dropped("data.mixing", "verl concatenates its files"),
    *(
        Dropped(key, "verl samples all rows alike, whichever reward scores them: repeat rows to keep the shares")
        for key in ("data.domain_weights", "data.domain_weights.**")
    ),
    Dropped("data.curriculum.keys", "verl has no order by difficulty"),
    Dropped("data.curriculum.args", "verl has no order by difficulty"),
    Dropped("data.operators", "verl has no data operators"),
    Dropped("data.operators[].**", "verl has no data operators"),
    Dropped("data.operators_input", "verl has no data operators"),
    Dropped("data.operators_output", "verl has no data operators"),
    Dropped("data.priority", "verl has no data operators", None),
    Dropped("data.priority.**", "verl has no data operators"),
    *[
        Dropped(f"data.{name}", "used only by sft and dpo")
        for name in ("max_sequence_tokens", "sequence_truncation", "multi_turn_loss")
    ],
]
