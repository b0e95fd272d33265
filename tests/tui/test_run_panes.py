"""Samples, processes and logs of a run, from the files that the runtime itself writes; and what a person does to the run."""

from __future__ import annotations

import copy
import json
import os
import re
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import DataTable, OptionList, RichLog, Static

from rlctl import runs
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.monitor.samples import Response as ShownResponse
from rlctl.monitor.samples import Turn
from rlctl.runs.record import began
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.processes.vitals import Vitals
from rlctl.runtime.reporting.sample_files import EVALUATION, STEP, SampleFiles
from rlctl.runtime.reporting.shown_samples import shown_group
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.stopping import CHECKPOINT_FILE, STOP_FILE
from rlctl.runtime.types import Prompt, Response
from rlctl.tui.app import RlctlApp
from rlctl.tui.panes.events import event_line
from rlctl.tui.panes.logs import LogsPane
from rlctl.tui.panes.samples import SamplesPane
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.widgets.log_view import LogView
from rlctl.tui.widgets.sample_texts import text_of as response_text
from tests.tui.conftest import drive, settled, text, text_of, writer


def spans(response: Response, text: str) -> list[int]:
    return [len(word) + 1 for word in text.split(" ")[:-1]] + [len(text.split(" ")[-1])]


def shown(index: int, prompt: str, *answers: tuple[str, float]) -> dict[str, Any]:
    """A group as the run writes it; the second word of each answer was unlikely, and the trainer sees its last otherwise."""
    asked = Prompt(index, "sums", (1,), prompt, "4")
    responses = [
        Response(tuple(range(len(words))), (-0.1, -6.0, *[-0.1] * (len(words) - 2)), "length" if "…" in text else "stop", 3)
        for text, _ in answers
        for words in [text.split(" ")]
    ]  # fmt: skip
    rewards = [reward for _, reward in answers]
    scores = [Score(reward, {"math": reward}, correct=reward > 0) for reward in rewards]
    answered = RolloutGroup(asked, responses, rewards, scores)
    group = shown_group(asked, [text for text, _ in answers], rewards, answered.scores, responses, spans=spans)
    for detail, reward in zip(group["details"], rewards, strict=True):
        detail["advantage"] = reward - 0.5
        detail["trainer_log_probs"] = [*detail["rollout_log_probs"][:-1], -1.5]
    return group


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of this process that has taken four steps."""
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    record = {"name": "demo", "status": "running", "pid": os.getpid(), "host": socket.gethostname(), "started": time.time() - 90,
              "ended": None, "cause": "", "process_began": began(os.getpid())}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    events = writer(folder)
    events.emit("stage_started", total_steps=20, step=0, notes=[])
    for step in range(1, 5):
        take(folder, step)
    SampleFiles(folder, "grpo", pytest.fail).write(EVALUATION, 4, [shown(3, "held out?", ("it is 你好 so", 0.25))])
    return folder


def take(folder: Path, step: int) -> None:
    groups = [
        shown(7, "What is [2] + 2?", (f"it is four at {step}", 1.0), ("it is five …", 0.0)),
        shown(step, f"of step {step}", ("one two three", 1.0), ("\x1b[31m two three", -2.0), ("a b c d e", -2.0)),
    ]
    SampleFiles(folder, "grpo", pytest.fail).write(STEP, step, groups)
    events = writer(folder)
    events.emit("samples", step=step, beside={"samples": groups})
    events.emit("step", step=step, total_steps=20, metrics={"reward/mean": 0.5, "time/step": 3.0})


def lines(screen: MonitorScreen, name: str) -> list[str]:
    return [str(option.prompt) for option in screen.query_one(name, OptionList).options]


async def press(screen: MonitorScreen, pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(screen, pilot)


def looks(screen: MonitorScreen) -> list[tuple[str, str]]:
    """The marked tokens of the response that is shown, with their looks."""
    content = screen.query_one("#sample-text", Static).content
    return [(content.plain[span.start : span.end], str(span.style)) for span in content.spans if "underline" in str(span.style) or "reverse" in str(span.style)]  # type: ignore[union-attr]  # fmt: skip


def test_the_responses_of_a_step_group_by_group(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3")
        assert "step 4" in text(screen, "#sample-head")
        assert "5 responses" in text(screen, "#sample-head")
        listed = lines(screen, "#sample-list")
        assert [line.split()[0] for line in listed] == ["#7", "1.00", "0.00", "#4", "1.00", "-2.00", "-2.00"]
        assert "T" in listed[2]
        assert "T" not in listed[1]
        whole = text(screen, "#sample-text")
        assert "What is [2] + 2?" in whole
        assert whole.index("four at 4") < whole.index("it is five")
        await press(screen, pilot, "down", "down")
        one = text(screen, "#sample-text")
        assert "response 2 of 2" in one
        assert "reward 0 (-0.5 to the group's mean) · advantage -0.5 · 4 tokens · cut off at the longest length" in one
        assert "math 0 · wrong" in one
        assert ("is ", "underline $warning") in looks(screen)
        assert ("…", "bold reverse $error") in looks(screen)

    drive(RlctlApp(run=run), act)


def test_the_worst_response_is_one_key_away_and_odd_text_is_shown_safely(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "w")
        one = text(screen, "#sample-text")
        assert "reward -2" in one
        assert "a b c d e" in one, "of two, the longer one"
        await press(screen, pilot, "up")
        assert "\n two three" in text(screen, "#sample-text"), "without the colour that the response asked for"

    drive(RlctlApp(run=run), act, size=(80, 24))


def test_steps_are_walked_and_who_reads_is_not_taken_away(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "left_square_bracket", "left_square_bracket")
        assert "of step 2" in lines(screen, "#sample-list")[3]
        assert "newest is 4" in text(screen, "#sample-head")
        await press(screen, pilot, "right_square_bracket")
        assert "of step 3" in lines(screen, "#sample-list")[3]
        await press(screen, pilot, "n", "down")
        take(run, 5)
        screen._poll()
        await settled(screen, pilot)
        assert "of step 4" in lines(screen, "#sample-list")[3]
        assert "newest is 5" in text(screen, "#sample-head")
        await press(screen, pilot, "n")
        assert "of step 5" in lines(screen, "#sample-list")[3]
        take(run, 6)
        screen._poll()
        await settled(screen, pilot)
        assert "of step 6" in lines(screen, "#sample-list")[3]

    drive(RlctlApp(run=run), act)


def test_responses_that_are_read_again_can_still_be_looked_at(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3")
        pane = screen.query_one(SamplesPane)
        assert pane.found is not None
        pane.post_message(pane.Loaded(copy.deepcopy(pane.found)))
        await settled(screen, pilot)
        before = text(screen, "#sample-text")
        for key in ("down", "up", "w"):
            await press(screen, pilot, key)
        assert text(screen, "#sample-text") != before

    drive(RlctlApp(run=run), act)


def test_the_worst_of_the_run_the_course_of_a_prompt_and_two_steps_compared(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3")
        assert "  ████  " in lines(screen, "#sample-list")[0], (
            "the prompt that every step shows has a strip of its rewards"
        )
        assert "mean reward 0.50" in text(screen, "#sample-text")
        assert "shown at 4 steps, step 1 to 4" in text(screen, "#sample-text")
        await press(screen, pilot, "W")
        assert "the worst of 4 steps" in text(screen, "#sample-head")
        listed = lines(screen, "#sample-list")
        assert [line.split()[0] for line in listed[:9]] == ["-2.00"] * 8 + ["0.00"]
        assert ("#4" in listed[0], "step 4" in listed[0]) == (True, True), "of equal ones the newest step"
        assert "one of 3 responses" in text(screen, "#sample-text")
        await press(screen, pilot, "escape", "f", "end", "v", "home", "down")
        shown = text(screen, "#sample-text")
        assert "- step 4, reward 0" in shown
        assert "+ step 1, reward 1" in shown
        assert "it is [-five …-]{+four at 1+}" in shown
        await press(screen, pilot, "escape")
        assert "step 1, reward" not in text(screen, "#sample-text")
        assert "prompt 7 of sums over the steps" in text(screen, "#sample-head"), "one thing less at a time"

    drive(RlctlApp(run=run), act)


@pytest.mark.parametrize(("rewards", "told"), [([0.0, 0.0], ""), ([0.5, 0.0], " · reward 0.5")])
def test_an_agents_conversation_shows_what_is_trained_and_its_tools(run: Path, rewards: list[float], told: str) -> None:
    """A run writes a reward of every turn, also of agents whose turns have none, and the raw text of the turns."""
    group = shown(1, "What is 2+2?", ("it is four", 1.0))
    call = {"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    group["details"][0] |= {
        "turns": [[5, 30, True], [3, 9, False]],
        "counts": {"calls": 1},
        "turn_rewards": rewards,
        "segments": [[False, "<raw>"], [True, "I add them.<end>"], [False, "<raw>4"], [True, "It is four.<end>"]],
        "messages": [
            {"role": "assistant", "content": "I add them.", "tool_calls": [call]},
            {"role": "tool", "name": "add", "content": "4\nexactly"},
            {"role": "assistant", "content": "It is four."},
        ],
    }
    SampleFiles(run, "grpo", pytest.fail).write(STEP, 5, [group])

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "down")
        shown = text(screen, "#sample-text")
        masked = "30 tokens before it, masked · a new training sequence"
        assert f"▶ assistant  5 tokens, trained{told} · {masked}" in shown
        assert "<raw>" not in shown
        assert 'I add them.\n→ add({"a":2,"b":2})' in shown
        assert "◀ tool  not trained\n│ 4\n│ exactly" in shown
        second = " · reward 0" if told else ""
        assert f"▶ assistant  3 tokens, trained{second} · 9 tokens before it, masked" in shown
        assert "calls 1" in shown
        assert " A " in lines(screen, "#sample-list")[1]

    drive(RlctlApp(run=run), act)


def test_inserted_text_is_told_from_generated_text_without_colour() -> None:
    turns = (Turn("<user>2+2?\nthink", "four", 0.0), Turn("right", "done", 0.0))
    response = ShownResponse("four done", 1.0, {}, turns=turns)
    assert str(response_text(response)) == "turn 1\n│ <user>2+2?\n│ think\nfour\nturn 2\n│ right\ndone"
    rewarded = ShownResponse("four", 1.0, {}, turns=(Turn("2+2?", "four", 0.5),))
    assert str(response_text(rewarded)).startswith("turn 1 · reward 0.5\n")


def test_responses_are_sorted_and_filtered(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "o")
        assert "lowest reward first" in text(screen, "#sample-head")
        assert [line.split()[0] for line in lines(screen, "#sample-list")] == ["-2.00", "-2.00", "0.00", "1.00", "1.00"]
        await press(screen, pilot, "slash", *"truncated", "enter")
        [line] = lines(screen, "#sample-list")
        assert "it is five" in line
        await press(screen, pilot, "escape")
        assert len(lines(screen, "#sample-list")) == 5
        await press(screen, pilot, "slash", *"nowhere")
        assert lines(screen, "#sample-list") == []
        assert "No response passes" in text(screen, "#sample-text")
        await press(screen, pilot, "escape")
        assert isinstance(screen.app.screen, MonitorScreen)
        assert len(lines(screen, "#sample-list")) == 5

    drive(RlctlApp(run=run), act)


def test_a_prompt_is_followed_over_the_steps_and_back(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "f")
        assert "prompt 7 of sums over the steps" in text(screen, "#sample-head")
        heads = [line for line in lines(screen, "#sample-list") if line.startswith("step")]
        assert [line.split()[1] for line in heads] == ["1", "2", "3", "4"]
        await press(screen, pilot, "escape")
        assert "step 4" in text(screen, "#sample-head")

    drive(RlctlApp(run=run), act)


def test_evaluations_are_shown_too(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3", "e")
        assert "evaluation after step 4" in text(screen, "#sample-head")
        assert "it is 你好 so" in text(screen, "#sample-text")
        await press(screen, pilot, "e")
        assert "5 responses" in text(screen, "#sample-head")

    drive(RlctlApp(run=run), act)


def test_the_responses_of_every_stage_can_be_picked(run: Path) -> None:
    events = writer(run)
    events.enter_stage("more")
    events.emit("stage_started", total_steps=3, step=0, notes=[])
    SampleFiles(run, "more", pytest.fail).write(STEP, 1, [shown(9, "of the other", ("seven seven", 0.5))])

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3")
        assert "stage more · step 1" in text(screen, "#sample-head")
        await press(screen, pilot, "s")
        assert "stage grpo · step 4" in text(screen, "#sample-head")
        await press(screen, pilot, "left_square_bracket")
        assert "stage grpo · step 3" in text(screen, "#sample-head")
        await press(screen, pilot, "s")
        assert "stage more · step 1" in text(screen, "#sample-head")
        assert "of the other" in text(screen, "#sample-text")

    drive(RlctlApp(run=run), act)


def test_events_show_syncs_as_one_line_when_something_follows(run: Path) -> None:
    events = writer(run)
    for step in (5, 6, 7):
        events.emit("sync", step=step, version=step)

    def lines(screen: MonitorScreen) -> list[str]:
        return [line.text.strip() for line in screen.query_one("#event-log", RichLog).lines]

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "6")
        assert not [line for line in lines(screen) if "sync" in line]
        assert "step=5-7" in str(screen.query_one("#event-log").border_subtitle)
        events.emit("sync", step=8, version=8)
        events.emit("checkpoint", step=8, folder="step-8")
        screen._poll()
        await settled(screen, pilot)
        assert [line[10:] for line in lines(screen)[-2:]] == [
            "sync           stage=grpo  step=5-8  version=8  syncs=4",
            "checkpoint     stage=grpo  step=8  folder=step-8",
        ]
        assert screen.query_one("#event-log").border_subtitle == ""

    drive(RlctlApp(run=run), act)


def test_events_are_told_in_the_language_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.tui.panes.events.LANGUAGE", "zh")
    message = said("{folder} is damaged or incomplete; {resumed}", folder="step-3", resumed="resuming from step 2")
    line = event_line({"time": 0, "kind": "advisory", "message": message, "hint": "it can be deleted"})
    assert line[10:].startswith("advisory       message=step-3 已损坏或不完整")
    assert "hint=可以删除" in line


def test_a_run_without_responses_says_so(run: Path) -> None:
    for path in (run / "samples" / "grpo").iterdir():
        path.unlink()

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "3")
        assert "no responses to show yet" in text(screen, "#sample-text")
        await press(screen, pilot, "w", "f", "o", "left_square_bracket", "e")
        assert "No evaluation" in text(screen, "#sample-text")
        assert screen.query_one(SamplesPane).entries == []

    drive(RlctlApp(run=run), act)


def process(run: Path, name: str, *, age: float = 0.0, **told: Any) -> None:
    """The file of a process, as ``Vitals`` writes it."""
    vitals = Vitals(run, name)
    vitals._write(vitals.look() | {"every": 25.0} | told)
    then = time.time() - age
    os.utime(run / "processes" / f"{name}.json", (then, then))


def table_of(screen: MonitorScreen) -> list[list[str]]:
    table = screen.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def names(screen: MonitorScreen) -> list[str]:
    """Of processes, without how many others each started: this one has those of other tests."""
    return [row[0].partition(" +")[0] for row in table_of(screen)]


def test_processes_are_listed_and_one_that_is_silent_is_marked(run: Path) -> None:
    gpu = {"number": 0, "used": 20 << 30, "total": 80 << 30, "busy": 91}
    process(run, "policy-0", cpu=99.6, memory=3 << 30, gpus=[gpu], doing="train_step", since=time.time() - 65)
    process(run, "controller")
    process(run, "rollout-0", age=120.0)
    (run / "logs").mkdir()
    (run / "logs" / "policy-0.log").write_text("INFO here\n")

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "4")
        _, policy, rollout = table_of(screen)
        assert names(screen)[0] == "controller"
        assert policy[2].startswith("train_step 1 min")
        assert policy[3:6] == ["100 %", "3.00 GiB", "0: 91 % 20/80 GiB"]
        assert policy[6:] == [socket.gethostname(), str(os.getpid())]
        assert rollout[1].startswith("! late: 2 min")
        assert "late" not in policy[1]
        assert "2 of 3 processes reported" in text(screen, "#process-head")
        rack = text(screen, "#rack")
        assert re.search(r" 91% +│\n│ █+░+ +│\n│ 20G/80 +│\n│ train_step", rack), rack
        assert "silent" not in rack, "a process without a GPU is on no device of a run with GPUs"
        await press(screen, pilot, "down")
        process(run, "judge-0")
        screen._poll()
        await settled(screen, pilot)
        assert names(screen) == ["controller", "judge-0", "policy-0", "rollout-0"]
        await press(screen, pilot, "enter")
        assert screen.query_one(LogsPane).tail.path.name == "policy-0.log"  # type: ignore[union-attr]
        assert str(screen.query_one(LogView).border_subtitle).startswith("1 line ·")

    drive(RlctlApp(run=run), act)


def test_logs_are_followed_filtered_and_read_further_back(run: Path) -> None:
    logs = run / "logs"
    logs.mkdir()
    (logs / "controller.log").write_text("begun\n")
    path = logs / "policy-0.log"
    path.write_text("".join(f"line {number} 你好\n" for number in range(30_000)) + "ValueError: bad\n" + "after\n" * 50)

    def seen(screen: MonitorScreen) -> list[str]:
        view = screen.query_one(LogView)
        return [view.render_line(row).text.rstrip() for row in range(view.scrollable_content_region.height)]

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "5")
        assert lines(screen, "#log-list") == ["controller", "policy-0"]
        assert seen(screen)[0] == "  begun"
        await press(screen, pilot, "down")
        assert seen(screen)[-1] == "  after"
        assert "following" in str(screen.query_one(LogView).border_subtitle)
        view = screen.query_one(LogView)
        ground = view.background_colors
        view.focus()
        await pilot.pause()
        assert view.background_colors == ground, "the border alone shows the focus"
        first = len(screen.query_one(LogView).lines)
        assert first < 20_000
        await press(screen, pilot, "b")
        assert len(screen.query_one(LogView).lines) > first
        await press(screen, pilot, "x")
        assert seen(screen)[0] == "✗ ValueError: bad"
        assert "errors only" in str(screen.query_one(LogView).border_subtitle)
        await press(screen, pilot, "x", "slash", *"29999", "enter")
        assert seen(screen)[0] == "  line 29999 你好"
        await press(screen, pilot, "escape", "t")
        with path.open("a") as file:
            file.write("newest\n")
        screen._poll()
        await settled(screen, pilot)
        assert seen(screen)[-1] == "  newest"
        await press(screen, pilot, "home")
        with path.open("a") as file:
            file.write("newer still\n")
        screen._poll()
        await settled(screen, pilot)
        assert seen(screen)[-1] != "  newer still", "who reads is not taken away"
        assert "paused" in str(screen.query_one(LogView).border_subtitle)
        path.unlink()
        screen._poll()
        await settled(screen, pilot)
        assert isinstance(screen.app.screen, MonitorScreen)

    drive(RlctlApp(run=run), act, size=(80, 24))


def test_a_checkpoint_now_asks_first(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "C", "enter")
        assert not (run / CHECKPOINT_FILE).exists()
        await press(screen, pilot, "C", "right", "enter")
        assert (run / CHECKPOINT_FILE).exists()
        assert not (run / STOP_FILE).exists()
        await press(screen, pilot, "R")
        assert isinstance(screen.app.screen, MonitorScreen), "a run that goes on is not resumed"

    drive(RlctlApp(run=run), act)


def test_who_only_watches_does_nothing_to_a_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "resume_apart", lambda *args, **kwargs: pytest.fail("it was resumed"))

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "S", "y", "C", "y", "R", "down", "enter")
        assert not (run / CHECKPOINT_FILE).exists()
        assert not (run / STOP_FILE).exists()

    drive(RlctlApp(run=run, readonly=True), act)


def test_that_checkpoints_are_being_read_is_told_at_once_and_can_be_given_up(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"status": "stopped", "ended": time.time()}))
    read = threading.Event()

    def standing(folder: Path) -> runs.Standing:
        assert read.wait(30)
        return runs.Standing([], "grpo", [])

    monkeypatch.setattr(runs, "standing", standing)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("R")
        await pilot.pause()
        assert "reading the checkpoints of" in text_of(screen.app)
        await pilot.press("escape")
        await pilot.pause()
        assert screen.app.screen is screen
        read.set()
        await settled(screen, pilot)
        assert screen.app.screen is screen, "nobody waits for it any more"
        await press(screen, pilot, "R")
        assert "has saved nothing yet" in text_of(screen.app)
        monkeypatch.setattr(runs, "standing", lambda folder: (_ for _ in ()).throw(RunError("no config there")))
        told: list[str] = []
        monkeypatch.setattr(MonitorScreen, "notify", lambda screen, message, **how: told.append(message))
        await press(screen, pilot, "escape", "R")
        assert told == ["no config there"]
        assert screen.app.screen is screen

    drive(RlctlApp(run=run), act)


def test_a_run_goes_on_from_the_checkpoint_that_is_chosen(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is what the run's own process is asked; ``tests/runtime/test_stopping.py`` lets one go on."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"status": "stopped", "ended": time.time()}))
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    kept = [runs.Kept("grpo", step, when, run / "checkpoints" / "grpo" / f"step-{step:06d}") for step in (4, 2)]
    monkeypatch.setattr(runs, "standing", lambda folder: runs.Standing([], "grpo", kept))
    asked: list[Any] = []

    def resume_apart(folder: Path, *, step: int | None) -> Any:
        asked.append((folder, step))
        return SimpleNamespace(output=folder / "logs" / "controller.log", refused=lambda within: "no model there")

    monkeypatch.setattr(runs, "resume_apart", resume_apart)
    told: list[str] = []
    monkeypatch.setattr(MonitorScreen, "notify", lambda screen, message, **how: told.append(message))

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await press(screen, pilot, "R", "escape")
        assert asked == []
        await press(screen, pilot, "R", "down", "down", "enter")
        assert asked == [(run, 2)]
        assert "no model there" in told[-1]
        await press(screen, pilot, "R", "down", "enter")
        assert asked[1:] == [(run, None)]
        await settled(screen, pilot)
        assert "started again" not in text(screen, "#run-head")  # it was refused
        screen.begins = run / "log"
        screen._poll()
        await settled(screen, pilot)
        assert f"resuming: its process is starting; its output is in {run / 'log'}" in text(screen, "#run-head")
        (run / "run.json").write_text(json.dumps(record))
        screen._poll()
        await settled(screen, pilot)
        assert "started again" not in text(screen, "#run-head")

    drive(RlctlApp(run=run), act)
