"""verl: runs that train nothing. Generation writes responses to a file, evaluation scores the responses of one.

``main_generation`` had a config of its own until 0.6; ``main_generation_server`` since then takes the PPO trainer's, and the
file of responses as ``data.output_path``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlctl.adapters.engine.conditions import always
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, ReadOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    Chosen,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Noted,
    Out,
    Reading,
    Rule,
    Same,
    Tree,
    Writing,
    carried,
    dead,
)
from rlctl.adapters.engine.values import ENGINE_DTYPES, REWARD_FIELDS, SOURCE_FIELDS, Listed, Off
from rlctl.adapters.verl.output import RAY, unread
from rlctl.adapters.verl.rollout import DEVICE, ENGINES, LOAD, length
from rlctl.common.messages.reasons import said

FOLDER = "rollout.responses_folder"
RL = Dropped("algorithm.objective.type", "verl's offline runs do not train", "rl")


def mode(name: str) -> Dropped:
    """The mode that a program is."""
    return Dropped("run.mode", "another program", name, matters=True)


def rest(why: str) -> list[Rule]:
    """What a program that only reads and writes files has no use for."""
    return [
        Dropped("rlctl", "the schema's version"),
        *unread(why, "run", "data", "batch", "schedule", "train", "model"),
        Dropped("tracking", why, []),
        Dropped("tracking[].**", why),
    ]


def _read_file(kind: str, fields: dict[str, str]) -> CustomRule:
    """The one file that is read, with the columns that hold for it."""
    rows = {"generation": "train", "evaluation": "eval"}[kind]

    def read(view: Reading) -> Iterator[Flow]:
        for field, key in fields.items():
            value = view.get(key)
            if field == "answer_key" and isinstance(value, str):
                yield Flow(("data", rows, 0, field), f"{value}.ground_truth", (view.path(key),), "derived")
            elif value is not None:
                yield Flow(("data", rows, 0, field), value, (view.path(key),), same=True)

    def write(view: Writing) -> Iterator[Out]:
        sources = view.get(f"data.{rows}")
        for field, key in fields.items():
            place = ("data", rows, 0, field)
            value = sources[0][field] if sources else None
            if field == "answer_key" and isinstance(value, str):
                yield Flow(view.path(key), value.removesuffix(".ground_truth"), (place,), "derived")
            elif value is not None:
                yield Flow(view.path(key), value, (place,), same=True, always=field == "path")
        for index in range(1, len(sources)):
            yield Inexpressible((("data", rows, index),), "verl reads one file here")

    own = tuple(DialectKey(key, ABSENT) if field == "path" else DialectKey(key) for field, key in fields.items())
    names = tuple(f"data.{rows}[].{field}" for field in SOURCE_FIELDS)
    return CustomRule(
        f"file of {kind}",
        own,
        names,
        read,
        write,
        by_key={key: f"data.{rows}[].{field}" for field, key in fields.items()},
        why="The one file is the first of a list of sources, and further sources are lost.",
    )


GENERATION: list[Rule] = [
    RL,
    mode("rollout_only"),
    _read_file("generation", {"path": "data.path", "prompt_key": "data.prompt_key"}),
    Key("data.output_path", FOLDER, ABSENT, note="verl writes one file of rows with their responses"),
    Key("data.n_samples", "batch.responses_per_prompt", always=True),
    Key("data.batch_size", "batch.prompts_per_step", always=True),
    Key("model.path", "model.path", ABSENT, always=True),
    Key("model.external_lib", "model.import_modules", convert=Listed(single=True)),
    # 0.6.1 workers/fsdp_workers.py, ActorRolloutRefWorker
    Key("model.trust_remote_code", "model.trust_remote_code", False),
    Chosen(
        "rollout.name",
        "rollout.engine",
        ENGINES,
        unwritten=("auto",),
        missing="verl has no engine {name}",
        dialect="verl",
    ),
    Key("rollout.prompt_length", "data.max_prompt_tokens"),
    Key("rollout.response_length", "rollout.max_response_tokens"),
    Key("rollout.temperature", "rollout.sampling.temperature"),
    Key("rollout.top_p", "rollout.sampling.top_p"),
    Key("rollout.top_k", "rollout.sampling.top_k", convert=Off(-1)),
    # 0.6.1 workers/rollout/vllm_rollout/vllm_rollout_spmd.py; 0.7.1 workers/config/rollout.py alone has it
    Key("rollout.ignore_eos", "rollout.sampling.ignore_eos", until="0.6"),
    Dropped("rollout.sampling.ignore_eos", "verl 0.7 never reads ignore_eos: a response ends at that token"),
    Key("rollout.dtype", "rollout.precision", convert=ENGINE_DTYPES),
    Key("rollout.tensor_model_parallel_size", "rollout.parallel.tensor_parallel_size", always=True),
    Key("rollout.data_parallel_size", "rollout.parallel.data_parallel_size"),
    Key("rollout.gpu_memory_utilization", "rollout.memory.gpu_memory_utilization"),
    Key("rollout.max_num_seqs", "rollout.memory.max_num_seqs"),
    Key("rollout.max_num_batched_tokens", "rollout.memory.max_batched_tokens"),
    Key("rollout.max_model_len", "model.max_context_tokens"),
    Key("rollout.enforce_eager", "rollout.memory.enforce_eager"),
    Key("rollout.enable_chunked_prefill", "rollout.memory.chunked_prefill"),
    Key("rollout.free_cache_engine", "rollout.memory.sleep"),
    Key(
        "rollout.load_format",
        "rollout.memory.load_format",
        convert=LOAD,
    ),
    Key("trainer.nnodes", "placement.nodes"),
    Key("trainer.n_gpus_per_node", "placement.devices_per_node", always=True),
    DEVICE,
    Tree("ray_kwargs.ray_init", "runtime.ray.init_args"),
    Dropped("rewards", "verl's generation does not score", []),
    *rest("verl's generation only generates"),
]


def _read_reward(view: Reading) -> Iterator[Flow]:
    path, name = "custom_reward_function.path", "custom_reward_function.name"
    if not view.get(path):
        yield Flow(("rewards", 0, "type"), "rule", (view.path(path),), "mapped", "verl's default scores by data source")
        yield Flow(("rewards", 0, "rule"), "auto", ())
        return
    yield Flow(("rewards", 0, "type"), "function", (view.path(path),))
    yield Flow(("rewards", 0, "path"), view.get(path), (view.path(path),), same=True)
    yield Flow(("rewards", 0, "function"), view.get(name), (view.path(name),), same=True)
    yield Flow(("rewards", 0, "signature"), "verl", ())


def _write_reward(view: Writing) -> Iterator[Out]:
    for index, reward in enumerate(view.get("rewards")):
        place = ("rewards", index)
        if reward["type"] == "function" and not index:
            yield Flow(view.path("custom_reward_function.path"), reward["path"], ((*place, "path"), place), same=True)
            yield Flow(view.path("custom_reward_function.name"), reward["function"], ((*place, "function"),), same=True)
        elif reward["type"] != "rule" or reward["rule"] != "auto":
            yield Inexpressible(
                (place,), said("verl's evaluation takes one function, not a {type} reward", type=reward["type"])
            )


EVALUATION: list[Rule] = [
    RL,
    mode("evaluate_only"),
    _read_file(
        "evaluation",
        {
            "path": "data.path",
            "prompt_key": "data.prompt_key",
            "response_key": "data.response_key",
            "source_key": "data.data_source_key",
            "answer_key": "data.reward_model_key",
        },
    ),
    CustomRule(
        "reward",
        (
            DialectKey("custom_reward_function.path"),
            DialectKey("custom_reward_function.name"),
        ),
        ("rewards", *(f"rewards[].{name}" for name in REWARD_FIELDS)),
        _read_reward,
        _write_reward,
        by_key={"custom_reward_function.path": "rewards[].path", "custom_reward_function.name": "rewards[].function"},
        why="The one function is the first of a list of rewards, and further rewards are lost.",
    ),
    *RAY,
    *rest("verl's evaluation only scores the responses of a file"),
]


class ResponsesFile(Same):
    """The file of responses, which verl has to be given."""

    def write(self, value: Any, view: Writing) -> Any:
        if value is None:
            raise InexpressibleError("verl's generation needs a file for its responses")
        return value


SERVER: list[Rule] = [
    mode("rollout_only"),
    length("prompt_length", "data.max_prompt_length", "data.max_prompt_tokens", server=True),
    length("response_length", "data.max_response_length", "rollout.max_response_tokens", server=True),
    FollowsFrom(
        "schedule.total_epochs",
        reads=lambda view: Computed(1, "each prompt gets one response"),
        writes=lambda view: 1,
        reason="verl's generation gives one response per prompt",
        open=(None,),
    ),
    ReadOnly("trainer.total_epochs", "each prompt gets one response", dead=always),
    # 0.6.1 trainer/main_generation_server.py stops without it
    Key(
        "data.output_path",
        FOLDER,
        None,
        ResponsesFile(note="one file of rows with their responses"),
        always=True,
    ),
]
"""What the generation server adds to the PPO trainer's table, before the rules that it replaces."""


def server(trainer: Sequence[Rule]) -> tuple[Rule, ...]:
    """The table of the generation server: the PPO trainer's, with what it replaces."""
    replaced = {rule.canonical for rule in SERVER if rule.canonical}
    return (*SERVER, *(rule for rule in trainer if rule.canonical not in replaced))


NOTES: tuple[Noted, ...] = (
    *dead(
        "verl's generation computes no log-probs", "rollout.log_prob_micro_batch_size", "rollout.calculate_log_probs"
    ),
    *dead("verl's generation computes no log-probs", "rollout.log_prob_micro_batch_size_per_gpu"),
    *dead("data.n_samples counts the responses", "rollout.n"),
    *dead("verl's sampling uses the temperature; 0 is greedy", "rollout.do_sample"),
    *dead("removed in verl 0.5", "rollout.use_fire_sampling"),
    *dead("verl's generation does not train", "actor.**"),
    *dead("verl's class for this block", "rollout._target_"),
    *carried("output and logging settings of the engine", "rollout.mode", "rollout.disable_log_stats"),
    *carried("profiling of Ray", "ray_init.**", "ray_kwargs.timeline_json_file"),
)
