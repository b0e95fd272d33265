"""What Trinity-RFT refuses of the user's data and code: workflows and rewards, expert data, shapes of judges."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.class_paths import class_fault
from rlctl.adapters.engine.model_limits import SOURCES, VLLM, nearest_size, tensor_parallel_fault
from rlctl.adapters.engine.requirements import Requirement, Values, fault_row
from rlctl.adapters.trinity.requirement_values import own_devices
from rlctl.adapters.trinity.workflows import REWARDS
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.report import Level
from rlctl.config.reward_returns import NUMBER, SEQUENCE, TEXT, returns_in
from rlctl.config.reward_signatures import takes
from rlctl.planning.column_types import ColumnType, column_types
from rlctl.planning.models import read_shape

INPUT = "buffer.explorer_input"
WORKFLOWS = (
    *(
        f"{start}{name}_workflow"
        for name in ("simple", "math", "math_boxed", "math_eval", "math_rm")
        for start in ("", "async_")
    ),
    *(
        "tool_call_workflow",
        "agentscope_workflow_adapter",
        "agentscope_workflow_adapter_v1",
        "agentscope_react_workflow",
    ),
    *("agentscope_react_math_workflow", "as_react_workflow", "agentscopev0_react_math_workflow"),
    *("agentscope_v1_react_search_workflow", "email_search_workflow", "alfworld_workflow", "RAFT_alfworld_workflow"),
    *("RAFT_reflect_alfworld_workflow", "frozen_lake_workflow", "sciworld_workflow", "webshop_workflow"),
    *("intercode_sql_workflow", "step_wise_alfworld_workflow", "async_math_ruler_workflow", "math_ruler_workflow"),
    *("math_trainable_ruler_workflow", "rubric_judge_workflow", "rubric_judge_openai_workflow", "simple_mm_workflow"),
    *("async_simple_mm_workflow", "on_policy_distill_workflow", "on_policy_distill_math_workflow", "sudoku_workflow"),
)
"""Workflows that Trinity registers itself."""
REWARD = "default_reward_fn_type"
GALLERY = "rm_gallery_reward"
"""The reward function of RM-Gallery, which Trinity registers until 0.5."""
PLUGINS = (".", "plugins")
"""Folders below the current one in which a class of the user's is looked for."""
LATER = {
    "rubric_judge_openai_workflow": ("0.5", "0.4"),
    "sudoku_workflow": ("0.5", "0.4"),
    "intercode_sql_workflow": ("0.6", "0.5"),
}
"""Workflows that Trinity registers since a release, and the last one that lacks each."""
OWN_AGENTS = ("agentscope_", "agentscopev", "as_react_")
"""How the names of Trinity's workflows for AgentScope begin, which change with its releases."""
MOST_FILES = 100
MOST_LETTERS = 2
"""Letters by which a slip may be longer or shorter."""
MIXED = ("mix", "mix_chord")
BASES = frozenset({"Workflow"})
"""Base classes that implement nothing that a run calls."""
STEPS = ("step", "reward", "max_step_num")
LATER_STEPS = ("step_async", "reward_async", "max_step_num")
STEPWISE: Mapping[str, tuple[str, ...]] = {
    "StepWiseRewardWorkflow": STEPS,
    "AsyncStepWiseRewardWorkflow": LATER_STEPS,
    "RewardPropagationWorkflow": STEPS,
    "AsyncRewardPropagationWorkflow": LATER_STEPS,
}
"""Base classes that call methods of the class, which raise an error if it does not define them."""


def _tasksets(values: Values) -> Iterator[Mapping[str, Any]]:
    for name in ("taskset", "tasksets", "eval_tasksets"):
        found = values[f"{INPUT}.{name}"] or ()
        yield from (each for each in ([found] if isinstance(found, Mapping) else found) if isinstance(each, Mapping))


def _named(values: Values, field: str) -> list[str]:
    """The names of workflows, or of reward functions, that a file has."""
    found = [values[f"{INPUT}.{field}"], *(each.get(field) for each in _tasksets(values))]
    return [name for name in dict.fromkeys(found) if isinstance(name, str) and name]


def _misspelled(field: str, known: tuple[str, ...]) -> Callable[[Values], str]:
    """A name that is near one of Trinity's, and that no class of the user's registers."""

    def found(values: Values) -> str:
        names = (name for name in _named(values, field) if name not in known and "." not in name)
        return next((name for name in names if _is_slip(name, known) and _class_of(name) is None), "")

    return found


def _is_slip(name: str, known: tuple[str, ...]) -> bool:
    """Whether a name differs from one of Trinity's by a slip; names of the user's are often made of the same words."""
    near = closest(name, known) or ""
    if near and name.startswith(OWN_AGENTS) and name.endswith("_workflow"):
        return True
    return bool(near) and abs(len(near) - len(name)) <= MOST_LETTERS and SequenceMatcher(None, near, name).ratio() > 0.9


def _unregistered(values: Values) -> str:
    """A reward function that neither Trinity nor a class of the user's registers, and that is no slip."""
    names = (name for name in _named(values, REWARD) if name not in (*REWARDS, GALLERY) and "." not in name)
    return next((name for name in names if not _is_slip(name, tuple(REWARDS)) and _class_of(name) is None), "")


def _near(found: Callable[[Values], str], known: tuple[str, ...]) -> Callable[[Values], str]:
    return lambda values: closest(found(values), known) or ""


def _names() -> Iterator[Requirement]:
    for field, known in (("default_workflow_type", WORKFLOWS), ("default_reward_fn_type", tuple(REWARDS))):
        found = _misspelled(field, known)
        yield Requirement(
            f"{INPUT}.{field}",
            found,
            said("{field} is {{name}}, which Trinity does not register; only a plug-in could", field=field),
            "trinity/utils/registry.py, Registry.get",
            "did you mean {near}?",
            numbers={"name": found, "near": _near(found, known)},
            since="0.5",
            level=Level.WARNING,
        )


UNREGISTERED = Requirement(
    f"{INPUT}.{REWARD}",
    _unregistered,
    said(
        "{field} is {{name}}, which neither Trinity nor a file in {folders} registers; only another plug-in could",
        field=REWARD,
        folders=" or ".join(PLUGINS[1:]),
    ),
    "trinity/utils/registry.py, Registry.get",
    said("set it to one of {names}, or register it", names=", ".join(REWARDS)),
    numbers={"name": _unregistered},
    since="0.5",
    level=Level.WARNING,
)


FORMER = Requirement(
    f"{INPUT}.{REWARD}",
    lambda v: GALLERY in _named(v, REWARD) and _class_of(GALLERY) is None,
    said("{field} is {name}, which Trinity registers until 0.5", field=REWARD, name=GALLERY),
    "trinity/common/rewards/__init__.py",
    said("install Trinity-RFT 0.5, or set it to one of {names}", names=", ".join(REWARDS)),
    since="0.6",
    level=Level.WARNING,
)


def _later_names() -> Iterator[Requirement]:
    """Workflows that a release does not register yet."""
    for name, (since, last) in LATER.items():
        yield Requirement(
            f"{INPUT}.default_workflow_type",
            lambda v, name=name: name in _named(v, "default_workflow_type") and _class_of(name) is None,  # type: ignore[misc]
            said("default_workflow_type is {name}, which Trinity registers from {since} on", name=name, since=since),
            "trinity/common/workflows/__init__.py",
            said("install Trinity-RFT {since}, or set another workflow", since=since),
            since="0.4",
            until=last,
        )


def _class_of(name: str) -> tuple[str, ast.ClassDef] | None:
    """The file and the class that a name means: registered below the current folder, or MODULE.CLASS there."""
    if "." in name:
        module, _, wanted = name.rpartition(".")
        files = [Path(*module.split(".")).with_suffix(".py")]
    else:
        wanted = ""
        files = [file for folder in PLUGINS for file in islice(sorted(Path(folder).glob("*.py")), MOST_FILES)]
    for file in files:
        try:
            text = file.read_bytes()
            tree = ast.parse(text) if name.encode() in text or wanted.encode() in text else ast.Module([], [])
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (node.name == wanted or (not wanted and name in _registered(node))):
                return str(file), node
    return None


def _registered(node: ast.ClassDef) -> Iterator[str]:
    """The names under which decorators register a class."""
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "register_module":
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            yield from (str(value.value) for value in values if isinstance(value, ast.Constant))


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    parts = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((part for part in parts if part.name == name), None)


def _defined(node: ast.ClassDef) -> Iterator[str]:
    """The names that the body of a class defines, and the attributes that its methods set."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
        elif isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.id if isinstance(part, ast.Name) else part.attr


def _is_set(node: ast.ClassDef, name: str) -> bool:
    """Whether a class sets an attribute to True."""
    for part in node.body:
        target = (
            part.targets[0]
            if isinstance(part, ast.Assign)
            else part.target
            if isinstance(part, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == name:
            value = part.value if isinstance(part, ast.Assign | ast.AnnAssign) else None
            return isinstance(value, ast.Constant) and value.value is True
    return False


def _implements_alone(node: ast.ClassDef) -> bool:
    """Whether a class has no bases but those that implement nothing."""
    return all(isinstance(base, ast.Name) and base.id in BASES for base in node.bases)


def _workflow_faults(node: ast.ClassDef) -> Iterator[str]:
    start = _method(node, "__init__")
    if start is not None:
        known = takes(start)
        lacks = [name for name in ("task", "model", "auxiliary_models") if name not in known.names]
        if lacks and not known.anything:
            yield said("__init__ does not take {names}, which Trinity passes by name", names=", ".join(lacks))
    base = node.bases[0].id if len(node.bases) == 1 and isinstance(node.bases[0], ast.Name) else ""
    for name in STEPWISE.get(base, ()):
        if name not in set(_defined(node)):
            yield said("{name} is not defined, and {base} calls it", name=name, base=base)
    is_async, run = _is_set(node, "is_async"), _method(node, "run")
    if is_async and _implements_alone(node) and _method(node, "run_async") is None:
        yield said("is_async is True, and run_async is not defined")
    if not is_async and isinstance(run, ast.AsyncFunctionDef):
        yield said("run is async, and Trinity does not await it: name it run_async, and set is_async to True")
    if not is_async and _implements_alone(node) and run is None:
        yield said("run is not defined")
    for switch, method in (("can_repeat", "set_repeat_times"), ("can_reset", "reset")):
        if _is_set(node, switch) and _implements_alone(node) and _method(node, method) is None:
            yield said("{switch} is True, and {method} is not defined", switch=switch, method=method)


def _reward_faults(node: ast.ClassDef) -> Iterator[str]:
    call = _method(node, "__call__")
    if call is None:
        return
    known = takes(call)
    lacks = [name for name in ("response", "truth") if name not in known.names]
    if lacks and not known.anything:
        yield said("__call__ does not take {names}, which Trinity passes by name", names=", ".join(lacks))
    returned = returns_in(call)
    wrong = next((value for kind in (NUMBER, TEXT, SEQUENCE) if (value := returned.first(kind)) is not None), None)
    if wrong is not None:
        yield said("line {line} returns no dict: Trinity adds up the values of a dict of rewards", line=wrong.line)
    if isinstance(call, ast.AsyncFunctionDef):
        yield said("__call__ is async, and Trinity does not await it")


def _faulty(field: str, faults: Callable[[ast.ClassDef], Iterator[str]]) -> Callable[[Values], str]:
    """What is wrong with the first class of the user's that has a fault, after its place."""

    def found(values: Values) -> str:
        for name in _named(values, field):
            place, node = _class_of(name) or ("", None)
            reasons = list(faults(node)) if node is not None else []
            if node is not None and reasons:
                return f"{place}:{node.lineno}: {node.name}: {together(reasons, COMMAS)}"
        return ""

    return found


def _lost_class(values: Values) -> str:
    """A class path of a workflow or a reward that nothing beside the file defines."""
    names = (*_named(values, "default_workflow_type"), *_named(values, "default_reward_fn_type"))
    return next((fault for name in names if "." in name and (fault := class_fault(name, {}, "trinity"))), "")


def _plain_reward(values: Values) -> str:
    """The place of a reward's class without a base class, which Trinity's own workflows refuse."""
    own = [name for name in _named(values, "default_workflow_type") if name in WORKFLOWS]
    names = _named(values, "default_reward_fn_type") if own else []
    classes = (found for name in names if (found := _class_of(name)))
    return next((f"{place}:{node.lineno}" for place, node in classes if not node.bases), "")


def _no_operator(values: Values) -> str:
    """An operator of a plug-in that is none of Trinity's."""
    operators = values["data_processor.experience_pipeline.operators"] or ()
    names = [str(item.get("name")) for item in operators if isinstance(item, Mapping)]
    return next((name for name in names if (own := _class_of(name)) and not own[1].bases), "")


def _classes() -> Iterator[Requirement]:
    for field, faults, source in (
        ("default_workflow_type", _workflow_faults, "trinity/explorer/workflow_runner.py, WorkflowRunner"),
        ("default_reward_fn_type", _reward_faults, "trinity/common/workflows/workflow.py, SimpleWorkflow.run"),
    ):
        yield fault_row(
            f"{INPUT}.{field}",
            _faulty(field, faults),
            "{fault}",
            source,
            "change the class",
            since="0.5",
            when="rollout",
        )


def _expert_types(values: Values) -> tuple[str, dict[str, ColumnType], list[str]] | None:
    """The expert data of the mixed algorithms: its path, its columns, and those that it must have."""
    if values["algorithm.algorithm_type"] not in MIXED:
        return None
    name = str(values["algorithm.sample_strategy_args.sft_dataset_name"] or "sft_dataset")
    buffer = (values["buffer.trainer_input.auxiliary_buffers"] or {}).get(name) or {}
    path, form = expanded(str(buffer.get("path") or "")), buffer.get("format") or {}
    files = [path] if path.is_file() else sorted(path.rglob("*.*")) if buffer.get("path") and path.is_dir() else []
    types = next((types for file in files if (types := column_types(file))), {})
    if form.get("prompt_type") == "plaintext":
        needed = [str(form.get("prompt_key") or "prompt"), str(form.get("response_key") or "response")]
    else:
        needed = [str(form.get("messages_key") or "message")]
    return (str(buffer.get("path")), types, needed) if types else None


def _expert_lacks(values: Values) -> str:
    found = _expert_types(values)
    return ", ".join(name for name in found[2] if name not in found[1]) if found is not None else ""


def _expert(index: int) -> Callable[[Values], str]:
    def shown(values: Values) -> str:
        found = _expert_types(values)
        return "" if found is None else (found[0], ", ".join(found[1]))[index]

    return shown


def _split_models(values: Values) -> Iterator[tuple[str, int, str, int]]:
    """Auxiliary models whose size does not divide them: the path, the size, what it does not divide, and a size that does."""
    for model in values["explorer.auxiliary_models"] or ():
        path, size = str(model.get("model_path") or ""), int(model.get("tensor_parallel_size") or 1)
        shape = read_shape(path) if path and size > 1 else None
        if shape is not None and (part := tensor_parallel_fault(shape, size)):
            yield path, size, part, nearest_size(shape, size, tensor_parallel_fault)


def _split(index: int) -> Callable[[Values], object]:
    return lambda values: next(_split_models(values))[index]


ROWS: tuple[Requirement, ...] = (
    *_names(),
    *_later_names(),
    UNREGISTERED,
    FORMER,
    *_classes(),
    fault_row(
        f"{INPUT}.default_workflow_type",
        _lost_class,
        "Trinity cannot import a class: {fault}",
        "trinity/utils/registry.py, Registry.get",
        "correct the path of the class",
        since="0.5",
    ),
    Requirement(
        f"{INPUT}.default_reward_fn_type",
        _plain_reward,
        "the class in {place} is not a subclass of RewardFn, which Trinity's workflows need",
        "trinity/common/workflows/workflow.py, BaseSimpleWorkflow.reset",
        "derive the class from RewardFn",
        numbers={"place": _plain_reward},
        since="0.5",
        when="generation",
    ),
    Requirement(
        "data_processor.experience_pipeline.operators",
        _no_operator,
        "the class of the operator {name} has no base class; expected ExperienceOperatorV1 or ExperienceOperator",
        "trinity/buffer/operators/experience_operator.py, create_operators",
        "derive the class from ExperienceOperatorV1",
        numbers={"name": _no_operator},
        since="0.5",
    ),
    Requirement(
        "buffer.trainer_input.auxiliary_buffers",
        _expert_lacks,
        "the expert data {path} has no column {lacks}; its columns are {columns}",
        "trinity/buffer/schema/formatter.py, SFTFormatter.format",
        "set prompt_type, messages_key, prompt_key and response_key of its format to its columns",
        numbers={"path": _expert(0), "lacks": _expert_lacks, "columns": _expert(1)},
        since="0.5",
        when="update",
    ),
    Requirement(
        "explorer.auxiliary_models",
        lambda v: own_devices(v) and v["mode"] != "train" and next(_split_models(v), None),
        "tensor_parallel_size of the auxiliary model {path} is {size}, which does not divide the model's {part}: vLLM stops "
        "when it "
        "starts",
        SOURCES[VLLM],
        "set its tensor_parallel_size to {fits}",
        numbers={name: _split(index) for index, name in enumerate(("path", "size", "part", "fits"))},
        since="0.5",
    ),
)
