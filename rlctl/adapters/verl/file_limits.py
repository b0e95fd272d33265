"""What verl refuses of files that a config names: adapters, config.json, tools, routers, quantization, checkpoints, classes."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.class_paths import class_fault
from rlctl.adapters.engine.requirements import Requirement, Values, fault_row
from rlctl.adapters.verl.requirement_values import MODEL, ROLLOUT, strategy
from rlctl.common.errors import RlctlError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.documents import read_yaml
from rlctl.planning.models import model_config

ADAPTER, TOOLS, ROUTER = (
    f"{MODEL}.lora_adapter_path",
    f"{ROLLOUT}.multi_turn.function_tool_path",
    f"{ROLLOUT}.router_config_path",
)
TOOL_CONFIG = f"{ROLLOUT}.multi_turn.tool_config_path"
QUANTIZED = "actor_rollout_ref.actor.fsdp_config.qat"
RESUME = "trainer.resume_from_path"
STAGES = "global_profiler.global_tool_config.precision_debugger"
CLASSES = (f"{ROLLOUT}.agent.agent_loop_manager_class", f"{ROLLOUT}.checkpoint_manager_class")


def _local(values: Values, key: str) -> Path | None:
    """A path of this machine that a key names; None for none, and for one of a cluster's storage."""
    path = values[key]
    return expanded(str(path)) if isinstance(path, str) and path and "://" not in path else None


def _adapter_fault(values: Values) -> str:
    """What is wrong with a folder of an adapter that is here; empty for a name of a hub."""
    folder = _local(values, ADAPTER)
    if folder is None or not folder.is_dir():
        return ""
    file = folder / "adapter_config.json"
    if not file.is_file():
        return said("it has no {name}", name=file.name)
    try:
        rank = json.loads(file.read_text(encoding="utf-8"))["r"]
        int(rank)
    except (OSError, ValueError, TypeError, KeyError):
        return said("its {name} states no rank r", name=file.name)
    return ""


def _architectures(values: Values) -> int:
    """How many classes the model's ``config.json`` names; 1 if the file is not on this machine, or does not say."""
    found = (model_config(str(values[f"{MODEL}.path"] or "")) or {}).get("architectures")
    return len(found) if isinstance(found, list) else 1


def _without_positions(values: Values) -> bool:
    config = model_config(str(values[f"{MODEL}.path"] or "")) or {}
    text = config.get("text_config")
    known = [config, text if isinstance(text, Mapping) else {}]
    # classes of Transformers have a default: only a config of an unknown class has none
    return bool(config.get("auto_map")) and not any(each.get("max_position_embeddings") for each in known)


def _parsed(path: Path | None) -> list[ast.stmt]:
    try:
        return ast.parse(path.read_bytes()).body if path is not None else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _function_tools(values: Values) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Functions that a file registers as tools: the name of each, and whether its schema is inferred."""
    for node in _parsed(_local(values, TOOLS)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            call = mark if isinstance(mark, ast.Call) else None
            if ast.unparse(call.func if call else mark).rpartition(".")[2] != "function_tool":
                continue
            named = {each.arg: each.value for each in (call.keywords if call else ())}
            given = [*(call.args[:1] if call else ()), *(named[key] for key in ("name",) if key in named)]
            name = next((str(each.value) for each in given if isinstance(each, ast.Constant)), node.name)
            yield name, node, "schema" not in named


def _tool_fault(values: Values) -> str:
    seen: set[str] = set()
    for name, node, is_inferred in _function_tools(values):
        if name in seen:
            return said("line {line} registers the tool {name} a second time", line=node.lineno, name=name)
        seen.add(name)
        if is_inferred and (node.args.vararg or node.args.kwarg):
            return said(
                "the tool {name} in line {line} takes *args or **kwargs, of which verl makes no schema",
                name=name,
                line=node.lineno,
            )
    return ""


def _read(path: Path | None) -> Mapping[str, Any] | None:
    """The mapping in a YAML or JSON file; None if there is none."""
    try:
        return read_yaml(path.read_text(encoding="utf-8"), path.name).values if path is not None else None
    except (OSError, ValueError, RlctlError):
        return None


def _tool_kind(values: Values) -> str:
    """The kind of the first tool of a file that verl does not have."""
    tools = (_read(_local(values, TOOL_CONFIG)) or {}).get("tools") or ()
    kinds = (str(((each or {}).get("config") or {}).get("type") or "") for each in tools if isinstance(each, Mapping))
    return next((kind for kind in kinds if kind and "${" not in kind and kind != "native"), "")


def _router_fault(values: Values) -> str:
    given = _read(_local(values, ROUTER))
    if given is None:
        return ""
    if "defaults" in given:
        return said("it has a section defaults, which verl does not compose here")
    if not given.get("router_class"):
        return said("it has no router_class")
    return class_fault(str(given["router_class"]), {}, "verl")


def _quantization(values: Values) -> str:
    """The method of a file of quantization that verl does not have."""
    given = _read(_local(values, f"{QUANTIZED}.quantization_config_path")) if values[f"{QUANTIZED}.enable"] else None
    method = str(given.get("quant_method") or "null") if given is not None else ""
    return "" if method in ("modelopt", "compressed-tensors") else method


def _resumed(values: Values) -> Path | None:
    """The folder of the actor here that a run with Megatron continues from."""
    path = _local(values, RESUME) if values["trainer.resume_mode"] == "resume_path" else None
    folder = path / "actor" if path is not None and strategy(values) == "megatron" else None
    return folder if folder is not None and folder.is_dir() else None


def _layout_fault(values: Values) -> str:
    """What a checkpoint of Megatron has that verl no longer loads, or lacks."""
    folder = _resumed(values)
    if folder is None:
        return ""
    for name in ("dist_ckpt", "huggingface"):
        if (folder / name).is_dir() and any((folder / name).iterdir()):
            return said("it has the folder {name} of older releases", name=name)
    if values[f"{MODEL}.lora.rank"] and not _has_files(folder / "model" / "dist_ckpt"):
        if (folder / "adapter_checkpoint").is_dir():
            return said("it has {name}, as older releases wrote adapters", name="adapter_checkpoint")
        if (folder / "model" / "huggingface" / "adapter" / "adapter_config.json").is_file():
            return said("it has an exported adapter only")
    return ""


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _unknown_stages(values: Values) -> str:
    given = (
        values[f"{STAGES}.stages"]
        if values[f"{STAGES}.strict"] and values["global_profiler.tool"] == "precision_debugger"
        else ()
    )
    known = (
        *("actor_update", "actor_compute_log_prob", "ref_compute_log_prob", "compute_values", "critic_update"),
        *("compute_rm_score", "rollout_generate"),
    )
    return ", ".join(str(each) for each in given or () if each not in known)


def _plain_dataset(values: Values) -> bool:
    """Whether the class of the data is written without a base class."""
    path, name = _local(values, "data.custom_cls.path"), values["data.custom_cls.name"]
    nodes = (node for node in _parsed(path) if isinstance(node, ast.ClassDef) and node.name == name)
    return any(not node.bases and not node.decorator_list for node in nodes)


def _lost_class(key: str) -> Callable[[Values], str]:
    return lambda values: class_fault(str(values[key]), {}, "verl") if values[key] else ""


def _lost_row(key: str, source: str, when: str, is_there: Callable[[Path], bool] = Path.is_file) -> Requirement:
    """A warning of an absolute path that does not exist on this machine; another one may have it."""

    def is_lost(values: Values) -> bool:
        path = _local(values, key)
        return path is not None and path.is_absolute() and not is_there(path)

    message = said("{key} names {{{key}}}, which is not on this machine", key=key)
    return Requirement(key, is_lost, message, source, "correct the path", level=Level.WARNING, when=when)


ROWS: tuple[Requirement, ...] = (
    fault_row(
        ADAPTER,
        _adapter_fault,
        said("verl cannot read the adapter {{{key}}}: {{fault}}", key=ADAPTER),
        "verl/utils/model.py, get_lora_rank_from_adapter",
        said("name the folder of an adapter that PEFT saved in {key}", key=ADAPTER),
        when="load",
    ),
    _lost_row(ADAPTER, "verl/utils/model.py, get_lora_rank_from_adapter", "load", Path.exists),
    Requirement(
        f"{MODEL}.path",
        lambda v: _architectures(v) != 1,
        said("the config.json of {{{model}.path}} names {{count}} architectures; verl takes one", model=MODEL),
        "verl/workers/config/model.py, HFModelConfig.__post_init__",
        "correct architectures in the config.json",
        numbers={"count": _architectures},
        when="load",
    ),
    Requirement(
        f"{MODEL}.path",
        lambda v: _without_positions(v) and not v[f"{ROLLOUT}.max_model_len"],
        said(
            "the config.json of {{{model}.path}} has no max_position_embeddings, by which verl limits prompts",
            model=MODEL,
        ),
        "verl/workers/rollout/utils.py, get_max_position_embeddings",
        "add it to the config.json",
        when="engine",
    ),
    _lost_row(TOOLS, "verl/tools/function_tool.py, load_function_tools_from_path", "engine"),
    fault_row(
        TOOLS,
        _tool_fault,
        said("verl cannot use the tools in {{{key}}}: {{fault}}", key=TOOLS),
        "verl/tools/function_tool.py, function_tool",
        "change the function",
        when="engine",
    ),
    Requirement(
        TOOL_CONFIG,
        _tool_kind,
        said("{{{key}}} has a tool of type {{kind}}; verl takes native", key=TOOL_CONFIG),
        "verl/tools/tool_registry.py, initialize_tools_from_config",
        "set type to native",
        numbers={"kind": _tool_kind},
        when="engine",
    ),
    _lost_row(ROUTER, "verl/workers/rollout/router.py, _load_router_yaml", "engine"),
    fault_row(
        ROUTER,
        _router_fault,
        said("verl cannot use {{{key}}}: {{fault}}", key=ROUTER),
        "verl/workers/rollout/router.py, _create_plugin_extension",
        "correct the file",
        when="engine",
    ),
    Requirement(
        f"{QUANTIZED}.quantization_config_path",
        _quantization,
        said(
            "{{{key}.quantization_config_path}} has quant_method {{method}}; expected modelopt or compressed-tensors",
            key=QUANTIZED,
        ),
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py, vLLMHttpServer._apply_quantization",
        "correct quant_method in the file",
        numbers={"method": _quantization},
        when="engine",
    ),
    fault_row(
        RESUME,
        _layout_fault,
        said("verl cannot continue from {{{key}}}: {{fault}}", key=RESUME),
        "verl/utils/checkpoint/megatron_checkpoint_manager.py, MegatronCheckpointManager.load_checkpoint",
        "move the checkpoint to the new layout with verl's scripts/migrate_megatron_checkpoint_layout.py",
        when="load",
    ),
    Requirement(
        f"{STAGES}.stages",
        _unknown_stages,
        said("{section}.stages names {{stages}}, which verl does not have, and strict is true", section=STAGES),
        "verl/utils/profiler/precision_debugger_profile.py, PrecisionDebuggerProfiler._normalize_stages",
        said("correct {section}.stages", section=STAGES),
        numbers={"stages": _unknown_stages},
    ),
    Requirement(
        "data.custom_cls.name",
        _plain_dataset,
        "the class {data.custom_cls.name} has no base class; verl takes subclasses of torch.utils.data.Dataset",
        "verl/utils/dataset/rl_dataset.py, get_dataset_class",
        "derive it from torch.utils.data.Dataset",
    ),
    *(
        fault_row(
            key,
            _lost_class(key),
            said("{key} names a class that verl cannot import: {{fault}}", key=key),
            "verl/utils/import_utils.py, load_class_from_fqn",
            said("correct {key}", key=key),
        )
        for key in CLASSES
    ),
)
