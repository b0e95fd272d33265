"""What is answered or scored beside training: held-out sources, or the training data of a run that only explores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.plan import StagePlan
from rlctl.runtime.data.open import make_chat, open_evaluation
from rlctl.runtime.data.prompts import open_prompts
from rlctl.runtime.data.recorded import open_recorded
from rlctl.runtime.data.rowset import RowSet, SetReport
from rlctl.runtime.data.sft import open_answers
from rlctl.runtime.evaluation.evaluation import Evaluator, HeldOut
from rlctl.runtime.evaluation.losses import HeldOutAnswers, HeldOutLosses
from rlctl.runtime.evaluation.response_files import Chosen, JsonLines, Keeper, ParquetFile
from rlctl.runtime.experience.samples import check_own_sampling, evaluation_sampling, training_sampling
from rlctl.runtime.reporting.shown_samples import Evaluated
from rlctl.runtime.roles import Rewards, RolloutEngines

FILE_OF_RESPONSES = "responses.parquet"
"""Its name where the config names a folder."""


def open_held_out(
    config: Config, plan: StagePlan, tokenizer: Any, stop_token_ids: tuple[int, ...]
) -> tuple[list[HeldOut], list[SetReport]]:
    """Open what the stage answers or scores beside training.

    Raises:
        RunError: a source cannot be read, or its own sampling cannot be.
    """
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            check_own_sampling(source.sampling, key=f"data.{name}[{index}].sampling")
    if arithmetic.writes_responses(config):
        return _explored(config, tokenizer, stop_token_ids)
    recorded = list(open_recorded(config.data.eval)) if config.run.mode == "evaluate_only" else []
    answered, reports = open_evaluation(config, tokenizer) if plan.role("rollout") else ([], [])
    held_out = [HeldOut(tasks.report.name, tasks, None) for tasks in recorded]
    held_out += [
        HeldOut(
            each.name,
            each.prompts,
            evaluation_sampling(config.rollout, each.source, stop_token_ids),
            each.source.responses_per_prompt,
        )
        for each in answered
    ]
    told = [*[tasks.report for tasks in recorded], *reports]
    return _told_apart(held_out, told), told


def open_held_out_answers(config: Config, tokenizer: Any) -> tuple[list[HeldOutAnswers], list[SetReport]]:
    """Open the sources whose answers the stage measures its loss on; none in a stage without evaluation.

    Raises:
        RunError: a source cannot be read.
    """
    if not arithmetic.evaluates(config):
        return [], []
    sets = list(open_answers(config, make_chat(config, tokenizer)))
    reports = [samples.report for samples in sets]
    names = distinct([report.name for report in reports], [report.path for report in reports])
    return [HeldOutAnswers(name, samples) for name, samples in zip(names, sets, strict=True)], reports


def _explored(config: Config, tokenizer: Any, stop_token_ids: tuple[int, ...]) -> tuple[list[HeldOut], list[SetReport]]:
    chat = make_chat(config, tokenizer)
    sets = list(open_prompts(config.data, chat, config.data.train, section="train"))
    sampling, n = training_sampling(config.rollout, stop_token_ids), config.batch.responses_per_prompt
    reports = [each.report for each in sets]
    return _told_apart([HeldOut(each.report.name, each, sampling, n) for each in sets], reports), reports


def _told_apart(held_out: Sequence[HeldOut], reports: Sequence[SetReport]) -> list[HeldOut]:
    """The same, with a name in metrics for each: files of one name in several folders have the folder before it."""
    paths = [report.path for report in reports]
    names = distinct([each.name for each in held_out], paths)
    return [replace(each, name=name) for each, name in zip(held_out, names, strict=True)]


def distinct(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Names of sources at these paths, each once: one that several have gets the folder before it, and else a number behind.

    Example: ``test`` of ``gsm8k/test.parquet`` and of ``math/test.parquet`` are ``gsm8k/test`` and ``math/test``.
    """
    folders = [path.rstrip("/").rpartition("/")[0].rpartition("/")[2] for path in paths]
    several = {name for name, count in Counter(names).items() if count > 1}
    longer = [
        f"{folder}/{name}" if folder and name in several else name for name, folder in zip(names, folders, strict=True)
    ]
    found: list[str] = []
    for name in longer:
        numbered = (f"{name}-{number}" for number in range(2, len(longer) + 2))
        found.append(name if name not in found else next(each for each in numbered if each not in (*found, *longer)))
    return found


def make_evaluator(
    config: Config,
    held_out: list[HeldOut],
    tokenizer: Any,
    rollout: RolloutEngines | None,
    rewards: Rewards | None,
    losses: HeldOutLosses | None = None,
) -> Evaluator | None:
    """What answers and scores the opened sources; None where there is nothing to do.

    Raises:
        RunError: the file of responses cannot be written.
    """
    if not held_out and losses is None:
        return None
    explores = arithmetic.writes_responses(config)
    size = config.batch.prompts_per_step if explores else config.data.evaluation_batch_prompts
    keeper = _keeper(config, held_out, scored=rewards is not None)
    count = 0 if explores else config.rollout.log_evaluation_responses
    shown = Chosen(count) if count else None
    evaluated = Evaluated(tokenizer) if config.rollout.log_responses else None
    return Evaluator(held_out, rollout, rewards, config.run.seed, size, tokenizer, keeper, shown, evaluated, losses)


def _keeper(config: Config, held_out: list[HeldOut], *, scored: bool) -> Keeper | None:
    settings = config.rollout
    if not arithmetic.writes_responses(config):
        return JsonLines(Path(settings.evaluation_folder).expanduser()) if settings.evaluation_folder else None
    assert settings.responses_folder is not None, "checked: a run that only explores says where its responses go"
    path = Path(settings.responses_folder).expanduser()
    if path.suffix != ".parquet":
        path /= FILE_OF_RESPONSES
    tables = [each.prompts.table for each in held_out if isinstance(each.prompts, RowSet)]
    return ParquetFile(path, tables, scored=scored)
