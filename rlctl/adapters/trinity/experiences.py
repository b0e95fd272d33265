"""Trinity: the data set of sft and dpo, which stands where experiences stand otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Writing,
)
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath

B = "buffer.trainer_input.experience_buffer"
SELECTOR, OLD_SELECTOR = "data_selector", "task_selector"
"""Sections that name the order of the rows of a data set; 0.4 has the older one only, for task sets."""
STORAGE = {"file": "auto", "sql": "sql"}

ORDERS = {
    "sequential": "sequential",
    "shuffle": "shuffle",
    "random": "random",
    "offline_easy2hard": "easy_to_hard",
    "difficulty_based": "difficulty",
}


def label(source: Mapping[str, Any], fallback: str, beside: Sequence[Mapping[str, Any]] = ()) -> str:
    """The name of a source: its own, or its file's, with the folder where files of several sources have the same name."""
    parts = str(source["path"]).rstrip("/").split("/")
    stem = parts[-1].rsplit(".", 1)[0]
    if source["name"] or not _plain(stem):
        return source["name"] or fallback
    alike = sum(1 for other in beside if label(other, "") == stem) > 1
    if not alike:
        return stem
    return f"{parts[-2]}_{stem}" if len(parts) > 1 and _plain(parts[-2]) else fallback


def _plain(text: str) -> bool:
    return bool(text) and "${" not in text and "}" not in text


def read(view: Reading) -> Iterator[Flow]:
    """The data set of sft and dpo, which stands where experiences stand otherwise."""
    if not view.written(B):
        return
    to = ("data", "train", 0)
    inside = view.inside(B, ())
    for key, field in (("name", "name"), ("path", "path"), ("split", "split"), ("subset_name", "subset")):
        if inside.written(key):
            yield Flow((*to, field), inside.get(key) or ("" if key == "path" else None), (inside.path(key),), same=True)
    if not inside.written("split"):
        yield Flow((*to, "split"), "train", ())
    yield Flow(
        (*to, "format"), STORAGE.get(str(inside.get("storage_type", "file")), "auto"), (inside.path("storage_type"),)
    )
    kind = str(inside.get("format.prompt_type", "messages")).lower()
    yield Flow(
        (*to, "prompt_type"), "text" if kind == "plaintext" else "messages", (inside.path("format.prompt_type"),)
    )
    columns = {
        "prompt_key": "prompt",
        "system_prompt": None,
        "system_prompt_key": None,
        "chosen_key": "chosen",
        "rejected_key": "rejected",
        "tools_key": "tools",
    }
    for key, default in columns.items():
        yield Flow((*to, key), inside.get(f"format.{key}", default), (inside.path(f"format.{key}"),), same=True)
    if kind == "messages" and view.get("algorithm.algorithm_type") in ("sft", "cpt"):
        yield Flow(
            (*to, "messages_key"),
            inside.get("format.messages_key", "message"),
            (inside.path("format.messages_key"),),
            same=True,
        )
    elif kind == "plaintext":
        yield Flow(
            (*to, "response_key"),
            inside.get("format.response_key", "response"),
            (inside.path("format.response_key"),),
            same=True,
        )
    if inside.written("format.chat_template"):
        yield Flow(
            ("model", "chat_template"),
            inside.get("format.chat_template"),
            (inside.path("format.chat_template"),),
            same=True,
        )
    yield from read_order(inside)


def read_order(view: Reading, section: str = SELECTOR) -> Iterator[Flow]:
    """The order of the training rows, with keys counted from the data set whose ``section`` names it."""
    to, selector = ("data", "curriculum"), view.get(f"{section}.selector_type", "sequential")
    if str(selector) not in ORDERS:
        names = ", ".join(ORDERS)
        raise BadValueError(said("is {raw!r}; expected one of {names}", raw=selector, names=names))
    yield Flow((*to, "order"), ORDERS[str(selector)], (view.path(f"{section}.selector_type"),))
    yield Flow((*to, "keys"), view.get(f"{section}.feature_keys", []), (view.path(f"{section}.feature_keys"),))
    args = view.get(f"{section}.kwargs", None)
    if isinstance(args, Mapping):
        yield Flow((*to, "args"), dict(args), (view.path(f"{section}.kwargs"),))
    if view.written(f"{section}.seed"):
        yield Flow(("data", "seed"), view.get(f"{section}.seed"), (view.path(f"{section}.seed"),), same=True)


def read_task_order(view: Reading) -> Iterator[Flow]:
    """The order of a task set: ``task_selector`` decides in 0.4, and later replaces ``data_selector`` if it is set."""
    older = view.version < (0, 5) or view.written(OLD_SELECTOR)
    yield from read_order(view, OLD_SELECTOR if older else SELECTOR)
    if older and view.written(SELECTOR):
        yield Flow((), None, (view.path(SELECTOR),), "dead", "task_selector decides")


def write(view: Writing, source: Mapping[str, Any], objective: str) -> Iterator[Out]:
    place, root = ("data", "train", 0), view.path(B)

    def used(field: str) -> tuple[Any, ...]:
        return ((*place, field),)

    yield Flow(
        (*root, "name"), label(source, f"{objective}_data"), used("name"), same=source["name"] is not None, always=True
    )
    guessed = source["format"] not in ("auto", "sql")
    how: Provenance = "derived" if guessed else "mapped"
    yield Flow(
        (*root, "storage_type"), "sql" if source["format"] == "sql" else "file", used("format"), how, always=True
    )
    yield Flow((*root, "path"), source["path"], used("path"), same=True, always=True)
    yield Flow((*root, "split"), source["split"] or "train", used("split"))
    if source["subset"]:
        yield Flow((*root, "subset_name"), source["subset"], used("subset"), same=True)
    form = (*root, "format")
    messages = source["messages_key"]
    text = source["prompt_type"] in ("text", "raw") or (messages is None and source["response_key"] is not None)
    if objective == "sft" and messages is None and not text:
        messages = "messages"
    if text or objective == "dpo":
        how = "derived" if source["prompt_type"] == "raw" else "mapped"
        yield Flow((*form, "prompt_type"), "plaintext" if text else "messages", used("prompt_type"), how, always=True)
        yield Flow((*form, "prompt_key"), source["prompt_key"], used("prompt_key"), same=True, always=True)
    else:
        yield Flow((*form, "prompt_type"), "messages", used("prompt_type"), always=True)
        yield Flow(
            (*form, "messages_key"),
            messages,
            used("messages_key"),
            same=source["messages_key"] is not None,
            always=True,
        )
        yield Flow((), None, used("prompt_key"))
    if text and objective == "sft":
        yield Flow(
            (*form, "response_key"), source["response_key"] or "response", used("response_key"), same=True, always=True
        )
    for key in ("chosen_key", "rejected_key"):
        yield (
            Flow((*form, key), source[key], used(key), same=True, always=objective == "dpo")
            if objective == "dpo"
            else Flow((), None, used(key))
        )
    for key in ("tools_key", "system_prompt", "system_prompt_key"):
        if source[key] is not None:
            yield Flow((*form, key), source[key], used(key), same=True)
    yield from write_order(view, (*root, SELECTOR))
    for field in ("max_samples", "image_key", "video_key", "audio_key"):
        neutral = {"image_key": "images", "video_key": "videos", "audio_key": "audios"}.get(field)
        if source[field] not in (None, neutral):
            yield Inexpressible(used(field), said("Trinity's sft and dpo have no {field}", field=field))
    for field in ("source_key", "answer_key", "extra_key", "tag_key", "weight", "reward", "agent", "agent_key"):
        yield Flow((), None, used(field))


def write_task_order(view: Writing, root: Any) -> Iterator[Out]:
    """The order of the training prompts of a task set."""
    yield from write_order(view, (*root, OLD_SELECTOR if view.version < (0, 5) else SELECTOR))


def write_order(view: Writing, section: KeyPath) -> Iterator[Out]:
    """The order of training rows, in the section of their data set that names it."""
    order = view.get("data.curriculum.order")
    name = next(name for name, choice in ORDERS.items() if choice == order)
    yield Flow((*section, "selector_type"), name, (view.to("data.curriculum.order"),), always=order != "sequential")
    for key, to in (("feature_keys", "data.curriculum.keys"), ("kwargs", "data.curriculum.args")):
        if view.get(to):
            yield Flow((*section, key), view.get(to), (view.to(to),), same=True)
    if view.get("data.seed") is not None:
        yield Flow((*section, "seed"), view.get("data.seed"), (view.to("data.seed"),), same=True)


def selector_keys(section: str) -> tuple[tuple[str, Any], ...]:
    """The keys of a selector of rows, with their defaults."""
    return (
        (f"{section}.selector_type", "sequential"),
        (f"{section}.seed", 42),
        (f"{section}.feature_keys", []),
        (f"{section}.kwargs", {}),
        (f"{section}.kwargs.**", ABSENT),
    )


KEYS = tuple(
    # 0.6.0 common/config.py, ExperienceBufferConfig, FormatConfig and DataSelectorConfig
    DialectKey(f"{B}.{name}", default)
    for name, default in (
        ("format.prompt_type", "messages"),
        ("format.prompt_key", "prompt"),
        ("format.response_key", "response"),
        ("format.messages_key", "message"),
        ("format.tools_key", "tools"),
        ("format.chosen_key", "chosen"),
        ("format.rejected_key", "rejected"),
        ("format.system_prompt", None),
        ("format.system_prompt_key", None),
        ("format.chat_template", None),
        ("split", "train"),
        ("subset_name", None),
        *selector_keys(SELECTOR),
    )
)


def order_meanings(root: str, *sections: str) -> dict[str, str | tuple[str, ...]]:
    """The canonical keys that the keys of a selector of rows fill."""
    names = {
        "selector_type": "curriculum.order",
        "feature_keys": "curriculum.keys",
        "kwargs": "curriculum.args",
        "seed": "seed",
    }
    return {f"{root}.{section}.{key}": f"data.{name}" for section in sections for key, name in names.items()}


MEANINGS: dict[str, str | tuple[str, ...]] = {
    **{key.name: f"data.train[].{key.name.rpartition('.')[2]}" for key in KEYS if ".format." in key.name},
    **{f"{B}.{name}": f"data.train[].{name}" for name in ("name", "path")},
    f"{B}.storage_type": "data.train[].format",
    f"{B}.format.chat_template": "model.chat_template",
    f"{B}.split": "data.train[].split",
    f"{B}.subset_name": "data.train[].subset",
    **order_meanings(B, SELECTOR),
}
"""The canonical keys that each key fills."""
