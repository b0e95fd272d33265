"""ROLL's strategies: which engine a worker runs on, with which number types, schedule and ranks, read and written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl import check
from rlctl.common.report import Bucket
from rlctl.planning import arithmetic
from rlctl.translation.translate import convert

from .files import bucket, read, refused, roll, written

MEGATRON = {
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
}


def _strategy(name: str, **config: Any) -> dict[str, Any]:
    return {"actor_train__strategy_args": {"strategy_name": name, "strategy_config": config}}


def test_the_mini_batch_follows_from_the_ranks_of_the_strategy() -> None:
    fsdp2, _ = read()
    ulysses, _ = read(actor_train__model_args={"ulysses_size": 2}, **_strategy("fsdp2_train", fsdp_size=8))
    megatron, _ = read(**_strategy("megatron_train", **MEGATRON))
    assert [arithmetic.train_replicas(config) for config in (fsdp2, ulysses, megatron)] == [8, 4, 2]
    assert [arithmetic.mini_batch_responses(config) for config in (fsdp2, ulysses, megatron)] == [128, 64, 32]


def test_megatrons_arguments_are_read_with_rolls_defaults() -> None:
    config, _ = read(
        **_strategy(
            "megatron_train",
            **MEGATRON,
            recompute_granularity="full",
            apply_rope_fusion=True,
            additional_configs={"a": 1},
        )
    )
    engine: Any = config.train.engine
    assert (engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.sequence_parallel) == (2, 2, False)
    assert engine.distributed_optimizer is False
    assert engine.transformer == {"apply_rope_fusion": True, "a": 1}
    assert config.train.memory.recompute_activations is True
    assert config.train.precision.parameters == "float32"


def test_megatron_goes_by_its_own_recomputation() -> None:
    config, report = read(
        **_strategy("megatron_train", **MEGATRON),
        actor_train__model_args={"disable_gradient_checkpointing": False, "attn_implementation": "fa2"},
    )
    assert config.train.memory.recompute_activations is False
    assert bucket(report, "actor_train.model_args.disable_gradient_checkpointing") is Bucket.DEAD
    assert bucket(report, "actor_train.model_args.attn_implementation") is Bucket.DEAD


@pytest.mark.parametrize(
    ("config", "types"),
    [
        ({}, ("float32", "bfloat16", "float32")),
        ({"param_dtype": "bf16"}, ("bfloat16", "bfloat16", "float32")),
        ({"param_dtype": "bf16", "reduce_dtype": "bf16"}, ("bfloat16", "bfloat16", "bfloat16")),
        ({"param_dtype": "fp32"}, ("float32", "float32", "float32")),
    ],
)
def test_fsdp2_keeps_no_float32_masters_where_param_dtype_is_set(
    config: dict[str, Any], types: tuple[str, ...]
) -> None:
    found = read(**_strategy("fsdp2_train", **config))[0].train.precision
    assert (found.parameters, found.compute, found.reduce) == types
    keys = {
        f"train__precision__{kind}": value
        for kind, value in zip(("parameters", "compute", "reduce"), types, strict=True)
    }
    back, _ = written(**keys)
    for key, value in config.items():
        assert back["actor_train"]["strategy_args"]["strategy_config"][key] == value


@pytest.mark.parametrize(("size", "shard"), [(1, "all"), (0, "all"), (4, 4)])
def test_a_shard_of_one_is_all_devices(size: int, shard: object) -> None:
    engine: Any = read(**_strategy("fsdp2_train", fsdp_size=size))[0].train.engine
    assert engine.fsdp_size == shard


def test_ulysses_is_written_with_a_size_that_fsdp2_accepts() -> None:
    values, _ = written(train__engine={"type": "fsdp2", "ulysses_sequence_parallel_size": 2})
    assert values["actor_train"]["model_args"]["ulysses_size"] == 2
    assert values["actor_train"]["strategy_args"]["strategy_config"]["fsdp_size"] == 8


def test_ulysses_over_more_devices_than_there_are_is_written_and_read_as_one_size() -> None:
    """Such a run is refused by its checks; the text still says one thing."""
    values, _ = written(train__engine={"type": "fsdp2", "ulysses_sequence_parallel_size": 16})
    assert values["actor_train"]["strategy_args"]["strategy_config"]["fsdp_size"] == 16


def test_shards_of_verl_that_are_smaller_than_a_sequences_devices_are_widened() -> None:
    """``fsdp size should be greater than cp size``, says ROLL."""
    text = """
data: {train_files: a.parquet, val_files: b.parquet, train_batch_size: 64, max_prompt_length: 512, max_response_length: 512}
actor_rollout_ref:
  model: {path: org/model}
  actor: {strategy: fsdp2, ppo_mini_batch_size: 64, ulysses_sequence_parallel_size: 4, fsdp_config: {fsdp_size: 2}}
  rollout: {name: vllm, n: 4}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""
    made = convert(text, "roll", dialect="verl", environment={})
    assert yaml.safe_load(made.text or "")["actor_train"]["strategy_args"]["strategy_config"]["fsdp_size"] == 4
    entry = next(entry for entry in made.report.accounting if entry.key.endswith("fsdp_config.fsdp_size"))
    assert entry.bucket is Bucket.DERIVED


def test_deepspeed_of_older_files_runs_as_fsdp2() -> None:
    zero = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "gradient_clipping": "auto"}
    config, report = read(**_strategy("deepspeed_train", **zero))
    engine: Any = config.train.engine
    assert (engine.source, engine.reshard_after_forward, engine.offload) == ("deepspeed", False, "optimizer")
    assert engine.source_args == {"gradient_clipping": "auto"}
    assert (config.train.precision.parameters, config.train.precision.compute) == ("float32", "bfloat16")
    assert not [item.key for item in report.accounting if item.bucket is Bucket.UNKNOWN]


def test_a_reference_without_an_engine_holds_a_copy_on_each_device() -> None:
    config, _ = read(reference__strategy_args={"strategy_name": "hf_infer", "strategy_config": None})
    engine: Any = config.reference.engine
    assert engine.fsdp_size == 1
    values, _ = written(reference__engine={"type": "fsdp2", "fsdp_size": 1})
    assert values["reference"]["strategy_args"] == {"strategy_name": "hf_infer"}


def test_a_strategy_that_roll_does_not_have_is_refused_by_name() -> None:
    assert "expected one of megatron_train" in refused(**_strategy("colossal_train"))


def test_keys_of_another_strategy_are_dead() -> None:
    _, report = read(**_strategy("fsdp2_train", tensor_model_parallel_size=2))
    assert bucket(report, "actor_train.strategy_args.strategy_config.tensor_model_parallel_size") is Bucket.DEAD


def test_rolls_silence_is_a_falling_learning_rate_and_narrow_sampling() -> None:
    config, _ = read(actor_train__training_args={}, actor_infer__generating_args={})
    assert config.train.optimizer.lr == 5e-5
    assert config.train.lr_scheduler.type == "linear"
    sampling = config.rollout.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.95, 0.7, 50)
    assert config.rollout.memory.gpu_memory_utilization == 0.9


@pytest.mark.parametrize(
    ("strategy", "name", "ticks"),
    [("fsdp2_train", "constant", None), ("fsdp2_train", "constant_with_warmup", 5), ("megatron_train", "constant", 5)],
)
def test_transformers_constant_schedule_never_warms_up(strategy: str, name: str, ticks: int | None) -> None:
    training = {"learning_rate": 1e-6, "lr_scheduler_type": name, "warmup_steps": 5}
    schedule = read(actor_train__training_args=training, **_strategy(strategy))[0].train.lr_scheduler
    assert (schedule.type, schedule.warmup_steps) == ("constant", ticks)


def test_a_constant_schedule_with_warmup_is_written_as_transformers_calls_it() -> None:
    schedule = {"type": "constant", "step_unit": "step", "warmup_steps": 3}
    values, _ = written(train__lr_scheduler=schedule)
    training = values["actor_train"]["training_args"]
    assert training["lr_scheduler_type"] == "constant_with_warmup"
    assert training["warmup_steps"] == 3 * 4


def test_the_lowest_rate_is_a_number_for_megatron_and_lost_for_fsdp2() -> None:
    low = {"type": "cosine", "step_unit": "optimizer_step", "min_lr_ratio": 0.1}
    megatron, _ = written(train__engine={"type": "megatron"}, train__lr_scheduler=low, train__optimizer__lr=2e-6)
    config = megatron["actor_train"]["strategy_args"]["strategy_config"]
    assert config["lr_scheduler_kwargs"]["min_lr"] == pytest.approx(2e-7)
    _, report = written(train__lr_scheduler=low)
    assert bucket(report, "train.lr_scheduler.min_lr_ratio") is Bucket.UNSUPPORTED


def test_the_critic_has_its_own_batch_and_one_pass() -> None:
    config, _ = read(
        adv_estimator="gae",
        ppo_epochs=4,
        reward_pretrain="org/critic",
        critic__training_args={
            "learning_rate": 1e-5,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
        },
        critic__strategy_args={"strategy_name": "fsdp2_train"},
        critic__device_mapping="list(range(0,8))",
    )
    critic = config.critic
    assert critic is not None
    assert critic.model is not None
    assert (critic.mini_batch_responses, critic.ppo_epochs, critic.model.path) == (64, 1, "org/critic")


def test_roll_has_no_megatron_critic() -> None:
    values, report = written(algorithm__advantage__type="gae", critic={"engine": {"type": "megatron"}})
    assert values["critic"]["strategy_args"]["strategy_name"] == "fsdp2_train"
    assert values["critic"]["model_args"]["model_type"] == "trl"
    assert any("no Megatron critic" in item.note for item in report.accounting)


def test_paths_of_single_roles_count_only_together() -> None:
    alone, report = read(reference__model_args__model_name_or_path="org/other")
    assert alone.reference.model is None
    assert bucket(report, "reference.model_args.model_name_or_path") is Bucket.DEAD
    names = {f"{role}__model_args__model_name_or_path": "org/own" for role in ("actor_train", "actor_infer")}
    together, _ = read(**names, reference__model_args__model_name_or_path="org/other")
    assert together.model.path == "org/own"
    assert together.reference.model is not None
    assert together.reference.model.path == "org/other"


def test_sglang_is_as_wide_as_its_worker() -> None:
    config, report = read(
        actor_infer__strategy_args={
            "strategy_name": "sglang",
            "strategy_config": {"mem_fraction_static": 0.7, "tp_size": 8},
        },
        actor_infer__num_gpus_per_worker=4,
    )
    assert config.rollout.parallel.tensor_parallel_size == 4
    assert arithmetic.rollout_engines(config) == 2
    assert bucket(report, "actor_infer.strategy_args.strategy_config.tp_size") is Bucket.DEAD
    values, _ = written(rollout__engine__type="sglang", rollout__parallel__tensor_parallel_size=4)
    assert values["actor_infer"]["num_gpus_per_worker"] == 4
    assert values["actor_infer"]["strategy_args"]["strategy_config"]["mem_fraction_static"] == 0.5


def test_lora_takes_twice_the_rank_and_is_told_to_the_engine() -> None:
    lora = {"lora_target": "q_proj,k_proj", "lora_rank": 16}
    found = read(actor_train__model_args=lora)[0].model.lora
    assert found is not None
    assert (found.rank, found.alpha, found.target_modules) == (16, 32, ("q_proj", "k_proj"))
    values, _ = written(model__lora={"rank": 4, "alpha": 8.0, "target_modules": ["all-linear"]})
    for role in ("actor_train", "actor_infer"):
        assert {"lora_rank": 4, "lora_alpha": 8}.items() <= values[role]["model_args"].items()
    assert values["actor_train"]["model_args"]["lora_target"] == "all-linear"
    assert values["actor_infer"]["model_args"]["lora_target"].startswith("q_proj,k_proj")


@pytest.mark.parametrize(("name", "args"), [("native", {}), ("qwen2_5", {}), ("qwen3", {"enable_thinking": True})])
def test_named_templates_that_are_the_tokenizers_own(name: str, args: dict[str, Any]) -> None:
    model = read(actor_train__data_args={"file_name": "a.jsonl", "messages": "messages", "template": name})[0].model
    assert (model.chat_template, model.chat_template_args) == (None, args)


def test_a_template_of_rolls_own_is_said_to_differ() -> None:
    _, report = read(actor_train__data_args={"file_name": "a.jsonl", "messages": "messages", "template": "longcot_V3"})
    assert bucket(report, "actor_train.data_args.template") is Bucket.UNSUPPORTED


def test_ending_texts_are_kept_where_there_are_some() -> None:
    silent, _ = read()
    kept, _ = read(actor_infer__generating_args={"stop_strings": ["</answer>"]})
    assert silent.rollout.sampling.include_stop is False
    assert (kept.rollout.sampling.stop, kept.rollout.sampling.include_stop) == (("</answer>",), True)
    values, _ = written(rollout__sampling__stop=["</answer>"])
    assert values["actor_infer"]["generating_args"]["include_stop_str_in_output"] is False


def test_a_template_of_ones_own_is_lost_and_its_arguments_too() -> None:
    _, report = written(model__chat_template="a.jinja", model__chat_template_args={"a": 1})
    assert bucket(report, "model.chat_template") is Bucket.UNSUPPORTED
    values, _ = written(model__chat_template_args={"enable_thinking": True})
    assert values["actor_train"]["data_args"]["template"] == "qwen3"


def test_a_reference_attends_as_the_policy() -> None:
    values, _ = written(model__attention="flash_attention_2", algorithm__kl_in_loss={"coefficient": 0.001})
    for role in ("actor_train", "reference"):
        assert values[role]["model_args"]["attn_implementation"] == "fa2"


@pytest.mark.parametrize("role", ["critic", "reference"])
def test_gradients_that_a_role_keeps_nowhere_are_carried(role: str) -> None:
    engine = {"type": "megatron", "offload_gradients": False}
    more = {"critic": {"algorithm__advantage": {"type": "gae"}}, "reference": {}}[role]
    _, report = written(**more, **{role: {"engine": engine}}, algorithm__kl_in_loss={"coefficient": 0.001})
    assert bucket(report, f"{role}.engine.offload_gradients") is Bucket.CARRIED


def test_an_engine_that_generates_has_to_be_named() -> None:
    """ROLL's own default trains, and its config refuses it for actor_infer."""
    told = {
        name: [item.key for item in check(roll(actor_infer__strategy_args=args)).report.findings]
        for name, args in (("none", {"strategy_config": {}}), ("vllm", {"strategy_name": "vllm"}))
    }
    assert ["actor_infer.strategy_args" in keys for keys in told.values()] == [True, False]


@pytest.mark.parametrize(("experts", "distributed"), [(None, False), (2, False), (1, True)])
def test_experts_split_otherwise_are_saved_in_megatrons_distributed_format(experts: Any, distributed: bool) -> None:
    """2026.8 mcore_adapter/training_args.py, MegatronArguments.__post_init__, whatever ``ckpt_format`` says."""
    sizes = {"tensor_model_parallel_size": 2, "expert_tensor_parallel_size": experts, "ckpt_format": "legacy"}
    config, _ = read(**_strategy("megatron_train", **sizes))
    engine: Any = config.train.engine
    assert engine.distributed_checkpointing is distributed


@pytest.mark.parametrize(
    ("model", "strategy", "given", "reentrant"),
    [
        ("Qwen/Qwen2.5-7B", "fsdp2_train", None, False),
        ("Qwen/Qwen3-30B-A3B", "fsdp2_train", None, True),
        ("Qwen/Qwen3-30B-A3B", "fsdp2_train", False, False),
        ("Qwen/Qwen3-30B-A3B", "megatron_train", None, False),
    ],
)
def test_a_mixture_of_experts_is_recomputed_reentrantly_unless_the_text_says_otherwise(
    model: str, strategy: str, given: Any, reentrant: bool
) -> None:
    """2026.8 models/model_providers.py, load_model; and written so that ROLL reads it the same."""
    settings = {"actor_train.model_args.gradient_checkpointing_use_reentrant": given, "pretrain": model}
    config, _ = read(**{**_strategy(strategy), **{key.replace(".", "__"): item for key, item in settings.items()}})
    assert config.train.memory.recompute_reentrant is reentrant
