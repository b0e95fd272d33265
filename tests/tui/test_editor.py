"""The editor through its keys: what is typed is what is saved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.widgets import Input, OptionList, Select, Static, TextArea

from rlctl.editing import recovery
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.panes.findings import FindingsPane
from rlctl.tui.panes.preview import PreviewPane
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.start import StartScreen
from rlctl.tui.widgets import field_row
from rlctl.tui.widgets.field_row import FieldRow, FieldSelect
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.section_tree import SectionTree
from tests.tui.conftest import answer, drive, edit, settled, text_of

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
        await edit(screen, pilot, "batch", "prompts_per_step")
        await pilot.press("end", "backspace", "1", "6")
        await settled(screen, pilot)
        assert screen.session.config.batch.prompts_per_step == 16
        assert screen.title.endswith("●")
        await pilot.press("ctrl+s")
        await settled(screen, pilot)
        assert not screen.title.endswith("●")

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("8   # fits", "16   # fits")


def test_a_value_from_a_variable_is_shown_as_it_is_now_on_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link itself is too long for its column, and is in the help; it stands in the field where it is edited."""
    monkeypatch.delenv("ROLLOUT_N", raising=False)
    linked = FILE.replace(
        "responses_per_prompt: 4", "responses_per_prompt: ${oc.env:ROLLOUT_N,4}\n  balance: ${oc.env:EVEN,false}"
    )
    file.write_text(linked)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("batch", "responses_per_prompt"))
        await settled(screen, pilot)
        shown = text_of(screen.app)
        assert re.search(r"responses_per_prompt +(\S* +)?= 4 ", shown)
        assert re.search(r"balance +(\S* +)?= false ", shown)
        assert "follows ROLLOUT_N · " in shown
        assert "the environment's ROLLOUT_N, else 4" in str(screen.query_one("#help-text", Static).content)
        assert not screen.query("FieldRow.-two")
        await edit(screen, pilot, "batch", "responses_per_prompt")
        assert "ROLLOUT_N,4}" in text_of(screen.app).replace("else 4", "")
        await pilot.press("ctrl+u", "6")
        await settled(screen, pilot)
        assert screen.session.config.batch.responses_per_prompt == 6
        await pilot.press("escape")
        assert re.search(r"responses_per_prompt +6 ", text_of(screen.app))

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_does_not_fit_is_not_lost_unasked(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "batch", "prompts_per_step")
        await pilot.press("x")
        await settled(screen, pilot)
        field = row(screen, "batch.prompts_per_step")
        assert field.has_class("-wrong")
        await pilot.press("escape")
        await settled(screen, pilot)
        shown = text_of(screen.app)
        assert re.search(r"prompts_per_step +8x ", shown), "the value that does not fit, not that of the config"
        assert "✗ is '8x'" in shown, "without the key above it"
        await pilot.press("escape", "escape")
        await settled(screen, pilot)
        told = text_of(screen.app)
        assert "batch.prompts_per_step has an invalid value, which is not kept." in told
        assert "There are changes" not in told
        await pilot.press("escape", "ctrl+q")
        await settled(screen, pilot)
        assert "batch.prompts_per_step has an invalid value" in text_of(screen.app)
        await pilot.press("escape")
        assert screen.is_current

    drive(RlctlApp(session=Session.open(file)), act)


def test_each_undo_replaces_the_message_of_the_one_before(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_row, "FLASH_SECONDS", 3600)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "batch", "prompts_per_step")
        await pilot.press("0")
        await settled(screen, pilot)
        await pilot.press("ctrl+z", "ctrl+z", "ctrl+z", "ctrl+y")
        await settled(screen, pilot)
        assert [note.message for note in screen.app._notifications] == ["redone: batch.prompts_per_step = 80"]
        assert row(screen, "batch.prompts_per_step").has_class("-flash"), "what changed is bright for a moment"

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_value_that_is_too_long_shows_its_beginning_and_its_end(file: Path) -> None:
    path = "models/" + "deep/" * 20 + "final"
    file.write_text(FILE.replace("path: m}", f"path: {path}}}"))

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("model", "path"))
        await settled(screen, pilot)
        assert re.search(r"path +models/deep\S*…\S*/final ", text_of(screen.app))

    drive(RlctlApp(session=Session.open(file)), act)


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


def test_sections_have_the_mark_of_what_was_found_in_them(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "mini_batch_responses"), 33)
        screen.renew()
        await settled(screen, pilot)
        await settled(screen, pilot)
        shown = text_of(screen.app)
        for section, mark in (("data", "!"), ("schedule", "✗"), ("batch ●", "!")):
            assert f"{section} {mark}" in shown
        screen.session.undo()
        screen.renew()
        await settled(screen, pilot)
        await settled(screen, pilot)
        assert "batch !" not in text_of(screen.app)

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


def test_enter_leads_to_the_fields_of_the_section_under_the_cursor_however_fast_it_comes(file: Path) -> None:
    """The fields of a section are shown a moment after the cursor came to it."""

    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.query_one(SectionTree).focus()
        await pilot.pause()
        for key in (*["down"] * 4, "enter", "down"):
            pilot.app.post_message(events.Key(key, None))
        await settled(screen, pilot)
        await settled(screen, pilot)
        assert screen.section == ("batch",)
        assert isinstance(screen.focused, FieldRow)
        assert screen.focused.view.path == ("batch", "responses_per_prompt")

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_message_of_an_undo_is_short_however_long_the_value_was(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await pilot.pause()
        row(screen, "run.name").query_one(Input).value = "x" * 5000
        await settled(screen, pilot)
        await pilot.press("ctrl+z")
        await settled(screen, pilot)
        [told] = [note.message for note in screen.app._notifications]
        assert told.startswith("undone: run.name = 'xxx")
        assert len(told) < 200

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


def test_a_field_is_found_by_what_trl_calls_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("slash", *"num_generations")
        await settled(screen, pilot)
        assert screen.rows[0].view.path == ("batch", "responses_per_prompt")
        screen.query_one("#search", Input).value = "learning_rate"
        await settled(screen, pilot)
        assert screen.rows[0].view.path == ("train", "optimizer", "lr")

    drive(RlctlApp(session=Session.open(file)), act)


def test_columns_fit_again_after_the_form_was_hidden(file: Path) -> None:
    """Saving in another format from the port view leads back to a form that was laid out while nobody saw it."""

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("p")
        await settled(screen, pilot)
        await screen._show_form()  # as after a file was read again
        await pilot.press("escape")
        await settled(screen, pilot)
        width = screen.query_one("#form").size.width
        for found in screen.rows:
            columns = found._columns
            assert 3 + columns.name + 2 + columns.value + 2 + columns.unit + 2 + columns.key <= width + 2

    drive(RlctlApp(session=Session.open(file)), act, (80, 24))


def test_the_search_line_takes_no_room_from_the_columns(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        def widths() -> set[int]:
            return {row.size.width for row in screen.query(FieldRow) if row.display}

        before = widths()
        await pilot.press("slash")
        await settled(screen, pilot)
        assert widths() == before

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_finding_leads_to_its_field(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "mini_batch_responses"), 5)
        screen.renew()
        await settled(screen, pilot)
        found = next(item for item in screen.findings if item.key == "batch.mini_batch_responses")
        listed = screen.query_one("#finding-list", OptionList)
        listed.highlighted = screen.query_one(FindingsPane).line_of(found)
        listed.action_select()
        await settled(screen, pilot)
        assert screen.section == ("batch",)
        assert row(screen, "batch.mini_batch_responses").has_focus

    drive(RlctlApp(session=Session.open(file)), act)


def test_findings_of_one_cause_are_one_entry_and_notes_are_folded(file: Path) -> None:
    file.write_text(file.read_text().replace("t.parquet}]}", "t.parquet}, {path: u.parquet}]}"))

    async def act(screen: EditorScreen, pilot: Any) -> None:
        listed = screen.query_one("#finding-list", OptionList)

        def shown() -> list[str]:
            return [str(option.prompt) for option in listed.options]

        [paths] = [text for text in shown() if "t.parquet" in text]
        assert "u.parquet" in paths
        assert paths.startswith("! "), "a warning: the run may be for another machine"
        assert "Enter lists them" in shown()[-1]
        before = len(shown())
        await pilot.press("2", "end", "enter")
        await settled(screen, pilot)
        assert len(shown()) > before

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_a_port_loses_is_decided_one_by_one(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        def head() -> str:
            return str(screen.query_one("#account-head", Static).render())

        screen.session.set(("schedule", "total_epochs"), 2)
        screen.session.set(("schedule", "total_steps"), 9)
        screen.renew(discard_typed=True)
        await settled(screen, pilot)
        screen.query_one(PreviewPane).dialect = "roll"
        await pilot.press("4")
        await settled(screen, pilot)
        found = re.match(r"0 of (\d+) decided", head())
        assert found is not None
        for number in range(int(found[1])):
            assert head().startswith(f"{number} of "), number
            await pilot.press("space")
            await pilot.pause()
        assert head().startswith(f"✓ all {found[1]} decided: ready to save with S")
        await pilot.press("space")
        await pilot.pause()
        assert head().startswith(f"{int(found[1]) - 1} of "), "it is taken back"

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_preview_is_the_run_in_another_dialect(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f4")
        await settled(screen, pilot)
        assert "train_batch_size: 8" in screen.query_one("#preview-text", TextArea).text
        assert "mapped" in str(screen.query_one("#account-head", Static).render())

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_key_of_an_answer_does_nothing_on_the_page_below(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        answers: list[str | None] = []
        screen.app.push_screen(ChooseScreen("Which?", [("S", "this"), ("c", "that")]), answers.append)
        await pilot.pause()
        await pilot.press("S", "c", "1", "y")
        await settled(screen, pilot)
        assert answers == [], "letters answer nothing, and do nothing on the page below"
        await pilot.press("down", "enter")
        await settled(screen, pilot)
        assert answers == ["S"]
        assert screen.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize(("key", "seed"), [("l", "seed: 1"), ("s", "seed: 2")])
def test_leaving_asks_where_something_is_not_saved(file: Path, key: str, seed: str) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("run", "seed"), 2)
        await screen.action_leave()
        await pilot.pause()
        assert isinstance(screen.app.screen, ChooseScreen)
        await pilot.press("l", "enter")
        await pilot.pause()
        assert screen.app.screen is screen, "the first answer is to stay"
        await screen.action_leave()
        await pilot.pause()
        await answer(pilot, key)
        await settled(pilot.app.screen, pilot)
        assert isinstance(pilot.app.screen, StartScreen)

    drive(RlctlApp(session=Session.open(file)), act)
    assert seed in file.read_text()
    assert list(recovery.kept()) == []


def test_nothing_is_written_when_opened_to_read(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        assert "(read only)" in screen.title
        told = str(screen.query_one(Footer).content)
        assert "Search" in told
        assert not any(name in told for name in ("Save", "Launch", "Undo", "Default"))
        await edit(screen, pilot, "run", "seed")
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
        assert screen.query_one("#middle").region.width >= 40
        assert screen.query_one("#beside").display == (size[0] >= 100)

    drive(RlctlApp(session=Session.open(file)), act, size)


def test_the_first_page_says_what_is_trained_and_what_fails_and_leads_there(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        shown = text_of(screen.app)
        for line in ("model +m ", "data +t.parquet ", "learning rate +1e-06"):
            assert re.search(line, shown), line
        assert all(text in shown for text in ("8 prompts", "32 responses"))
        assert "✗ the schedule has no end" in shown
        await pilot.press("enter", "end", "up", "up", "up")
        await settled(screen, pilot)
        assert "schedule.total_" in str(screen.query_one("#help-text", Static).content)
        await pilot.press("enter")
        await settled(screen, pilot)
        assert isinstance(screen.focused, FieldRow)
        assert screen.focused.view.section == ("schedule",)
        await pilot.press("escape", "home", "enter", "home", "enter")
        await settled(screen, pilot)
        assert screen.query_one("#beside").active == "findings"

    drive(RlctlApp(session=Session.open(file)), act, (100, 30))
