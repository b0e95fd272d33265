"""What verl's training engines refuse of a config. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.verl.combination_limits import (
    DISTILLATION,
    DYNAMIC,
    FSDP,
    MEGATRON,
    OVERRIDES,
    TILED,
    model_row,
    needed_row,
    pair_row,
)
from rlctl.adapters.verl.distillation_limits import distils_topk
from rlctl.adapters.verl.requirement_values import (
    ACTOR,
    CRITIC,
    MODEL,
    REF,
    ROLLOUT,
    gpus,
    is_on,
    longest,
    model_parallel,
    strategy,
    uses_critic,
    uses_reference,
)
from rlctl.adapters.verl.value_limits import ENGINE, LOADED, LOSS, ROLLED, TRAINED, Applies, name_row, value_row
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said

ENGINE_FILE = "verl/workers/engine/megatron/transformer_impl.py"
RANK_TOKENS = f"{MEGATRON}.max_seqlen_per_dp_cp_rank"
OPTIMIZERS = (
    *("AdamW", "Adam", "SGD", "Adafactor", "Adagrad", "Adadelta", "Adamax", "ASGD", "LBFGS", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SparseAdam"),
)
"""Optimizers of torch 2."""


def _megatron(applies: Applies) -> Applies:
    return lambda values: strategy(values) == "megatron" and applies(values)


def _dynamic(applies: Applies) -> Applies:
    return _megatron(lambda values: values[DYNAMIC] and applies(values))


EXCLUDED_BY_DYNAMIC: tuple[tuple[str, Applies], ...] = (
    (f"{MODEL}.use_remove_padding", lambda v: v[f"{MODEL}.use_remove_padding"] is False),
    (f"{MEGATRON}.pad_to_length", is_on(f"{MEGATRON}.pad_to_length")),
    (
        f"{MEGATRON}.virtual_pipeline_model_parallel_size",
        lambda v: v[f"{MEGATRON}.virtual_pipeline_model_parallel_size"] not in (None, 1),
    ),
    (f"{OVERRIDES}.fp8", lambda v: v[f"{OVERRIDES}.fp8"] not in (None, False)),
    (
        f"{OVERRIDES}.moe_router_fusion",
        lambda v: v[f"{MEGATRON}.router_replay.mode"] != "disabled" and v[f"{OVERRIDES}.moe_router_fusion"],
    ),
    (f"{DISTILLATION}.enabled", is_on(f"{DISTILLATION}.enabled")),
)
"""Settings that dynamic context parallelism excludes."""


def _shared_ranks(values: Values) -> int:
    """Ranks of data and context parallelism together."""
    size = model_parallel(values) // values.number(f"{MEGATRON}.context_parallel_size")
    return gpus(values) // size


def _dynamic_rows() -> Iterator[Requirement]:
    """Dynamic context parallelism."""
    source = f"{ENGINE_FILE}, _check_dcp_unsupported_features"
    for other, excluded in EXCLUDED_BY_DYNAMIC:
        yield pair_row(DYNAMIC, other, _dynamic(excluded), source, "false", LOADED)
    yield pair_row(
        f"{CRITIC}.megatron.dynamic_context_parallel",
        f"{CRITIC}.strategy",
        lambda v: (
            uses_critic(v) and strategy(v, CRITIC) == "megatron" and v[f"{CRITIC}.megatron.dynamic_context_parallel"]
        ),
        source,
        "false",
        LOADED,
    )
    ref = f"{REF}.megatron.dynamic_context_parallel"
    yield pair_row(
        ref,
        DYNAMIC,
        _megatron(lambda v: uses_reference(v) and v.written(ref) and bool(v[ref]) is not bool(v[DYNAMIC])),
        f"{ENGINE_FILE}, MegatronEngine._init_device_mesh",
        lambda v: v[DYNAMIC],
        LOADED,
    )
    ranks = {"ranks": _shared_ranks}
    yield Requirement(
        DYNAMIC,
        _dynamic(lambda v: _shared_ranks(v) < 2 or _shared_ranks(v) % 2),
        said(
            "{key} is true, with {{ranks}} ranks of data and context parallelism: verl takes an even number, and stops when it "
            "loads the model",
            key=DYNAMIC,
        ),
        f"{ENGINE_FILE}, _validate_dcp_world_size",
        said("set {key} to false, or change the parallel sizes", key=DYNAMIC),
        numbers=ranks,
    )
    yield needed_row(
        RANK_TOKENS,
        DYNAMIC,
        _dynamic(lambda v: True),
        "verl/workers/config/engine.py, McoreEngineConfig.__post_init__",
    )
    yield Requirement(
        RANK_TOKENS,
        _dynamic(lambda v: 0 < v.number(RANK_TOKENS, 0) * _shared_ranks(v) < longest(v)),
        said(
            "{key} is {{{key}}}: {{ranks}} ranks hold fewer tokens than the longest sequence of {{longest}}, and verl stops at "
            "the first one that is longer",
            key=RANK_TOKENS,
        ),
        "verl/utils/dynamic_cp_scheduler.py, DynamicCPScheduler.schedule",
        Remedy(RANK_TOKENS, NEAREST),
        numbers={**ranks, "longest": longest},
        when=TRAINED,
    )


def _micro_batches(values: Values) -> int:
    """Micro-batches of a mini-batch on one data-parallel rank of Megatron."""
    mini = values[f"{ACTOR}.ppo_mini_batch_size"] * values[f"{ROLLOUT}.n"]
    share = mini // (gpus(values) // model_parallel(values))
    return int(share // values[f"{ACTOR}.ppo_micro_batch_size_per_gpu"])


def _megatron_rows() -> Iterator[Requirement]:
    """Megatron's engine."""
    padding, bridge = f"{MODEL}.use_remove_padding", f"{MEGATRON}.vanilla_mbridge"
    unpadded: Applies = lambda v: v[padding] is False  # noqa: E731
    yield pair_row(
        f"{MEGATRON}.context_parallel_size",
        padding,
        _megatron(
            lambda v: (
                unpadded(v)
                and v.number(f"{MEGATRON}.context_parallel_size") > 1
                and not v[f"{OVERRIDES}.context_parallel_algo"]  # MindSpeed, which has context parallelism of its own
            )
        ),
        "verl/models/mcore/util.py, preprocess_bshd",
        1,
        TRAINED,
    )
    yield pair_row(
        f"{OVERRIDES}.fp8",
        padding,
        _megatron(lambda v: unpadded(v) and v[f"{OVERRIDES}.fp8"]),
        "verl/models/mcore/model_forward.py, model_forward_gen",
        "null",
        TRAINED,
    )
    yield pair_row(
        f"{OVERRIDES}.calculate_per_token_loss",
        padding,
        _megatron(lambda v: unpadded(v) and v[f"{OVERRIDES}.calculate_per_token_loss"]),
        f"{ENGINE_FILE}, MegatronEngineWithLMHead.postprocess_micro_batch_func",
        "false",
        TRAINED,
    )
    yield pair_row(
        f"{MEGATRON}.qat.enable",
        bridge,
        _megatron(lambda v: v[bridge] and v[f"{MEGATRON}.qat.enable"]),
        f"{ENGINE_FILE}, MegatronEngine.__init__",
        "false",
        LOADED,
    )
    yield pair_row(
        bridge,
        f"{MODEL}.lora.rank",
        _megatron(lambda v: v[bridge] and v.number(f"{MODEL}.lora.rank", 0) > 0),
        "verl/workers/config/megatron_peft.py, get_peft_cls",
        "false",
        LOADED,
    )
    yield pair_row(
        f"{OVERRIDES}.recompute_method",
        f"{MODEL}.mtp.enable_train",
        _megatron(
            lambda v: (
                v[f"{MODEL}.mtp.enable"]
                and v[f"{MODEL}.mtp.enable_train"]
                and v[f"{OVERRIDES}.recompute_granularity"] == "full"
                and v[f"{OVERRIDES}.recompute_method"] not in ("uniform", "block")
            )
        ),
        "verl/models/mcore/mtp_patch.py, _patched_checkpointed_forward",
        "uniform",
        TRAINED,
    )
    yield pair_row(
        f"{OVERRIDES}.recompute_num_layers",
        f"{MODEL}.mtp.enable_train",
        _megatron(
            lambda v: (
                v[f"{MODEL}.mtp.enable"]
                and v[f"{MODEL}.mtp.enable_train"]
                and v[f"{OVERRIDES}.recompute_method"] == "uniform"
                and v[f"{OVERRIDES}.recompute_num_layers"] != 1
            )
        ),
        "verl/models/mcore/mtp_patch.py, _patched_checkpointed_forward",
        1,
        TRAINED,
    )
    yield value_row(
        f"{ROLLOUT}.temperature",
        lambda value: float(value) > 0,
        "more than 0",
        f"{ENGINE_FILE}, MegatronEngineWithLMHead._lm_head_logits_processor",
        1.0,
        ROLLED,
        _megatron(lambda v: True),
    )
    stages = f"{MEGATRON}.virtual_pipeline_model_parallel_size"
    yield Requirement(
        stages,
        _megatron(
            lambda v: (
                v.number(stages) > 1
                and not v[f"{ACTOR}.use_dynamic_bsz"]
                and not v[DYNAMIC]
                and not v[f"{OVERRIDES}.microbatch_group_size_per_vp_stage"]
                and _micro_batches(v) % v.number(f"{MEGATRON}.pipeline_model_parallel_size")
            )
        ),
        said(
            "{key} is {{{key}}}, and a mini-batch has {{batches}} micro-batches on each rank, which the pipeline stages "
            "({stages}) do not divide: verl stops at the first training step",
            key=stages,
            stages=f"{MEGATRON}.pipeline_model_parallel_size",
        ),
        f"{ENGINE_FILE}, MegatronEngine.forward_backward_batch",
        Remedy(stages, "null", f"{ACTOR}.ppo_micro_batch_size_per_gpu"),
        numbers={"batches": _micro_batches},
        when=TRAINED,
    )
    for other, excluded in (
        (f"{LOSS}.loss_mode", distils_topk),
        (f"{MEGATRON}.router_replay.mode", lambda v: v[f"{MEGATRON}.router_replay.mode"] not in (None, "disabled")),
    ):
        yield pair_row(
            f"{MEGATRON}.pad_to_length",
            other,
            _megatron(lambda v, excluded=excluded: v[f"{MEGATRON}.pad_to_length"] and excluded(v)),  # type: ignore[misc]
            f"{ENGINE_FILE}, MegatronEngineWithLMHead.forward_step",
            "false",
            TRAINED,
        )
    yield from _muon_rows()


def _muon_rows() -> Iterator[Requirement]:
    """Megatron's Muon optimizer."""
    optim = f"{ACTOR}.optim"

    def is_muon(values: Values) -> bool:
        return strategy(values) == "megatron" and "muon" in str(values[f"{optim}.optimizer"]).lower()

    yield pair_row(
        f"{optim}.muon_extra_scale_factor",
        f"{optim}.muon_match_adamw_update_rms",
        lambda v: (
            is_muon(v) and v[f"{optim}.muon_match_adamw_update_rms"] and v[f"{optim}.muon_extra_scale_factor"] != 1
        ),
        "verl/utils/megatron/optimizer.py, init_megatron_optim_config",
        1.0,
        LOADED,
    )
    yield value_row(
        f"{optim}.betas",
        lambda betas: 0 <= float(betas[0]) < 1,
        "numbers from 0, below 1",
        "verl/utils/megatron/optimizer.py, adamw_rms_match_scale_factor",
        "[0.9, 0.999]",
        LOADED,
        lambda v: is_muon(v) and v[f"{optim}.muon_match_adamw_update_rms"],
    )
    yield pair_row(
        f"{MEGATRON}.use_megatron_fsdp",
        f"{optim}.use_layer_wise_distributed_optimizer",
        lambda v: (
            is_muon(v) and v[f"{optim}.use_layer_wise_distributed_optimizer"] and v[f"{MEGATRON}.use_megatron_fsdp"]
        ),
        "verl/utils/megatron_utils.py, make_megatron_module",
        "false",
        LOADED,
    )


def _fsdp_rows() -> Iterator[Requirement]:
    """FSDP, VeOmni, and what is patched into their models."""
    engine = "verl/workers/engine/fsdp/transformer_impl.py"
    yield pair_row(
        f"{FSDP}.pad_to_length",
        f"{LOSS}.loss_mode",
        lambda v: strategy(v) in ("fsdp", "fsdp2") and v[f"{FSDP}.pad_to_length"] and distils_topk(v),
        f"{engine}, FSDPEngineWithLMHead.prepare_model_inputs",
        "false",
        TRAINED,
    )
    yield pair_row(
        f"{ACTOR}.ulysses_sequence_parallel_size",
        f"{ACTOR}.strategy",
        lambda v: strategy(v) == "fsdp_turbo" and v.number(f"{ACTOR}.ulysses_sequence_parallel_size") > 1,
        "verl/workers/engine/fsdp/fsdp_turbo_impl.py, FSDPTurboEngineWithLMHead._process_ulysses_config",
        1,
        LOADED,
    )
    yield pair_row(
        f"{MODEL}.enable_activation_offload",
        f"{ACTOR}.strategy",
        lambda v: strategy(v) == "fsdp_turbo" and v[f"{MODEL}.enable_activation_offload"],
        "verl/utils/activation_offload.py, enable_activation_offloading",
        "false",
        LOADED,
    )
    clip = f"{ACTOR}.optim.clip_grad"
    yield Requirement(
        clip,
        lambda v: v.written(clip) and v[clip] is None and strategy(v) in ("fsdp", "fsdp2", "fsdp_turbo"),
        said("{key} is null; expected a number: verl stops at the first training step", key=clip),
        f"{engine}, FSDPEngine.optimizer_step",
        Remedy(clip, 1.0),
        when=TRAINED,
    )
    yield name_row(
        f"{ACTOR}.optim.optimizer",
        OPTIMIZERS,
        "verl/workers/config/optimizer.py, build_optimizer",
        LOADED,
        applies=lambda v: strategy(v) in ("fsdp", "fsdp2") and v[f"{ACTOR}.optim.optimizer_impl"] == "torch.optim",
    )
    replay, padding = f"{ACTOR}.veomni.router_replay.mode", f"{MODEL}.use_remove_padding"
    yield pair_row(
        replay,
        padding,
        lambda v: strategy(v) == "veomni" and v[replay] not in (None, "disabled") and v[padding] is False,
        "verl/workers/engine/veomni/transformer_impl.py, VeOmniEngine.initialize",
        "disabled",
        LOADED,
    )
    yield pair_row(
        f"{ACTOR}.veomni.fsdp_size",
        f"{ACTOR}.veomni.ulysses_parallel_size",
        lambda v: (
            strategy(v) == "veomni"
            and 0 < v.number(f"{ACTOR}.veomni.fsdp_size", -1) < _veomni_ranks(v)
            and _veomni_ranks(v) % v.number(f"{ACTOR}.veomni.fsdp_size", -1)
        ),
        "verl/workers/engine/veomni/transformer_impl.py, VeOmniEngine.__init__",
        -1,
        LOADED,
    )
    for qat in (f"{FSDP}.qat", f"{MEGATRON}.qat"):
        yield needed_row(
            f"{qat}.quantization_config_path",
            f"{qat}.enable",
            lambda v, qat=qat: v[f"{qat}.enable"] and (qat.startswith(MEGATRON) is (strategy(v) == "megatron")),  # type: ignore[misc]
            "verl/utils/qat/core.py, load_quantization_config",
            ENGINE,
        )
    yield pair_row(
        f"{ROLLOUT}.temperature",
        f"{MODEL}.fused_kernel_options.impl_backend",
        lambda v: (
            v[f"{MODEL}.use_fused_kernels"]
            and v[f"{MODEL}.fused_kernel_options.impl_backend"] == "triton"
            and strategy(v) in ("fsdp", "fsdp2")
            and isinstance(v[f"{ROLLOUT}.temperature"], int)
        ),
        "verl/utils/kernel/linear_cross_entropy.py, LinearCrossEntropy.forward",
        "1.0",
        ROLLED,
    )


def _veomni_ranks(values: Values) -> int:
    return gpus(values) // values.number(f"{ACTOR}.veomni.ulysses_parallel_size")


def _is_local(values: Values) -> bool:
    """Whether the model's own config.json is read; the table of known models leaves its prediction layers out."""
    return (expanded(str(values[f"{MODEL}.path"])) / "config.json").is_file()


def _model_rows() -> Iterator[Requirement]:
    """Settings for models that have a part, or a type."""
    path = f"{MODEL}.path"
    yield model_row(
        f"{MODEL}.tiled_mlp.enabled",
        path,
        lambda shape: shape.family not in TILED,
        said("is of another type than {types}", types=", ".join(TILED)),
        "verl/models/transformers/tiled_mlp.py, apply_tiled_mlp_monkey_patch",
        lambda v: strategy(v) in ("fsdp", "fsdp2") and v[f"{MODEL}.tiled_mlp.enabled"],
        "false",
    )
    yield model_row(
        f"{MODEL}.use_fused_kernels",
        path,
        lambda shape: shape.hidden % 128,
        "has a hidden size that 128 does not divide",
        "verl/utils/kernel/kernels.py, efficient_entropy_forward",
        lambda v: (
            v[f"{MODEL}.use_fused_kernels"]
            and (strategy(v) == "megatron" or v[f"{MODEL}.fused_kernel_options.impl_backend"] == "triton")
        ),
        "false",
    )
    yield model_row(
        f"{MODEL}.mtp.enable",
        path,
        lambda shape: not shape.mtp_layers,
        "has no layers of multi-token prediction",
        "verl/utils/megatron_utils.py, check_mtp_config",
        _megatron(lambda v: v[f"{MODEL}.mtp.enable"] and _is_local(v)),
        "false",
    )
    for key, engine in (
        (f"{ACTOR}.veomni.router_replay.mode", "veomni"),
        (f"{MEGATRON}.router_replay.mode", "megatron"),
    ):
        yield model_row(
            key,
            path,
            lambda shape: not shape.experts,
            "has no experts",
            f"verl/workers/engine/{engine}/transformer_impl.py",
            lambda v, key=key, engine=engine: strategy(v) == engine and v[key] not in (None, "disabled"),  # type: ignore[misc]
            "disabled",
        )
    yield model_row(
        f"{ROLLOUT}.enable_rollout_routing_replay",
        path,
        lambda shape: not shape.experts,
        "has no experts",
        "verl/workers/rollout/sglang_rollout/async_sglang_server.py, SGLangHttpServer.generate",
        is_on(f"{ROLLOUT}.enable_rollout_routing_replay"),
        "false",
    )


def _resume_rows() -> Iterator[Requirement]:
    """Resuming SFT."""
    key = "trainer.resume_from_path"
    yield Requirement(
        key,
        lambda v: (
            v["trainer.resume_mode"] in ("auto", "resume_path")
            and (v[key] is not None or v["trainer.resume_mode"] == "resume_path")
            and "global_step_" not in str(v[key])
        ),
        said("{key} is {{{key}}}; expected a folder global_step_N", key=key),
        "verl/utils/checkpoint/checkpoint_handler.py, CheckpointHandler._determine_resume_path",
        said("set {key} to a folder global_step_N", key=key),
        kinds=("sft_engine",),
    )


ROWS: tuple[Requirement, ...] = (
    *_dynamic_rows(),
    *_megatron_rows(),
    *_fsdp_rows(),
    *_model_rows(),
    *_resume_rows(),
)
