"""Trinity: operators on training data (``data_processor.task_pipeline``), which Data-Juicer runs there.

Its operators that rlctl has with the same meaning are read as rlctl's; the others keep their name and arguments. Trinity reads
``inputs`` and writes to the first task set, whose path must not exist; here the same keys name what is read and how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Writing
from rlctl.common.messages.reasons import said

ROOT, TO = "data_processor.task_pipeline", "data.operators"
NATIVE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "text_length_filter": ("length", {"min_len": "min", "max_len": "max"}),
    "alphanumeric_filter": ("alphanumeric", {"min_ratio": "min_ratio", "max_ratio": "max_ratio"}),
    "character_repetition_filter": (
        "repetition",
        {"rep_len": "rep_len", "min_ratio": "min_ratio", "max_ratio": "max_ratio"},
    ),
    "document_deduplicator": (
        "duplicates",
        {"lowercase": "lowercase", "ignore_non_character": "ignore_non_character"},
    ),
}
"""Data-Juicer's operators that a run has: the type here, and the names of arguments there and here."""
FROM = {option: (name, args) for name, (option, args) in NATIVE.items()}
COLUMN = "text_key"
FILE, FILE_KIND = "config_path", "data_juicer"
"""The key of a file of Data-Juicer's that replaces the operators, and the operator that it is read as."""
WEIGHTS: Mapping[str, float] = {"difficulty": -0.7, "usage_frequency": -0.5, "quality": 1.0}
"""Those that Trinity computes, with its defaults."""


def _read(view: Reading) -> Iterator[Flow]:
    pipeline = view.get(ROOT)
    if not isinstance(pipeline, Mapping):
        yield Flow((), None, (view.path(ROOT),), "mapped", "is empty")
        return
    if view.get(f"{ROOT}.{FILE}"):
        yield from _read_file(view)
        yield from _read_priority(view)
        return
    fields = view.get(f"{ROOT}.target_fields")
    column = fields[0] if isinstance(fields, list) and fields else None
    yield Flow((), None, (view.path(f"{ROOT}.target_fields"),), "mapped", "the column that operators read")
    operators = view.get(f"{ROOT}.operators")
    for place, item in enumerate(operators if isinstance(operators, list) else ()):
        if isinstance(item, Mapping):
            yield from _read_operator(view, place, item, column)
    inputs = view.get(f"{ROOT}.inputs")
    if inputs:
        yield Flow(view.to("data.operators_input"), inputs, (view.path(f"{ROOT}.inputs"),), same=True)
    output = view.get(f"{ROOT}.output.path")
    if output:
        yield Flow(view.to("data.operators_output"), output, (view.path(f"{ROOT}.output.path"),), same=True)
    yield from _read_priority(view)


def _read_file(view: Reading) -> Iterator[Flow]:
    key, to = (view.path(f"{ROOT}.{FILE}"),), (*view.to(TO), 0)
    yield Flow((*to, "type"), "external", key)
    yield Flow((*to, "kind"), FILE_KIND, key)
    note = "the file's operators run on rows of the training data; Trinity runs them on the file's own dataset_path"
    yield Flow((*to, "args", FILE), view.get(f"{ROOT}.{FILE}"), key, "derived", note, same=True)
    others = tuple(view.path(f"{ROOT}.{name}") for name in ("operators", "inputs", "target_fields"))
    yield Flow((), None, others, "dead", "the file replaces it")
    output = view.get(f"{ROOT}.output.path")
    if output:
        yield Flow(view.to("data.operators_output"), output, (view.path(f"{ROOT}.output.path"),), same=True)


def _read_operator(view: Reading, place: int, item: Mapping[str, Any], column: str | None) -> Iterator[Flow]:
    at, to = (*view.path(f"{ROOT}.operators"), place), (*view.to(TO), place)
    name, args = str(item.get("name", "")), item.get("args")
    args = args if isinstance(args, Mapping) else {}
    option, known = NATIVE.get(name, ("", {}))
    if not option or any(key not in known and key != COLUMN for key in args):
        yield Flow((*to, "type"), "external", ((*at, "name"),))
        yield Flow((*to, "kind"), name, ((*at, "name"),), same=True)
        kept = {key: value for key, value in args.items() if key != COLUMN}
        yield Flow((*to, "args"), kept, ((*at, "args"),), same=COLUMN not in args)
        column = args.get(COLUMN, column)
    else:
        yield Flow((*to, "type"), option, ((*at, "name"),))
        yield Flow((), None, ((*at, "args"),), "mapped", "")
        for key, field in known.items():
            if key in args:
                yield Flow((*to, field), args[key], ((*at, "args", key),), same=True)
        column = args.get(COLUMN, column)
    if column is not None:
        yield Flow((*to, "column"), column, (view.path(f"{ROOT}.target_fields"),))


def _read_priority(view: Reading) -> Iterator[Flow]:
    given, keep = view.get(f"{ROOT}.priority_weights"), view.get(f"{ROOT}.top_k")
    weights = {name: given.get(name, 0.0) for name in WEIGHTS} if isinstance(given, Mapping) and given else WEIGHTS
    used = view.path(f"{ROOT}.priority_weights")
    places = tuple((*used, name) for name in WEIGHTS)
    keeps = isinstance(keep, int) and keep >= 0
    if not any(weights.values()) and not keeps:
        yield Flow((), None, (*places, view.path(f"{ROOT}.top_k")), "mapped", "rows keep their order")
        return
    to = view.to("data.priority")
    yield Flow(to, {}, ())
    for name, value in weights.items():
        yield Flow((*to, "weights", name), value, ((*used, name),))
    yield Flow((*to, "weights", "diversity"), 0.0, (), "derived", "Trinity never computes it")
    yield Flow((*to, "keep"), keep if keeps else None, (view.path(f"{ROOT}.top_k"),), same=keeps)


def _write(view: Writing) -> Iterator[Out]:
    operators, priority = view.get(TO), view.get("data.priority")
    if not operators and priority is None:
        return
    if not operators:
        places = tuple(view.to(f"data.priority.{name}") for name in _PRIORITY)
        yield Inexpressible(places, NO_OPERATOR)
        return
    inputs = view.get("data.operators_input")
    number = 0
    for place, item in enumerate(operators):
        lost = _lost(item) or ("" if inputs or _is_file(item) else NO_INPUT)
        if lost:
            yield Inexpressible(tuple((*view.to(TO), place, name) for name in item), lost)
        else:
            yield from _write_operator(view, place, number, item)
            number += 1
    if not number:
        places = tuple(view.to(f"data.priority.{name}") for name in _PRIORITY) if priority is not None else ()
        yield Inexpressible((*places, view.to("data.operators_input"), view.to("data.operators_output")), NO_OPERATOR)
        return
    if inputs:
        yield Flow(view.path(f"{ROOT}.inputs"), inputs, (view.to("data.operators_input"),), same=True)
    if view.get("data.operators_output"):
        to = view.to("data.operators_output")
        yield Flow(view.path(f"{ROOT}.output.path"), view.get("data.operators_output"), (to,), same=True)
    yield from _write_priority(view, priority)


NO_OPERATOR = "Trinity reads and sorts rows only with operators, but none is written"
NO_INPUT = (
    "Trinity's operators read separate files and write to the path of the first task set, which must not exist: "
    "pass --set data.operators_input=FOLDER"
)


def _is_file(item: Mapping[str, Any]) -> bool:
    """Whether an operator is a file of Data-Juicer's."""
    return item["type"] == "external" and item["kind"] == FILE_KIND and list(item["args"]) == [FILE]


def _lost(item: Mapping[str, Any]) -> str:
    """Why an operator is not written; empty if it is."""
    if item["type"] == "external" or (item["type"] in FROM and item.get("unit", "characters") == "characters"):
        return ""
    return said("Data-Juicer, which runs Trinity's operators, has no equal of {name}", name=item["type"])


def _write_operator(view: Writing, place: int, number: int, item: Mapping[str, Any]) -> Iterator[Out]:
    at, to = (*view.path(f"{ROOT}.operators"), number), (*view.to(TO), place)
    if _is_file(item):
        used = ((*to, "type"), (*to, "kind"), (*to, "column"), (*to, "args"), (*to, "args", FILE))
        yield Flow(view.path(f"{ROOT}.{FILE}"), item["args"][FILE], used, same=True, always=True)
        return
    if item["type"] == "external":
        yield Flow((*at, "name"), item["kind"], ((*to, "type"), (*to, "kind")), always=True)
        for key, value in item["args"].items():
            yield Flow((*at, "args", key), value, ((*to, "args"),), always=True)
        yield Flow((), None, ((*to, "args"),))
    else:
        name, args = FROM[item["type"]]
        yield Flow((*at, "name"), name, ((*to, "type"),), always=True)
        for key, field in args.items():
            if item[field] is not None:
                yield Flow((*at, "args", key), item[field], ((*to, field),), same=True, always=True)
            else:
                yield Flow((), None, ((*to, field),), "mapped", "no limit")
        if "unit" in item:
            yield Flow((), None, ((*to, "unit"),), "mapped", "Data-Juicer counts characters")
    if item["column"] is not None:
        yield Flow((*at, "args", COLUMN), item["column"], ((*to, "column"),), same=True, always=True)
    else:
        yield Flow((), None, ((*to, "column"),), "mapped", "the text column")


def _write_priority(view: Writing, priority: Mapping[str, Any] | None) -> Iterator[Out]:
    to, at = view.to("data.priority"), view.path(f"{ROOT}.priority_weights")
    if priority is None:
        yield Flow(
            (*at, "quality"),
            0.0,
            (to,),
            "derived",
            "Trinity always sorts: equal priorities keep the order",
            always=True,
        )
        return
    weights = priority["weights"]
    for name in WEIGHTS:
        yield Flow((*at, name), weights[name], ((*to, "weights", name),), same=True, always=True)
    if weights["diversity"]:
        yield Inexpressible(((*to, "weights", "diversity"),), "Trinity never computes the diversity")
    else:
        yield Flow((), None, ((*to, "weights", "diversity"),), "mapped", "Trinity never computes it")
    if priority["keep"] is not None:
        yield Flow(view.path(f"{ROOT}.top_k"), priority["keep"], ((*to, "keep"),), same=True)
    else:
        yield Flow((), None, ((*to, "keep"),), "mapped", "all rows")


_PRIORITY = (*(f"weights.{name}" for name in (*WEIGHTS, "diversity")), "keep")
FIELDS = (
    *("column", "min", "max", "unit", "scripts", "min_share", "lowercase", "ignore_non_character", "min_ratio"),
    *("max_ratio", "rep_len", "path", "function", "args", "kind"),
    *("auxiliary_model", "prompt", "sampling", "max_concurrent", "timeout"),
)
RULES = [
    CustomRule(
        "task pipeline",
        (
            DialectKey(ROOT, takes=dict),
            # 0.6.0 common/config.py, TaskPipelineConfig
            DialectKey(f"{ROOT}.operators", []),
            DialectKey(f"{ROOT}.operators.*.name"),
            DialectKey(f"{ROOT}.operators.*.args"),
            DialectKey(f"{ROOT}.operators.*.args.**"),
            # 0.6.0 common/config.py, TaskPipelineConfig
            DialectKey(f"{ROOT}.{FILE}", None),
            DialectKey(f"{ROOT}.inputs"),
            DialectKey(f"{ROOT}.output.path"),
            DialectKey(f"{ROOT}.target_fields", takes=list),
            DialectKey(f"{ROOT}.priority_weights"),
            *(DialectKey(f"{ROOT}.priority_weights.{name}") for name in WEIGHTS),
            DialectKey(f"{ROOT}.top_k"),
        ),
        (
            TO,
            *(f"{TO}[].{name}" for name in FIELDS),
            "data.operators_input",
            "data.operators_output",
            "data.priority",
            *(f"data.priority.{name}" for name in _PRIORITY),
        ),
        _read,
        _write,
        by_key={
            ROOT: (TO, "data.operators_input", "data.operators_output", "data.priority"),
            f"{ROOT}.operators": TO,
            f"{ROOT}.operators.*.name": (f"{TO}[].type", f"{TO}[].kind"),
            f"{ROOT}.{FILE}": TO,
            f"{ROOT}.inputs": "data.operators_input",
            f"{ROOT}.output": "data.operators_output",
            f"{ROOT}.target_fields": f"{TO}[].column",
            f"{ROOT}.priority_weights": "data.priority.weights",
            **{f"{ROOT}.priority_weights.{name}": f"data.priority.weights.{name}" for name in WEIGHTS},
            f"{ROOT}.top_k": "data.priority.keep",
        },
        why="A list of names with arguments becomes a list of sections and a section of weights.",
    )
]
