"""Keys of verl's Megatron, as verl/workers/engine/megatron and verl/utils/megatron read them."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.report import Bucket, Report
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, translate_loaded

from .test_verl import A, bucket, read, written

OPTIM, BLOCK = f"{A}.optim", f"{A}.megatron"
MODEL = "actor_rollout_ref.model"
MEGATRON = "model_engine=megatron"
DATA = "model: {path: org/model}\ndata: {train: [{path: a.parquet}], eval: [{path: b.parquet}]}\n"


def write(train: str) -> tuple[dict[str, Any], Report]:
    text = f"rlctl: 1\n{DATA}schedule: {{total_steps: 20}}\ntrain: {train}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None, report.findings
    made = translate_loaded(loaded, report, "verl@0.9", options={"carried": "none"})
    assert made.text is not None, made.report.findings
    return read_yaml(made.text, "written").values["actor_rollout_ref"]["actor"], made.report


@pytest.mark.parametrize(
    ("version", "overrides", "ticks", "ratio"),
    [
        ("0.9", [MEGATRON, f"{OPTIM}.lr_warmup_steps=0"], 10, None),  # 0.2 of 50 steps
        ("0.9", [MEGATRON, f"{OPTIM}.lr_warmup_steps=3"], 3, None),
        ("0.9", [f"{OPTIM}.lr_warmup_steps=0"], None, 0.2),
        ("0.7", [f"{OPTIM}.lr_warmup_steps=0"], 0, None),  # FSDP's old workers ask whether it is below 0
        ("0.7", [f"{OPTIM}.lr_warmup_steps=0", "trainer.use_legacy_worker_impl=disable"], None, 0.2),
    ],
)
def test_the_warm_up_is_steps_or_a_share_of_them(
    version: str, overrides: list[str], ticks: int | None, ratio: float | None
) -> None:
    share = [f"{OPTIM}.lr_warmup_steps_ratio=0.2", *([f"{OPTIM}.lr_decay_steps=50"] if MEGATRON in overrides else [])]
    loaded, _ = read(*share, *overrides, dialect=f"verl@{version}")
    schedule = loaded.config.train.lr_scheduler
    assert (schedule.warmup_steps, schedule.warmup_ratio) == (ticks, ratio)


def test_the_length_of_the_schedule_is_that_of_the_run_whatever_is_written() -> None:
    loaded, report = read(f"{OPTIM}.total_training_steps=77")
    assert loaded.config.train.lr_scheduler.total_steps is None
    assert bucket(report, f"{OPTIM}.total_training_steps") is Bucket.DEAD
    for ticks, expected in ((77, Bucket.UNSUPPORTED), (20, Bucket.MAPPED)):
        values, report = write(f"{{lr_scheduler: {{type: cosine, total_steps: {ticks}}}}}")
        assert "total_training_steps" not in values["optim"]
        assert bucket(report, "train.lr_scheduler.total_steps") is expected


def test_ticks_of_optimizer_steps_are_divided_in_all_parts_of_the_schedule() -> None:
    schedule = "{type: wsd, step_unit: optimizer_step, warmup_steps: 4, decay_steps: 32, wsd_decay_steps: 8}"
    batch = "batch: {prompts_per_step: 16, responses_per_prompt: 8, mini_batch_responses: 32}\n"
    text = (
        f"rlctl: 1\n{DATA}{batch}schedule: {{total_steps: 20}}\ntrain: {{engine: megatron, lr_scheduler: {schedule}}}\n"
    )
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None, report.findings
    made = translate_loaded(loaded, report, "verl@0.9").text
    assert made is not None
    optim = read_yaml(made, "written").values["actor_rollout_ref"]["actor"]["optim"]
    assert (optim["lr_warmup_steps"], optim["lr_decay_steps"], optim["lr_wsd_decay_steps"]) == (1, 8, 2)


def test_a_checkpoint_is_read_only_where_it_is_switched_on() -> None:
    path = f"{BLOCK}.dist_checkpointing_path"
    loaded, report = read(MEGATRON, f"{path}=/models/m")
    assert loaded.config.train.engine.checkpoint_path is None  # type: ignore[attr-defined]
    assert bucket(report, path) is Bucket.DEAD
    loaded, _ = read(MEGATRON, f"{path}=/models/m", f"{BLOCK}.use_dist_checkpointing=True")
    assert loaded.config.train.engine.checkpoint_path == "/models/m"  # type: ignore[attr-defined]


@pytest.mark.parametrize("said", ["", ", distributed_checkpointing: true", ", distributed_checkpointing: false"])
def test_verl_is_told_to_read_a_checkpoint_only_where_there_is_one(said: str) -> None:
    """It fails where it is told to and has no path."""
    values, report = write(f"{{engine: {{type: megatron, tensor_parallel_size: 2{said}}}}}")
    assert not values["megatron"].get("use_dist_checkpointing")
    if "true" in said:
        assert bucket(report, "train.engine.distributed_checkpointing") is Bucket.CARRIED
    values, _ = write(f"{{engine: {{type: megatron, checkpoint_path: /models/m{said}}}}}")
    assert values["megatron"]["use_dist_checkpointing"] is True
    assert values["megatron"]["dist_checkpointing_path"] == "/models/m"


def test_verl_s_weight_decay_does_not_move() -> None:
    values, report = write("{engine: megatron, optimizer: {weight_decay_style: linear, end_weight_decay: 0.3}}")
    assert "end_weight_decay" not in values["optim"]
    assert bucket(report, "train.optimizer.end_weight_decay") is Bucket.UNSUPPORTED


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], {"num_layers_in_last_pipeline_stage": 6}),
        (
            ["+actor_rollout_ref.ref.megatron.override_transformer_config.moe_router_dtype=fp32"],
            {"moe_router_dtype": "fp32"},
        ),
    ],
)
def test_the_reference_takes_the_actors_transformer_settings_unless_it_has_its_own(
    own: list[str], expected: dict[str, Any]
) -> None:
    """As verl/trainer/config/ref/megatron_ref.yaml interpolates them."""
    loaded, _ = read(
        MEGATRON,
        "actor_rollout_ref.actor.use_kl_loss=true",
        f"+{BLOCK}.override_transformer_config.num_layers_in_last_pipeline_stage=6",
        *own,
    )
    engine = loaded.config.reference.engine
    assert engine is not None
    assert engine.transformer == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("engine", "expected", "dead"),
    [
        (MEGATRON, (8, 32.0, "/adapters/b"), f"{MODEL}.lora_rank"),
        ("model_engine=dp", (4, 16.0, "/adapters/a"), f"{MODEL}.lora.rank"),
    ],
)
def test_each_engine_reads_its_own_lora_keys(engine: str, expected: tuple[Any, ...], dead: str) -> None:
    flat = (f"{MODEL}.lora_rank=4", f"{MODEL}.lora_adapter_path=/adapters/a")
    block = (f"{MODEL}.lora.rank=8", f"{MODEL}.lora.adapter_path=/adapters/b")
    loaded, report = read(engine, *flat, *block)
    adapter = loaded.config.model.lora
    assert adapter is not None
    assert (adapter.rank, adapter.alpha, adapter.adapter_path) == expected
    assert bucket(report, dead) is Bucket.DEAD
    model = written(loaded, report, "verl@0.9")[0]["actor_rollout_ref"]["model"]
    assert ("rank" in model["lora"], "lora_rank" in model) == ((True, False) if engine == MEGATRON else (False, True))


@pytest.mark.parametrize(
    ("named", "canonical"),
    [(["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"], ("all-linear",)), (["linear_qkv"], ("linear_qkv",))],
)
def test_megatron_names_layers_in_its_own_words(named: list[str], canonical: tuple[str, ...]) -> None:
    loaded, report = read(MEGATRON, f"{MODEL}.lora.rank=8", f"{MODEL}.lora.target_modules=[{','.join(named)}]")
    assert loaded.config.model.lora is not None
    assert loaded.config.model.lora.target_modules == canonical
    block = written(loaded, report, "verl@0.9")[0]["actor_rollout_ref"]["model"]["lora"]
    assert block["target_modules"] == named


def test_layers_by_transformers_names_are_lost_on_megatron() -> None:
    adapter = "model: {path: org/model, lora: {rank: 8, target_modules: [q_proj, v_proj]}}"
    text = f"rlctl: 1\n{adapter}\n{DATA.splitlines()[1]}\nschedule: {{total_steps: 20}}\ntrain: {{engine: {{type: megatron}}}}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None, report.findings
    values, told = written(loaded, report, "verl@0.9")
    assert values["actor_rollout_ref"]["model"]["lora"]["rank"] == 8
    assert bucket(told, "model.lora.target_modules") is Bucket.UNSUPPORTED
