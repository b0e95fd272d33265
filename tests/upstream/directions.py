"""The fifteen directions of a conversion over the shared corpus: converted texts as a user runs them, and what each framework makes of them.

A direction is the frameworks that a config passes: ``verl-roll`` is a conversion, ``verl-roll-verl`` one there and back. A driver answers for
a text as the framework's own loader, validators and workers would: accepted, or refused with its words; and with the effective numbers.

``python -m tests.upstream.directions`` prints the summary of the last results.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import yaml

from rlctl.adapters.engine.rules import matches
from rlctl.common.report import Bucket, Report
from rlctl.config import Loaded
from rlctl.documents import read_yaml
from rlctl.documents.paths import KeyPath
from rlctl.translation.translate import Translation, read, read_document, translate_loaded

from .frameworks import ENVIRONMENTS, ROLL_COMMIT, ROOT, Framework, framework, of_roll
from .test_verl import composed_by

FRAMEWORKS = ("verl", "trinity", "roll")
DIRECTIONS = (
    *("-".join(pair) for pair in product(FRAMEWORKS, repeat=2)),
    *(f"{one}-{other}-{one}" for one, other in permutations(FRAMEWORKS, 2)),
)
CORPUS = ROOT.parent / "shared" / "corpus"
RESULTS = ENVIRONMENTS / "directions"
ROWS = 50_000
"""Rows of the training data, for what is counted in epochs."""
FACTS = {"dataset_rows": str(ROWS)}
VERSIONS = {"verl": "0.9.1", "trinity": "0.6.0", "roll": f"{ROLL_COMMIT[:8]} (2026-08-19)"}
OLDER = "verl-0.9.0"
"""Some of verl's examples have keys that 0.9.0 has and 0.9.1 has not: as sources they are asked of 0.9.0."""
OLDER_TRINITY, NEWER_TRINITY = "trinity-0.5.2", f"trinity-{VERSIONS['trinity']}"
"""Trinity 0.6 accepts and ignores keys below ``trainer_config`` that it no longer has: as sources such files are asked of 0.5.2."""
VARIABLES = re.compile(r"oc\.env:(\w+)(,?)")
EMPTY = ("agentic_val_webshop.yaml",)
"""Every line of it is a comment."""
HERE = ("No module named", "couldn't connect to 'https://huggingface.co'", "Could not find any running Ray", "libcuda")
"""What a framework wants and this test does not have: a source for which it says so is not judged."""
STUB = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done > "$CAPTURED"
"""
"""Stands for the Python of a launch script, and keeps its arguments."""


NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
ABOUT: dict[str, tuple[str, ...]] = {
    "LoRA alpha": ("lora",),
    "LoRA rank": ("lora",),
    "KL in the loss": ("kl_loss", "kl_in_loss", "kl "),
    "KL in the reward": ("kl_penalty", "kl_in_reward", "kl_ctrl", "init_kl_coef", "add_token_level_kl", "kl "),
    "advantage clip": ("advantage_clip",),
    "aggregation": ("agg",),
    "baseline": ("adv", "norm_mean", "baseline", "estimator"),
    "betas": ("beta",),
    "clip high": ("clip",),
    "clip low": ("clip",),
    "context parallel": ("parallel",),
    "critic gradient clip": ("critic", "grad"),
    "critic learning rate": ("critic",),
    "critic passes": ("critic",),
    "critic warm-up (rounds)": ("critic",),
    "critic weight decay": ("critic",),
    "deviation": ("adv", "norm_std", "normaliz", "estimator"),
    "dual clip": ("clip",),
    "entropy": ("entropy",),
    "environments": ("env",),
    "evaluate every (rounds)": ("test_freq", "eval"),
    "evaluates first": ("val_before", "startup", "evaluate_at_start", "step 0", "first"),
    "evaluation data": ("val", "eval", "data"),
    "evaluation responses": ("val", "eval"),
    "evaluation temperature": ("val", "eval"),
    "evaluation top_k": ("val", "eval"),
    "evaluation top_p": ("val", "eval"),
    "gamma": ("gamma",),
    "gradient clip": ("grad",),
    "kind": ("algorithm", "mode", "objective", "pipeline", "teacher"),
    "lambda": ("lam",),
    "learning rate": ("lr", "learning_rate"),
    "learning rates": ("lr", "learning_rate", "warmup", "warm-up", "decay", "schedule"),
    "micro-batches by": ("micro", "dynamic", "batch_size"),
    "model": ("model", "pretrain"),
    "old log-probs": ("old_log", "log-prob", "logprob", "bypass"),
    "passes over a round": ("epochs",),
    "pipeline parallel": ("parallel",),
    "prompt tokens": ("prompt", "length"),
    "prompts a round": ("batch",),
    "pull to the reference": ("beta",),
    "ratio": ("loss", "importance"),
    "response tokens": ("response", "length", "tokens"),
    "responses a prompt": ("repeat", "rollout.n", "num_return", "group_size"),
    "responses an update": ("mini", "batch"),
    "responses of a micro-batch": ("micro", "batch"),
    "reward clip": ("reward_clip",),
    "rounds": ("step", "epoch"),
    "rows an update": ("batch",),
    "save every (rounds)": ("save",),
    "sequence parallel": ("parallel", "ulysses"),
    "shuffled data": ("shuffl", "selector"),
    "temperature": ("temperature",),
    "tensor parallel of an engine": ("tensor",),
    "tensor parallel": ("tensor", "parallel"),
    "tokens of a micro-batch": ("token",),
    "tokens of a row": ("length", "tokens"),
    "top_k": ("top_k",),
    "top_p": ("top_p",),
    "training data": ("data", "path", "file"),
    "training devices": ("device", "gpu", "node"),
    "training temperature": ("temperature",),
    "value clip": ("value",),
    "weight decay": ("weight_decay",),
    "whitened advantages": ("whiten", "adv"),
}
"""A number, and what a line of a report about it mentions one of."""


OF_DATA = ("response tokens", "shuffled data")
"""Numbers that environments do not have: tokens are those of a turn, and nothing is read from rows."""


@dataclass
class Outcome:
    """What became of one file in one direction."""

    name: str
    judged: bool
    error: str = ""
    equal: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def sources(dialect: str) -> list[Path]:
    """The corpus files of a framework that are configs of their own."""
    folder = CORPUS / "verl" / "overrides" if dialect == "verl" else CORPUS / dialect
    found = sorted(folder.rglob("*.yaml"))
    return [
        path for path in found if path.name not in EMPTY and not (dialect == "roll" and path.parent.name == "config")
    ]


def name_of(path: Path) -> str:
    return path.stem if "overrides" in path.parts else "/".join(path.parts[-2:])


HOME = "/home/me"


def value_of(variable: str) -> str:
    """What a variable of the source's machine stands for here."""
    return HOME if variable == "HOME" else "org/model"


def surroundings(text: str) -> dict[str, str]:
    """Values for the variables that a text has no default for."""
    return {name: value_of(name) for name, default in VARIABLES.findall(text) if not default}


@cache
def read_source(dialect: str, path: Path) -> tuple[Loaded | None, Report]:
    """A corpus file as rlctl reads it."""
    if dialect == "verl":
        _, lines = composed_by(yaml.safe_load(path.read_text()))
        nothing = read_yaml("", "overrides", allow_empty=True)
        return read_document(nothing, dialect="verl", overrides=lines, environment={}, options=FACTS)
    return read(path, dialect=dialect, environment=surroundings(path.read_text()), options=FACTS)


def converted(loaded: Loaded | None, report: Report, target: str) -> Translation:
    """The text that ``rlctl convert`` writes; for verl a launch script, as it is run."""
    form = {"format": "sh"} if target == "verl" else {}
    return translate_loaded(loaded, report, target, options={**FACTS, **form})


def read_again(text: str, dialect: str) -> tuple[Loaded | None, Report]:
    """A converted text as rlctl reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("run.sh" if dialect == "verl" else "config.yaml")
        path.write_text(text)
        around = surroundings(text) | {name: value_of(name) for name in re.findall(r"\$\{?(\w+)", text)}
        return read(path, environment=around, variables=unset(text), options=FACTS)


def unset(text: str) -> dict[str, str]:
    """Values for the variables that a script reads without a default."""
    found = re.findall(r"\$\{(\w+)\}", text) if text.startswith(("#!", "set ")) else []
    return {name: value_of(name) for name in found}


def launched(script: str) -> tuple[str, list[str]]:
    """The module and the overrides that a launch script starts, by running it with a stand-in for Python."""
    with tempfile.TemporaryDirectory() as folder:
        captured = Path(folder) / "captured"
        for program in ("python", "python3", "torchrun", "ray"):
            stub = Path(folder) / program
            stub.write_text(STUB)
            stub.chmod(0o755)
        (Path(folder) / "run.sh").write_text(script)
        around = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": HOME, "CAPTURED": str(captured)}
        done = subprocess.run(
            ["/bin/bash", "run.sh"],
            cwd=folder,
            env=around | unset(script),
            capture_output=True,
            text=True,
            check=False,
        )
        assert captured.exists(), done.stderr[-1000:]
        words = captured.read_text().split("\0")[:-1]
    module = next(word for word in words if word.startswith("verl.") or "verl/" in word)
    return module, [word for word in words[words.index(module) + 1 :] if not word.startswith("-")]


def roll() -> Framework:
    return of_roll("drive_roll.py")


@cache
def ask_source(dialect: str, path: Path) -> dict[str, Any]:
    """What the source's framework makes of a corpus file."""
    if dialect == "verl":
        item = yaml.safe_load(path.read_text())
        answer = ask_verl(item["module"], item["overrides"])
        refused = not answer["accepted"] and answer["stage"] == "compose"
        return ask_verl(item["module"], item["overrides"], OLDER) if refused else answer
    if dialect == "roll":
        return roll().ask(path=str(path), effective=True, rows=ROWS)
    return ask_trinity(path.read_text())


def ask_trinity(text: str) -> dict[str, Any]:
    """What Trinity makes of a source: the older release if it has keys that only that one reads, and accepts the file."""
    older, newer = keys_of_trinity(OLDER_TRINITY), keys_of_trinity(NEWER_TRINITY)
    places = [path for path, _ in read_yaml(text, "config.yaml").leaves()]
    if any(any_fits(older, place) and not any_fits(newer, place) for place in places):
        driver = framework(OLDER_TRINITY, "drive_trinity.py")
        answer = driver.ask(text=resolved(text), effective=True, rows=ROWS)
        if answer["accepted"]:
            return answer
    return ask_text("trinity", text)


@cache
def keys_of_trinity(release: str) -> list[KeyPath]:
    return [tuple(key.split(".")) for key in framework(release, "drive_trinity.py").ask(keys=True)["keys"]]


def any_fits(patterns: list[KeyPath], place: KeyPath) -> bool:
    return any(matches(pattern, place) for pattern in patterns)


def resolved(text: str) -> str:
    """A text with values for the variables that it has no default for."""
    for name, value in surroundings(text).items():
        text = text.replace("${oc.env:" + name + "}", value)
    return text


def ask_text(dialect: str, text: str) -> dict[str, Any]:
    """What a framework makes of a converted text."""
    if dialect == "verl":
        return ask_verl(*launched(text))
    text = resolved(text)
    driver = roll() if dialect == "roll" else framework(NEWER_TRINITY, "drive_trinity.py")
    return driver.ask(text=text, effective=True, rows=ROWS)


def ask_verl(module: str, overrides: list[str], release: str = f"verl-{VERSIONS['verl']}") -> dict[str, Any]:
    config, own = composed_by({"module": module, "overrides": [resolved(text) for text in overrides]})
    return framework(release, "drive_verl.py").ask(config=config, overrides=own, effective=True, rows=ROWS)


def run(direction: str) -> Iterator[Outcome]:
    """Every corpus file of a direction."""
    first, *rest = direction.split("-")
    for path in sources(first):
        before = answered(ask_source(first, path))
        if not before["accepted"]:
            yield Outcome(name_of(path), judged=False, error=before["error"])
            continue
        yield passed(name_of(path), before, *read_source(first, path), rest)


def _says_too_few(report: Report) -> bool:
    """Whether a conversion says that no split of the source's devices fits a model in Trinity, whose explorer has its own."""
    return any(
        found.code == "target-refuses" and found.key == "explorer.rollout_model.engine_num" for found in report.findings
    )


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """A driver's answer; an error of its own formulas is none of the framework's."""
    assert "broken" not in answer, answer["broken"]
    return answer


def passed(name: str, before: dict[str, Any], loaded: Loaded | None, report: Report, way: list[str]) -> Outcome:
    """One file along the rest of its way."""
    reports = []
    for number, target in enumerate(way):
        made = converted(loaded, report, target)
        if made.text is None:
            told = "; ".join(finding.message for finding in made.report.errors)
            return Outcome(name, judged=False, error=f"rlctl writes nothing: {told}")
        if unread := [finding.message for finding in made.report.findings if finding.code == "not-readable"]:
            return Outcome(name, judged=True, error=f"rlctl cannot read its own text: {unread[0]}")
        reports.append(made.report)
        if number < len(way) - 1:
            loaded, report = read_again(made.text, target)
            if loaded is None:
                told = "; ".join(finding.message for finding in report.errors)
                return Outcome(name, judged=True, error=f"rlctl cannot read its own text: {told}")
    after = answered(ask_text(way[-1], made.text))
    if not after["accepted"]:
        missing = any(text in after["error"] for text in HERE)
        return Outcome(name, judged=not missing, error=after["error"])
    unsaid = after.get("too_few") and not before.get("too_few") and not _says_too_few(made.report)
    outcome = Outcome(name, judged=True, error=after["too_few"] if unsaid else "")
    for one, other in zip(before["numbers"], after["numbers"], strict=False):
        compare(one, other, reports, outcome)
    return outcome


def compare(before: dict[str, Any], after: dict[str, Any], reports: list[Report], outcome: Outcome) -> None:
    """Sort each number that both have into equal, reported and silent."""
    for name in sorted(set(before) & set(after)):
        one, other = before[name], after[name]
        if None in (one, other) and name == "learning rates":
            continue  # an engine or a schedule whose rates these tests cannot compute
        if name in OF_DATA and ("environments" in before or "environments" in after):
            continue
        if same(one, other):
            outcome.equal.append(name)
        elif reported(name, one, other, reports):
            outcome.reported.append(f"{name}: {one} -> {other}")
        else:
            outcome.silent.append(f"{name}: {one} -> {other}")


def same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-12)
    return bool(one == other)


def lines(reports: list[Report]) -> Iterator[str]:
    """What the conversion reports say of what is not simply mapped, a line each."""
    for report in reports:
        for finding in report.findings:
            yield f"{finding.key} {finding.message} {finding.hint}"
        for entry in report.accounting:
            if entry.bucket in (Bucket.UNSUPPORTED, Bucket.APPROXIMATED, Bucket.DERIVED):
                targets = " ".join(f"{key} = {value}" for key, value in entry.targets)
                yield f"{entry.key} = {entry.value} {targets} {entry.note}"


def reported(name: str, one: Any, other: Any, reports: list[Report]) -> bool:
    """Whether a line about the number names both values; on a way of two conversions, lines of the first and the second."""
    about = [
        [line for line in lines([report]) if any(word in line.lower() for word in ABOUT[name])] for report in reports
    ]
    if any(shown(one, line) and shown(other, line) for found in about for line in found):
        return True
    return (
        len(about) > 1 and any(shown(one, line) for line in about[0]) and any(shown(other, line) for line in about[-1])
    )


def shown(value: Any, line: str) -> bool:
    """Whether a line shows a value. A list, such as a schedule's rates, and a value that is not a number need no spelling out."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    found = (float(text.replace(",", "")) for text in NUMBER.findall(line))
    return any(math.isclose(one, value, rel_tol=1e-4) for one in found)


def save(direction: str, outcomes: list[Outcome]) -> None:
    """Keep the results of a direction for the summary."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{direction}.json").write_text(json.dumps([vars(one) for one in outcomes], indent=1))


def row(direction: str, outcomes: list[Outcome]) -> str:
    """A direction's line of the summary."""
    judged = [one for one in outcomes if one.judged]
    cells = [direction.replace("-", " → "), len(outcomes), len(judged), sum(1 for one in judged if not one.error)]
    cells += [sum(len(vars(one)[kind]) for one in outcomes) for kind in ("equal", "reported", "silent")]
    return f"| {' | '.join(map(str, cells))} |"


PAGE = f"""# Fidelity of conversions

Each example config of the three frameworks is converted in fifteen directions, and read by the target's own code:
verl {VERSIONS["verl"]}, Trinity-RFT {VERSIONS["trinity"]}, ROLL {VERSIONS["roll"]}. A source with keys that only an older release reads is
loaded with verl {OLDER.removeprefix("verl-")} or Trinity-RFT {OLDER_TRINITY.removeprefix("trinity-")}.

- **judged**: the source's own framework accepts the file, rlctl writes the target (it refuses, for example, DPO for verl), and the packages and
  models that the file needs are installed.
- **accepted**: the target's loader, its validators, and what its trainer and workers check before the first step accept the text. Where a
  model fits no split of the source's devices into Trinity's explorer and trainer, the conversion report must say so.
- **equal, reported, silent**: effective numbers, such as the learning rate at nine points, prompts and updates of a step, clip, KL, the critic,
  LoRA, parallel sizes, sampling and data files. They are computed from the source's loaded config and from the target's, without rlctl. A
  number that differs is *reported* if a line of the conversion report names both values (for a list or a name: is about it), and *silent*
  otherwise. The aim is 0.

| direction | files | judged | accepted | equal | reported | silent |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |"""
AFTER = """
`make test-upstream ROLL=/path/to/checkout` computes the table; it needs the shared corpus of examples next to the repository, and fails for each
refused text and each silent number. `DIRECTION=verl-roll` runs one direction. `python -m tests.upstream.directions` prints this page from the
last results.

Not compared: data that only exists at run time, speed and memory settings, and whether rewards score alike.

## Files outside the corpus

The same comparison in all fifteen directions, done by hand in November 2026 with files that no rule was written for:

| files | judged |
| --- | --- |
| 74 launch scripts of verl in January 2026, 136 of verl in August 2026, verl-recipe, rLLM and Search-R1 | 42 and 92 |
| 26 files of Trinity-RFT 0.5.2, 24 of a fork of November 2025 | 21 to 24 and 18 to 20 |
| 27 more files of ROLL, 62 of three forks of July 2025 to April 2026 | 16 to 17 and 36 to 37 |

The targets accept every written file, and every difference is reported, since two faults were fixed: a verl config without training data lost that on
the way to verl, which then trains on its default file; and the batch of a supervised run on fewer devices than a replica takes was left to ROLL's
default. The one exception is the verl script without training data: Trinity-RFT refuses it because it has no task set, as `convert` says, and verl
itself stops at its data. One LoRA script could not be judged on the way to Trinity-RFT, whose loader opens its model.

bash ran the 136 scripts with a stand-in for Python that keeps its arguments. rlctl reads 111 as bash started them. 16 ask the machine whether it has
NPUs, and rlctl says what it assumes; of 7 the stand-in lost the launcher's flags, which rlctl reads. 2 are refused: one only starts other scripts, and
one names a model folder that depends on whether it exists."""


def page() -> Iterator[str]:
    """The page of the last results."""
    yield PAGE
    for direction in DIRECTIONS:
        path = RESULTS / f"{direction}.json"
        if path.exists():
            yield row(direction, [Outcome(**one) for one in json.loads(path.read_text())])
    yield AFTER


if __name__ == "__main__":
    print("\n".join(page()))
