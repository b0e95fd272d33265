"""Values and combinations that verl 0.9.1 refuses, each tried on a config that it takes otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from rlctl.common.report import Finding, Level
from rlctl.documents import read_yaml, write_yaml
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import read_document
from tests.adapters.refused import CRITIC, MEGATRON, SEVEN, VERL, A, R, changed, tree

M, C, F = "actor_rollout_ref.model", "critic", "actor_rollout_ref.ref"
CORRECTION, POOL, TEACHERS, SKIP = (
    "algorithm.rollout_correction",
    "reward.reward_model",
    "distillation.teacher_models",
    "skip",
)
DELTA = {f"{R}.checkpoint_engine.backend": "delta_sharded"}
SEPARATE = {
    "trainer.v1.trainer_mode": "separate_async",
    "trainer.v1.separate_async.parameter_sync_step": 2,
    f"{R}.nnodes": 1,
    f"{R}.checkpoint_engine.backend": "nccl",
}
FULLY = {
    "async_training.staleness_threshold": 0.5,
    "data.train_batch_size": 0,
    "data.gen_batch_size": 1,
    "actor_rollout_ref.hybrid_engine": False,
    "rollout.nnodes": 1,
    "rollout.n_gpus_per_node": 4,
    f"{R}.checkpoint_engine.backend": "nccl",
}
DYNAMIC = {**MEGATRON, f"{A}.megatron.dynamic_context_parallel": True, f"{A}.megatron.max_seqlen_per_dp_cp_rank": 1024}
MUON = {**MEGATRON, f"{A}.optim.optimizer": "muon"}
VEOMNI, TITAN = {"model_engine": "veomni"}, {"model_engine": "torchtitan"}
TURBO = {f"{A}.strategy": "fsdp_turbo"}
POOLED = {
    f"{POOL}.enable": True,
    f"{POOL}.enable_resource_pool": True,
    f"{POOL}.nnodes": 1,
    f"{POOL}.rollout.name": "vllm",
}
SHARED = {f"{POOL}.enable": True, f"{POOL}.rollout.name": "vllm"}
SPLIT = {f"{R}.disaggregation.enabled": True, f"{R}.tensor_model_parallel_size": 2}
TAUGHT = {
    "distillation.enabled": True,
    "distillation.nnodes": 1,
    f"{TEACHERS}.teacher_model.model_path": "org/teacher",
    f"{TEACHERS}.teacher_model.inference.name": "vllm",
}
TOPK = {**TAUGHT, "distillation.distillation_loss.loss_mode": "forward_kl_topk"}
TWO = {
    "distillation.enabled": True,
    "distillation.nnodes": 1,
    "distillation.n_gpus_per_node": 8,
    **{f"{TEACHERS}.{name}.model_path": f"org/{name}" for name in ("sums", "code")},
    **{f"{TEACHERS}.{name}.key": name for name in ("sums", "code")},
    **{f"{TEACHERS}.{name}.num_replicas": 2 for name in ("sums", "code")},
}
OVERLONG = {"reward.reward_manager.name": "dapo", "reward.reward_kwargs.overlong_buffer_cfg.enable": True}
QAT = {f"{A}.fsdp_config.qat.enable": True, f"{A}.fsdp_config.qat.quantization_config_path": "/q.json"}
MEGATRON_QAT = {**MEGATRON, f"{A}.megatron.qat.enable": True, f"{A}.megatron.qat.quantization_config_path": "/q.json"}
MTP = {**MEGATRON, f"{M}.mtp.enable": True, f"{M}.mtp.enable_train": True}
LORA = {f"{M}.lora_rank": 32}

ACCEPTED: list[dict[str, Any]] = [
    {},
    DELTA,
    SEPARATE,
    FULLY,
    DYNAMIC,
    MUON,
    VEOMNI,
    TITAN,
    POOLED,
    SHARED,
    SPLIT,
    TAUGHT,
    TOPK,
    TWO,
    {**OVERLONG, "reward.reward_kwargs.max_resp_len": 512, "reward.reward_kwargs.overlong_buffer_cfg.len": 64},
    QAT,
    MEGATRON_QAT,
    MTP,
    {f"{M}.path": SEVEN, f"{M}.use_fused_kernels": True, f"{M}.tiled_mlp.enabled": True},
    {**LORA, f"{R}.layered_summon": True, f"{R}.load_format": "safetensors"},
    {f"{CORRECTION}.rollout_rs": "token_k1,seq_mean_k3", f"{CORRECTION}.rollout_rs_threshold": "0.5_2.0,0.01"},
    {f"{A}.optim.clip_grad": 1.0, f"{A}.profiler.ranks": [0], f"{A}.profiler.tool_config.torch.contents": ["cuda"]},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model_engine": "deepspeed"}, "model_engine"),
    ({f"{R}.checkpoint_engine.backend": "gloo"}, f"{R}.checkpoint_engine.backend"),
    ({"reward.reward_manager.name": "mine"}, "reward.reward_manager.name"),
    ({"reward.reward_manager.source": "file"}, "reward.reward_manager.source"),
    ({"reward.reward_manager.source": "importlib"}, "reward.reward_manager.module.path"),
    ({f"{A}.policy_loss.loss_mode": "ppo"}, f"{A}.policy_loss.loss_mode"),
    ({f"{A}.use_kl_loss": True, f"{A}.kl_loss_type": "full"}, f"{A}.kl_loss_type"),
    ({"algorithm.use_kl_in_reward": True, "algorithm.kl_penalty": "full"}, "algorithm.kl_penalty"),
    ({"algorithm.use_pf_ppo": True, "algorithm.pf_ppo.reweight_method": "square"}, "algorithm.pf_ppo.reweight_method"),
    ({f"{R}.agent.default_agent_loop": "my_agent"}, f"{R}.agent.default_agent_loop"),
    (
        {
            **FULLY,
            "async_training.use_dynamic_resource_scheduling": True,
            "async_training.dynamic_schedule_policy": "x",
        },
        "async_training.dynamic_schedule_policy",
    ),
    ({**FULLY, "trainer.resume_mode": "latest"}, "trainer.resume_mode"),
    ({f"{R}.quantization": "int4"}, f"{R}.quantization"),
    ({**SHARED, f"{POOL}.rollout.name": "trtllm"}, f"{POOL}.rollout.name"),
    ({f"{A}.fsdp_config.strategy": "fsdp3"}, f"{A}.fsdp_config.strategy"),
    ({**TITAN, f"{A}.torchtitan.attn_type": "sdpa"}, f"{A}.torchtitan.attn_type"),
    ({**TITAN, f"{A}.torchtitan.pipeline_parallel_size": 2}, f"{A}.torchtitan.pipeline_parallel_size"),
    ({**MEGATRON, f"{A}.megatron.use_mbridge": False}, f"{A}.megatron.use_mbridge"),
    (
        {**VEOMNI, f"{A}.veomni.activation_offload_host_cache_limit_gb": -1},
        f"{A}.veomni.activation_offload_host_cache_limit_gb",
    ),
    ({**MEGATRON, f"{A}.optim.exp_avg_dtype": "fp8"}, f"{A}.optim.exp_avg_dtype"),
    ({f"{A}.optim.warmup_style": "linear"}, f"{A}.optim.warmup_style"),
    ({**CRITIC, "critic.optim.lr_scheduler_type": "linear"}, "critic.optim.lr_scheduler_type"),
    ({**MEGATRON_QAT, f"{A}.megatron.qat.mode": "w4a4"}, f"{A}.megatron.qat.mode"),
    ({**QAT, f"{A}.fsdp_config.qat.activation_observer": "mean"}, f"{A}.fsdp_config.qat.activation_observer"),
    (
        {**MEGATRON, f"{A}.megatron.pad_to_length": True, f"{A}.megatron.pad_to_length_bucket": 0},
        f"{A}.megatron.pad_to_length_bucket",
    ),
    (
        {f"{A}.policy_loss.loss_mode": "clip_cov", f"{A}.policy_loss.clip_cov_ratio": 0},
        f"{A}.policy_loss.clip_cov_ratio",
    ),
    ({f"{A}.policy_loss.loss_mode": "kl_cov", f"{A}.policy_loss.kl_cov_ratio": 0}, f"{A}.policy_loss.kl_cov_ratio"),
    ({f"{A}.policy_loss.loss_mode": "dro", f"{A}.policy_loss.dro_beta": 0}, f"{A}.policy_loss.dro_beta"),
    ({f"{A}.policy_loss.loss_mode": "dro"}, f"{A}.policy_loss.dro_beta"),
    (
        {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.type": "adaptive", "algorithm.kl_ctrl.horizon": 0},
        "algorithm.kl_ctrl.horizon",
    ),
    ({"trainer.v1.sampler.max_off_policy_threshold": 0}, "trainer.v1.sampler.max_off_policy_threshold"),
    (
        {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.max_inflight_gen_batches": 0},
        "algorithm.filter_groups.max_inflight_gen_batches",
    ),
    (
        {**SEPARATE, "trainer.v1.separate_async.hybrid_rollout.switch_threshold_ratio": 0},
        "trainer.v1.separate_async.hybrid_rollout.switch_threshold_ratio",
    ),
    (
        {**SEPARATE, "trainer.v1.separate_async.hybrid_rollout.switch_cost_window_size": 0},
        "trainer.v1.separate_async.hybrid_rollout.switch_cost_window_size",
    ),
    ({**POOLED, f"{POOL}.nnodes": 0}, f"{POOL}.nnodes"),
    ({**TAUGHT, "distillation.nnodes": 0}, "distillation.nnodes"),
    ({**FULLY, "rollout.nnodes": 0}, "rollout.nnodes"),
    ({f"{R}.trace.max_samples_per_step_per_worker": -1}, f"{R}.trace.max_samples_per_step_per_worker"),
    ({**FULLY, "data.train_batch_size": 64}, "data.train_batch_size"),
    ({**FULLY, "data.gen_batch_size": 2}, "data.gen_batch_size"),
    ({**FULLY, "async_training.staleness_threshold": -1}, "async_training.staleness_threshold"),
    ({**FULLY, "async_training.trigger_parameter_sync_step": 0}, "async_training.trigger_parameter_sync_step"),
    ({**FULLY, f"{R}.calculate_log_probs": False}, f"{R}.calculate_log_probs"),
    ({**FULLY, "actor_rollout_ref.hybrid_engine": True}, "actor_rollout_ref.hybrid_engine"),
    ({**FULLY, **CRITIC, "critic.strategy": "fsdp2"}, "critic.strategy"),
    ({**FULLY, "trainer.default_hdfs_dir": "hdfs://a"}, "trainer.default_hdfs_dir"),
    ({"trainer.use_v1": False, "trainer.default_hdfs_dir": "hdfs://a"}, "trainer.default_hdfs_dir"),
    ({**SPLIT, f"{R}.disaggregation.transfer_backend": "mori"}, f"{R}.disaggregation.transfer_backend"),
    (
        {**SPLIT, f"{R}.disaggregation.transfer_backend": "mooncake", f"{R}.disaggregation.mooncake_protocol": "ib"},
        f"{R}.disaggregation.mooncake_protocol",
    ),
    ({**SPLIT, f"{R}.disaggregation.prefill_replicas": 2}, f"{R}.disaggregation.prefill_replicas"),
    ({**SPLIT, f"{R}.disaggregation.decode_replicas": 0}, f"{R}.disaggregation.decode_replicas"),
    ({**SPLIT, f"{R}.disaggregation.decode_replicas": 4}, f"{R}.disaggregation.decode_replicas"),
    ({**SPLIT, f"{R}.disaggregation.bootstrap_port": 70000}, f"{R}.disaggregation.bootstrap_port"),
    ({**SPLIT, f"{R}.data_parallel_size": 2}, f"{R}.disaggregation.enabled"),
    ({**SPLIT, f"{R}.name": "trtllm"}, f"{R}.disaggregation.enabled"),
    ({f"{R}.disaggregation": "on"}, f"{R}.disaggregation"),
    *(
        ({f"skip.{section}.{name}": value}, f"skip.{section}.{name}")
        for section in ("rollout", "rollout_tq", "async_rollout")
        for name, value in {"action": "drop", "enable": "yes", "dump_dir": 3, "steps": 3}.items()
    ),
    ({f"{A}.profiler.finish_hook_ranks": 0}, f"{A}.profiler.finish_hook_ranks"),
    ({f"{A}.profiler.finish_hook_cmd": ["ls"]}, f"{A}.profiler.finish_hook_cmd"),
    ({f"{A}.profiler.ranks": 0}, f"{A}.profiler.ranks"),
    ({f"{A}.profiler.tool_config.torch.contents": ["gpu"]}, f"{A}.profiler.tool_config.torch.contents"),
    ({f"{A}.profiler.tool_config.npu.contents": ["gpu"]}, f"{A}.profiler.tool_config.npu.contents"),
    (
        {f"{R}.profiler.tool_config.torch.profile_token_start": -1},
        f"{R}.profiler.tool_config.torch.profile_token_start",
    ),
    ({f"{A}.profiler.tool_config.npu.level": "level3"}, f"{A}.profiler.tool_config.npu.level"),
    ({f"{A}.profiler.tool_config.npu.analysis": "yes"}, f"{A}.profiler.tool_config.npu.analysis"),
    ({f"{A}.profiler.tool_config.torch.schedule.wait": -1}, f"{A}.profiler.tool_config.torch.schedule.wait"),
    ({f"{A}.profiler.tool_config.torch_memory.stack_depth": 0}, f"{A}.profiler.tool_config.torch_memory.stack_depth"),
    ({f"{A}.profiler.tool_config.precision_debugger.steps": 3}, f"{A}.profiler.tool_config.precision_debugger.steps"),
    (
        {f"{A}.profiler.tool_config.precision_debugger.strict": "no"},
        f"{A}.profiler.tool_config.precision_debugger.strict",
    ),
    (
        {f"{A}.profiler.tool_config.precision_debugger.config_path": 1},
        f"{A}.profiler.tool_config.precision_debugger.config_path",
    ),
    ({"global_profiler.tool": "torch", f"{F}.profiler.tool": "npu"}, f"{F}.profiler.tool"),
    (
        {
            "global_profiler.tool": "nsys",
            "global_profiler.steps": [1],
            "global_profiler.global_tool_config.nsys.worker_nsight_options": None,
        },
        "global_profiler.global_tool_config.nsys.worker_nsight_options",
    ),
    ({f"{M}.target_modules": 3}, f"{M}.target_modules"),
    ({f"{M}.target_modules": ["q_proj", 3]}, f"{M}.target_modules"),
    ({f"{R}.agent.agent_loop_manager_class": "Manager"}, f"{R}.agent.agent_loop_manager_class"),
    ({"trainer.checkpoint_callback_class": "Callback"}, "trainer.checkpoint_callback_class"),
    ({f"{M}.path": "/models/mine/"}, f"{M}.path"),
    ({**DELTA, f"{R}.name": "trtllm"}, f"{R}.checkpoint_engine.backend"),
    *(
        ({**DELTA, key: value}, f"{R}.checkpoint_engine.backend")
        for key, value in {
            f"{R}.data_parallel_size": 2,
            f"{R}.engine_kwargs.vllm.data_parallel_size": 2,
            f"{R}.engine_kwargs.vllm.pipeline_parallel_size": 2,
            f"{R}.engine_kwargs.vllm.tensor_parallel_size": 4,
            f"{R}.engine_kwargs.vllm.moe_backend": "cutlass",
            f"{R}.engine_kwargs.vllm.enable_eplb": True,
            f"{R}.engine_kwargs.vllm.weight_transfer_config": "nccl",
            f"{R}.checkpoint_engine.engine_kwargs.delta_sharded.verify_every": 1,
            f"{R}.quantization": "fp8",
            f"{R}.dtype": "float16",
        }.items()
    ),
    ({**DELTA, **SPLIT}, f"{R}.checkpoint_engine.backend"),
    ({**DELTA, **MEGATRON, f"{A}.megatron.vanilla_mbridge": True}, f"{R}.checkpoint_engine.backend"),
    ({**DELTA, **MEGATRON, f"{M}.lora.rank": 8}, f"{R}.checkpoint_engine.backend"),
    (
        {**DELTA, f"{R}.checkpoint_engine.engine_kwargs.delta_sharded.encoding": "mask"},
        f"{R}.checkpoint_engine.engine_kwargs.delta_sharded.encoding",
    ),
    ({**LORA, f"{R}.layered_summon": True}, f"{R}.layered_summon"),
    (
        {
            f"{M}.path": SEVEN,
            f"{R}.checkpoint_engine.backend": "mooncake",
            f"{R}.checkpoint_engine.update_weights_bucket_megabytes": 512,
        },
        f"{R}.checkpoint_engine.update_weights_bucket_megabytes",
    ),
    ({f"{R}.prometheus.enable": True}, f"{R}.prometheus.enable"),
    ({f"{R}.moe_tensor_parallel_size": 2}, f"{R}.moe_tensor_parallel_size"),
    (
        {f"{R}.name": "trtllm", f"{R}.moe_tensor_parallel_size": 2, f"{R}.expert_parallel_size": 2},
        f"{R}.moe_tensor_parallel_size",
    ),
    ({f"{R}.tensor_model_parallel_size": 3, f"{R}.data_parallel_size": 2}, f"{R}.tensor_model_parallel_size"),
    (
        {"trainer.nnodes": 3, f"{R}.tensor_model_parallel_size": 4, f"{R}.data_parallel_size": 3},
        f"{R}.tensor_model_parallel_size",
    ),
    (
        {"trainer.nnodes": 3, f"{R}.tensor_model_parallel_size": 3, f"{R}.data_parallel_size": 8},
        f"{R}.data_parallel_size",
    ),
    (
        {f"{R}.name": "trtllm", f"{R}.quantization": "fp8", f"{R}.load_format": "auto"},
        f"{R}.quantization",
    ),
    ({**LORA, f"{R}.name": "sglang", f"{M}.target_modules": ".*proj"}, f"{M}.target_modules"),
    (
        {f"{M}.mtp.enable": True, f"{M}.mtp.enable_rollout": True, f"{R}.engine_kwargs.vllm.speculative_config": [1]},
        f"{R}.engine_kwargs.vllm.speculative_config",
    ),
    ({**SEPARATE, **SHARED}, f"{POOL}.enable_resource_pool"),
    ({**FULLY, **SHARED}, f"{POOL}.enable_resource_pool"),
    ({**SHARED, "algorithm.filter_groups.enable": True}, f"{POOL}.enable_resource_pool"),
    ({**POOLED, f"{POOL}.rollout.tensor_model_parallel_size": 16}, f"{POOL}.rollout.tensor_model_parallel_size"),
    ({**SHARED, f"{POOL}.rollout.tensor_model_parallel_size": 3}, f"{POOL}.rollout.tensor_model_parallel_size"),
    ({**SHARED, f"{POOL}.rollout.skip_tokenizer_init": True}, f"{POOL}.rollout.skip_tokenizer_init"),
    (
        {"reward.custom_reward_function.path": "/r.py", "reward.custom_reward_function.name": None},
        "reward.custom_reward_function.name",
    ),
    (OVERLONG, "reward.reward_kwargs.max_resp_len"),
    (
        {**OVERLONG, "reward.reward_kwargs.max_resp_len": 512, "reward.reward_kwargs.overlong_buffer_cfg.len": 600},
        "reward.reward_kwargs.overlong_buffer_cfg.len",
    ),
    ({"algorithm.adv_estimator": "optimal_token_baseline"}, "algorithm.adv_estimator"),
    ({f"{A}.calculate_sum_pi_squared": True, f"{M}.use_fused_kernels": True}, f"{A}.calculate_sum_pi_squared"),
    ({"algorithm.adv_estimator": "grpo_passk", f"{R}.n": 1}, f"{R}.n"),
    ({"algorithm.adv_estimator": "gdpo"}, "algorithm.gdpo_reward_keys"),
    ({f"{A}.policy_loss.loss_mode": "bypass_mode"}, f"{A}.policy_loss.loss_mode"),
    ({f"{R}.calculate_log_probs": False, f"{CORRECTION}.bypass_mode": True}, f"{R}.calculate_log_probs"),
    ({f"{CORRECTION}.rollout_rs": "token_k4", f"{CORRECTION}.rollout_rs_threshold": 2}, f"{CORRECTION}.rollout_rs"),
    ({f"{CORRECTION}.rollout_rs": "token_k3"}, f"{CORRECTION}.rollout_rs_threshold"),
    (
        {f"{CORRECTION}.rollout_rs": "token_k3", f"{CORRECTION}.rollout_rs_threshold": "0.5_2"},
        f"{CORRECTION}.rollout_rs_threshold",
    ),
    (
        {f"{CORRECTION}.rollout_rs": "token_k1", f"{CORRECTION}.rollout_rs_threshold": "2_0.5"},
        f"{CORRECTION}.rollout_rs_threshold",
    ),
    (
        {f"{CORRECTION}.rollout_rs": "token_k1", f"{CORRECTION}.rollout_rs_threshold": [1]},
        f"{CORRECTION}.rollout_rs_threshold",
    ),
    (
        {f"{CORRECTION}.rollout_rs": "token_k1", f"{CORRECTION}.rollout_rs_threshold": "1,2"},
        f"{CORRECTION}.rollout_rs_threshold",
    ),
    (
        {**MEGATRON, f"{A}.megatron.router_replay.mode": "R2", f"{R}.enable_rollout_routing_replay": True},
        f"{R}.enable_rollout_routing_replay",
    ),
    (
        {f"{A}.use_prefix_grouper": True, "trainer.use_v1": False, "data.train_batch_size": 36},
        f"{A}.use_prefix_grouper",
    ),
    ({"data.gen_batch_size": 48}, "data.gen_batch_size"),
    (
        {**SEPARATE, **SPLIT, "trainer.v1.separate_async.hybrid_rollout.enable_switch": True},
        "trainer.v1.separate_async.hybrid_rollout.enable_switch",
    ),
    ({f"{A}.use_dynamic_bsz": True, f"{A}.ppo_max_token_len_per_gpu": None}, f"{A}.ppo_max_token_len_per_gpu"),
    (
        {f"{A}.use_dynamic_bsz": True, f"{R}.log_prob_max_token_len_per_gpu": None},
        f"{R}.log_prob_max_token_len_per_gpu",
    ),
    *(
        ({**DYNAMIC, **changes}, f"{A}.megatron.dynamic_context_parallel")
        for changes in (
            {f"{M}.use_remove_padding": False},
            {f"{A}.megatron.pad_to_length": True},
            {f"{A}.megatron.virtual_pipeline_model_parallel_size": 2},
            {f"{A}.megatron.override_transformer_config.fp8": "e4m3"},
            TAUGHT,
            {f"{A}.megatron.tensor_model_parallel_size": 8},
        )
    ),
    (
        {
            **DYNAMIC,
            f"{A}.megatron.router_replay.mode": "R3",
            f"{A}.megatron.override_transformer_config.moe_router_fusion": True,
        },
        f"{A}.megatron.dynamic_context_parallel",
    ),
    (
        {**CRITIC, **MEGATRON, "critic.megatron.dynamic_context_parallel": True},
        "critic.megatron.dynamic_context_parallel",
    ),
    (
        {**DYNAMIC, f"{A}.use_kl_loss": True, f"{F}.megatron.dynamic_context_parallel": False},
        f"{F}.megatron.dynamic_context_parallel",
    ),
    ({f"{A}.optim.optimizer": "Lion"}, f"{A}.optim.optimizer"),
    ({**MUON, f"{A}.optim.muon_match_adamw_update_rms": True, f"{A}.optim.betas": [1.0, 0.9]}, f"{A}.optim.betas"),
    (
        {
            f"{A}.profiler.tool_config.torch.profile_token_start": 8,
            f"{A}.profiler.tool_config.torch.profile_token_end": 8,
        },
        f"{A}.profiler.tool_config.torch.profile_token_end",
    ),
    ({"data.train_files": "/data/train.csv"}, "data.train_files"),
    ({**DYNAMIC, f"{A}.megatron.max_seqlen_per_dp_cp_rank": None}, f"{A}.megatron.max_seqlen_per_dp_cp_rank"),
    ({**DYNAMIC, f"{A}.megatron.max_seqlen_per_dp_cp_rank": 8}, f"{A}.megatron.max_seqlen_per_dp_cp_rank"),
    (
        {**MEGATRON, f"{A}.megatron.context_parallel_size": 2, f"{M}.use_remove_padding": False},
        f"{A}.megatron.context_parallel_size",
    ),
    (
        {**MEGATRON, f"{A}.megatron.override_transformer_config.fp8": "e4m3", f"{M}.use_remove_padding": False},
        f"{A}.megatron.override_transformer_config.fp8",
    ),
    (
        {
            **MEGATRON,
            f"{A}.megatron.override_transformer_config.calculate_per_token_loss": True,
            f"{M}.use_remove_padding": False,
        },
        f"{A}.megatron.override_transformer_config.calculate_per_token_loss",
    ),
    ({**MEGATRON_QAT, f"{A}.megatron.vanilla_mbridge": True}, f"{A}.megatron.qat.enable"),
    ({**MEGATRON, f"{M}.lora.rank": 8, f"{A}.megatron.vanilla_mbridge": True}, f"{A}.megatron.vanilla_mbridge"),
    (
        {**MTP, f"{A}.megatron.override_transformer_config.recompute_granularity": "full"},
        f"{A}.megatron.override_transformer_config.recompute_method",
    ),
    (
        {**MTP, f"{A}.megatron.override_transformer_config.recompute_method": "uniform"},
        f"{A}.megatron.override_transformer_config.recompute_num_layers",
    ),
    ({**MEGATRON, f"{R}.temperature": 0}, f"{R}.temperature"),
    (
        {
            **MEGATRON,
            f"{A}.megatron.pipeline_model_parallel_size": 4,
            f"{A}.megatron.virtual_pipeline_model_parallel_size": 2,
            f"{A}.ppo_micro_batch_size_per_gpu": 32,
        },
        f"{A}.megatron.virtual_pipeline_model_parallel_size",
    ),
    ({**TOPK, **MEGATRON, f"{A}.megatron.pad_to_length": True}, f"{A}.megatron.pad_to_length"),
    (
        {**MEGATRON, f"{A}.megatron.pad_to_length": True, f"{A}.megatron.router_replay.mode": "R3"},
        f"{A}.megatron.pad_to_length",
    ),
    (
        {**MUON, f"{A}.optim.muon_match_adamw_update_rms": True, f"{A}.optim.muon_extra_scale_factor": 0.2},
        f"{A}.optim.muon_extra_scale_factor",
    ),
    (
        {**MUON, f"{A}.optim.use_layer_wise_distributed_optimizer": True, f"{A}.megatron.use_megatron_fsdp": True},
        f"{A}.megatron.use_megatron_fsdp",
    ),
    ({**TOPK, f"{A}.fsdp_config.pad_to_length": True}, f"{A}.fsdp_config.pad_to_length"),
    ({**TURBO, f"{A}.ulysses_sequence_parallel_size": 2}, f"{A}.ulysses_sequence_parallel_size"),
    ({**TURBO, f"{M}.enable_activation_offload": True}, f"{M}.enable_activation_offload"),
    ({f"{A}.optim.clip_grad": None}, f"{A}.optim.clip_grad"),
    (
        {**VEOMNI, f"{A}.veomni.router_replay.mode": "R3", f"{M}.use_remove_padding": False},
        f"{A}.veomni.router_replay.mode",
    ),
    ({**VEOMNI, f"{A}.veomni.fsdp_size": 3}, f"{A}.veomni.fsdp_size"),
    ({f"{A}.fsdp_config.qat.enable": True}, f"{A}.fsdp_config.qat.quantization_config_path"),
    ({**MEGATRON, f"{A}.megatron.qat.enable": True}, f"{A}.megatron.qat.quantization_config_path"),
    (
        {f"{M}.use_fused_kernels": True, f"{M}.fused_kernel_options.impl_backend": "triton", f"{R}.temperature": 1},
        f"{R}.temperature",
    ),
    ({f"{M}.path": "google/gemma-2-9b-it", f"{M}.tiled_mlp.enabled": True}, f"{M}.tiled_mlp.enabled"),
    ({**MEGATRON, f"{M}.path": SEVEN, f"{A}.megatron.router_replay.mode": "R3"}, f"{A}.megatron.router_replay.mode"),
    ({f"{M}.path": SEVEN, f"{R}.enable_rollout_routing_replay": True}, f"{R}.enable_rollout_routing_replay"),
    ({**TAUGHT, "distillation.distillation_loss.loss_mode": "jsd"}, "distillation.distillation_loss.loss_mode"),
    (
        {**TAUGHT, "distillation.distillation_loss.policy_loss_mode": "gspo"},
        "distillation.distillation_loss.policy_loss_mode",
    ),
    ({**TAUGHT, "distillation.distillation_loss.loss_mode": "k1"}, "distillation.distillation_loss.loss_mode"),
    ({**TOPK, **TITAN}, "distillation.distillation_loss.loss_mode"),
    ({**TOPK, "distillation.distillation_loss.topk": None}, "distillation.distillation_loss.topk"),
    (
        {**TOPK, f"{TEACHERS}.teacher_model.inference.engine_kwargs.vllm.max_logprobs": 8},
        f"{TEACHERS}.teacher_model.inference.engine_kwargs.vllm.max_logprobs",
    ),
    ({**TAUGHT, f"{TEACHERS}.teacher_model.inference.name": "trtllm"}, f"{TEACHERS}.teacher_model.inference.name"),
    ({**TAUGHT, f"{TEACHERS}.teacher_model.model_path": None}, f"{TEACHERS}.teacher_model.model_path"),
    ({**TWO, f"{TEACHERS}.sums.key": None}, TEACHERS),
    ({**TWO, f"{TEACHERS}.sums.key": "code"}, TEACHERS),
    (
        {**TAUGHT, f"{TEACHERS}.teacher_model.inference.tensor_model_parallel_size": 3},
        f"{TEACHERS}.teacher_model.inference.tensor_model_parallel_size",
    ),
    ({**TWO, f"{TEACHERS}.sums.num_replicas": 1}, "distillation.n_gpus_per_node"),
    (
        {**TAUGHT, f"{TEACHERS}.teacher_model.inference.max_model_len": 512},
        f"{TEACHERS}.teacher_model.inference.max_model_len",
    ),
    (
        {
            **TAUGHT,
            "distillation.nnodes": 2,
            "distillation.n_gpus_per_node": 6,
            f"{TEACHERS}.teacher_model.inference.tensor_model_parallel_size": 4,
        },
        "distillation.n_gpus_per_node",
    ),
]
CORE, V = f"{A}.megatron.override_transformer_config", f"{R}.engine_kwargs.vllm"
FULL = {
    f"{CORE}.recompute_granularity": "full",
    f"{CORE}.recompute_method": "uniform",
    f"{CORE}.recompute_num_layers": 1,
}
OVERLAP = {**MEGATRON, f"{CORE}.overlap_moe_expert_parallel_comm": True, f"{A}.megatron.expert_model_parallel_size": 2}
OFFLOAD = {f"{CORE}.fine_grained_activation_offloading": True, f"{CORE}.offload_modules": ["core_attn"]}
STAGES = {**MEGATRON, f"{A}.megatron.pipeline_model_parallel_size": 2}
LIBRARY_ACCEPTED: list[dict[str, Any]] = [
    {**MEGATRON, **FULL},
    {**MEGATRON, **OFFLOAD},
    {**MEGATRON, f"{A}.megatron.tensor_model_parallel_size": 2, f"{CORE}.recompute_granularity": "selective"},
    OVERLAP,
    {
        **OVERLAP,
        f"{CORE}.delay_wgrad_compute": True,
        f"{CORE}.moe_token_dispatcher_type": "flex",
        f"{CORE}.moe_enable_deepep": True,
    },
    {**STAGES, f"{CORE}.num_layers_in_first_pipeline_stage": 12},
    {**MEGATRON, f"{A}.optim.use_precision_aware_optimizer": True},
    {f"{R}.top_k": 50, f"{R}.val_kwargs.top_k": -1, f"{V}.max_loras": 2, f"{V}.max_cpu_loras": 2},
    {f"{V}.speculative_config.method": "ngram", f"{V}.speculative_config.num_speculative_tokens": 3},
    {f"{V}.attention_backend": "FLASH_ATTN", f"{V}.long_prefill_token_threshold": 1024},
]
LIBRARY_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**MEGATRON, f"{CORE}.recompute_granularity": "full"}, f"{CORE}.recompute_method"),
    ({**MEGATRON, f"{CORE}.recompute_granularity": "full"}, f"{CORE}.recompute_num_layers"),
    (
        {**MEGATRON, f"{CORE}.recompute_granularity": "selective", f"{CORE}.recompute_num_layers": 1},
        f"{CORE}.recompute_num_layers",
    ),
    (
        {
            **MEGATRON,
            **FULL,
            f"{A}.megatron.tensor_model_parallel_size": 2,
            f"{CORE}.distribute_saved_activations": True,
        },
        f"{CORE}.distribute_saved_activations",
    ),
    (
        {**MEGATRON, f"{CORE}.recompute_granularity": "selective", f"{CORE}.recompute_modules": ["attention"]},
        f"{CORE}.recompute_modules",
    ),
    ({**MEGATRON, **OFFLOAD, f"{CORE}.offload_modules": ["mlp"]}, f"{CORE}.offload_modules"),
    ({**MEGATRON, f"{CORE}.fine_grained_activation_offloading": True}, f"{CORE}.offload_modules"),
    ({**MEGATRON, **OFFLOAD, f"{CORE}.offload_modules": ["attn_proj"]}, f"{CORE}.offload_modules"),
    ({**MEGATRON, **FULL, f"{CORE}.cpu_offloading": True}, f"{CORE}.cpu_offloading"),
    ({**STAGES, f"{CORE}.cpu_offloading": True}, f"{CORE}.cpu_offloading"),
    ({**MEGATRON, **OFFLOAD, f"{CORE}.cpu_offloading": True}, f"{CORE}.cpu_offloading"),
    ({**MEGATRON, f"{CORE}.cpu_offloading": True, f"{CORE}.cuda_graph_impl": "local"}, f"{CORE}.cpu_offloading"),
    ({**MEGATRON, f"{CORE}.cuda_graph_impl": "full"}, f"{CORE}.cuda_graph_impl"),
    ({**MEGATRON, f"{CORE}.fp8": "e4m3", f"{CORE}.fp4": "e2m1"}, f"{CORE}.fp4"),
    ({**MEGATRON, f"{CORE}.fp8_param": True}, f"{CORE}.fp8_param"),
    ({**MEGATRON, f"{CORE}.fp4_param": True}, f"{CORE}.fp4_param"),
    ({**MEGATRON, f"{CORE}.moe_router_padding_for_quantization": True}, f"{CORE}.moe_router_padding_for_quantization"),
    (
        {**MUON, f"{A}.optim.use_precision_aware_optimizer": True},
        f"{A}.optim.use_precision_aware_optimizer",
    ),
    (
        {
            **MEGATRON,
            f"{A}.optim.use_precision_aware_optimizer": True,
            f"{A}.megatron.use_distributed_optimizer": False,
        },
        f"{A}.optim.use_precision_aware_optimizer",
    ),
    (
        {**MEGATRON, f"{M}.path": SEVEN, f"{A}.megatron.expert_model_parallel_size": 2},
        f"{A}.megatron.expert_model_parallel_size",
    ),
    (
        {**MEGATRON, f"{CORE}.moe_enable_deepep": True, f"{CORE}.moe_token_dispatcher_type": "alltoall"},
        f"{CORE}.moe_enable_deepep",
    ),
    (
        {
            **MEGATRON,
            f"{CORE}.moe_enable_deepep": True,
            f"{CORE}.moe_token_dispatcher_type": "flex",
            f"{CORE}.moe_pad_expert_input_to_capacity": True,
            f"{CORE}.moe_expert_capacity_factor": 1.0,
        },
        f"{CORE}.moe_pad_expert_input_to_capacity",
    ),
    (
        {**MEGATRON, f"{CORE}.moe_shared_expert_overlap": True, f"{CORE}.moe_token_dispatcher_type": "allgather"},
        f"{CORE}.moe_shared_expert_overlap",
    ),
    ({**MEGATRON, f"{CORE}.moe_pad_expert_input_to_capacity": True}, f"{CORE}.moe_expert_capacity_factor"),
    (
        {**MEGATRON, f"{CORE}.moe_expert_capacity_factor": 1.0, f"{CORE}.moe_router_load_balancing_type": "sinkhorn"},
        f"{CORE}.moe_router_load_balancing_type",
    ),
    ({**MEGATRON, f"{CORE}.moe_router_group_topk": 2}, f"{CORE}.moe_router_num_groups"),
    *(
        ({**OVERLAP, **changes}, f"{CORE}.overlap_moe_expert_parallel_comm")
        for changes in (
            {f"{CORE}.moe_token_dispatcher_type": "allgather"},
            FULL,
            {f"{CORE}.moe_shared_expert_overlap": True},
            {f"{A}.megatron.expert_model_parallel_size": 1},
            {f"{A}.megatron.pipeline_model_parallel_size": 2},
        )
    ),
    ({**MEGATRON, f"{CORE}.delay_wgrad_compute": True}, f"{CORE}.delay_wgrad_compute"),
    (
        {**MEGATRON, f"{CORE}.ep_overlap_early_attn_memory_release": True},
        f"{CORE}.ep_overlap_early_attn_memory_release",
    ),
    ({**STAGES, f"{CORE}.num_layers_in_first_pipeline_stage": 0}, f"{CORE}.num_layers_in_first_pipeline_stage"),
    (
        {
            **STAGES,
            f"{A}.megatron.virtual_pipeline_model_parallel_size": 2,
            f"{CORE}.num_layers_in_first_pipeline_stage": 3,
        },
        f"{CORE}.num_layers_in_first_pipeline_stage",
    ),
    (
        {
            **STAGES,
            f"{CORE}.num_layers_in_last_pipeline_stage": 4,
            f"{CORE}.account_for_loss_in_pipeline_split": True,
        },
        f"{CORE}.num_layers_in_last_pipeline_stage",
    ),
    (
        {
            **STAGES,
            f"{CORE}.num_layers_in_last_pipeline_stage": 4,
            f"{CORE}.pipeline_model_parallel_layout": "Et*4|t*4L",
        },
        f"{CORE}.num_layers_in_last_pipeline_stage",
    ),
    ({f"{R}.top_k": -2}, f"{R}.top_k"),
    ({f"{R}.val_kwargs.top_k": 1.5}, f"{R}.val_kwargs.top_k"),
    ({f"{R}.min_p": 2}, f"{R}.min_p"),
    ({f"{R}.repetition_penalty": 0}, f"{R}.repetition_penalty"),
    ({f"{V}.max_num_active_seqs": 512}, f"{V}.max_num_active_seqs"),
    (
        {f"{V}.long_prefill_token_threshold": 4096, f"{R}.max_model_len": 2048},
        f"{V}.long_prefill_token_threshold",
    ),
    ({f"{V}.decode_context_parallel_size": 4}, f"{V}.decode_context_parallel_size"),
    (
        {f"{V}.data_parallel_external_lb": True, f"{V}.data_parallel_hybrid_lb": True},
        f"{V}.data_parallel_external_lb",
    ),
    ({f"{V}.numa_bind_nodes": [0]}, f"{V}.numa_bind_nodes"),
    ({f"{V}.max_cpu_loras": 1, f"{V}.max_loras": 2}, f"{V}.max_cpu_loras"),
    ({f"{V}.attention_backend": "A", f"{V}.attention_config.backend": "A"}, f"{V}.attention_backend"),
    ({f"{V}.kv_transfer_config.kv_connector": "Nixl"}, f"{V}.kv_transfer_config.kv_role"),
    ({f"{M}.path": SEVEN, f"{R}.expert_parallel_size": 2}, f"{R}.expert_parallel_size"),
    ({f"{M}.path": SEVEN, f"{V}.enable_expert_parallel": True}, f"{V}.enable_expert_parallel"),
    ({f"{V}.enable_eplb": True}, f"{V}.enable_eplb"),
    ({f"{M}.path": "google/gemma-2-9b-it", f"{R}.dtype": "float16"}, f"{R}.dtype"),
    ({f"{V}.speculative_config.num_speculative_tokens": 0}, f"{V}.speculative_config.num_speculative_tokens"),
    (
        {
            f"{V}.speculative_config.method": "ngram",
            f"{V}.speculative_config.prompt_lookup_min": 4,
            f"{V}.speculative_config.prompt_lookup_max": 2,
        },
        f"{V}.speculative_config.prompt_lookup_min",
    ),
    ({f"{V}.speculative_config.tensor_parallel_size": 2}, f"{V}.speculative_config.tensor_parallel_size"),
    ({f"{V}.speculative_config.method": "custom_class"}, f"{V}.speculative_config.model"),
    (
        {f"{V}.speculative_config.method": "suffix", f"{V}.speculative_config.suffix_decoding_max_tree_depth": 0},
        f"{V}.speculative_config.suffix_decoding_max_tree_depth",
    ),
]
SUPERVISED = {
    "data.train_files": "/d.parquet",
    "model.path": "org/model",
    "engine.strategy": "fsdp",
    "data.messages_key": "m",
}
SUPERVISED_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data.pad_mode": "left"}, "data.pad_mode"),
    ({"data.truncation": "middle"}, "data.truncation"),
    ({"trainer.resume_mode": "latest"}, "trainer.resume_mode"),
    ({"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/ckpt"}, "trainer.resume_from_path"),
    ({"trainer.profile_interval": [2, 1]}, "trainer.profile_interval"),
    ({"engine.strategy": "torchtitan", "engine.attn_type": "sdpa"}, "engine.attn_type"),
    ({"engine.strategy": "automodel", "engine.distributed_strategy": "fsdp"}, "engine.distributed_strategy"),
    ({"engine.strategy": "automodel", "engine.pp_size": 2}, "engine.pp_size"),
    ({"engine.strategy": "automodel", "optim.lr_scheduler_type": "wsd"}, "optim.lr_scheduler_type"),
]


SMALL = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
}


def findings(values: dict[str, Any], level: Level = Level.ERROR) -> list[Finding]:
    document = read_yaml(write_yaml(tree(values)), "run.yaml")
    loaded, report = read_document(document, dialect="verl@0.9", environment={})
    return [item for item in findings_of("verl", loaded, report) if item.level is level]


@pytest.mark.parametrize("changes", [*ACCEPTED, *LIBRARY_ACCEPTED])
def test_what_verl_combines_is_no_error(changes: dict[str, Any]) -> None:
    assert [item.message for item in findings(changed("verl", changes))] == []


@pytest.mark.parametrize(
    ("changes", "key"), [*REFUSED, *LIBRARY_REFUSED], ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_verl_refuses_is_an_error_of_its_key(changes: dict[str, Any], key: str) -> None:
    assert key in [item.key for item in findings(changed("verl", changes)) if item.code == "runner-refuses"]


@pytest.mark.parametrize(("changes", "key"), SUPERVISED_REFUSED)
def test_what_the_sft_trainer_refuses_is_an_error_of_its_key(changes: dict[str, Any], key: str) -> None:
    assert [item.message for item in findings(SUPERVISED)] == []
    assert key in [item.key for item in findings({**SUPERVISED, **changes}) if item.code == "runner-refuses"]


def test_no_context_is_longer_than_the_positions_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    values = {f"{M}.path": str(tmp_path), "data.max_prompt_length": 64, "data.max_response_length": 64}
    key = f"{R}.max_model_len"
    assert [item.key for item in findings(changed("verl", {**values, key: 1024})) if item.key == key] == []
    assert [item.key for item in findings(changed("verl", {**values, key: 1025})) if item.key == key] == [key]


@pytest.mark.parametrize("layers", [0, 1])
def test_multi_token_prediction_needs_layers_for_it(tmp_path: Path, layers: int) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({**SMALL, "model_type": "mimo", "num_nextn_predict_layers": layers})
    )
    values = changed("verl", {**MEGATRON, f"{M}.path": str(tmp_path), f"{M}.mtp.enable": True})
    assert (f"{M}.mtp.enable" in [item.key for item in findings(values)]) is (not layers)


ASYNC = "async def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"
PARTS = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return {'score': 1.0, 'form': 1.0}\n"


@pytest.mark.parametrize(
    ("code", "changes", "key"),
    [
        (ASYNC, {"reward.reward_manager.name": "remote"}, "reward.custom_reward_function.path"),
        (
            PARTS,
            {"algorithm.adv_estimator": "gdpo", "algorithm.gdpo_reward_keys": ["form", "length"]},
            "algorithm.gdpo_reward_keys",
        ),
    ],
)
def test_a_reward_function_is_what_its_manager_takes(
    tmp_path: Path, code: str, changes: dict[str, Any], key: str
) -> None:
    (tmp_path / "score.py").write_text(code)
    values = changed("verl", {"reward.custom_reward_function.path": str(tmp_path / "score.py")})
    assert key not in [item.key for item in findings(values)]
    assert key in [item.key for item in findings({**values, **changes})]


def test_images_for_a_model_without_vision_are_reported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    rows = {"prompt": [[{"role": "user", "content": "<image>?"}]], "images": [["a.png"]]}
    parquet.write_table(pa.table(rows), tmp_path / "train.parquet")
    values = changed("verl", {"data.train_files": str(tmp_path / "train.parquet")})
    assert "data.image_key" not in [item.key for item in findings(values, Level.WARNING)]
    values[f"{M}.path"] = str(tmp_path)
    assert "data.image_key" in [item.key for item in findings(values, Level.WARNING)]


def test_the_base_is_the_config_that_is_changed() -> None:
    assert changed("verl", {}) == VERL
