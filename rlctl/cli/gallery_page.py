"""The page of published runs, from ``presets/published``: results, sources, and what each framework cannot express of them.

python -m rlctl.cli.gallery_page
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.common.report import Bucket
from rlctl.config import presets
from rlctl.translation.translate import translate

TARGETS = {"verl": "verl", "trinity": "Trinity-RFT", "roll": "ROLL"}
ROWS = "17000"
"""Rows of the training data, which turn epochs into steps for a target that counts steps."""
METHOD = ("algorithm", "rewards", "reward_loop", "rollout.agents", "rollout.oversampling", "data.custom")
"""Keys that make the method of a run; others are about placement, speed, logging and files."""

Words = Callable[[str], str]


def gallery(language: str = "en") -> str:
    """Published runs as Markdown: a table, then a section each."""
    words = partial(translated, spoken=language)
    return "\n".join([*_table(words), *(line for run in presets.published() for line in _section(run, words))]) + "\n"


def _table(words: Words) -> Iterator[str]:
    names = map(words, map(later, ("name", "model", "algorithm", "hardware", "result", "source")))
    yield from ("", f"| {' | '.join(names)} |", "|" + " --- |" * 6)
    for run in presets.published():
        cells = (f"[{run.name}](#{_anchor(run.name)})", run.model, run.algorithm, run.hardware, run.result)
        yield f"| {' | '.join(cells)} | [{run.cited}]({_reference(run)}) |"


def _section(run: presets.Preset, words: Words) -> Iterator[str]:
    yield from ("", f"## {run.name}", "", words(run.title), "")
    facts = {
        later("hardware"): words(run.needs),
        later("data"): run.data,
        later("result"): f"{run.result} ({run.stated})",
        later("settings from"): f"[{run.repository}]({run.link})",
        later("plan"): f"`{run.plan}`",
    }
    yield from (f"- {words(name)}: {value}" for name, value in facts.items())
    yield from (f"- {words(later('note'))}: {words(note)}" for note in run.notes)
    for target, label in TARGETS.items():
        keys = ", ".join(f"`{key}`" for key in lost(run.name, target))
        told = later("cannot express") if keys else later("loses nothing of the method")
        yield f"- {label}: {words(told)} {keys}".rstrip()


@cache
def lost(name: str, target: str) -> tuple[str, ...]:
    """The canonical keys of a published run's method that a framework cannot express, each with what is below it as one."""
    report = translate(
        str(presets.folder() / "published" / f"{name}.yaml"), target, options={"dataset_rows": ROWS}
    ).report
    keys = (entry.key for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED)
    method = (key for key in keys if key.startswith(METHOD) and not key.endswith(".signature"))
    return tuple(dict.fromkeys(_part(key) for key in method))


def _part(key: str) -> str:
    """An item of a list, or the second level of a section, that a key is in."""
    return key.partition("]")[0] + "]" if "]" in key else ".".join(key.split(".")[:2])


def _reference(run: presets.Preset) -> str:
    return f"https://arxiv.org/abs/{run.paper}" if run.paper else run.link


def _anchor(name: str) -> str:
    return name.replace(".", "")


if __name__ == "__main__":
    print(gallery())
