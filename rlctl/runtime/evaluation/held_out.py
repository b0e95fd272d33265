"""What is answered or scored beside training: held-out sources, or the training data of a run that only explores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlctl.config.sections.rollout import Rollout
from rlctl.runtime.data.open import DataSpec, make_chat, open_evaluation
from rlctl.runtime.data.prompts import open_prompts
from rlctl.runtime.data.recorded import open_recorded
from rlctl.runtime.data.rowset import RowSet, SetReport
from rlctl.runtime.data.sft import open_samples
from rlctl.runtime.evaluation.evaluation import Evaluator, HeldOut
from rlctl.runtime.evaluation.losses import HeldOutAnswers, HeldOutLosses
from rlctl.runtime.evaluation.response_files import Chosen, JsonLines, Keeper, ParquetFile
from rlctl.runtime.experience.samples import check_own_sampling, evaluation_sampling, training_sampling
from rlctl.runtime.reporting.shown_samples import Evaluated
from rlctl.runtime.roles import Rewards, RolloutEngines

FILE_OF_RESPONSES = "responses.parquet"
"""Its name where the config names a folder."""


@dataclass(frozen=True, slots=True)
class HeldOutSpec:
    """What is answered, scored or measured beside training, and what becomes of the responses."""

    data: DataSpec
    rollout: Rollout
    """How prompts are answered, and which responses are shown and kept."""
    explores: bool
    """Whether the rows of the training data are answered, once, and nothing else."""
    scores_recorded: bool
    """Whether rows that bring their responses are scored."""
    generates: bool
    """Whether there are engines that answer the others."""
    evaluates: bool
    """Whether there is any evaluation, so that losses are measured."""
    responses_per_prompt: int
    """To the training data."""
    seed: int


def open_held_out(
    spec: HeldOutSpec, tokenizer: Any, stop_token_ids: tuple[int, ...]
) -> tuple[list[HeldOut], list[SetReport]]:
    """Open what the stage answers or scores beside training.

    Raises:
        RunError: a source cannot be read, or its own sampling cannot be.
    """
    for key, source in (*spec.data.sources("train"), *spec.data.sources("eval")):
        check_own_sampling(source.sampling, key=f"{key}.sampling")
    if spec.explores:
        return _explored(spec, tokenizer, stop_token_ids)
    recorded = list(open_recorded(spec.data.section.eval)) if spec.scores_recorded else []
    answered, reports = open_evaluation(spec.data, tokenizer) if spec.generates else ([], [])
    held_out = [HeldOut(tasks.report.name, tasks, None) for tasks in recorded]
    held_out += [
        HeldOut(
            each.name,
            each.prompts,
            evaluation_sampling(spec.rollout, each.source, stop_token_ids),
            each.source.responses_per_prompt,
        )
        for each in answered
    ]
    told = [*[tasks.report for tasks in recorded], *reports]
    return _told_apart(held_out, told), told


def open_held_out_answers(spec: HeldOutSpec, tokenizer: Any) -> tuple[list[HeldOutAnswers], list[SetReport]]:
    """Open the sources whose answers the stage measures its loss on; none in a stage without evaluation.

    Raises:
        RunError: a source cannot be read.
    """
    if not spec.evaluates:
        return [], []
    data, chat = spec.data, make_chat(spec.data, tokenizer)
    sources = [named for index, named in enumerate(data.sources("eval")) if index in data.with_loss]
    sets = list(open_samples(data.section, sources, chat, max_tokens=data.max_sequence_tokens))
    reports = [samples.report for samples in sets]
    names = distinct([report.name for report in reports], [report.path for report in reports])
    return [HeldOutAnswers(name, samples) for name, samples in zip(names, sets, strict=True)], reports


def _explored(
    spec: HeldOutSpec, tokenizer: Any, stop_token_ids: tuple[int, ...]
) -> tuple[list[HeldOut], list[SetReport]]:
    data = spec.data.section
    sets = list(open_prompts(data, make_chat(spec.data, tokenizer), data.train, section="train"))
    sampling, n = training_sampling(spec.rollout, stop_token_ids), spec.responses_per_prompt
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
    spec: HeldOutSpec,
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
    size = spec.data.per_step if spec.explores else spec.data.section.evaluation_batch_prompts
    keeper = _keeper(spec, held_out, scored=rewards is not None)
    count = 0 if spec.explores else spec.rollout.log_evaluation_responses
    shown = Chosen(count) if count else None
    evaluated = Evaluated(tokenizer) if spec.rollout.log_responses else None
    return Evaluator(held_out, rollout, rewards, spec.seed, size, tokenizer, keeper, shown, evaluated, losses)


def _keeper(spec: HeldOutSpec, held_out: list[HeldOut], *, scored: bool) -> Keeper | None:
    settings = spec.rollout
    if not spec.explores:
        return JsonLines(Path(settings.evaluation_folder).expanduser()) if settings.evaluation_folder else None
    assert settings.responses_folder is not None, "checked: a run that only explores says where its responses go"
    path = Path(settings.responses_folder).expanduser()
    if path.suffix != ".parquet":
        path /= FILE_OF_RESPONSES
    tables = [each.prompts.table for each in held_out if isinstance(each.prompts, RowSet)]
    return ParquetFile(path, tables, scored=scored)
