"""What ROLL refuses of the user's data and rewards: domains without rows, columns, names of classes and templates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, NEAREST, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.roll.requirement_values import is_agentic, is_rlvr, rank_mini_batch, ranks, responses
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.row_sample import RowSample, row_sample

D = "actor_train.data_args"
SHARES, FILES = f"{D}.domain_interleave_probs", f"{D}.file_name"
PIPELINE = "roll/pipeline/rlvr/rlvr_pipeline.py, RLVRPipeline.__init__"
WORKERS = "roll.pipeline.rlvr.rewards"
FALLBACK = "math_rule"
"""The domain of rows whose tag no reward names."""
MOST = 200_000
"""Rows that are counted; of larger data nothing is said."""
LARGEST = 32 << 20
"""Bytes of data with images that are read to count rows."""
USED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CodeSandboxRewardWorker": (
        "code_sandbox_reward_worker",
        ("id", "tag", "case_type", "test_cases", "test_case_function"),
    ),
    "CrossThinkQARuleRewardWorker": ("crossthinkqa_rule_reward_worker", ("prompt", "ground_truth", "tag")),
    "DetectionRewardWorker": ("detection_reward_worker", ()),
    "GeneralValRuleRewardWorker": ("general_val_rule_reward_worker", ("prompt", "ground_truth", "tag")),
    "GeneralRuleRewardWorker": ("ifeval_rule_reward_worker", ("prompt", "ground_truth", "tag")),
    "LLMJudgeRewardWorker": ("llm_judge_reward_worker", ("id", "ground_truth")),
    "MathRuleRewardWorker": ("math_rule_reward_worker", ("ground_truth",)),
    "MultipleChoiceBoxedRuleRewardWorker": (
        "multiple_choice_boxed_rule_reward_worker",
        ("prompt", "ground_truth", "tag"),
    ),
    "RemoteRewardSystemWorker": ("remote_reward_system_worker", ("id",)),
    "VideoR1RewardWorker": ("video_r1_reward_worker", ()),
}
"""Reward workers of ROLL: the module of each, and the columns that it reads of every row."""
TEMPLATES = ("native", "qwen2_5", "qwen3", "chatml", "base", "empty", "longCOT_qwen2.5", "longcot_V3")
TEMPLATED = ("global_template", f"{D}.template", "sft_train.data_args.template", "student.data_args.template")


def is_text_only(values: Values) -> bool:
    """Whether rows are read by tag and domain: the pipeline for images reads other columns."""
    return (
        is_rlvr(values) and not values.written(f"{D}.image_max_pixels") and not values.written(f"{D}.image_min_pixels")
    )


def data_paths(values: Values) -> list[Path]:
    """The training files, below ``dataset_dir`` if they are there."""
    folder = str(values[f"{D}.dataset_dir"] or ".")
    found = []
    for name in files_of(values[FILES]):
        own, below = expanded(str(name)), expanded(folder) / str(name)
        found.append(below if below.exists() else own)
    return found


def rows_of_training(values: Values) -> RowSample | None:
    """All rows of the training files; None if one of them is not read here, or if they have too many, or large images."""
    paths = data_paths(values) if is_rlvr(values) else []
    if not is_text_only(values) and sum(path.stat().st_size for path in paths if path.is_file()) > LARGEST:
        return None
    samples = [row_sample(path, most=MOST) for path in paths]
    if not samples or any(sample is None or not sample.whole for sample in samples):
        return None
    return RowSample(tuple(row for sample in samples if sample is not None for row in sample.rows), whole=True)


def tags_of(values: Values) -> dict[str, str]:
    """The domain of each tag."""
    rewards = values["rewards"] or {}
    return {str(tag): str(name) for name, each in rewards.items() for tag in (each or {}).get("tag_included") or ()}


def _rows_by_domain(values: Values) -> Counter[str] | None:
    sample, tags = rows_of_training(values), tags_of(values)
    if sample is None or not any("tag" in row or row.get("domain") for row in sample.rows):
        return None
    return Counter(str(row.get("domain") or tags.get(str(row.get("tag")), FALLBACK)) for row in sample.rows)


def _shares(values: Values) -> dict[str, float]:
    return {str(name): float(share) for name, share in (values[SHARES] or {}).items()}


def _prompts_by_domain(values: Values) -> dict[str, int]:
    """Prompts of a step by domain: the last one takes what the others leave."""
    shares, step = _shares(values), values.number("rollout_batch_size", 128)
    found = {name: int(share * step) for name, share in shares.items()}
    if found:
        last = list(found)[-1]
        found[last] = step - sum(count for name, count in found.items() if name != last)
    return found


def _without_rows(values: Values) -> str:
    rows = _rows_by_domain(values)
    return ", ".join(name for name in _shares(values) if rows is not None and not rows[name])


def _too_few(values: Values) -> str:
    """A domain with rows, but no more than a step takes of it."""
    rows = _rows_by_domain(values) or Counter[str]()
    return next((name for name, count in _prompts_by_domain(values).items() if 0 < rows[name] <= count), "")


def _negative(values: Values) -> str:
    return next((name for name, count in _prompts_by_domain(values).items() if count <= 0), "")


def _unnamed_tags(values: Values) -> str:
    """Tags of rows that no reward includes."""
    sample, tags = rows_of_training(values), tags_of(values)
    found = dict.fromkeys(
        str(row["tag"])
        for row in (sample.rows if sample is not None else ())
        if row.get("tag") and not row.get("domain")
    )
    return ", ".join([name for name in found if name not in tags][:5])


def _endings(values: Values) -> str:
    found = sorted({path.suffix.removeprefix(".") for path in data_paths(values) if path.suffix})
    kinds = {{"jsonl": "json"}.get(ending, ending) for ending in found}
    return ", ".join(found) if len(kinds) > 1 else ""


def _worker(settings: Any) -> str:
    return str((settings or {}).get("worker_cls") or "") if isinstance(settings, Mapping) else ""


def _lacking(values: Values) -> tuple[str, str, str] | None:
    """A domain, its worker, and the columns that the worker reads and the rows lack."""
    sample = rows_of_training(values) if is_text_only(values) else None
    known = {column for row in (sample.rows[:100] if sample is not None else ()) for column in row}
    for name, settings in (values["rewards"] or {}).items() if known else ():
        worker = _worker(settings).rpartition(".")[2]
        lacks = [column for column in USED.get(worker, ("", ()))[1] if column not in known]
        if lacks and _shares(values).get(str(name)):
            return str(name), worker, ", ".join(lacks)
    return None


def _of_lacking(index: int) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        lacking = _lacking(values)
        return lacking[index] if lacking is not None else ""

    return found


def _unknown_worker(values: Values) -> str:
    """A class that the modules of ROLL's reward workers lack."""
    known = {f"{WORKERS}.{module}.{name}" for name, (module, _) in USED.items()}
    workers = map(_worker, (values["rewards"] or {}).values())
    return next((name for name in workers if name.startswith(f"{WORKERS}.") and name not in known), "")


def _near_worker(values: Values) -> str:
    known = [f"{WORKERS}.{module}.{name}" for name, (module, _) in USED.items()]
    return closest(_unknown_worker(values), known) or known[6]


def _judge(wrong: Callable[[Mapping[str, Any]], object]) -> Callable[[Values], str]:
    """The first judge that something is wrong with."""

    def found(values: Values) -> str:
        rewards = (values["rewards"] or {}).items()
        judges = ((name, each) for name, each in rewards if _worker(each).endswith("LLMJudgeRewardWorker"))
        return next((str(name) for name, each in judges if wrong(each)), "")

    return found


_of_no_type = _judge(lambda each: each.get("judge_model_type") not in ("api", "inference"))
_without_key = _judge(
    lambda each: each.get("judge_model_type") == "api" and not (each.get("judge_api_url") and each.get("judge_api_key"))
)


def _unknown_tags(values: Values) -> str:
    """Environments that the managers name and custom_envs lacks."""
    known = values["custom_envs"] or {}
    for manager in ("train_env_manager", "val_env_manager"):
        names = values[f"{manager}.tags"] if values.written(f"{manager}.tags") else ()
        if unknown := [str(name) for name in names or () if name not in known]:
            return ", ".join(unknown)
    return ""


def _written_clip(values: Values) -> str:
    """A clip range that a file writes, if each step is one update with the weights that answered."""
    one_update = responses(values) == rank_mini_batch(values) * ranks(values) and values.number("ppo_epochs") == 1
    is_plain = is_rlvr(values) and one_update and not float(values["async_generation_ratio"] or 0)
    return (
        next((key for key in ("pg_clip_high", "pg_clip_low", "pg_clip") if values.written(key)), "") if is_plain else ""
    )


def _reads_images(values: Values) -> bool:
    """Whether the student of a distillation is a vision model, by its name: its pipeline takes the processor's template."""
    return "vl" in re.split(r"[^a-z]+", str(values["student_pretrain"] or "").lower())


def _templates() -> Iterator[Requirement]:
    for key in TEMPLATED:
        yield Requirement(
            key,
            lambda v, key=key: (  # type: ignore[misc]
                not is_agentic(v) and v[key] and v[key] not in TEMPLATES and not _reads_images(v)
            ),
            said(
                "{key} is {{{key}}}, which ROLL does not have. It has {templates}",
                key=key,
                templates=", ".join(TEMPLATES),
            ),
            "roll/datasets/chat_template.py, get_chat_template",
            "set it to one of these; native uses the chat template of the tokenizer",
        )


def _ignored(
    key: str, ignored: Callable[[Values], object], message: str, source: str, hint: str, **others: Any
) -> Requirement:
    return Requirement(key, ignored, message, source, hint, level=Level.WARNING, code=IGNORES, **others)


ROWS: tuple[Requirement, ...] = (
    *_templates(),
    Requirement(
        SHARES,
        _without_rows,
        "no row of actor_train.data_args.file_name is of the domain {domains}: ROLL finds the domain of a row by its tag, in "
        "tag_included of a reward, and stops before the first step",
        PIPELINE,
        "add the tags of these rows to tag_included of the reward, or remove the domain from domain_interleave_probs",
        numbers={"domains": _without_rows},
    ),
    Requirement(
        "rollout_batch_size",
        _too_few,
        "a step takes {wanted} prompts of the domain {domain}, which has {rows} rows: ROLL needs more rows than that, and stops "
        "before the first step",
        PIPELINE,
        Remedy("rollout_batch_size", NEAREST),
        numbers={
            "domain": _too_few,
            "wanted": lambda v: _prompts_by_domain(v)[_too_few(v)],
            "rows": lambda v: (_rows_by_domain(v) or Counter[str]())[_too_few(v)],
        },
    ),
    Requirement(
        SHARES,
        lambda v: is_rlvr(v) and _negative(v),
        "actor_train.data_args.domain_interleave_probs leave the domain {domain} {count} prompts of rollout_batch_size "
        "({rollout_batch_size}): the last domain takes what the others leave",
        PIPELINE,
        "make the shares sum to 1",
        numbers={"domain": _negative, "count": lambda v: _prompts_by_domain(v)[_negative(v)]},
    ),
    _ignored(
        SHARES,
        lambda v: is_rlvr(v) and _shares(v) and not _negative(v) and abs(sum(_shares(v).values()) - 1) > 0.01,
        "actor_train.data_args.domain_interleave_probs sum to {sum}: the share of the last domain has no effect, because it "
        "takes "
        "what the others leave",
        PIPELINE,
        "make the shares sum to 1",
        numbers={"sum": lambda v: f"{sum(_shares(v).values()):g}"},
    ),
    _ignored(
        "rewards",
        lambda v: _unnamed_tags(v) and FALLBACK not in _shares(v),
        "rows have the tags {tags}, which no reward includes (tag_included): ROLL never trains on these rows",
        PIPELINE,
        "add the tags to tag_included of a reward",
        numbers={"tags": _unnamed_tags},
    ),
    _ignored(
        "rewards",
        lambda v: _unnamed_tags(v) and FALLBACK in _shares(v),
        "rows have the tags {tags}, which no reward includes (tag_included): ROLL scores these rows by the reward math_rule",
        PIPELINE,
        "add the tags to tag_included of a reward",
        numbers={"tags": _unnamed_tags},
    ),
    Requirement(
        FILES,
        lambda v: is_rlvr(v) and _endings(v),
        "actor_train.data_args.file_name has files of several formats ({endings}); ROLL reads one format",
        "roll/datasets/dataset.py, get_dataset",
        "write all files in one format",
        numbers={"endings": _endings},
    ),
    Requirement(
        f"{D}.messages",
        lambda v: is_text_only(v) and v.written(FILES) and not v[f"{D}.messages"] and not v[f"{D}.prompt"],
        "neither actor_train.data_args.messages nor actor_train.data_args.prompt is set: ROLL finds no prompts, and stops before "
        "the first step",
        "roll/pipeline/rlvr/rlvr_pipeline.py, get_encode_function",
        "set actor_train.data_args.messages to the column with the chat messages",
    ),
    Requirement(
        "rewards",
        _lacking,
        "{worker}, which scores the domain {domain}, reads the columns {columns}, and the rows lack them",
        "roll/pipeline/rlvr/rewards/code_sandbox_reward_worker.py, compute_rewards",
        "add the columns to the rows, or choose another worker_cls",
        numbers={name: _of_lacking(index) for index, name in enumerate(("domain", "worker", "columns"))},
        check_code="data-column",
        when="rollout",
    ),
    Requirement(
        "rewards",
        _unknown_worker,
        "worker_cls is {worker}, which ROLL does not have",
        "roll/utils/import_utils.py, safe_import_class",
        "did you mean {near}?",
        numbers={"worker": _unknown_worker, "near": _near_worker},
    ),
    Requirement(
        "rewards",
        _of_no_type,
        "judge_model_type of the judge {judge} is neither api nor inference",
        "roll/pipeline/rlvr/rewards/llm_judge_reward_worker.py, LLMJudgeRewardWorker.initialize",
        "set it to inference, with strategy_args and device_mapping, or to api, with judge_api_url and judge_api_key",
        numbers={"judge": _of_no_type},
    ),
    Requirement(
        "rewards",
        _without_key,
        "the judge {judge} calls an API, and judge_api_url or judge_api_key is not set",
        "roll/pipeline/rlvr/rewards/llm_judge_reward_worker.py, LLMJudgeRewardWorker._call_api_model",
        "set both",
        numbers={"judge": _without_key},
        when="rollout",
    ),
    Requirement(
        "custom_envs",
        lambda v: is_agentic(v) and _unknown_tags(v),
        "an environment manager names the tags {tags}, which custom_envs lacks",
        "roll/pipeline/agentic/agentic_config.py, AgenticConfig.make_env_configs",
        "define them in custom_envs, or change tags",
        numbers={"tags": _unknown_tags},
    ),
    _ignored(
        "pg_clip_high",
        lambda v: (v.written("pg_clip_high") or v.written("pg_clip_low")) and not v["use_pg_clip_range"],
        "pg_clip_low and pg_clip_high have no effect, because use_pg_clip_range is false: the ratio is clipped at pg_clip "
        "({pg_clip})",
        "roll/pipeline/rlvr/actor_worker.py, loss_func",
        "set use_pg_clip_range to true, or remove them",
    ),
    _ignored(
        "ppo_epochs",
        _written_clip,
        "{clip} has no effect: a step is one update (rollout_batch_size x num_return_sequences_in_group responses, ppo_epochs "
        "1) with "
        "the weights that answered, where the probability ratio is 1",
        "roll/pipeline/rlvr/actor_worker.py, loss_func",
        "lower actor_train.training_args.gradient_accumulation_steps, or remove {clip}",
        numbers={"clip": _written_clip},
    ),
)
