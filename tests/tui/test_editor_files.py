"""The editor's fixes, items, the person's own editor, files that others change, recovery and launches: nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button, Input, OptionList, Static, TextArea

from rlctl.editing import recovery
from rlctl.editing.planning import Before
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import ChooseScreen, TextScreen
from rlctl.tui.dialogs.items import ItemsScreen, NewItemScreen
from rlctl.tui.panes.findings import FindingsPane
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.launch import LaunchScreen, StartingScreen
from rlctl.tui.widgets.path_suggester import completed
from tests.tui.conftest import answer, drive, edit, settled, text, text_of, until
from tests.tui.test_editor import FILE, row


def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *commands: str) -> None:
    """An editor that changes the file with one sed command after the other, one each time it is started."""
    script = tmp_path / "editor"
    lines = [f"{number}) sed -i '{command}' \"$1\" ;;" for number, command in enumerate(commands)]
    count = tmp_path / "count"
    script.write_text(
        f"#!/bin/sh\nn=$(cat {count} 2>/dev/null || echo 0)\ncase $n in\n{chr(10).join(lines)}\nesac\necho $((n + 1)) > {count}\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", str(script))
    monkeypatch.setattr(RlctlApp, "suspend", lambda self: contextlib.nullcontext())


def test_a_fix_is_one_key_and_can_be_taken_back(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "mini_batch_responses"), 5)
        screen.renew()
        await settled(screen, pilot)
        found = next(item for item in screen.findings if item.code == "mini-batch-uneven")
        screen.action_tab("findings")
        await settled(screen, pilot)
        screen.query_one("#finding-list", OptionList).highlighted = screen.query_one(FindingsPane).line_of(found)
        await pilot.press("f")
        await pilot.pause()
        assert isinstance(screen.app.screen, ChooseScreen)
        await answer(pilot, "2")
        await settled(screen, pilot)
        assert screen.session.config.batch.mini_batch_responses == 8
        assert not [item for item in screen.findings if item.code == "mini-batch-uneven"]
        await pilot.press("ctrl+z")
        await settled(screen, pilot)
        assert screen.session.config.batch.mini_batch_responses == 5

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_plan_and_the_difference_follow_what_is_typed(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("3")
        await settled(screen, pilot)
        assert re.search(r"×4 +─→│ +32 responses", str(screen.query_one("#plan .plan-text", Static).render()))
        await screen.jump(("batch", "prompts_per_step"))
        await settled(screen, pilot)
        row(screen, "batch.prompts_per_step").query_one(Input).value = "16"
        await settled(screen, pilot)
        shown = str(screen.query_one("#plan .plan-text", Static).render())
        assert re.search(r"×4 +─→│ +64 responses", shown)
        assert "node 0" in shown
        screen.action_tab("diff")
        await settled(screen, pilot)
        listed = screen.query_one("#diff-list", OptionList)
        await until(pilot, lambda: listed.option_count)
        assert "8 -> 16" in str(listed.get_option_at_index(0).prompt)

    drive(RlctlApp(session=Session.open(file)), act)


def test_items_are_added_and_taken_away(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("data", "train"))
        await settled(screen, pilot)
        await pilot.press("f6")
        await pilot.pause()
        assert isinstance(screen.app.screen, ItemsScreen)
        await pilot.press("a")
        await pilot.pause()
        new = screen.app.screen
        assert isinstance(new, NewItemScreen)
        new.query_one("#needed Input", Input).value = "more.parquet"
        await pilot.press("enter")
        await pilot.pause()
        assert [source.path for source in screen.session.config.data.train] == ["t.parquet", "more.parquet"]
        await pilot.press("K")
        await pilot.pause()
        assert [source.path for source in screen.session.config.data.train] == ["more.parquet", "t.parquet"]
        await pilot.press("d")
        await pilot.pause()
        assert len(screen.session.config.data.train) == 2, "a letter takes nothing away"
        await pilot.press("delete", "enter")
        await settled(screen, pilot)
        assert screen.section == ("data", "train", 0)
        assert [source.path for source in screen.session.config.data.train] == ["t.parquet"]

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_comes_back_from_another_editor_is_kept_until_it_fits(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside(tmp_path, monkeypatch, "s/seed: 1/seed: [9/", "s/seed: .9/seed: 9/; s/# fits/# fits, I think/")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f8")
        await pilot.pause()
        assert isinstance(screen.app.screen, ChooseScreen)
        assert screen.session.config.run.seed == 1
        await pilot.press("escape")
        await settled(screen, pilot)
        assert screen.session.config.run.seed == 9
        await pilot.press("ctrl+s")
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)
    assert "seed: 9" in file.read_text()
    assert "# fits, I think" in file.read_text()


def test_a_field_in_another_editor(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside(tmp_path, monkeypatch, "s/: demo/: other/")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await settled(screen, pilot)
        await pilot.press("f7")
        await settled(screen, pilot)
        assert screen.session.config.run.name == "other"
        assert row(screen, "run.name").query_one(Input).value == "other"

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_pasted_text_of_several_lines_is_not_cut(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("data", "train"))
        await settled(screen, pilot)
        screen.open_field(row(screen, "data.train").view, "- path: a\n- path: b\n")
        await pilot.pause()
        assert isinstance(screen.app.screen, TextScreen)
        area = screen.app.screen.query_one(TextArea)
        area.text = area.text + "  - {pat: c}\n"
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert isinstance(screen.app.screen, TextScreen)
        area.text = area.text.replace("pat:", "path:")
        await pilot.press("ctrl+s")
        await settled(screen, pilot)
        assert [source.path for source in screen.session.config.data.train] == ["a", "b", "c"]

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_another_program_wrote_elsewhere_in_the_file_is_joined(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "batch", "responses_per_prompt")
        await pilot.press("ctrl+u", "2")
        await settled(screen, pilot)
        file.write_text(FILE.replace("prompts_per_step: 8   # fits", "prompts_per_step: 99  # theirs"))
        screen._look_at_file()
        await settled(screen, pilot)
        assert pilot.app.screen is screen, "no box, whatever is typed"
        assert "batch.prompts_per_step" in "".join(note.message for note in pilot.app._notifications)
        await pilot.press("0")
        await settled(screen, pilot)
        batch = screen.session.config.batch
        assert (batch.prompts_per_step, batch.responses_per_prompt) == (99, 20)
        await pilot.press("ctrl+s")
        await settled(screen, pilot)
        assert pilot.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("step: 8   # fits", "step: 99  # theirs").replace("prompt: 4", "prompt: 20")


@pytest.mark.parametrize(("given", "prompts"), [("m", 16), ("t", 99)])
def test_a_key_that_both_changed_is_a_line_until_it_is_asked_about(file: Path, given: str, prompts: int) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "batch", "prompts_per_step")
        await pilot.press("ctrl+u", "1")
        await settled(screen, pilot)
        file.write_text(FILE.replace("prompts_per_step: 8", "prompts_per_step: 99").replace("prompt: 4", "prompt: 5"))
        screen._look_at_file()
        await settled(screen, pilot)
        assert pilot.app.screen is screen
        assert "which also changed batch.prompts_per_step. r: " in text_of(pilot.app)
        await pilot.press("6")
        await settled(screen, pilot)
        assert screen.session.config.batch.prompts_per_step == 16, "what is typed is typed"
        await pilot.press("escape", "r")
        await settled(screen, pilot)
        asked = pilot.app.screen
        assert isinstance(asked, ChooseScreen)
        assert "batch.prompts_per_step: the file has 99, here is 16" in asked.question
        assert "+  prompts_per_step: 99" in asked.question
        await answer(pilot, given)
        await settled(screen, pilot)
        batch = screen.session.config.batch
        assert (batch.prompts_per_step, batch.responses_per_prompt) == (prompts, 5)
        assert "changed by another program" not in text(screen, "#news")
        await pilot.press("ctrl+s")
        await settled(screen, pilot)
        assert pilot.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)
    assert f"prompts_per_step: {prompts} " in file.read_text()
    assert "responses_per_prompt: 5" in file.read_text()


def test_a_save_joins_what_another_program_wrote_a_moment_ago(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "responses_per_prompt"), 2)
        file.write_text(FILE.replace("seed: 1", "seed: 3"))
        screen.action_save()
        await settled(screen, pilot)
        await settled(screen, pilot)
        assert pilot.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("seed: 1", "seed: 3").replace("prompt: 4", "prompt: 2")


@pytest.mark.parametrize("text", [None, "rlctl: 1\nrun: {nam"])
def test_a_file_that_is_gone_or_broken_is_a_line_and_saved_over_only_after_a_question(
    file: Path, text: str | None
) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "responses_per_prompt"), 2)
        file.unlink() if text is None else file.write_text(text)
        screen._look_at_file()
        await settled(screen, pilot)
        assert pilot.app.screen is screen
        assert ("is gone" if text is None else "cannot be read now") in text_of(pilot.app)
        screen.action_save()
        await settled(pilot.app.screen, pilot)
        assert isinstance(pilot.app.screen, ChooseScreen)
        await answer(pilot, "k")
        await settled(screen, pilot)
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)
    assert "responses_per_prompt: 2" in file.read_text()


def test_a_config_that_was_never_saved_is_offered_again(file: Path) -> None:
    left = Session.new()
    left.set(("run", "name"), "lost")
    recovery.keep(left)
    [place] = recovery.folder().iterdir()
    place.write_text(json.dumps(json.loads(place.read_text()) | {"pid": 999999999}))

    async def act(screen: Any, pilot: Any) -> None:
        assert isinstance(screen, ChooseScreen)
        await answer(pilot, "t")
        await pilot.pause()
        editor = screen.app.screen
        await settled(editor, pilot)
        assert editor.session.config.run.name == "lost"

    drive(RlctlApp(session=Session.new()), act)


def test_a_plan_is_shown_before_a_launch_and_what_refuses_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f9")
        await settled(screen, pilot)
        shown = screen.app.screen
        assert isinstance(shown, LaunchScreen)
        text = str(shown.query_one("#outlook", Static).render())
        assert "t.parquet" in text
        assert "node 0" in text
        assert shown.query_one("#go", Button).disabled
        await pilot.press("escape")
        await pilot.pause()
        assert screen.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_an_earlier_run_had_otherwise_takes_a_line_a_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = (f"stages: {[{'name': 'sft', 'rows': list(range(500))}]} -> []", *(f"key{n}: 1 -> 2" for n in range(7)))
    monkeypatch.setattr(
        "rlctl.tui.screens.launch.before", lambda config: Before("finished", Path("runs/demo"), changed)
    )

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f9")
        await settled(screen, pilot)
        shown = text_of(screen.app)
        assert re.search(r"    stages: .*….* -> \[\]", shown)
        assert "key3: 1 -> 2" in shown
        assert "key4" not in shown
        assert "and 3 more" in shown

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_launch_that_does_not_begin_shows_why(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.app.push_screen(LaunchScreen(screen.session, save=lambda then: then()))
        await pilot.pause()
        screen.app.screen._start()
        await pilot.pause()
        starting = screen.app.screen
        assert isinstance(starting, StartingScreen)
        starting.launched.process.wait(120)
        starting._look()
        await pilot.pause()
        assert "no data" in starting.query_one(TextArea).text or "t.parquet" in starting.query_one(TextArea).text
        assert "nothing was started" in starting.query_one(TextArea).text
        assert str(starting.launched.output) in str(starting.query_one("#starting-head", Static).render())
        await pilot.press("escape")
        await pilot.pause()
        assert screen.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)


def test_paths_are_completed(file: Path) -> None:
    (file.parent / "models" / "qwen").mkdir(parents=True)
    assert completed("mo") == "models/"
    assert completed("models/") == "models/qwen/"
    assert completed(str(file.parent / "run.y")) == str(file)
    assert completed("nothing-here") is None
    assert completed("s3://bucket") is None
    assert completed(os.sep + "no-such-folder/x") is None
