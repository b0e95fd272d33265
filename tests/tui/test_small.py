"""Terminals that are small or wide: all that one needs can be reached, and what there is room for stands side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button, OptionList

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.wanted import WantedScreen
from rlctl.tui.widgets.log_view import LogView
from tests.tui.conftest import drive, settled, text_of
from tests.tui.recorded import place

FILE = "rlctl: 1\nrun: {name: demo}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\nstages: [{name: a}]\n"
SMALL = [(60, 18), (40, 12)]


async def buttons_come_into_sight(screen: Any, pilot: Any) -> None:
    """Every button of a box can be gone to with Tab, and is seen whole then."""
    wanted = [button for button in screen.query(Button) if button.display and not button.disabled]
    assert wanted
    seen = set()
    for _ in screen.focus_chain:
        await pilot.press("tab")
        await pilot.pause()
        found = screen.find_widget(screen.focused)
        if found.visible_region == found.region:
            seen.add(screen.focused)
    assert set(wanted) <= seen, text_of(screen.app)


@pytest.mark.parametrize("size", SMALL)
def test_boxes_of_the_editor_can_be_used(file: Path, size: tuple[int, int]) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        for key in ("f12", "f10", "f9"):
            await pilot.press(key)
            await settled(pilot.app.screen, pilot)
            assert pilot.app.screen is not screen
            await buttons_come_into_sight(pilot.app.screen, pilot)
            await pilot.press("escape")
            await pilot.pause()

    drive(RlctlApp(session=Session.open(file)), act, size)


@pytest.mark.parametrize("size", SMALL)
def test_many_values_of_a_script_can_be_given(file: Path, size: tuple[int, int]) -> None:
    script = file.with_name("many.sh")
    names = [f"A_LONG_NAME_{number}" for number in range(12)]
    words = " ".join(f"a.b{number}=${name}" for number, name in enumerate(names))
    script.write_text(f"set -u\npython3 -m verl.trainer.main_ppo {words}\n")

    async def act(screen: Any, pilot: Any) -> None:
        assert isinstance(screen, WantedScreen)
        await buttons_come_into_sight(screen, pilot)

    drive(RlctlApp(session=lambda given: Session.open(script, given=given)), act, size)


def test_help_tells_what_a_key_does(file: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("f1")
        await pilot.pause()
        shown = ""
        for _ in range(14):
            shown += text_of(pilot.app)
            await pilot.press("pagedown")
            await pilot.wait_for_scheduled_animations()
        assert "Undo" in shown
        assert "Undo the last change" in shown

    drive(RlctlApp(session=Session.open(file)), act, SMALL[-1])


@pytest.mark.parametrize(("size", "beside"), [((60, 18), False), ((120, 40), True)])
def test_a_list_stands_beside_what_it_leads_to_where_there_is_room(
    tmp_path: Path, size: tuple[int, int], beside: bool
) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("3")
        await settled(screen, pilot)
        listed, told = screen.query_one("#sample-list", OptionList), screen.query_one("#sample-scroll")
        assert listed.content_size.height > 1
        assert (told.region.x >= listed.region.right) is beside
        await pilot.press("5")
        await settled(screen, pilot)
        logs, view = screen.query_one("#log-list", OptionList), screen.query_one(LogView)
        assert min(logs.content_size.height, view.content_size.height) > 1
        assert (view.region.x >= logs.region.right) is beside

    drive(RlctlApp(run=place(tmp_path)), act, size)


def test_each_response_is_one_line_of_the_list_however_long_it_is(tmp_path: Path) -> None:
    run = place(tmp_path)
    file = run / "samples" / "grpo" / "step-000100.jsonl"
    groups = [json.loads(line) for line in file.read_text().splitlines()]
    for group in groups:
        if "responses" in group:
            group |= {"prompt": "问题 \u202e" * 99, "responses": ["想" * 900 + " word" * 900] * len(group["responses"])}
    file.write_text("".join(json.dumps(group) + "\n" for group in groups))

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("3")
        await settled(screen, pilot)
        listed = screen.query_one("#sample-list", OptionList)
        assert listed.virtual_size.height == listed.option_count > 9
        assert "想想" in text_of(screen.app)
        assert "\u202e" not in text_of(screen.app)

    drive(RlctlApp(run=run), act, (80, 24))
