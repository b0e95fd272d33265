"""The lines of a conversion report: by rank, keys of one reason in one line, nothing twice."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from rlctl.cli.code_scanning import github, ordered, sarif
from rlctl.common.errors import Location
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Entry, Finding, Level, Report
from rlctl.common.report_lines import Part, causes, lines
from rlctl.translation.translate import convert

ENVIRONMENTS = "verl has no environment managers"


def report() -> Report:
    def entry(key: str, bucket: Bucket, note: str, rank: Rank) -> Entry:
        return Entry(key, bucket, 1, Location("run.yaml", 1), (), note, rank)

    keys = [f"custom_envs.{name}.{field}" for name in ("a", "b") for field in ("env_type", "max_steps")]
    found = Report("roll@2026.8", "verl@0.9")
    found.accounting = [
        entry("logging_dir", Bucket.CARRIED, "a folder", Rank.NAMES),
        *(entry(key, Bucket.UNSUPPORTED, ENVIRONMENTS, Rank.DATA) for key in keys),
        entry("save_steps", Bucket.APPROXIMATED, "100 steps, 96 steps", Rank.SCHEDULE),
        entry("seed", Bucket.MAPPED, "", Rank.NAMES),
        entry("block_size", Bucket.UNSUPPORTED, "vLLM chooses it", Rank.RESOURCES),
        entry("max_stepz", Bucket.UNKNOWN, "did you mean 'max_steps'?", Rank.SCHEDULE),
    ]
    found.findings = [
        Finding("unsupported", Level.WARNING, "'block_size' cannot be said", "block_size", option="--assume x=N"),
        Finding("interpolation-resolved", Level.NOTE, "a value", "x"),
        Finding("silent-difference", Level.WARNING, "algorithm.old_log_probs is a in b", "algorithm.old_log_probs"),
        Finding("data-files", Level.WARNING, "no file", "data.val_files"),
    ]
    return found


def test_lines_are_in_the_order_of_ranks() -> None:
    told = lines(report())
    headings = list(dict.fromkeys(line.heading for line in told))
    assert headings == [*(rank.heading for rank in Rank), "No effect on the run"]
    assert [line.keys or line.note for line in told][:4] == [
        "no file",
        "algorithm.old_log_probs is a in b",
        "max_stepz",
        "save_steps",
    ]


def test_keys_with_one_reason_are_one_line_that_says_how_many_there_are() -> None:
    (line,) = [line for line in lines(report()) if line.note == ENVIRONMENTS]
    assert line.keys == "4 keys of custom_envs"
    apart = [line.keys for line in lines(report(), every=True) if line.note == ENVIRONMENTS]
    assert len(apart) == 4


def test_what_an_entry_says_is_not_said_by_a_finding_too() -> None:
    (line,) = [line for line in lines(report()) if "block_size" in (line.keys + line.note)]
    assert line.kind == "unsupported"


def test_simply_converted_keys_are_listed_if_every_key_is() -> None:
    assert not any(line.keys == "seed" for line in lines(report()))
    assert lines(report(), every=True)[-1].keys == "seed"


def test_scanners_get_findings_by_rank() -> None:
    found = report().findings
    log: Any = sarif([("run.yaml", found)])
    results = log["runs"][0]["results"]
    assert [result["properties"]["rank"] for result in results] == ["breaks", "objective", "names", "names"]
    assert all(one["rank"] >= other["rank"] for one, other in pairwise(results))
    titles = [re.findall("title=([a-z-]+)", github(item, ""))[0] for item in ordered(found)]
    assert titles[:2] == ["data-files", "silent-difference"]


def test_a_conversion_sorts_its_findings() -> None:
    made = convert("data: {train_batch_size: 64}\nactor_rollout_ref: {rollout: {n: 4}}\n", to="roll", dialect="verl")
    places = [finding.rank.place for finding in made.report.findings]
    assert places == sorted(places)


def test_one_path_that_two_keys_name_is_not_several() -> None:
    def told(*paths: str) -> str:
        keys = ("data.train_files", "data.val_files")
        found = [
            Finding(
                "path-missing",
                Level.WARNING,
                f"{key}: {path} is missing",
                key,
                id="path-missing",
                params={"key": key, "path": path},
            )
            for key, path in zip(keys, paths, strict=True)
        ]
        (cause,) = causes(found)
        return cause.message

    assert told("a.parquet", "a.parquet") == "data.train_files: a.parquet is missing"
    assert told("a.parquet", "b.parquet").startswith("2 paths do not exist on this machine: a.parquet, b.parquet")


def test_a_note_that_the_target_refuses_the_text_is_among_what_to_decide() -> None:
    """A source that its own framework refuses stays refused, which is no loss of the conversion but breaks the run."""
    text = (
        "data: {train_files: a.parquet, train_batch_size: 16}\nalgorithm: {adv_estimator: grpo}\n"
        "actor_rollout_ref: {model: {path: m}, actor: {ppo_mini_batch_size: 32}, rollout: {name: vllm, n: 4}}\n"
    )
    told = lines(convert(text, "verl", dialect="verl", environment={}).report)
    line = next(line for line in told if line.finding is not None and line.finding.code == "target-refuses")
    assert line.finding is not None
    assert line.finding.level is Level.NOTE
    assert line.part is Part.DECIDE


def test_stages_that_differ_alike_are_one_line() -> None:
    found = Report("verl@0.9", "trinity@0.6")
    keys = ("stages[0].batch.shuffle", "stages[2].batch.shuffle", "batch.shuffle")
    found.findings = [Finding("silent-difference", Level.WARNING, f"{key} is false in verl", key) for key in keys]
    told = [line.finding.message for line in lines(found) if line.finding]
    assert told == ["stages[0,2].batch.shuffle is false in verl", "batch.shuffle is false in verl"]
