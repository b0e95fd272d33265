"""The editor through its keys: what is typed is what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList, Select, Static, TextArea

from rlctl.editing import recovery
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.start import StartScreen
from rlctl.tui.widgets.field_row import FieldRow, FieldSelect
from tests.tui.conftest import drive, settled

FILE = """\
rlctl: 1
run: {name: demo, seed: 1}
model: {path: m}
data: {train: [{path: t.parquet}]}
batch:
  prompts_per_step: 8   # fits
  responses_per_prompt: 4
"""


def row(screen: EditorScreen, key: str) -> FieldRow:
    [found] = [row for row in screen.query(FieldRow) if ".".join(map(str, row.view.path)) == key]
    return found


def test_a_typed_value_is_saved_with_the_files_look(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("batch", "prompts_per_step"))
        await pilot.pause()
        row(screen, "batch.prompts_per_step").focus_field()
        await pilot.press("end", "backspace", "1", "6")
        await settled(screen, pilot)
        assert screen.session.config.batch.prompts_per_step == 16
        assert screen.title.endswith("●")
        await pilot.press("ctrl+s")
        await settled(screen, pilot)
        assert not screen.title.endswith("●")

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("8   # fits", "16   # fits")


def test_what_does_not_fit_is_told_at_the_field(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("batch", "prompts_per_step"))
        await pilot.pause()
        field = row(screen, "batch.prompts_per_step")
        field.query_one(Input).value = "many"
        await settled(screen, pilot)
        assert field.has_class("-wrong")
        assert screen.session.config.batch.prompts_per_step == 8
        field.query_one(Input).value = "12"
        await settled(screen, pilot)
        assert not field.has_class("-wrong")
        assert screen.session.config.batch.prompts_per_step == 12

    drive(RlctlApp(session=Session.open(file)), act)


def test_undo_and_redo_by_key(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "seed"))
        await pilot.pause()
        row(screen, "run.seed").query_one(Input).value = "77"
        await settled(screen, pilot)
        await pilot.press("ctrl+z")
        await settled(screen, pilot)
        assert screen.session.config.run.seed == 1
        assert row(screen, "run.seed").query_one(Input).value == "1"
        await pilot.press("ctrl+y")
        await settled(screen, pilot)
        assert row(screen, "run.seed").query_one(Input).value == "77"

    drive(RlctlApp(session=Session.open(file)), act)


def test_another_option_brings_its_own_fields(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("algorithm", "objective"))
        await pilot.pause()
        row(screen, "algorithm.objective").query_one(Select).value = "sft"
        await settled(screen, pilot)
        assert screen.session.config.algorithm.objective.choice == "sft"
        assert not next(view for view in screen.views if view.pattern == "rollout.max_response_tokens").applies

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_field_is_found_by_what_a_dialect_calls_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("ctrl+f")
        screen.query_one("#search", Input).value = "actor.optim.lr"
        await settled(screen, pilot)
        found = [row.view.pattern for row in screen.query(FieldRow)]
        assert "train.optimizer.lr" in found
        await pilot.press("enter")
        await pilot.pause()
        help_text = str(screen.query_one("#help-text", Static).render())
        assert "actor_rollout_ref.actor.optim.lr" in help_text
        await pilot.press("escape")
        await pilot.pause()
        assert not screen.query_one("#search").display

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_finding_leads_to_its_field(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "mini_batch_responses"), 5)
        screen.renew()
        await settled(screen, pilot)
        place = next(n for n, item in enumerate(screen.findings) if item.key == "batch.mini_batch_responses")
        listed = screen.query_one("#finding-list", OptionList)
        listed.highlighted = place
        listed.action_select()
        await settled(screen, pilot)
        assert screen.section == ("batch",)
        assert row(screen, "batch.mini_batch_responses").query_one(Input).has_focus

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_preview_is_the_run_in_another_dialect(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f4")
        await settled(screen, pilot)
        await pilot.press("f4")
        await settled(screen, pilot)
        assert "train_batch_size: 8" in screen.query_one("#preview-text", TextArea).text
        assert "mapped" in str(screen.query_one("#account-head", Static).render())

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize(("key", "seed"), [("l", "seed: 1"), ("s", "seed: 2")])
def test_leaving_asks_where_something_is_not_saved(file: Path, key: str, seed: str) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("run", "seed"), 2)
        await screen.action_leave()
        await pilot.pause()
        assert isinstance(screen.app.screen, ChooseScreen)
        await pilot.press("c")
        await pilot.pause()
        assert screen.app.screen is screen
        await screen.action_leave()
        await pilot.pause()
        await pilot.press(key)
        await settled(pilot.app.screen, pilot)
        assert isinstance(pilot.app.screen, StartScreen)

    drive(RlctlApp(session=Session.open(file)), act)
    assert seed in file.read_text()
    assert list(recovery.kept()) == []


def test_nothing_is_written_when_opened_to_read(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        assert "(read only)" in screen.title
        await screen.jump(("run", "seed"))
        await settled(screen, pilot)
        await pilot.press("end", "7", "f3")
        await settled(screen, pilot)
        field = row(screen, "run.seed").query_one(Input)
        assert field.value == "1"
        screen.query(FieldSelect).first().value = "true"
        await pilot.press("ctrl+s", "f9")
        await settled(screen, pilot)
        assert not screen.session.is_changed
        assert pilot.app.screen is screen

    drive(RlctlApp(session=Session.open(file), readonly=True), act)
    assert file.read_text() == FILE


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_it_fits_small_and_large_terminals(file: Path, size: tuple[int, int]) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        form = screen.query_one("#form")
        assert form.region.width >= 40
        assert screen.query_one("#beside").display == (size[0] >= 100)

    drive(RlctlApp(session=Session.open(file)), act, size)
