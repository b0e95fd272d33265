"""No key changes or discards what was not asked for: the cursor lands on lines, boxes wait, letters answer nothing."""

from __future__ import annotations

import string
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.events import Paste
from textual.widgets import Button, Input, OptionList, Static

from rlctl.documents import parse_dotted
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import AskScreen, ChooseScreen
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.dialogs.items import ItemsScreen
from rlctl.tui.dialogs.machines import MachinesScreen
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.launch import LaunchScreen
from rlctl.tui.widgets.field_row import FieldRow, FieldSelect
from tests.tui.conftest import drive, edit, settled, text_of, until
from tests.tui.test_editor import FILE, row

LR = "train.optimizer.lr"
Way = Callable[[EditorScreen, Any], Awaitable[None]]


async def undo(screen: EditorScreen, pilot: Any) -> None:
    screen.session.set(parse_dotted(LR), 5e-6)
    screen.session.set(parse_dotted("run.seed"), 9)
    screen.renew()
    await settled(screen, pilot)
    await pilot.press("u", "u")


async def redo(screen: EditorScreen, pilot: Any) -> None:
    await undo(screen, pilot)
    await settled(screen, pilot)
    await pilot.press("U")


async def search(screen: EditorScreen, pilot: Any) -> None:
    await pilot.press("slash", *"optimizer.lr", "enter")


async def palette(screen: EditorScreen, pilot: Any) -> None:
    await pilot.press("ctrl+p")
    await settled(screen.app.screen, pilot)
    await pilot.press(*LR)
    listed = screen.app.screen.query_one("CommandList", OptionList)
    await until(pilot, lambda: listed.option_count and LR in str(listed.options[0].prompt))
    await pilot.press("enter")


async def jump(screen: EditorScreen, pilot: Any) -> None:
    await screen.jump(parse_dotted(LR))


@pytest.mark.parametrize("way", [undo, redo, search, palette, jump])
def test_the_cursor_lands_on_a_line_where_letters_and_digits_change_nothing(file: Path, way: Way) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await way(screen, pilot)
        await settled(screen, pilot)
        before = screen.session.config
        assert isinstance(screen.focused, FieldRow)
        assert not screen.focused.is_edited
        await pilot.press("7", "full_stop", "x", "minus", "backspace")
        screen.app.post_message(Paste("0.5"))
        await settled(screen, pilot)
        assert screen.session.config == before

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE


def test_a_value_is_edited_behind_what_stands_there_and_the_next_line_is_a_line(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "seed")
        assert screen.query_one("#middle").border_subtitle.startswith("EDIT")
        await pilot.press("2")
        await settled(screen, pilot)
        assert screen.session.config.run.seed == 12, "nothing was selected that a key replaces"
        for key in ("down", "tab", "enter", "escape"):
            await edit(screen, pilot, "run", "name")
            await pilot.press(key, "9", "9")
            await settled(screen, pilot)
            assert not any(field.is_edited for field in screen.rows), key
            await pilot.press("1")
            assert screen.session.config.run.name == "demo"

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_click_on_a_value_goes_to_its_line_and_a_second_one_into_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await settled(screen, pilot)
        field = row(screen, "run.seed")
        await pilot.click(field.query_one(Input))
        await settled(screen, pilot)
        assert field.has_focus
        await pilot.press("7")
        assert screen.session.config.run.seed == 1
        await pilot.click(field.query_one(Input))
        await settled(screen, pilot)
        assert field.is_typed_in
        choice = row(screen, "run.deterministic")
        await pilot.click(choice.query_one(FieldSelect))
        await settled(screen, pilot)
        assert not choice.query_one(FieldSelect).expanded
        assert choice.has_focus
        await pilot.click(choice.query_one(FieldSelect))
        await settled(screen, pilot)
        assert choice.query_one(FieldSelect).expanded

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_choice_that_is_made_leaves_the_cursor_on_the_line(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "deterministic")
        assert row(screen, "run.deterministic").query_one(FieldSelect).expanded
        await pilot.press("up", "enter")
        await settled(screen, pilot)
        assert row(screen, "run.deterministic").has_focus
        assert screen.session.config.run.deterministic is True

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_default_is_given_to_no_field_that_has_not_the_cursor(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await settled(screen, pilot)
        await pilot.press("escape", "d")
        await settled(screen, pilot)
        assert screen.session.config.run.name == "demo"
        await pilot.press("2", "d")
        await settled(screen, pilot)
        assert screen.session.config.run.name == "demo"

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize("box", [AskScreen, ChooseScreen])
def test_a_box_ignores_what_is_typed_for_the_page_below_it(
    file: Path, box: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(Dialog, "DEAF_SECONDS", 0.5)
    monkeypatch.setattr(Dialog, "clock", staticmethod(lambda: now))
    answers: list[Any] = []

    async def act(screen: EditorScreen, pilot: Any) -> None:
        asked = box("lose it?", "yes") if box is AskScreen else box("lose it?", [("yes", "lose it")])
        nonlocal now
        screen.app.push_screen(asked, answers.append)
        await settled(asked, pilot)
        for _ in range(8):  # one stream, longer than the first moment
            await pilot.press("down", "enter", "l", "y", "s", "1", "escape")
            now += 0.2
        assert answers == []
        assert screen.app.screen is asked
        now += 0.6
        await pilot.press("l", "y", "s", "1", "n", "d", "c")
        assert screen.app.screen is asked, "no letter answers"
        await pilot.press("down", "enter")
        await settled(screen, pilot)
        assert answers == [True] if box is AskScreen else ["yes"]

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_answer_that_changes_nothing_comes_first(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        answers: list[Any] = []
        for box in (AskScreen("?", "Do it"), ChooseScreen("?", [("a", "Do it"), ("b", "Do more")])):
            screen.app.push_screen(box, answers.append)
            await settled(box, pilot)
            await pilot.press("enter")
            await settled(screen, pilot)
        assert answers == [False, None]
        screen.app.push_screen(launch := LaunchScreen(screen.session, save=lambda then: None))
        await settled(launch, pilot)
        await settled(launch, pilot)
        assert launch.focused is launch.query_one("#cancel", Button)

    drive(RlctlApp(session=Session.open(file)), act)


def test_items_take_back_only_what_was_done_to_them(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("run", "seed"), 9)
        await screen.jump(("data", "train"))
        await settled(screen, pilot)
        await pilot.press("i")
        await settled(screen.app.screen, pilot)
        assert isinstance(screen.app.screen, ItemsScreen)
        await pilot.press("u", "u")
        assert screen.session.config.run.seed == 9
        await pilot.press("delete", "u")
        assert len(screen.session.config.data.train) == 1

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_is_behind_a_box_stays_in_sight(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        for box in (AskScreen("lose it?", "yes"), MachinesScreen(screen.session.config, "")):
            screen.app.push_screen(box)
            await settled(box, pilot)
            assert box.styles.background.a < 1
            shown = text_of(screen.app)
            assert "run.yaml" in shown
            assert "Sections" in shown
            await pilot.press("escape")
            await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)


COMMANDS = "deiouUsSlOFmraqjkgGpzf"
"""Letters that are keys of the editor and of its pages, and do what the footer says."""


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_careless_keys_change_neither_the_config_nor_the_file(file: Path, size: tuple[int, int]) -> None:
    """Every printable key, and a paste, on each page of the editor, on a section, and on a field."""

    async def act(screen: EditorScreen, pilot: Any) -> None:
        before = screen.session.config
        harmless = [key for key in string.ascii_letters if key not in COMMANDS]
        places = [("1",), ("2",), ("3",), ("4",), ("5",), ("escape",), ("tab", "down")]
        for place in places:
            await pilot.press(*place)
            await settled(screen, pilot)
            await pilot.press(*harmless, "0", "6", "7", "8", "9", "minus", "full_stop", "backspace")
            screen.app.post_message(Paste("rm -rf 1e-3\nyes\n"))
            await settled(screen, pilot)
            assert pilot.app.screen is screen, place
            assert screen.session.config == before, place

    drive(RlctlApp(session=Session.open(file)), act, size)
    assert file.read_text() == FILE


def test_machines_are_picked_for_the_plan_and_the_checks(file: Path) -> None:
    file.write_text(
        FILE.replace("path: m", "path: Qwen/Qwen3-8B").replace("batch:", "placement: {devices_per_node: 1}\nbatch:")
    )

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("3")
        await settled(screen, pilot)
        plan = screen.query_one("#plan .plan-text", Static)
        assert "m: choose the GPUs" in str(plan.content)
        await pilot.press("m")
        await settled(screen.app.screen, pilot)
        listed = screen.app.screen.query_one(OptionList)
        listed.highlighted = listed.get_option_index("H100")
        await pilot.press("enter")
        await settled(screen, pilot)
        await settled(screen, pilot)
        assert "H100 of 80 GiB" in str(plan.content)
        assert "✗ does not fit" in str(plan.content)
        assert [item.code for item in screen.findings if item.code.startswith("memory")] == ["memory"]
        await pilot.press("m")
        await settled(screen.app.screen, pilot)
        screen.app.screen.query_one(Input).focus()
        await pilot.press(*"2x", "enter")
        await settled(screen.app.screen, pilot)
        assert "'2x:1'" not in text_of(screen.app)
        assert isinstance(screen.app.screen, MachinesScreen), "what names no machines is told there"
        await pilot.press("escape")
        await settled(screen, pilot)
        assert not screen.session.is_changed

    drive(RlctlApp(session=Session.open(file)), act, (140, 90))
