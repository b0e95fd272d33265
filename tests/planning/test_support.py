"""The support table says of every key what the runtime does with it, once, and refusals follow it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rlctl.adapters.engine.meanings import canonical_paths, spellings
from rlctl.common.messages import catalogue
from rlctl.config import Config, config_from
from rlctl.config.inspect import is_container, option_patterns, sections_in, walk
from rlctl.documents.paths import dotted
from rlctl.planning import deepspeed, support
from rlctl.planning.support import Status
from tests.later import NEVER, is_later, is_never

PATTERNS = [key.pattern for key in walk(Config) if not is_container(key)] + option_patterns(Config)


def test_every_key_and_every_option_is_in_exactly_one_row() -> None:
    counts = {pattern: len(support.rows_of(pattern)) for pattern in PATTERNS}
    assert {pattern: count for pattern, count in counts.items() if count != 1} == {}


def test_every_row_names_keys_that_the_schema_has() -> None:
    known = set(PATTERNS)
    named = {pattern.removesuffix("*") for row in support.TABLE for pattern in support.expand(row)}
    assert named - known == set()


def test_every_row_of_what_is_not_done_says_why_and_no_other_row_does() -> None:
    for row in support.TABLE:
        assert bool(row.reason) == (row.status in (Status.REFUSED, Status.NOTED) or row.elsewhere is not None), row


def test_every_reason_is_a_message_and_every_message_a_reason() -> None:
    by_value = (*support.REFUSED_VALUES.values(), *support.NOTED_VALUES.values())
    used = {
        *(row.why for row in support.TABLE if row.why),
        *(why for values in by_value for why in values.values()),
        *(why for _, why in (*support.ONLY_VALUES.values(), *support.INEFFECTIVE_WHEN.values())),
        *(why for _, why in support.BY_ENGINE.values()),
        *support.ON_CPU.values(),
        *(each.why for each in deepspeed.SETTINGS),
        support.RLCTLS_PYTHON,
        support.BASE_WEIGHTS,
        support.NOT_YET,
    }
    assert {f"support-{why}" for why in used} == {id_ for id_ in catalogue("en") if id_.startswith("support-")}


def test_refused_values_are_values_that_their_key_can_take() -> None:
    keys = {key.pattern: key for key in walk(Config)}
    for pattern, values in (*support.REFUSED_VALUES.items(), *support.NOTED_VALUES.items()):
        if pattern.endswith("<other>"):  # an engine of another framework is refused whatever it is called
            known = support.ONLY_VALUES.get(pattern, ((), ""))[0]
            assert bool(known) is (support.status_of(pattern).status is Status.HONOURED)
            (held, _), *_ = sections_in(keys[pattern.removesuffix("<other>")].info.type)
            assert all(held.option(name) is not None for name in (*values, *known))  # type: ignore[attr-defined]
            assert not set(values) & set(known)
            continue
        assert support.status_of(pattern).status is Status.HONOURED
        assert not sections_in(keys[pattern].info.type)
        if keys[pattern].info.type is str:
            assert not set(values) & set(support.ONLY_VALUES[pattern][0]), pattern
            continue
        parts = get_args(keys[pattern].info.type)
        assert set(values) < {value for part in parts for value in get_args(part) or [part]}, pattern


@pytest.mark.parametrize(
    ("asked", "refused"), [({"enable": True, "enable_train": True}, True), ({"enable": False}, False)]
)
def test_a_refused_mapping_that_is_switched_off_asks_for_nothing(asked: dict[str, Any], refused: bool) -> None:
    config = config_from({"model": {"path": "a", "multi_token_prediction": asked}})
    assert [dotted(refusal.key) for refusal in support.refusals(config)] == ["model.multi_token_prediction"] * refused


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("tinker", "hosted service"),
        ("mindspeed", "Ascend"),
        ("veomni", "this package"),
        ("verl.mine", "cannot run this option"),
    ],
)
def test_an_engine_of_another_framework_is_refused_for_its_own_reason(engine: str, reason: str) -> None:
    [refusal] = support.refusals(config_from({"train": {"engine": {"type": engine, "args": {"rank": 8}}}}))
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("settings", "refused", "noted"),
    [
        ({"gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {}}, [], []),
        ({"gradient_clipping": 0.5}, [], []),
        ({"gradient_clipping": 1.0}, ["gradient_clipping"], []),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": False}}, [], []),
        ({"fp16": {"enabled": True, "initial_scale_power": 16}}, ["fp16.enabled"], ["fp16.initial_scale_power"]),
        (
            {
                "zero_optimization": {
                    "overlap_comm": True,
                    "zero_quantized_weights": True,
                    "zero_quantized_gradients": False,
                }
            },
            ["zero_optimization.zero_quantized_weights"],
            ["zero_optimization.overlap_comm"],
        ),
        (
            {"train_batch_size": 8, "sparse_attention": {"mode": "fixed"}},
            ["sparse_attention.mode"],
            ["train_batch_size"],
        ),
    ],
)
def test_each_setting_of_deepspeed_is_met_noted_or_refused(
    settings: dict[str, Any], refused: list[str], noted: list[str]
) -> None:
    """Beside bfloat16 and a largest norm of 0.5."""
    engine = {"type": "fsdp2", "source": "deepspeed", "source_args": settings}
    train = {"engine": engine, "optimizer": {"max_grad_norm": 0.5}, "precision": {"compute": "bfloat16"}}
    found = [each for each in support.unhonoured(config_from({"train": train})) if "source_args" in each.key]
    for status, names in ((Status.REFUSED, refused), (Status.NOTED, noted)):
        assert [each.key[-1] for each in found if each.status is status] == names
    plain = {"train": {**train, "engine": {**engine, "source": "fsdp"}}}
    assert not [each for each in support.unhonoured(config_from(plain)) if "source_args" in each.key]


@pytest.mark.parametrize(("engine", "refused"), [("transformers", False), ("sglang", False), ("vllm", True)])
def test_experts_of_rollout_are_replayed_where_the_engine_says_them(engine: str, refused: bool) -> None:
    config = config_from({"algorithm": {"router_replay": "rollout"}, "rollout": {"engine": engine}})
    assert [dotted(each.key) for each in support.refusals(config)] == ["algorithm.router_replay"] * refused


def test_a_config_of_defaults_is_not_refused() -> None:
    assert support.refusals(Config()) == []


def test_nothing_that_the_dialects_configure_is_refused_but_what_comes_later() -> None:
    """Of the keys that a dialect has a name for; a name of a choice is that of all its options, so options are left out."""
    paths = {path for path in canonical_paths() if any(spelling.keys for spelling in spellings(path))}
    named = [key.pattern for key in walk(Config) if key.pattern in PATTERNS and key.pattern in paths]
    refused = [key for key in named if support.status_of(key).status is Status.REFUSED]
    others = {"data.eval[].chosen_key", "data.eval[].rejected_key"}  # columns of data that preferences are trained on
    assert {key for key in refused if not (is_later(key) or is_never(key))} == others
    assert len(refused) < len(named) / 6


def test_what_is_never_done_is_refused() -> None:
    """So that the list gets shorter with the table."""
    refused = {pattern for pattern in PATTERNS if support.status_of(pattern).status is Status.REFUSED}
    assert [key for key in NEVER if not any(pattern.startswith(key) for pattern in refused)] == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"train": {"engine": {"type": "tinker", "args": {"rank": 8}}}}, "train.engine"),
    ({"algorithm": {"advantage": {"type": "roll.step_reinforce"}}}, "algorithm.advantage"),
    ({"algorithm": {"policy_loss": {"type": "verl.clip_kl"}}}, "algorithm.policy_loss"),
    ({"algorithm": {"sample_strategy": "difficulty"}}, "algorithm.sample_strategy"),
    ({"rewards": ["rule", {"type": "external", "kind": "Worker"}]}, "rewards[1]"),
    ({"buffer": {"type": "file", "replay": {"enabled": True}}}, "buffer.replay.enabled"),
    (
        {"rollout": {"engine": "transformers", "memory": {"kv_cache_dtype": "fp8"}}},
        "rollout.memory.kv_cache_dtype",
    ),
]
NOTED: list[tuple[dict[str, Any], str]] = [
    ({"critic": {"fused_kernels": {"backend": "triton"}}}, "critic.fused_kernels.backend"),
    (
        {"model": {"attention": "sdpa"}, "train": {"fused_kernels": {"prefix_grouping": True}}},
        "train.fused_kernels.prefix_grouping",
    ),
    ({"tracking": ["console", {"type": "clearml"}]}, "tracking[1]"),
    ({"profiling": {"tool": "nsys"}}, "profiling.tool"),
    ({"train": {"engine": {"type": "megatron", "bridge": "mbridge"}}}, "train.engine.bridge"),
    ({"reference": {"engine": {"type": "megatron", "ddp": {"bucket_size": 9}}}}, "reference.engine.ddp"),
    (
        {
            "train": {
                "engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 2},
                "packing": False,
            }
        },
        "train.packing",
    ),
    ({"rollout": {"engine": "transformers", "memory": {"enforce_eager": True}}}, "rollout.memory.enforce_eager"),
    (
        {"rollout": {"parallel": {"tensor_parallel_size": 2}}, "placement": {"device": "cpu"}},
        "rollout.parallel.tensor_parallel_size",
    ),
]


@pytest.mark.parametrize(("values", "key"), REFUSED, ids=[key for _, key in REFUSED])
def test_what_is_not_run_is_refused_once_under_its_key(values: dict[str, Any], key: str) -> None:
    (refusal,) = support.refusals(config_from(values))
    assert dotted(refusal.key) == key
    assert refusal.reason


@pytest.mark.parametrize(("values", "key"), NOTED, ids=[key for _, key in NOTED])
def test_what_no_number_hangs_on_is_told_and_not_refused(values: dict[str, Any], key: str) -> None:
    config = config_from(values)
    (told,) = support.unhonoured(config)
    assert (dotted(told.key), told.status) == (key, Status.NOTED)
    assert support.refusals(config) == []
    assert support.not_used(config) == [f"{key}: {told.reason}"]


def test_what_is_not_used_is_named_once_for_each_reason() -> None:
    config = config_from(
        {"rollout": {"engine": "transformers", "memory": {"enforce_eager": True, "gpu_memory_utilization": 0.5}}}
    )
    assert support.not_used(config) == [
        "rollout.memory.gpu_memory_utilization, rollout.memory.enforce_eager: only vLLM and SGLang have this setting"
    ]


def test_the_command_that_verl_starts_its_workers_with_is_not_used() -> None:
    environment = {"py_executable": "uv run --frozen", "env_vars": {"A": "1"}}
    config = config_from({"runtime": {"ray": {"init_args": {"runtime_env": environment}}}})
    (line,) = support.not_used(config)
    assert line == f"runtime.ray.init_args.runtime_env.py_executable: {support.because(support.RLCTLS_PYTHON)}"


@pytest.mark.parametrize(("device", "told"), [("cuda", 0), ("cpu", 1), (None, 0)])
def test_an_engine_that_the_machines_decide_is_the_one_of_their_device(device: str | None, told: int) -> None:
    config = config_from({"rollout": {"memory": {"enforce_eager": True}}})
    assert len(support.not_used(config, device)) == told


def test_what_only_vllm_has_is_honoured_where_it_generates() -> None:
    settings = {"engine": {"type": "vllm", "args": {"max_logprobs": 3}}, "parallel": {"tensor_parallel_size": 2}}
    assert support.refusals(config_from({"rollout": {**settings, "memory": {"kv_cache_dtype": "fp8"}}})) == []


def test_honoured_choices_with_options_are_not_refused() -> None:
    config = config_from(
        {
            "algorithm": {
                "advantage": {"type": "reinforce", "gamma": 0.9},
                "policy_loss": {"type": "geo_mean", "args": {"clip_low": 0.4}},
                "filters": [{"type": "zero_variance_groups", "metric": "acc"}, "overlong"],
            },
            "rewards": [{"type": "function", "path": "reward.py", "workers": 2}],
            "tracking": ["console", {"type": "tensorboard", "folder": "tb"}],
            "batch": {"log_prob_micro_batch": {"unit": "responses", "size": 4}},
        }
    )
    assert support.refusals(config) == []


def test_expert_responses_are_not_used_without_the_objective_that_trains_on_them() -> None:
    """Trinity's trainer reads auxiliary buffers under the sample strategy mix alone, and runs with others all the same."""
    auxiliary = {"sft_dataset": {"path": "experts.parquet"}}
    found = support.unhonoured(config_from({"buffer": {"type": "sql", "auxiliary": auxiliary}}))
    assert [(each.key, each.status) for each in found] == [(("buffer", "auxiliary"), Status.NOTED)]
    mix = {"objective": {"type": "mix"}}
    assert support.unhonoured(config_from({"buffer": {"type": "sql", "auxiliary": auxiliary}, "algorithm": mix})) == []
