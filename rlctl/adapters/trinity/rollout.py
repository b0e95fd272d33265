"""Trinity: the explorer: devices, engine, sampling, workflows and models beside the policy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl import arithmetic
from rlctl.adapters.rules import (
    ABSENT,
    BadValueError,
    By,
    Code,
    Dropped,
    Flow,
    How,
    K,
    Key,
    Lost,
    Out,
    Reading,
    Rule,
    Same,
    Switch,
    Tree,
    Writing,
)
from rlctl.adapters.trinity.batch import WHOLE, geometry, supervised
from rlctl.adapters.trinity.keys import ROLL, train_places
from rlctl.adapters.trinity.model import nothing
from rlctl.adapters.values import (
    ENGINE_DTYPES,
    Partly,
)


class ExpertSwitch(Same):
    """Whether experts are split at all; over the devices of one engine where they are."""

    def read(self, value: Any, view: Reading) -> Any:
        return view.get(f"{ROLL}.tensor_parallel_size") if value else 1

    def write(self, value: Any, view: Writing) -> Any:
        return value > 1


def _read_devices(view: Reading) -> Iterator[Flow]:
    nodes, each = view.get("cluster.node_num"), view.get("cluster.gpu_per_node")
    for value, key, to in (
        (nodes, "cluster.node_num", "placement.nodes"),
        (each, "cluster.gpu_per_node", "placement.devices_per_node"),
    ):
        if isinstance(value, int) and value > 0:
            yield Flow(view.to(to), value, (view.path(key),), same=True)
        else:
            yield Flow((), None, (view.path(key),), "mapped", "0 leaves it to the cluster")
    engines, sizes = (
        view.get(f"{ROLL}.engine_num"),
        [
            view.get(f"{ROLL}.{name}")
            for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        ],
    )
    used = (view.path(f"{ROLL}.engine_num"),)
    if view.get("mode") == "colocate" or supervised(view) or view.get("mode") == "train":
        yield Flow(view.to("placement.layout"), "colocated", (view.path("mode"),))
        yield Flow(
            (),
            None,
            used,
            "dead",
            "one device does everything" if view.get("mode") == "colocate" else "nothing is explored",
        )
        return
    yield Flow(view.to("rollout.parallel.replicas"), engines, used, same=True)
    width = 1
    for size in sizes:
        width *= size if isinstance(size, int) else 1
    own = engines * width + _beside(view.get("explorer.auxiliary_models")) if isinstance(engines, int) else None
    alone = view.get("mode") in ("explore", "bench", "serve")
    yield Flow(view.to("placement.layout"), "colocated" if alone else "split", ())
    yield Flow(
        view.to("placement.rollout_devices"),
        None if alone else own,
        (*used, view.path(f"{ROLL}.tensor_parallel_size")),
        "derived",
        f"{engines} engines x {width} devices, and those of further models",
    )


def _beside(models: Any) -> int:
    """Devices of the models that the explorer serves beside the policy."""
    sizes = ("engine_num", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    found = [model for model in models or () if isinstance(model, Mapping)]
    return sum(math.prod(model.get(size) or 1 for size in sizes) for model in found)


def _write_devices(view: Writing) -> Iterator[Out]:
    config = view.config
    placement = config.placement
    total = arithmetic.devices(config)
    yield Flow(view.path("cluster.node_num"), placement.nodes, (view.to("placement.nodes"),), same=True, always=True)
    yield Flow(
        view.path("cluster.gpu_per_node"),
        placement.devices_per_node,
        (view.to("placement.devices_per_node"),),
        same=True,
        always=True,
    )
    layout = (view.to("placement.layout"), view.to("placement.rollout_devices"))
    if config.algorithm.objective.choice in ("sft", "dpo") or config.run.mode == "train_only":
        yield Flow((), None, layout)
        return
    yield from _write_tensor(view)
    tensor, data = engine_shape(view)
    wide = tensor * data * config.rollout.parallel.pipeline
    if placement.layout == "colocated" and total > 1 and config.run.mode == "online":
        yield from _write_assumed(view, total, wide)
        return
    if total == 1:
        yield Flow(view.path(f"{ROLL}.engine_num"), 1, layout, always=True)
        return
    own = arithmetic.rollout_devices(config)
    own -= sum(model.replicas * model.tensor for model in config.rollout.auxiliary_models)
    engines = config.rollout.parallel.replicas
    count = engines if isinstance(engines, int) else max(1, own // wide)
    used = (view.to("rollout.parallel.replicas"), *layout)
    how: How = "mapped" if isinstance(engines, int) else "derived"
    yield Flow(
        view.path(f"{ROLL}.engine_num"),
        count,
        used,
        how,
        "" if how == "mapped" else f"{own} devices / {wide} of an engine",
        always=True,
    )
    if isinstance(engines, int) and placement.layout == "split" and engines * wide != own:
        yield Lost(layout[1:], f"Trinity's explorer gets {engines} engines x {wide} devices, not {own}")
    if placement.layout == "explicit":
        yield Lost(
            (view.to("placement.roles"), *layout), "Trinity places an explorer and a trainer, not roles on devices"
        )


def _write_assumed(view: Writing, total: int, wide: int) -> Iterator[Out]:
    """The split that a config of shared devices does not hold: about half of them, unless an option says."""
    asked = view.options.get("explorer_gpus", "")
    count = max(1, int(asked) // wide) if asked.isdecimal() else _engines(view, total, wide)
    used = (view.to("placement.layout"), view.to("rollout.parallel.replicas"))
    left, share = total - count * wide, arithmetic.devices_per_replica(view.config.train.engine)
    note = f"all roles share {total} devices in the source; {count * wide} explore and {left} train"
    if left > 0 and left % share != 0:
        note += f", too few for a replica of {share}: Trinity's trainer cannot start; add nodes, or lower its parallel sizes"
    yield Flow(view.path(f"{ROLL}.engine_num"), count, used, "assumed", note, always=True, option="explorer_gpus")
    if count * wide >= total:
        yield Lost(
            (view.to("rollout.parallel.tensor"),),
            f"engines of {wide} devices leave none of {total} to train; use {max(1, total // 2)} or fewer",
        )


def _engines(view: Writing, total: int, wide: int) -> int:
    """As many engines as take about half of the devices and leave the trainer a number that Trinity accepts."""
    config = view.config
    each, share = config.placement.devices_per_node, arithmetic.devices_per_replica(config.train.engine)
    _, batch, _, _ = geometry(view)

    def misfit(count: int) -> tuple[bool, bool, float, int]:
        left = total - count * wide
        refused = left < 1 or (left > each and left % each != 0)
        uneven = refused or left % share != 0 or batch % (left // share) != 0
        return refused, uneven, abs(total / 2 - count * wide), count

    return min(range(1, max(2, total // wide + 1)), key=misfit)


def engine_shape(view: Writing) -> tuple[int, int]:
    """Tensor and data sizes of an engine that Trinity can place: beside a trainer, and data ranks within one node."""
    config, parallel = view.config, view.config.rollout.parallel
    total, each = arithmetic.devices(config), config.placement.devices_per_node
    tensor, data = parallel.tensor, parallel.data
    shared = config.placement.layout == "colocated" and config.run.mode == "online" and total > 1
    size = tensor * parallel.pipeline * data
    if data > 1 and (size > each or (shared and size >= total)):
        data = 1
    while shared and tensor > 1 and tensor * parallel.pipeline * data >= total:
        tensor //= 2
    return tensor, data


def _write_tensor(view: Writing) -> Iterator[Out]:
    parallel, total = view.config.rollout.parallel, arithmetic.devices(view.config)
    tensor, data = engine_shape(view)
    used = (view.to("rollout.parallel.tensor"),)
    if tensor == parallel.tensor:
        yield Flow(view.path(f"{ROLL}.tensor_parallel_size"), tensor, used, same=True, always=True)
    else:
        note = f"engines of {parallel.tensor} devices leave none of {total} to a trainer beside them"
        yield Flow(view.path(f"{ROLL}.tensor_parallel_size"), tensor, used, "derived", note, always=True)
        if view.explicit("rollout.parallel.tensor"):
            yield Lost(used, f"{note}; {tensor} is written")
    if data != parallel.data:
        reason = "Trinity's engine has no room for so many data ranks; each rank is an engine of its own"
        yield Lost((view.to("rollout.parallel.data"),), reason)
    elif view.version >= (0, 6):
        yield Flow(view.path(f"{ROLL}.data_parallel_size"), data, (view.to("rollout.parallel.data"),), same=True)


def _read_engine_type(view: Reading) -> Iterator[Flow]:
    external = bool(view.get("model.external_model.enable"))
    key = f"{ROLL}.engine_type"
    used = (view.path(key),)
    kind = view.get(key)
    if external or kind == "external":
        yield Flow(view.to("rollout.engine.name"), "external", (view.path("model.external_model.enable"), *used))
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
        yield Flow(view.to("rollout.engine.name"), "auto", used)
    elif kind in ("vllm", "vllm_async", "sglang"):
        yield Flow(view.to("rollout.engine.name"), {"vllm_async": "vllm"}.get(kind, kind), used)
    else:
        yield Flow(view.to("rollout.engine.name"), "other", used)
        yield Flow(view.to("rollout.engine.kind"), str(kind), used)


def _write_engine_type(view: Writing) -> Iterator[Out]:
    name, used = view.get("rollout.engine.name"), (view.to("rollout.engine.name"),)
    if view.config.algorithm.objective.choice in ("sft", "dpo") or name == "auto":
        yield Flow((), None, used)
    elif name in ("vllm", "sglang"):
        if name == "sglang" and view.version < (0, 6):
            yield Lost(used, "Trinity has sglang since 0.6; vLLM is used")
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
                yield Lost(place, "Trinity takes the name of an environment variable that holds it")
    elif name == "other":
        yield Flow(
            view.path(f"{ROLL}.engine_type"),
            view.get("rollout.engine.kind"),
            (*used, view.to("rollout.engine.kind")),
            always=True,
        )
    else:
        yield Lost(used, f"Trinity has no {name} engine; its own default, vLLM, is used")


def _read_sampling(view: Reading) -> Iterator[Flow]:
    """Sampling of the first task set over that of the model; ``model.top_k`` never reaches a task set."""
    first = (
        "buffer.explorer_input.taskset"
        if isinstance(view.get("buffer.explorer_input.taskset"), Mapping)
        else "buffer.explorer_input.tasksets.0"
    )
    root = view.inside(
        ("buffer", "explorer_input", "taskset")
        if first.endswith("taskset")
        else ("buffer", "explorer_input", "tasksets", 0),
        (),
    )
    for name, default in (("temperature", 1.0), ("top_p", 1.0)):
        own = root.get(f"rollout_args.{name}", None)
        key = root.path(f"rollout_args.{name}") if own is not None else view.path(f"model.{name}")
        value = own if own is not None else view.get(f"model.{name}")
        yield Flow(view.to(f"rollout.sampling.{name}"), default if value is None else value, (key,), same=True)
        if own is not None:
            yield Flow((), None, (view.path(f"model.{name}"),), "dead", "the task set's value decides")
    if root.get("rollout_args.temperature", None) is not None and view.version >= (0, 6):
        yield from _read_train_temperature(view, root)
    top_k = root.get("rollout_args.top_k", None)
    yield Flow(
        view.to("rollout.sampling.top_k"),
        top_k if isinstance(top_k, int) and top_k > 0 else None,
        (root.path("rollout_args.top_k"),),
    )
    yield Flow((), None, (view.path("model.top_k"),), "dead", "Trinity never hands model.top_k to its task sets")
    logprobs = root.get("rollout_args.logprobs", None)
    key = root.path("rollout_args.logprobs") if logprobs is not None else view.path("model.logprobs")
    value = logprobs if logprobs is not None else view.get("model.logprobs")
    yield Flow(view.to("rollout.sampling.log_probs"), value, (key,), same=True)
    limit = root.get("rollout_args.max_tokens", None)
    if isinstance(limit, int):
        yield Flow(view.to("rollout.per_turn_tokens"), limit, (root.path("rollout_args.max_tokens"),), same=True)


def _read_train_temperature(view: Reading, root: Reading) -> Iterator[Flow]:
    """Since 0.6 training logits are divided by the model's temperature, whatever the task set says."""
    drawn, common = root.get("rollout_args.temperature"), view.get("model.temperature")
    if drawn != common and common == 1.0:
        to, note = (
            view.to("algorithm.train_temperature"),
            "training logits are divided by model.temperature, which is 1",
        )
        yield Flow(to, "one", (root.path("rollout_args.temperature"),), "derived", note)


def _write_train_temperature(view: Writing) -> Iterator[Out]:
    used = (view.to("algorithm.train_temperature"),)
    if view.config.algorithm.train_temperature == "sampling" or view.config.rollout.sampling.temperature == 1:
        yield Flow((), None, used)
    elif view.version >= (0, 6) and view.config.data.train:
        yield Flow(
            view.path("model.temperature"), 1.0, used, "derived", "training logits stay as they are", always=True
        )
    else:
        yield Lost(used, "Trinity divides training logits by the sampling temperature")


def _write_sampling(view: Writing) -> Iterator[Out]:
    if view.config.algorithm.objective.choice in ("sft", "dpo"):
        return
    sampling = view.config.rollout.sampling
    roots = train_places(view)
    for root in roots:
        for name, value in (
            ("temperature", sampling.temperature),
            ("top_p", sampling.top_p),
            ("top_k", sampling.top_k or -1),
        ):
            used = (view.to(f"rollout.sampling.{name}"),)
            yield Flow((*root, "rollout_args", name), value, used, same=name != "top_k", always=name == "temperature")
    yield from _write_train_temperature(view)
    yield Flow(
        view.path("model.temperature"), sampling.temperature, (view.to("rollout.sampling.temperature"),), same=True
    )
    yield Flow(view.path("model.top_p"), sampling.top_p, (view.to("rollout.sampling.top_p"),), same=True)
    if sampling.log_probs is None:
        yield Flow(
            (),
            None,
            (view.to("rollout.sampling.log_probs"),),
            "mapped",
            "Trinity always reports the drawn token's log-prob",
        )
    else:
        yield Flow(view.path("model.logprobs"), sampling.log_probs, (view.to("rollout.sampling.log_probs"),), same=True)
    for root in roots if view.config.rollout.per_turn_tokens else []:
        yield Flow(
            (*root, "rollout_args", "max_tokens"),
            view.config.rollout.per_turn_tokens,
            (view.to("rollout.per_turn_tokens"),),
            same=True,
        )


def _own_fraction(view: Writing) -> bool:
    """Whether the share of memory may be copied: it means the same only where rollout's devices are its own on both sides."""
    return view.config.placement.layout != "colocated" or arithmetic.devices(view.config) == 1


def _write_fraction(view: Writing) -> Iterator[Out]:
    fraction, used = view.config.rollout.memory.gpu_fraction, (view.to("rollout.memory.gpu_fraction"),)
    if fraction is None or _own_fraction(view):
        return
    note = (
        f"{fraction:g} leaves room for training on shared devices; Trinity's explorer has its own, so its 0.9 is kept"
    )
    yield Flow((), None, used, "derived", note)


def _write_workflow(view: Writing) -> Iterator[Out]:
    if view.config.algorithm.objective.choice in ("sft", "dpo") or view.config.run.mode == "train_only":
        return
    own, used = view.config.rollout.workflow, (view.to("rollout.workflow"),)
    if own is None and view.config.data.train and all(source.workflow for source in view.config.data.train):
        return
    note = "" if own else "one question, one answer"
    yield Flow(
        view.path("buffer.explorer_input.default_workflow_type"),
        own or "math_workflow",
        used,
        "mapped" if own else "derived",
        note,
        always=True,
    )


def _read_models(view: Reading) -> Iterator[Flow]:
    several = view.get("explorer.auxiliary_models")
    if isinstance(several, list) and not several:
        yield Flow(view.to("rollout.auxiliary_models"), [], (view.path("explorer.auxiliary_models"),))
    names = {"model_path": "path", "name": "name", "engine_num": "replicas", "tensor_parallel_size": "tensor"}
    for index, item in enumerate(several if isinstance(several, list) else []):
        place, to = (*view.path("explorer.auxiliary_models"), index), ("rollout", "auxiliary_models", index)
        if not isinstance(item, Mapping):
            raise BadValueError(f"holds {item!r}; expected a mapping for each model")
        for key, value in item.items():
            if key in names and value is not None:
                yield Flow((*to, names[key]), value, ((*place, key),), same=True)
        rest = {key: value for key, value in item.items() if key not in names}
        if rest:
            yield Flow((*to, "settings"), rest, tuple((*place, key) for key in rest))


def _write_models(view: Writing) -> Iterator[Out]:
    names = {"path": "model_path", "name": "name", "replicas": "engine_num", "tensor": "tensor_parallel_size"}
    for index, item in enumerate(view.get("rollout.auxiliary_models")):
        root, used = (*view.path("explorer.auxiliary_models"), index), ("rollout", "auxiliary_models", index)
        for field, key in names.items():
            if item[field] is not None:
                yield Flow((*root, key), item[field], ((*used, field),), same=True, always=True)
        for key, value in item["settings"].items():
            yield Flow((*root, key), value, ((*used, "settings"),), always=True)


REPEAT = "explorer.max_repeat_times_per_runner"


def _read_repeat(view: Reading) -> Iterator[Flow]:
    if view.written(REPEAT) and view.get(REPEAT) in (None, 1):
        yield Flow(view.to("rollout.split_groups"), view.get(REPEAT) == 1, (view.path(REPEAT),))


def _write_repeat(view: Writing) -> Iterator[Out]:
    split, used = view.config.rollout.split_groups, (view.to("rollout.split_groups"),)
    if view.explicit("rollout.split_groups"):
        yield Flow(view.path(REPEAT), 1 if split else None, used, always=True)
    else:
        yield Flow((), None, used)


def _read_ratio(view: Reading) -> Iterator[Flow]:
    key = "explorer.over_rollout.ratio"
    yield Flow(view.to("rollout.over_rollout.ratio"), view.get(key), (view.path(key),), same=True)


def _write_ratio(view: Writing) -> Iterator[Out]:
    ratio, used = view.config.rollout.over_rollout.ratio, (view.to("rollout.over_rollout.ratio"),)
    if ratio and view.config.sync.style == "fixed":
        yield Lost(
            used, "Trinity leaves no stragglers behind with sync_style fixed; set explorer_driven or trainer_driven"
        )
    else:
        yield Flow(view.path("explorer.over_rollout.ratio"), ratio, used, same=True)


EXPLORER: list[Rule] = [
    Code(
        "devices",
        (
            K("cluster.node_num", 0),
            K("cluster.gpu_per_node", 0),
            K(f"{ROLL}.engine_num", 1),
            K(f"{ROLL}.tensor_parallel_size", 1),
        ),
        (
            "placement.nodes",
            "placement.devices_per_node",
            "placement.layout",
            "placement.rollout_devices",
            "rollout.parallel.replicas",
        ),
        _read_devices,
        _write_devices,
        "engine_num x devices of an engine",
    ),
    Key(f"{ROLL}.tensor_parallel_size", "rollout.parallel.tensor", 1, write_when=lambda view: False),
    Key(f"{ROLL}.pipeline_parallel_size", "rollout.parallel.pipeline", 1, since="0.6"),
    Key(
        f"{ROLL}.data_parallel_size",
        "rollout.parallel.data",
        1,
        since="0.6",
        write_when=lambda view: view.version < (0, 6),
    ),
    Key(
        f"{ROLL}.enable_expert_parallel",
        "rollout.parallel.expert",
        False,
        ExpertSwitch("derived", "a switch: experts are split over the devices of an engine"),
        since="0.6",
    ),
    Code(
        "rollout engine",
        (
            K(f"{ROLL}.engine_type", None),
            K("model.external_model.enable", False),
            K("model.external_model.model_name", None),
            K("model.external_model.base_url_env", "OPENAI_BASE_URL"),
            K("model.external_model.api_key_env", "OPENAI_API_KEY"),
        ),
        (
            "rollout.engine.name",
            "rollout.engine.kind",
            "rollout.engine.base_url",
            "rollout.engine.model",
            "rollout.engine.api_key",
        ),
        _read_engine_type,
        _write_engine_type,
    ),
    Tree(f"{ROLL}.extra_engine_args", "rollout.engine.args", since="0.6"),
    Code(
        "sampling",
        (K("model.temperature", 1.0), K("model.top_p", 1.0), K("model.top_k", -1), K("model.logprobs", 0)),
        (
            "rollout.sampling.temperature",
            "rollout.sampling.top_p",
            "rollout.sampling.top_k",
            "rollout.sampling.log_probs",
            "rollout.per_turn_tokens",
            "algorithm.train_temperature",
        ),
        _read_sampling,
        _write_sampling,
    ),
    Key(f"{ROLL}.ignore_eos", "rollout.sampling.ignore_eos", False),
    Key(f"{ROLL}.seed", "rollout.sampling.seed", 42),
    *[
        Dropped(f"rollout.sampling.{name}", "Trinity samples without it")
        for name in ["min_p", "stop", "include_stop", "num_beams"]
    ],
    Key(f"{ROLL}.dtype", "rollout.precision", "bfloat16", ENGINE_DTYPES),
    Key(
        f"{ROLL}.gpu_memory_utilization",
        "rollout.memory.gpu_fraction",
        0.9,
        write_when=lambda view: _own_fraction(view),
    ),
    Code(
        "memory of a shared device",
        (),
        (),
        nothing,
        lambda view: _write_fraction(view),
        "a dedicated device needs no share left for training",
    ),
    Key(f"{ROLL}.enforce_eager", "rollout.memory.eager", False),
    Key(f"{ROLL}.enable_prefix_caching", "rollout.memory.prefix_caching", True),
    Key(f"{ROLL}.enable_chunked_prefill", "rollout.memory.chunked_prefill", True),
    *[
        Key(
            f"{ROLL}.extra_engine_args.{key}",
            f"rollout.memory.{field}",
            ABSENT,
            since="0.6",
            write_when=lambda view: False,
        )
        for key, field in (("max_num_seqs", "max_running_responses"), ("max_num_batched_tokens", "max_batched_tokens"))
    ],
    *[
        Dropped(f"rollout.memory.{name}", "Trinity leaves it to the engine; 0.6 takes it in extra_engine_args")
        for name in [
            "max_running_responses",
            "max_batched_tokens",
            "block_size",
            "swap_gib",
            "kv_cache_dtype",
            "load_format",
            "quantization",
            "log_statistics",
        ]
    ],
    Dropped("rollout.memory.sleep", "Trinity's explorer has devices of its own and never sleeps"),
    Dropped("rollout.memory.sleep_level", "Trinity's explorer never sleeps"),
    Key("explorer.max_timeout", "rollout.timeouts.response", 1800, WHOLE),
    Key("explorer.max_retry_times", "rollout.timeouts.retries", 2),
    Switch("explorer.dynamic_timeout.enable", "rollout.timeouts.dynamic", False),
    Key("explorer.dynamic_timeout.ratio", "rollout.timeouts.dynamic.ratio", 3.0),
    Code(
        "over-rollout",
        (K("explorer.over_rollout.ratio", 0.0),),
        ("rollout.over_rollout.ratio",),
        lambda view: _read_ratio(view),
        lambda view: _write_ratio(view),
        "with sync_style other than fixed",
    ),
    Key("explorer.over_rollout.wait_after_min", "rollout.over_rollout.wait_after_minimum", 30.0),
    *[
        Dropped(f"rollout.over_rollout.{name}", "Trinity's explorer does not refill batches")
        for name in ["additional_prompts", "generation_batch_prompts", "max_generation_batches"]
    ],
    Key("explorer.runner_per_model", "rollout.runners_per_engine", 8),
    Code(
        "responses of a runner",
        (K("explorer.max_repeat_times_per_runner", None),),
        ("rollout.split_groups",),
        lambda view: _read_repeat(view),
        lambda view: _write_repeat(view),
        "1 where each response of a group is a request of its own",
    ),
    Key("explorer.runner_state_report_interval", "rollout.report_every", 0, WHOLE),
    Tree("explorer.env_vars", "rollout.environment"),
    Key(
        "buffer.explorer_input.default_workflow_type",
        "rollout.workflow",
        None,
        Partly({"math_workflow": None}),
        write_when=lambda view: False,
    ),
    Code("workflow", (), (), nothing, lambda view: _write_workflow(view), "one question, one answer is math_workflow"),
    Key("buffer.explorer_input.default_eval_workflow_type", "rollout.evaluation_workflow", None),
    Dropped("rollout.workflow_args", "Trinity's arguments belong to task sets"),
    Code(
        "auxiliary models",
        (K("explorer.auxiliary_models", []), K("explorer.auxiliary_models.*.**")),
        (
            "rollout.auxiliary_models",
            *(f"rollout.auxiliary_models[].{name}" for name in ["path", "name", "replicas", "tensor", "settings"]),
        ),
        lambda view: _read_models(view),
        lambda view: _write_models(view),
    ),
    Key(f"{ROLL}.enable_openai_api", "rollout.openai_server.enabled", False),
    Key(f"{ROLL}.enable_auto_tool_choice", "rollout.openai_server.tool_choice", False),
    Key(f"{ROLL}.tool_call_parser", "rollout.openai_server.tool_parser", None),
    Key(f"{ROLL}.reasoning_parser", "rollout.openai_server.reasoning_parser", None),
    Key(f"{ROLL}.enable_history", "rollout.openai_server.history", False),
    Key(f"{ROLL}.enable_log_requests", "rollout.openai_server.log_requests", False),
    Key(f"{ROLL}.base_port", "rollout.openai_server.port", None, Partly({None: 0}), since="0.6"),
    *[
        Dropped(f"rollout.{name}", "Trinity has no such key")
        for name in (
            "max_running_prompts",
            "environments.**",
            "evaluation_environments.**",
            "log_evaluation_responses",
            "responses_folder",
            "evaluation_folder",
        )
    ],
    Dropped("rollout.environments", "Trinity's environments belong to workflows", None),
    Dropped("rollout.evaluation_environments", "Trinity's environments belong to workflows", None),
    *[
        Dropped(f"rollout.multi_turn.{name}", "Trinity's turns belong to workflows")
        for name in [
            "enabled",
            "max_assistant_turns",
            "max_user_turns",
            "max_parallel_calls",
            "max_tool_response_tokens",
            "tool_truncation",
            "tool_format",
            "tool_config",
            "interaction_config",
            "use_inference_template",
            "sanity_check",
            "turn_mode",
        ]
    ],
    *[
        Dropped(f"rollout.agent.{name}", "Trinity's agents are workflows")
        for name in ["workers", "default", "config", "server_path", "server_class", "args"]
    ],
    Key("trainer.enable_preview", "rollout.log_responses", By({"0.5": True, "0.6": False})),
]
