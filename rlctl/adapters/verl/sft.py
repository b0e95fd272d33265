"""verl: the SFT trainers, the old FSDP one and the one on training engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.one_sided_rows import ReadOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    NO_KEY,
    Calculation,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Key,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
)
from rlctl.adapters.engine.values import Off, Partly, interval
from rlctl.adapters.verl.algorithm import PRESET
from rlctl.adapters.verl.batch import total_rules
from rlctl.adapters.verl.data import CUSTOM, source_rules
from rlctl.adapters.verl.optim import optimizer, schedule
from rlctl.adapters.verl.output import GENERAL, checkpoint, trainer, unread
from rlctl.adapters.verl.roles import SFT, SFT_OLD, sequence_parallel, under
from rlctl.adapters.verl.rollout import DEVICE
from rlctl.adapters.verl.train import engines, frozen_router, memory, model
from rlctl.adapters.verl.training_engine import DTYPES_LONG, fsdp, micro, precision, strategy
from rlctl.adapters.verl_trainer.fsdp import offloads
from rlctl.common.messages.reasons import said


class Rows(Calculation):
    """The rows of a micro-batch; a number of tokens is divided by the longest row."""

    def read(self, value: Any, view: Reading) -> Any:
        return value if isinstance(value, int) else ABSENT

    def write(self, value: Any, view: Writing) -> Any:
        if view.get("batch.micro_batch.unit") == "responses":
            return value
        longest = view.config.data.max_sequence_tokens or view.config.model.max_context_tokens or value
        return Computed(
            max(1, value // longest), said("{size} tokens / {longest} per row", size=value, longest=longest)
        )


OBJECTIVE = Dropped("algorithm.objective.type", "verl's SFT trainer supports only SFT", "sft")
NO_TEACHER = "verl's SFT trainer has no teacher: the run trains on the responses of the data alone"
AT_END = Dropped("checkpoint.at_end", "verl's SFT trainer always saves after the last step", True)


def common(each_epoch: str = "") -> list[Rule]:
    """What both trainers have; ``each_epoch`` is the word for once an epoch in an interval, if the trainer knows one."""
    return [
        OBJECTIVE,
        Dropped("algorithm.distillation.**", NO_TEACHER),
        Dropped("algorithm.distillation", NO_TEACHER, None, matters=True),
        PRESET,
        Key("data.train_batch_size", "batch.prompts_per_step", always=True),
        Key("data.max_length", "data.max_sequence_tokens", always=True),
        Key("data.truncation", "data.sequence_truncation"),
        Key("data.use_shm", "data.stage_in_shared_memory"),
        Tree("data.apply_chat_template_kwargs", "model.chat_template_args"),
        *CUSTOM,
        *total_rules(),
        *trainer(last=AT_END, each_epoch=each_epoch),
        *GENERAL,
        interval("trainer.test_freq", "schedule.evaluate_every", each_epoch=each_epoch),
        Dropped(
            "schedule.evaluate_at_start", "verl's SFT trainer evaluates every test_freq steps and at the end", False
        ),
        Key("trainer.seed", "run.seed"),
        Key("trainer.max_ckpt_to_keep", "checkpoint.keep_last"),
        Key("trainer.nnodes", "placement.nodes"),
        DEVICE,
        Dropped("placement.layout", "verl's SFT trainer has one role"),
        Dropped("data.**", "verl's SFT trainer does not read it"),
        Dropped("batch.**", "verl's SFT trainer makes one optimizer step per step"),
        Dropped("schedule.**", NO_KEY),
        *unread("supervised training does not use this key", "run"),
        Dropped("train.**", NO_KEY),
        Dropped("model.**", NO_KEY),
    ]


ENGINE_COLUMNS = {
    "messages_key": "data.messages_key",
    "tools_key": "data.tools_key",
}


ENGINE: list[Rule] = [
    ReadOnly(
        "data.pad_mode",
        "rows are always packed",
        when=lambda view: view.get("data.pad_mode") == "no_padding",
    ),
    *source_rules("data.train_files", "data.val_files", ENGINE_COLUMNS, {}),
    micro(
        "batch.micro_batch",
        dynamic="data.use_dynamic_bsz",
        tokens="data.max_token_len_per_gpu",
        responses="data.micro_batch_size_per_gpu",
        role=SFT,
    ),
    Key("data.num_workers", "data.loader_workers"),
    *model("model", "model", SFT),
    Key("model.tokenizer_path", "model.tokenizer"),
    # 0.7.1 workers/config/model.py, MtpConfig
    Tree("model.mtp", "model.multi_token_prediction", default=None, switch="enable"),
    *memory("model", "train"),
    strategy("engine", "train.engine", also=SFT.groups),
    *engines("engine", SFT, [*fsdp("engine", "train.engine"), sequence_parallel(SFT)], megatron_block="engine")[:2],
    under("fsdp2", SFT, *precision("engine", "train")),
    under("megatron", SFT, Key("engine.dtype", "train.precision.compute", convert=DTYPES_LONG)),
    frozen_router("model", "engine", SFT),
    Key("engine.use_torch_compile", "train.compile"),
    Key("engine.seed", "train.seed", ABSENT),
    Key("engine.full_determinism", "run.deterministic"),
    Key("engine.entropy_from_logits_with_chunking", "train.memory.entropy_chunked"),
    Key("engine.entropy_checkpointing", "train.memory.entropy_recompute"),
    *optimizer("optim", SFT),
    *schedule("optim", SFT),
    *checkpoint("checkpoint", asynchronous=False),
    Key("trainer.balance_batch", "batch.balance"),
    Key("trainer.n_gpus_per_node", "placement.devices_per_node", always=True),
    *common("after_each_epoch"),
]


def _read_columns(view: Reading) -> Iterator[Flow]:
    """Single-turn columns, or conversations where ``multiturn`` is on."""
    multi = bool(view.get("data.multiturn.enable"))
    files = view.get("data.train_files"), view.get("data.val_files")
    for kind, value in zip(("train", "eval"), files, strict=True):
        count = len(value) if isinstance(value, list) else 1 if value else 0
        for index in range(count):
            to = ("data", kind, index)
            names = {"messages_key": "data.multiturn.messages_key", "tools_key": "data.multiturn.tools_key"}
            if not multi:
                names = {"prompt_key": "data.prompt_key", "response_key": "data.response_key"}
            for field, key in names.items():
                yield Flow((*to, field), view.get(key), (view.path(key),), same=True)
    yield Flow(
        (),
        None,
        (view.path("data.multiturn"), view.path("data.prompt_key"), view.path("data.response_key")),
        "dead",
        "multiturn decides which columns are read",
    )


def _write_columns(view: Writing) -> Iterator[Out]:
    for source in view.get("data.train")[:1]:
        to = ("data", "train", 0)
        multi = source["messages_key"] is not None
        yield Flow(view.path("data.multiturn.enable"), multi, ((*to, "messages_key"),))
        names = {"messages_key": "data.multiturn.messages_key", "tools_key": "data.multiturn.tools_key"}
        if not multi:
            names = {"prompt_key": "data.prompt_key", "response_key": "data.response_key"}
        for field, key in names.items():
            if source[field] is not None:
                yield Flow(view.path(key), source[field], ((*to, field),), same=True)


OLD: list[Rule] = [
    *source_rules("data.train_files", "data.val_files", {}, {}),
    CustomRule(
        "columns",
        (
            DialectKey("data.prompt_key"),
            DialectKey("data.response_key"),
            DialectKey("data.multiturn.enable"),
            DialectKey("data.multiturn.messages_key"),
            DialectKey("data.multiturn.tools_key"),
        ),
        (),
        _read_columns,
        _write_columns,
        by_key={
            f"data.{name}": (f"data.train[].{field}", f"data.eval[].{field}")
            for name, field in (
                ("prompt_key", "prompt_key"),
                ("response_key", "response_key"),
                ("multiturn.messages_key", "messages_key"),
                ("multiturn.tools_key", "tools_key"),
            )
        },
        why="A switch chooses which two columns hold for every file, and each source has its own.",
    ),
    Dropped("batch.micro_batch.unit", "verl's old SFT trainer counts rows", "responses"),
    Key(
        "data.micro_batch_size_per_gpu",
        "batch.micro_batch.size",
        convert=Rows(),
        made_of=("batch.micro_batch.unit",),
        also=(DialectKey("data.micro_batch_size", takes=float),),
    ),
    Key("data.chat_template", "model.chat_template"),
    *model("model", "model", SFT_OLD, path="partial_pretrain", templates=False),
    *memory("model", "train", packs=None),
    Key("use_remove_padding", "train.packing"),
    Key("ulysses_sequence_parallel_size", "train.engine.ulysses_sequence_parallel_size"),
    strategy("model", "train.engine"),
    Key(
        "model.fsdp_config.model_dtype",
        "train.precision.parameters",
        convert=Partly({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "bfloat16": "bfloat16"}),
    ),
    Key("model.fsdp_config.wrap_policy.min_num_params", "train.engine.wrap_min_parameters"),
    offloads("model.fsdp_config", "train.engine", names=("offload_params", "cpu_offload")),
    *optimizer("optim", SFT_OLD),
    Key(
        "optim.lr_scheduler",
        "train.lr_scheduler.type",
        also=(DialectKey("optim.lr_scheduler_type", ABSENT),),
    ),
    Key(
        "optim.warmup_steps_ratio",
        "train.lr_scheduler.warmup_ratio",
        convert=Off(0.0),
        also=(DialectKey("optim.lr_warmup_steps_ratio", ABSENT),),
    ),
    *checkpoint("trainer.checkpoint", asynchronous=False),
    Key("trainer.n_gpus_per_node", "placement.devices_per_node", always=True),
    Dropped("train.lr_scheduler.step_unit", "verl's schedule counts steps", "step"),
    *common(),
]
