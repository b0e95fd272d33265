"""ROLL: data files, how prompts are read, and validation. Columns hold for all files alike; shares are of domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from rlctl.adapters.engine.rules import (
    NO_KEY,
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import NullReads, Partly, files_of
from rlctl.adapters.roll.numbers import shuffled_by_seed
from rlctl.adapters.roll.rewards import domains
from rlctl.adapters.roll.rollout import G as TRAINING
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.documents.paths import KeyPath

D = "actor_train.data_args"
V = "validation"
SHARES = f"{D}.domain_interleave_probs"
ANSWER = "ground_truth"
"""The column that ROLL's rewards compare with."""
PIXELS = (f"{D}.image_max_pixels", f"{D}.image_min_pixels")
"""Keys that only ``start_rlvr_vl_pipeline.py`` reads: a file with them is for it."""
SEEN = {
    "prompt_key": "prompt",
    "answer_key": "reward_model.ground_truth",
    "tag_key": "data_source",
    "image_key": "images",
}
"""The columns that it reads, whatever the file says."""
MOST_PIXELS = 4096 * 4096
"""ROLL's own limit of an image."""
SAMPLING = ("temperature", "top_p", "top_k")
PENALTY = "repetition_penalty"


def read_paths(view: Reading, kind: str, key: str) -> Iterator[Flow]:
    """The files of one kind, each a source."""
    raw = view.get(key)
    for index, path in enumerate(files_of(raw)):
        yield Flow(("data", kind, index, "path"), path, (view.path(key),), same=not isinstance(raw, (list, tuple)))


def write_paths(view: Writing, kind: str, key: str) -> Iterator[Out]:
    """The paths of one kind of sources, always as a list: where ROLL's loaders want one they take a text apart."""
    paths = [source["path"] for source in view.get(f"data.{kind}")]
    used = tuple(("data", kind, index, "path") for index in range(len(paths)))
    if paths:
        yield Flow(view.path(key), paths, used, always=True)


# Prompts of reinforcement learning


def _sees(view: Reading) -> bool:
    """Whether a file is for the pipeline that reads images, by columns of its own."""
    return view.written(*PIXELS) and view.get(f"{D}.custom_data_kwargs_func") is None


def shows(view: Writing) -> bool:
    """Whether the source itself names a column of images."""
    return any(
        source["image_key"] and view.explicit(f"data.train.{index}.image_key")
        for index, source in enumerate(view.get("data.train"))
    )


def _read_seen(view: Reading) -> Iterator[Flow]:
    """The columns of the pipeline that reads images; of other names in the file it takes no notice."""
    named = {f"{D}.messages": "prompt_key", f"{D}.prompt": "prompt_key", f"{D}.tag": "tag_key"}
    for place in _sources(view):
        for field, column in SEEN.items():
            yield Flow((*place, field), column, ())
    for key, field in named.items():
        same = view.get(key) == SEEN[field]
        note = "" if same else said("start_rlvr_vl_pipeline.py reads the column {seen}", seen=SEEN[field])
        yield Flow((), None, (view.path(key),), "mapped" if same else "dead", note)


def _read_prompts(view: Reading) -> Iterator[Flow]:
    yield from read_paths(view, "train", f"{D}.file_name")
    yield from read_paths(view, "eval", f"{V}.data_args.file_name")
    if _sees(view):
        yield from _read_seen(view)
        return
    column, kind = view.get(f"{D}.messages") or view.get(f"{D}.prompt"), "messages"
    used: tuple[Any, ...] = (view.path(f"{D}.messages"),)
    if not view.get(f"{D}.messages") and view.get(f"{D}.prompt"):
        kind, used = "raw", (view.path(f"{D}.prompt"),)
    for place in _sources(view):
        if column:
            yield Flow((*place, "prompt_key"), column, used, same=True)
            yield Flow((*place, "prompt_type"), kind, used if kind == "raw" else ())
        yield Flow((*place, "answer_key"), ANSWER, ())
        yield Flow((*place, "tag_key"), view.get(f"{D}.tag"), (view.path(f"{D}.tag"),), same=True)


def _sources(view: Reading) -> list[tuple[str | int, ...]]:
    train = [("data", "train", index) for index in range(len(files_of(view.get(f"{D}.file_name"))))]
    held = files_of(view.get(f"{V}.data_args.file_name"))
    return [*train, *(("data", "eval", index) for index in range(len(held)))]


def _write_prompts(view: Writing) -> Iterator[Out]:
    yield from write_paths(view, "train", f"{D}.file_name")
    yield from write_paths(view, "eval", f"{V}.data_args.file_name")
    sources = [
        (kind, index, source) for kind in ("train", "eval") for index, source in enumerate(view.get(f"data.{kind}"))
    ]
    if not sources:
        return
    if shows(view):
        yield from _write_seen(view, sources)
        return
    _, _, first = sources[0]
    raw = first["prompt_type"] == "raw"
    for kind, index, source in sources:
        place = ("data", kind, index)
        if (source["prompt_key"], source["prompt_type"] == "raw") != (first["prompt_key"], raw):
            yield Inexpressible(
                ((*place, "prompt_key"), (*place, "prompt_type")), "ROLL reads one column of prompts in all files"
            )
            yield from _columns(view, place, source)
            continue
        used = ((*place, "prompt_key"), (*place, "prompt_type"))
        note = "the column must hold chat messages" if source["prompt_type"] == "auto" else ""
        to = view.path(f"{D}.prompt" if raw else f"{D}.messages")
        yield Flow(to, source["prompt_key"], used, "derived" if note else "mapped", note, always=True)
        if source["prompt_type"] == "text":
            yield Inexpressible(
                used[1:], "ROLL does not wrap text into a message: provide chat messages, or the whole raw prompt"
            )
        yield from _columns(view, place, source)


def _columns(view: Writing, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    tag = source["tag_key"]
    if tag is not None:
        yield Flow(view.path(f"{D}.tag"), tag, ((*place, "tag_key"),), same=True)
    answer, used = source["answer_key"], ((*place, "answer_key"),)
    if answer not in (None, ANSWER) and view.explicit(".".join(map(str, used[0]))):
        yield Inexpressible(
            used, said("ROLL's rewards read the column {answer}: rename {answer2} to it", answer=ANSWER, answer2=answer)
        )
    else:
        yield Flow((), None, used, "derived", said("ROLL's rewards read the column {answer}", answer=ANSWER))
    yield from others(view, place, source, {"path", "prompt_key", "prompt_type", "answer_key", "tag_key"})


def _write_seen(view: Writing, sources: list[tuple[str, int, Mapping[str, Any]]]) -> Iterator[Out]:
    """Rows with images, whose columns have fixed names."""
    for kind, index, source in sources:
        place = ("data", kind, index)
        for field, column in SEEN.items():
            used: tuple[KeyPath, ...] = ((*place, field),)
            if source[field] in (None, column):
                note = said("start_rlvr_vl_pipeline.py reads the column {column}", column=column)
                yield Flow((), None, used, "mapped", note)
            elif view.explicit(".".join(map(str, used[0]))):
                reason = said(
                    "start_rlvr_vl_pipeline.py reads the column {column}: rename {source} to it",
                    column=column,
                    source=source[field],
                )
                yield Inexpressible(used, reason)
        yield Flow(
            (),
            None,
            ((*place, "prompt_type"), (*place, "source_key")),
            "mapped",
            "rlctl detects the type from the column",
        )
        yield from others(view, place, source, {"path", "prompt_type", "source_key", *SEEN})
    used = (("data", "train", 0, "image_key"),)
    yield Flow(view.path(f"{D}.messages"), SEEN["prompt_key"], (("data", "train", 0, "prompt_key"),), always=True)
    if PIXELS[0] not in view.config.carried_for("roll"):
        note = "the script's default limit, in pixels per image"
        yield Flow(view.path(PIXELS[0]), MOST_PIXELS, used, "derived", note, always=True)


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "weight": (1.0,),
    "format": ("auto", "json", "parquet"),
    "source_key": (None, "data_source"),
    "extra_key": (None, "extra_info"),
    "tools_key": (None, "tools"),
    "chosen_key": ("chosen",),
    "rejected_key": ("rejected",),
    "prompt_key": ("prompt",),
    "prompt_type": ("auto",),
}
"""What ROLL does anyway, or what only names a column that it does not read."""
MEDIA = {
    "image_key": "this ROLL pipeline reads no images",
    "video_key": "in ROLL you read video with your own function, data_args.custom_data_kwargs_func",
    "audio_key": "in ROLL you read audio with your own function, data_args.custom_data_kwargs_func",
}
READ = {
    "split": "ROLL reads files, not splits: name the file of this split",
    "subset": "ROLL reads files, not subsets: name the file of this subset",
}
"""What picks rows of a hub's data set, which ROLL does not open."""
ALONE = {
    **dict.fromkeys(("agent", "agent_key"), "ROLL's RLVR runs have no agents: each prompt has one answer"),
    "max_samples": "ROLL reads all rows of a file: cut the file",
    "sampling": "ROLL samples for all files alike, by actor_infer.generating_args",
    "system_prompt": "ROLL has no key for a system prompt: put it into the messages of the rows",
}
"""What one file cannot have for itself."""
IMITATED = ("response_key", "messages_key")
"""Columns that only supervised training reads."""


def others(view: Writing, place: tuple[Any, ...], source: Mapping[str, Any], handled: set[str]) -> Iterator[Out]:
    """The fields of a source that ROLL has nothing for."""
    own = {"responses_per_prompt", "evaluation_sampling", *(("sampling",) if place[1] == "eval" else ())}
    for field, value in source.items():
        if field in handled or field in own:
            continue
        if field == "format" and value in NEUTRAL[field]:
            note = "ROLL detects the format from the file's suffix"
            yield Flow((), None, ((*place, field),), "mapped" if value == "auto" else "derived", note)
        elif value in NEUTRAL.get(field, (None,)) or value == {}:
            yield Flow((), None, ((*place, field),), "mapped", "ROLL always does this")
        elif field == "name":
            yield Inexpressible(
                ((*place, field),), "ROLL names validation sets after the data_source of their rows", idle=True
            )
        elif field in READ:
            is_file = "." in str(source["path"] or "").rpartition("/")[2]
            yield Inexpressible(((*place, field),), READ[field], idle=is_file)
        elif field in IMITATED and view.config.algorithm.objective.choice == "rl":
            yield Inexpressible(((*place, field),), "no response is imitated", idle=True)
        elif field == "messages_key":
            reason = "ROLL reads one prompt and one response per row, not conversations: write one row per response"
            yield Inexpressible(((*place, field),), reason)
        elif field in MEDIA:
            if view.explicit(".".join(map(str, (*place, field)))):
                yield Inexpressible(((*place, field),), MEDIA[field])
        else:
            yield Inexpressible(
                ((*place, field),), ALONE.get(field, said("ROLL has no {field} for one file alone", field=field))
            )


# 2026.8 configs/data_args.py, DataArguments
PROMPTS = CustomRule(
    "prompts",
    (
        DialectKey(f"{D}.file_name", None),
        DialectKey(f"{V}.data_args.file_name", None),
        DialectKey(f"{D}.messages", None),
        DialectKey(f"{D}.prompt", None),
        DialectKey(f"{D}.tag", "tag"),
    ),
    ("data.train", "data.eval", "data.train[].**", "data.eval[].**"),
    _read_prompts,
    _write_prompts,
    by_key={
        f"{D}.file_name": "data.train[].path",
        f"{V}.data_args.file_name": "data.eval[].path",
        f"{D}.messages": ("data.train[].prompt_key", "data.eval[].prompt_key"),
        f"{D}.prompt": (
            "data.train[].prompt_key",
            "data.eval[].prompt_key",
            "data.train[].prompt_type",
            "data.eval[].prompt_type",
        ),
        f"{D}.tag": ("data.train[].tag_key", "data.eval[].tag_key"),
    },
    why="Columns of the whole file are fields of each data source, and which columns are read depends on the pipeline.",
)


def _read_shares(view: Reading) -> Iterator[Flow]:
    shares, at = view.get(SHARES), view.path(SHARES)
    if not isinstance(shares, Mapping) or not shares:
        return
    if len(shares) == 1:
        yield Flow(view.to("data.mixing"), "concatenate", (at,), note="there is only one domain")
        return
    for name, share in shares.items():
        if not is_number(share) or share < 0:
            raise BadValueError(said("is {share!r}; expected a share from 0 to 1", share=share), key=(*at, name))
    *_, last = shares
    rest = 1 - sum(share for name, share in shares.items() if name != last)
    for name, share in shares.items():
        of, used = (*view.to("data.domain_weights"), str(name)), ((*at, name),)
        if name == last and not isclose(share, rest):
            note = said("ROLL gives the last domain what the others leave: {rest:.6g}", rest=rest)
            yield Flow(of, round(rest, 6), used, "derived", note)
        elif share == 0:
            yield Flow((), None, used, "mapped", "no row of this domain is used")
        else:
            yield Flow(of, share, used, same=True)


def _write_shares(view: Writing) -> Iterator[Out]:
    names, used = domains(view), (view.to("data.mixing"),)
    if view.get("data.mixing") != "concatenate":
        yield Inexpressible(used, "ROLL samples by domain weights (the rows' tags), not by file weights")
    weights, of = view.get("data.domain_weights"), view.to("data.domain_weights")
    domain = dict(zip([reward["name"] for reward in view.get("rewards")], names, strict=True))
    total = sum(weight for name, weight in weights.items() if name in domain)
    for name, weight in weights.items():
        if name not in domain:
            yield Inexpressible(((*of, name),), "no reward has this name")
        elif isclose(total, 1):
            yield Flow((*view.path(SHARES), domain[name]), weight, ((*of, name),), same=True, always=True)
        else:
            note = "ROLL's shares sum to 1"
            to = (*view.path(SHARES), domain[name])
            yield Flow(to, weight / total, ((*of, name),), "derived", note, always=True)
    if total:
        return
    if len(names) == 1:
        note = "all rows belong to one domain"
        yield Flow((*view.path(SHARES), names[0]), 1.0, (view.to("rewards"),), "derived", note, always=True)
        return
    note = "ROLL requires a share for each domain; wrote equal shares"
    for name in names:
        share = round(1 / len(names), 4)
        yield Flow((*view.path(SHARES), name), share, (view.to("rewards"),), "assumed", note, always=True)


MIXING = CustomRule(
    "shares of domains",
    (DialectKey(SHARES), DialectKey(f"{SHARES}.*")),
    ("data.mixing", "data.domain_weights", "data.domain_weights.**"),
    _read_shares,
    _write_shares,
    by_key={SHARES: ("data.domain_weights", "data.mixing")},
    why="A share for each domain: one domain is all rows, and the last one's share is what the others leave.",
)


# Validation


def _read_validation(view: Reading) -> Iterator[Flow]:
    count = len(files_of(view.get(f"{V}.data_args.file_name")))
    if view.get(f"{V}.generating_args.num_beams") == 1:
        yield Flow((), None, (view.path(f"{V}.generating_args.num_beams"),), "mapped", "no beam search")
    for index in range(count):
        to = ("data", "eval", index)
        root = f"{V}.generating_args"
        used = (view.path(f"{root}.num_return_sequences"),)
        yield Flow((*to, "responses_per_prompt"), view.get(f"{root}.num_return_sequences"), used, same=True)
        for name in SAMPLING:
            value, place = view.get(f"{root}.{name}"), (view.path(f"{root}.{name}"),)
            value = None if name == "top_k" and isinstance(value, int) and value <= 0 else value
            yield Flow((*to, "evaluation_sampling", name), value, place, same=value == view.get(f"{root}.{name}"))
        used = (view.path(f"{root}.{PENALTY}"),)
        if view.get(f"{root}.{PENALTY}") == view.get(f"{TRAINING}.{PENALTY}"):
            yield Flow((), None, used, "mapped", "same as in training")
        else:
            yield Flow((*to, "sampling", PENALTY), view.get(f"{root}.{PENALTY}"), used)
        yield from _validation_length(view, to)


def _validation_length(view: Reading, to: tuple[Any, ...]) -> Iterator[Flow]:
    prompt, whole = view.get("val_prompt_length"), view.get("val_sequence_length")
    used = (view.path("val_prompt_length"), view.path("val_sequence_length"))
    cap = whole - prompt if isinstance(whole, int) and isinstance(prompt, int) else None
    note = said("{whole} tokens - {prompt} of the prompt", whole=whole, prompt=prompt) if cap else ""
    yield Flow((*to, "evaluation_sampling", "max_response_tokens"), cap, used, "derived" if cap else "mapped", note)


def _write_validation(view: Writing) -> Iterator[Out]:
    sources = view.get("data.eval")
    yield from _write_penalties(view)
    for index, source in enumerate(sources):
        place, root = ("data", "eval", index), f"{V}.generating_args"
        first = sources[0]
        for name in (*SAMPLING, "max_response_tokens"):
            used: tuple[KeyPath, ...] = ((*place, "evaluation_sampling", name),)
            value = source["evaluation_sampling"][name]
            if value != first["evaluation_sampling"][name]:
                yield Inexpressible(used, "ROLL samples all validation sets with the same settings")
            elif name == "max_response_tokens":
                yield from _write_validation_length(view, value, used)
            else:
                raw = -1 if name == "top_k" and value is None else value
                yield Flow(view.path(f"{root}.{name}"), raw, used, same=raw == value, always=True)
        used = ((*place, "responses_per_prompt"),)
        if source["responses_per_prompt"] != first["responses_per_prompt"]:
            yield Inexpressible(used, "ROLL samples the same number of responses for each validation set")
        else:
            to = view.path(f"{root}.num_return_sequences")
            yield Flow(to, source["responses_per_prompt"], used, same=True, always=True)


def _write_penalties(view: Writing) -> Iterator[Out]:
    """Validation has one repetition penalty, 1 where none is written, and nothing else that a source's ``sampling`` says."""
    training = view.config.rollout.sampling.repetition_penalty
    own = [source["sampling"] for source in view.get("data.eval")]
    alike = len({sampling.get(PENALTY, training) for sampling in own}) == 1
    value = own[0].get(PENALTY, training) if own and alike else training
    used = tuple(
        ("data", "eval", index, "sampling", PENALTY) for index, sampling in enumerate(own) if PENALTY in sampling
    )
    if used and not alike:
        yield Inexpressible(used, "ROLL samples all validation sets with the same settings")
    if own and value != 1:
        places = used if used and alike else (view.to(f"rollout.sampling.{PENALTY}"),)
        yield Flow(view.path(f"{V}.generating_args.{PENALTY}"), value, places, same=True)
    elif alike:
        yield Flow((), None, used, "mapped", "ROLL's own default")
    for index, sampling in enumerate(own):
        for name in sorted(sampling.keys() - {PENALTY}):
            yield Inexpressible((("data", "eval", index, "sampling", name),), "ROLL has no such setting for validation")


def _write_validation_length(view: Writing, value: Any, used: tuple[Any, ...]) -> Iterator[Out]:
    if value is None:
        return
    prompt = view.config.data.max_prompt_tokens
    yield Flow(view.path("val_prompt_length"), prompt, used, "derived", "the limit for training", always=True)
    note = said("{prompt} of the prompt + {value} of the response", prompt=prompt, value=value)
    yield Flow(view.path("val_sequence_length"), prompt + value, used, "derived", note, always=True)


# 2026.8 configs/generating_args.py, GeneratingArguments
VALIDATION = CustomRule(
    "validation",
    (
        DialectKey(f"{V}.generating_args.temperature", 0.95),
        DialectKey(f"{V}.generating_args.top_p", 0.7),
        DialectKey(f"{V}.generating_args.top_k", 50),
        DialectKey(f"{V}.generating_args.num_return_sequences", 1),
        DialectKey(f"{V}.generating_args.num_beams", 1),
        DialectKey(f"{V}.generating_args.{PENALTY}", 1.0),
        DialectKey("val_prompt_length"),
        DialectKey("val_sequence_length"),
    ),
    (
        "data.eval[].responses_per_prompt",
        *(f"data.eval[].evaluation_sampling.{name}" for name in (*SAMPLING, "max_response_tokens")),
        "data.eval[].sampling",
    ),
    _read_validation,
    _write_validation,
    by_key={
        f"{V}.generating_args.temperature": "data.eval[].evaluation_sampling.temperature",
        f"{V}.generating_args.top_p": "data.eval[].evaluation_sampling.top_p",
        f"{V}.generating_args.top_k": "data.eval[].evaluation_sampling.top_k",
        f"{V}.generating_args.num_return_sequences": "data.eval[].responses_per_prompt",
        f"{V}.generating_args.{PENALTY}": "data.eval[].sampling",
        "val_prompt_length": "data.eval[].evaluation_sampling.max_response_tokens",
        "val_sequence_length": "data.eval[].evaluation_sampling.max_response_tokens",
    },
    why="One block of sampling settings is that of each evaluation source, with the lengths of training.",
)
# 2026.8 configs/data_args.py, DataArguments: null makes one process
WORKERS = Key(f"{D}.preprocessing_num_workers", "data.filter_workers", None, Partly({None: 1}))
ORDER: list[Rule] = [
    Dropped(
        "data.overlong_prompts",
        "ROLL drops prompts of 5 tokens or fewer and those longer than prompt_length",
        "drop",
        matters=True,
    ),
    Dropped("data.truncation", "ROLL drops overlong prompts"),
    Dropped("data.curriculum.order", "ROLL reshuffles each epoch", "shuffle", matters=True),
    shuffled_by_seed("data.seed"),
    Dropped("data.loader_workers", "ROLL loads rows in its scheduler process", idle=True),
    Dropped("data.last_batch", "ROLL cycles through its data, so no batch is incomplete", "carry"),
    Dropped("data.**", NO_KEY),
]
RLVR: list[Rule] = [PROMPTS, MIXING, VALIDATION, WORKERS, *ORDER]


# Supervised training


def _supervised(columns: Mapping[str, str], fixed: Mapping[str, Any]) -> CustomRule:
    """Files of rows whose columns are named by top-level keys."""

    def read(view: Reading) -> Iterator[Flow]:
        yield from read_paths(view, "train", f"{D}.file_name")
        yield from read_paths(view, "eval", f"{V}.data_args.file_name")
        for place in _sources(view):
            for field, key in columns.items():
                yield Flow((*place, field), view.get(key), (view.path(key),), same=True)
            for field, value in fixed.items():
                yield Flow((*place, field), value, ())

    def write(view: Writing) -> Iterator[Out]:
        yield from write_paths(view, "train", f"{D}.file_name")
        yield from write_paths(view, "eval", f"{V}.data_args.file_name")
        for kind in ("train", "eval"):
            for index, source in enumerate(view.get(f"data.{kind}")):
                yield from _supervised_columns(view, ("data", kind, index), source, columns, fixed)

    keys = map(DialectKey, columns.values())
    return CustomRule(
        "rows",
        # 2026.8 configs/data_args.py, DataArguments
        (DialectKey(f"{D}.file_name", None), DialectKey(f"{V}.data_args.file_name", None), *keys),
        ("data.train", "data.eval", "data.train[].**", "data.eval[].**"),
        read,
        write,
        by_key={
            f"{D}.file_name": "data.train[].path",
            f"{V}.data_args.file_name": "data.eval[].path",
            **{key: (f"data.train[].{field}", f"data.eval[].{field}") for field, key in columns.items()},
        },
        why="Files and columns of the whole file are fields of each data source, which must agree.",
    )


def _supervised_columns(
    view: Writing,
    place: tuple[Any, ...],
    source: Mapping[str, Any],
    columns: Mapping[str, str],
    fixed: Mapping[str, Any],
) -> Iterator[Out]:
    first = (view.get("data.train") or view.get("data.eval"))[0]
    for field, key in columns.items():
        default = view.default(DialectKey(key))
        used = ((*place, field),)
        if source[field] != first[field]:
            yield Inexpressible(used, said("ROLL has one {key} for all files", key=key))
        elif source[field] is None and field == "response_key" and source["messages_key"] is None:
            yield Flow(
                view.path(key),
                "response",
                used,
                "derived",
                "the first column that ROLL tries if the key is null",
                always=True,
            )
        elif source[field] is None and default is None:
            yield Flow((), None, used, "mapped", "no such column")
        elif source[field] is None:
            yield Inexpressible(
                used,
                said(
                    "ROLL reads the column that {key} names, {default} by default; the rows must have it",
                    key=key,
                    default=default,
                ),
            )
        else:
            yield Flow(view.path(key), source[field], used, same=True)
    for field, value in fixed.items():
        used = ((*place, field),)
        if source[field] == value or (field, source[field]) == ("prompt_type", "auto"):
            yield Flow((), None, used, "mapped", "ROLL wraps the text into a message")
        elif view.explicit(".".join(map(str, used[0]))):
            asks = (
                "the prompt as text"
                if field == "prompt_type"
                else said("the column {value}: rename {source} to it", value=value, source=source[field])
            )
            yield Inexpressible(used, said("ROLL reads {asks}", asks=asks))
    for field in ("responses_per_prompt", "evaluation_sampling", "sampling"):
        if field in source and place[1] == "eval":
            yield Inexpressible(((*place, field),), "supervised training samples no responses", idle=True)
    yield from others(view, place, source, {"path", *columns, *fixed})


SUPERVISED: list[Rule] = [
    WORKERS,
    Dropped("data.overlong_prompts", "ROLL drops rows that are too long", "drop", matters=True),
    Dropped("data.sequence_truncation", "ROLL drops rows that are too long"),
    Dropped("data.curriculum.order", "ROLL reads rows in file order", "sequential", matters=True),
    Dropped("data.**", NO_KEY),
]
LOADER = Key("actor_train.training_args.dataloader_num_workers", "data.loader_workers")
SFT: list[Rule] = [
    _supervised(
        {
            "prompt_key": "prompt_key",
            "response_key": "response_key",
            "system_prompt_key": "system_key",
        },
        {"prompt_type": "text"},
    ),
    LOADER,
    *SUPERVISED,
]
DPO: list[Rule] = [
    _supervised(
        {"chosen_key": "chosen_key", "rejected_key": "rejected_key"},
        {"prompt_key": "instruction", "prompt_type": "text"},
    ),
    # 2026.8 configs/data_args.py, DataArguments; null is one process for datasets, to which dpo_pipeline.py hands it
    Key(f"{D}.preprocessing_num_workers", "data.filter_workers", None, NullReads(1), always=True),
    Dropped("data.overlong_prompts", "ROLL drops rows that are too long", "drop", matters=True),
    Dropped("data.sequence_truncation", "ROLL drops rows that are too long"),
    Dropped("data.curriculum.order", "ROLL's DPO shuffles", "shuffle", matters=True),
    Dropped("data.**", NO_KEY),
]
DISTILL: list[Rule] = [
    _supervised(
        {"prompt_key": "question_key", "response_key": "answer_key"},
        {"prompt_type": "text"},
    ),
    LOADER,
    *SUPERVISED,
]
