"""Trinity: the engine that generates: its type, its memory and its server."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.one_sided_rows import WriteOnly
from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
    further_type,
    is_further,
    own_name,
)
from rlctl.adapters.engine.values import ENGINE_DTYPES, Partly
from rlctl.adapters.trinity.keys import ROLL
from rlctl.common.messages.reasons import said
from rlctl.planning import arithmetic


def _read_engine_type(view: Reading) -> Iterator[Flow]:
    external = bool(view.get("model.external_model.enable"))
    key = f"{ROLL}.engine_type"
    used = (view.path(key),)
    kind = view.get(key)
    if external or kind == "external":
        yield Flow(view.to("rollout.engine.type"), "external", (view.path("model.external_model.enable"), *used))
        yield Flow(
            view.to("rollout.engine.model"),
            view.get("model.external_model.model_name"),
            (view.path("model.external_model.model_name"),),
            same=True,
        )
        for name, field, default in (
            ("base_url_env", "base_url", "OPENAI_BASE_URL"),
            ("api_key_env", "api_key", "OPENAI_API_KEY"),
        ):
            variable = view.get(f"model.external_model.{name}") or default
            yield Flow(
                view.to(f"rollout.engine.{field}"),
                "${oc.env:" + str(variable) + ",null}",
                (view.path(f"model.external_model.{name}"),),
            )
        return
    yield Flow((), None, (view.path("model.external_model.enable"),))
    if kind is None:
        yield Flow(view.to("rollout.engine.type"), "auto", used)
    elif kind in ("vllm", "vllm_async", "sglang"):
        yield Flow(view.to("rollout.engine.type"), {"vllm_async": "vllm"}.get(kind, kind), used)
    else:
        yield Flow(view.to("rollout.engine.type"), further_type("rollout.engine", str(kind), "trinity"), used)


def _write_engine_type(view: Writing) -> Iterator[Out]:
    name, used = view.get("rollout.engine.type"), (view.to("rollout.engine.type"),)
    if view.config.algorithm.objective.choice in ("sft", "dpo") or name == "auto":
        yield Flow((), None, used)
    elif name in ("vllm", "sglang"):
        if name == "sglang" and view.version < (0, 6):
            yield Inexpressible(used, "Trinity supports sglang only from 0.6. Wrote vLLM")
        else:
            yield Flow(view.path(f"{ROLL}.engine_type"), name, used)
    elif name == "external":
        yield Flow(view.path("model.external_model.enable"), True, used, always=True)
        yield Flow(
            view.path("model.external_model.model_name"),
            view.get("rollout.engine.model"),
            (view.to("rollout.engine.model"),),
            same=True,
        )
        for key in ("base_url", "api_key"):
            text = str(view.get(f"rollout.engine.{key}") or "")
            place = (view.to(f"rollout.engine.{key}"),)
            variable = text.removeprefix("${oc.env:").rstrip("}").split(",")[0] if text.startswith("${oc.env:") else ""
            if variable:
                yield Flow(view.path(f"model.external_model.{key}_env"), variable, place)
            elif text:
                yield Inexpressible(place, "Trinity takes the name of the environment variable that contains it")
    elif is_further("rollout.engine", name):
        yield Flow(view.path(f"{ROLL}.engine_type"), own_name(name, "trinity"), used, always=True)
    else:
        yield Inexpressible(used, said("Trinity has no {name} engine. Wrote its default, vLLM", name=name))


def _own_fraction(view: Writing) -> bool:
    """Whether the share of memory may be copied: it means the same only where rollout's devices are its own on both sides."""
    return view.config.placement.layout != "colocated" or arithmetic.devices(view.config) == 1


def _shared_fraction(view: Writing) -> bool:
    return view.config.rollout.memory.gpu_memory_utilization is not None and not _own_fraction(view)


VLLM = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_batched_tokens",
    "block_size": "block_size",
    "swap_space": "swap_gib",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
}
"""Arguments of vLLM's that have canonical keys; Trinity hands on what stands in ``extra_engine_args``."""


def is_vllm(view: Writing) -> bool:
    """Whether the explorer generates with vLLM, which Trinity takes where nothing else is said."""
    return view.get("rollout.engine.type") in ("vllm", "auto", "transformers")


ENGINE: list[Rule] = [
    CustomRule(
        "rollout engine",
        (
            DialectKey(f"{ROLL}.engine_type"),
            DialectKey("model.external_model.enable"),
            DialectKey("model.external_model.model_name"),
            DialectKey("model.external_model.base_url_env"),
            DialectKey("model.external_model.api_key_env"),
        ),
        (
            "rollout.engine.type",
            "rollout.engine.base_url",
            "rollout.engine.model",
            "rollout.engine.api_key",
        ),
        _read_engine_type,
        _write_engine_type,
        by_key={
            f"{ROLL}.engine_type": "rollout.engine.type",
            "model.external_model.enable": "rollout.engine.type",
            "model.external_model.model_name": "rollout.engine.model",
            "model.external_model.base_url_env": "rollout.engine.base_url",
            "model.external_model.api_key_env": "rollout.engine.api_key",
        },
        why="A second switch makes it a service, whose address and key are in environment variables.",
    ),
    Tree(f"{ROLL}.extra_engine_args", "rollout.engine.args", but=tuple(VLLM)),
    Key(f"{ROLL}.dtype", "rollout.precision", convert=ENGINE_DTYPES),
    Key(
        f"{ROLL}.gpu_memory_utilization",
        "rollout.memory.gpu_memory_utilization",
        write_when=lambda view: _own_fraction(view),
    ),
    WriteOnly(
        "rollout.memory.gpu_memory_utilization",
        _shared_fraction,
        lost=lambda view: said(
            "{fraction:g} leaves memory for training on shared devices; Trinity's explorer has dedicated "
            "ones, so its 0.9 is kept",
            fraction=view.config.rollout.memory.gpu_memory_utilization,
        ),
        idle=True,
        formula="a dedicated device reserves no memory for training",
    ),
    Key(f"{ROLL}.enforce_eager", "rollout.memory.enforce_eager"),
    Key(f"{ROLL}.enable_prefix_caching", "rollout.memory.prefix_caching"),
    Key(f"{ROLL}.enable_chunked_prefill", "rollout.memory.chunked_prefill"),
    *[
        Key(
            f"{ROLL}.extra_engine_args.{key}",
            f"rollout.memory.{field}",
            quiet=True,
            write_when=is_vllm,
            takes_null=False,
        )
        for key, field in VLLM.items()
    ],
    *[
        Dropped(f"rollout.memory.{name}", "Trinity leaves it to the engine", idle=True)
        for name in ["load_format", "log_statistics"]
    ],
    Dropped("rollout.memory.sleep", "Trinity's explorer has dedicated devices and never sleeps", idle=True),
    Dropped("rollout.memory.sleep_level", "Trinity's explorer never sleeps", idle=True),
    Key(f"{ROLL}.enable_openai_api", "rollout.openai_server.enabled"),
    Key(f"{ROLL}.enable_auto_tool_choice", "rollout.openai_server.tool_choice"),
    Key(f"{ROLL}.tool_call_parser", "rollout.openai_server.tool_parser"),
    Key(f"{ROLL}.reasoning_parser", "rollout.openai_server.reasoning_parser"),
    Key(f"{ROLL}.enable_history", "rollout.openai_server.history"),
    Key(f"{ROLL}.enable_log_requests", "rollout.openai_server.log_requests"),
    Key(f"{ROLL}.base_port", "rollout.openai_server.port", convert=Partly({None: 0})),
]
