"""What holds on every screen: help, jump mode, the palette, themes, leaving."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from rich._palettes import EIGHT_BIT_PALETTE, STANDARD_PALETTE
from rich.color import ColorSystem
from textual import events
from textual.app import App, ComposeResult
from textual.color import Color
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.css.stylesheet import Stylesheet
from textual.widgets import Input, Static, TabbedContent
from textual.widgets._toast import Toast, ToastRack

from rlctl.cli.tui import MODULES
from rlctl.common import packages
from rlctl.common.errors import DocumentError, UsageError
from rlctl.editing.session import Session
from rlctl.tui import app as app_module
from rlctl.tui import settings, themes
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import AskScreen
from rlctl.tui.dialogs.help import HelpScreen
from rlctl.tui.jump import LETTERS, JumpScreen, Mark
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.page import Page
from rlctl.tui.screens.start import StartScreen
from rlctl.tui.widgets.field_row import FieldInput, FieldRow
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.table import Table
from tests.tui.conftest import ACT_SECONDS, agree, drive, edit, settled, text_of, until

FILE = "rlctl: 1\nrun: {name: demo, seed: 1}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\n"


def test_help_names_every_key_of_the_screen_with_its_meaning(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(screen.app.screen, HelpScreen)
        shown = text_of(screen.app)
        assert "Save the file in its own format and layout" in shown
        assert "Put a letter on every part of the screen" in shown
        await pilot.press("escape")
        await pilot.pause()
        assert screen.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act, (120, 60))


def test_a_question_mark_is_text_where_one_types(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "name")
        assert isinstance(screen.focused, Input)
        await pilot.press("end", "question_mark", "colon")
        await settled(screen, pilot)
        assert screen.app.screen is screen
        assert screen.session.config.run.name == "demo?:"

    drive(RlctlApp(session=Session.open(file)), act)


def test_keys_keep_their_order_however_fast_they_come() -> None:
    class OneLine(App[None]):
        def compose(self) -> ComposeResult:
            with Vertical(), Vertical(), Vertical():
                yield Line("1", select_on_focus=False)

    async def go() -> None:
        async with OneLine().run_test() as pilot:
            keys = [("end", None), ("backspace", "\x7f"), ("7", "7"), ("8", "8"), ("left", None), ("9", "9")]
            for key, character in keys:
                pilot.app.post_message(events.Key(key, character))
            line = pilot.app.query_one(Line)
            async with asyncio.timeout(ACT_SECONDS):
                await until(pilot, lambda: len(line.value) == 3)
            assert line.value == "798"

    asyncio.run(go())


@pytest.mark.parametrize("by", ["key", "mouse"])
def test_a_letter_jumps_to_what_it_stands_on(file: Path, by: str) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run",))
        await pilot.press("ctrl+o")
        await pilot.pause()
        jump = screen.app.screen
        assert isinstance(jump, JumpScreen)
        marks = {mark.letter: mark for mark in jump.query(Mark)}
        letter, wanted = next((key, item) for key, item in jump._targets.items() if isinstance(item, FieldRow))
        assert marks[letter].region.offset == screen.find_widget(wanted).visible_region.offset
        if by == "key":
            await pilot.press(letter)
        else:
            await pilot.click(marks[letter])
        await pilot.pause()
        assert screen.app.screen is screen
        assert screen.focused is wanted

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_message_takes_a_line_and_leaves_borders_free(file: Path, size: tuple[int, int]) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await screen.mount(ToastRack(id="textual-toastrack"))  # a test has none
        pilot.app.notify("nothing to undo")
        await until(pilot, lambda: screen.query(Toast) and screen.query_one(Toast).region.height)
        await settled(screen, pilot)
        region = screen.query_one(Toast).region
        assert region.height == 1
        assert region.width < 25
        assert (region.right, region.bottom) < (size[0], size[1] - 1)

    drive(RlctlApp(session=Session.open(file)), act, size)


def test_a_click_on_what_was_just_removed_does_nothing(file: Path) -> None:
    """A click on a section and one on the form that it replaces, before the new one is drawn."""

    async def act(screen: Any, pilot: Any) -> None:
        await screen.jump(("run",))
        row = screen.query(FieldRow).first()
        x, y = row.region.x + 4, row.region.y
        with pilot.app.batch_update():
            await row.remove()
            await pilot.app.on_event(events.MouseDown(None, x, y, 0, 0, 1, False, False, False, x, y))
        await settled(screen, pilot)
        assert pilot.app.screen is screen

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_letter_opens_a_tab(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        beside = screen.query_one("#beside", TabbedContent)
        before = beside.active
        await pilot.press("ctrl+o")
        await pilot.pause()
        tab = beside.get_tab([pane.id for pane in beside.query("TabPane") if pane.id != before][-1])
        await pilot.press(next(key for key, item in screen.app.screen._targets.items() if item is tab))
        await settled(screen, pilot)
        assert beside.active != before

    drive(RlctlApp(session=Session.open(file)), act, (200, 60))


def test_letters_of_jump_mode_are_told_apart() -> None:
    assert len(set(LETTERS)) == len(LETTERS) == 62


def test_the_palette_looks_as_other_boxes_do(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("ctrl+p")
        palette = screen.app.screen
        palette.query_one(Input).value = "lr"
        await until(pilot, lambda: palette.query_one("CommandList").has_class("--visible"))
        await pilot.pause()
        lines = text_of(screen.app).splitlines()
        [typed] = [place for place, line in enumerate(lines) if "│ lr " in line]
        assert "╭" in lines[typed - 1]
        assert "╯" in lines[typed + 1]
        assert "╭" in lines[typed + 2], "what it finds is a panel"

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_palette_leads_to_a_field_and_runs_a_key(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await choose(pilot, screen, "ctrl+p", "optimizer.lr")
        assert screen.section == ("train", "optimizer")
        await choose(pilot, screen, "ctrl+p", "repeat_times", "batch.responses_per_prompt")
        assert screen.section == ("batch",)
        assert screen._looked.path == ("batch", "responses_per_prompt")
        await choose(pilot, screen, "ctrl+p", "respon")
        assert screen._looked.path == ("batch", "responses_per_prompt"), "as in the editor's own search"
        await screen.jump(("run", "seed"))
        await settled(screen, pilot)
        screen.query_one("#sections").focus()
        await choose(pilot, screen, "colon", "Save as")
        assert screen.app.screen is not screen

    drive(RlctlApp(session=Session.open(file)), act)


async def choose(pilot: Any, screen: Any, key: str, text: str, first: str = "") -> None:
    """Open the palette, type, and take the first line once it has ``first``, or else what was typed."""
    await pilot.press(key)
    await pilot.pause()
    palette = screen.app.screen
    assert isinstance(palette, CommandPalette)
    palette.query_one(Input).value = text
    listed = palette.query_one("CommandList")
    await until(
        pilot,
        lambda: (
            listed.option_count and listed.display and (first or text).lower() in str(listed.options[0].prompt).lower()
        ),
    )
    await pilot.press("enter")
    await settled(screen, pilot)


def test_the_palette_opens_a_preset_and_a_run_from_anywhere(file: Path) -> None:
    run = file.parent / "runs" / "old"
    run.mkdir(parents=True)
    record = {"name": "old", "status": "finished", "pid": 0, "host": "h", "started": 1.0, "ended": 2.0, "cause": ""}
    (run / "run.json").write_text(json.dumps(record))

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await choose(pilot, screen, "ctrl+p", "preset sft-1node")
        await settled(screen.app.screen, pilot)
        assert screen.app.screen is not screen
        assert screen.app.screen.session.file is None
        await choose(pilot, screen.app.screen, "ctrl+p", "run old")
        await settled(screen.app.screen, pilot)
        assert screen.app.screen.folder == Path("runs/old")

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize("given_up", [False, True])
def test_what_takes_long_to_open_is_named_and_can_be_given_up(file: Path, given_up: bool) -> None:
    read = threading.Event()

    def opening(given: dict[str, str]) -> Session:
        read.wait(30)
        return Session.open(file)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        app = screen.app
        app.edit("slow.yaml", opening)
        await pilot.pause()
        assert "opening slow.yaml ..." in text_of(app)
        await pilot.press("escape" if given_up else "x")  # no key goes to what is below
        await pilot.press("f1")
        read.set()
        await settled(app.screen, pilot)
        assert isinstance(app.screen, HelpScreen if given_up else EditorScreen)
        assert len([shown for shown in app.screen_stack if isinstance(shown, EditorScreen)]) == 2 - given_up
        assert not screen.session.is_changed

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_chosen_theme_is_there_at_the_next_start(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        assert screen.app.theme == themes.FIRST
        await choose(pilot, screen, "ctrl+p", "Theme: Light")
        assert screen.app.theme == "rlctl-light"

    drive(RlctlApp(session=Session.open(file)), act)
    assert settings.read() == {"theme": "rlctl-light"}
    assert RlctlApp().theme == "rlctl-light"
    assert RlctlApp(theme="contrast").theme == "rlctl-contrast"


def test_a_theme_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="'pink'"):
        RlctlApp(theme="pink")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"theme": 3}', '{"theme": "gone"}', '{"other": "x"}'])
def test_settings_that_cannot_be_read_keep_nobody_out(text: str) -> None:
    settings.place().parent.mkdir(parents=True)
    settings.place().write_text(text)
    assert RlctlApp().theme == themes.FIRST


def test_choices_are_kept_beside_each_other() -> None:
    settings.choose("theme", "nord")
    settings.choose("language", "zh")
    assert settings.read() == {"theme": "nord", "language": "zh"}


@pytest.mark.parametrize("depth", ["truecolor", "256"])
@pytest.mark.parametrize("theme", themes.THEMES, ids=lambda theme: theme.name)
def test_text_can_be_read_in_every_theme(theme: Any, depth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contrast by WCAG 2: 4.5 for text, 7 in the theme that is chosen for it."""
    set_depth(monkeypatch, depth)
    app = RlctlApp(theme=theme.name)
    assert app.console.color_system == depth
    variables = app.get_css_variables()
    least = 7.0 if theme.name == "rlctl-contrast" else 4.5
    for back in ("background", "surface", "panel", "row-cursor"):
        for front in ("foreground", "text-muted", "text-disabled", "warning", "error", "success", "primary"):
            over, under = color(variables[front], variables[back]), color(variables[back])
            assert contrast(over, under) >= least, (front, back)


def set_depth(monkeypatch: pytest.MonkeyPatch, depth: str) -> None:
    """Let the terminal be one of so many colors."""
    monkeypatch.setenv("COLORTERM", "truecolor" if depth == "truecolor" else "")
    monkeypatch.setenv("TERM", "xterm-256color" if depth == "256" else "xterm")


@pytest.mark.parametrize(("depth", "system"), [("256", ColorSystem.EIGHT_BIT), ("standard", ColorSystem.STANDARD)])
@pytest.mark.parametrize("name", themes.TITLES)
def test_a_terminal_of_few_colors_shows_each_as_it_is(name: str, depth: str, system: ColorSystem) -> None:
    for shown in themes.COLORS[name, depth]:
        color = Color.parse(shown)
        near = color.rich_color.downgrade(system)
        assert near.number is not None
        palette = EIGHT_BIT_PALETTE if system is ColorSystem.EIGHT_BIT else STANDARD_PALETTE
        off = max(abs(a - b) for a, b in zip(palette[near.number], color.rgb, strict=True))
        assert off <= (10 if system is ColorSystem.EIGHT_BIT else 0), shown


@pytest.mark.parametrize("name", themes.TITLES)
def test_texts_of_16_colors_differ_from_their_ground(name: str) -> None:
    """Contrast by WCAG 2: 4.5 for text, 3 for marks; the terminal's green is no darker."""
    known = dict(zip(themes.ROLES, themes.COLORS[name, "standard"], strict=True))
    least = {"foreground": 4.5, "text-muted": 4.5, "warning": 4.5, "error": 4.5, "primary": 4.5, "success": 3.0}
    for front, ratio in least.items():
        assert contrast(color(known[front]), color(known["background"])) >= ratio, front


XTERM = {
    "#000000": "#000000", "#aa0000": "#cd0000", "#00aa00": "#00cd00", "#aa5500": "#cdcd00", "#0000aa": "#0000ee",
    "#aa00aa": "#cd00cd", "#00aaaa": "#00cdcd", "#aaaaaa": "#e5e5e5", "#555555": "#7f7f7f", "#ff5555": "#ff0000",
    "#55ff55": "#00ff00", "#ffff55": "#ffff00", "#5555ff": "#5c5cff", "#ff55ff": "#ff00ff", "#55ffff": "#00ffff",
    "#ffffff": "#ffffff",
}  # fmt: skip
"""The 16 colors as xterm shows them unless it is set up otherwise."""


@pytest.mark.parametrize("name", themes.TITLES)
def test_xterms_own_16_colors_can_be_read(name: str) -> None:
    """Warnings and borders were yellow and light grey on white."""
    known = dict(zip(themes.ROLES, (XTERM[value] for value in themes.COLORS[name, "standard"]), strict=True))
    least = {
        "foreground": 7,
        "text-muted": 4,
        "warning": 4,
        "error": 4,
        "primary": 4,
        "success": 2,
        "border-blurred": 3,
    }
    for front, ratio in least.items():
        assert contrast(color(known[front]), color(known["background"])) >= ratio, front
    for front in ("foreground", "text-muted", "primary"):
        assert contrast(color(known[front]), color(known["row-cursor"])) >= 3, front


@pytest.mark.parametrize("depth", ["truecolor", "256", "standard"])
@pytest.mark.parametrize("name", themes.TITLES)
def test_no_two_states_share_a_color(name: str, depth: str) -> None:
    """In high contrast the accent was a warning's yellow; a focused button looked like the others in two palettes."""
    known = dict(zip(themes.ROLES, themes.COLORS[name, depth], strict=True))
    states = [color(known[role]) for role in ("primary", "warning", "error", "success")]
    for one, other in itertools.combinations(states, 2):
        assert max(abs(a - b) for a, b in zip(one.rgb, other.rgb, strict=True)) >= 40
    assert known["row-cursor"] != known["panel"]


@pytest.mark.parametrize("theme", themes.THEMES, ids=lambda theme: theme.name)
def test_fields_are_told_from_text_in_256_colours(theme: Any) -> None:
    variables = RlctlApp(theme=theme.name).get_css_variables()
    shown = {
        name: Color.parse(variables[name]).rich_color.downgrade(ColorSystem.EIGHT_BIT).number
        for name in ("background", "panel")
    }
    assert shown["background"] != shown["panel"]


@pytest.mark.parametrize("depth", ["truecolor", "256", "standard"])
def test_a_value_is_told_from_its_name_in_every_depth(depth: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_depth(monkeypatch, depth)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await settled(screen, pilot)
        rows = [row for row in screen.query(FieldRow) if row.display]
        values = [value for row in rows for value in row.query("FieldInput, SelectCurrent #label")]
        assert len({type(value) for value in values}) > 1, "typed and chosen ones"
        looks = screen.app.get_css_variables()
        for row in rows:
            look = Color.parse(looks["primary" if row.view.changed else "text-muted"])
            for value in row.query("FieldInput, SelectCurrent #label"):
                assert value.styles.color == look != screen.styles.color
        assert {row.view.changed for row in rows} == {True, False}

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_field_has_the_ground_of_a_field(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "name")
        accent = Color.parse(screen.app.get_css_variables()["primary"])
        typed = screen.focused
        assert isinstance(typed, FieldInput)
        assert typed.styles.background == accent
        assert text_of(screen.app).count("EDIT") == 2, "above the values, and in the border"
        await pilot.press("escape")
        await settled(screen, pilot)
        assert isinstance(screen.focused, FieldRow)
        assert typed.styles.background != accent, "the line is chosen, its value is not being typed"
        assert "EDIT" not in text_of(screen.app)

    drive(RlctlApp(session=Session.open(file)), act)


def color(text: str, back: str = "#000000") -> Color:
    if text.startswith("auto"):
        share = float(text.split()[1].rstrip("%")) / 100 if " " in text else 1.0
        return Color.parse(back).blend(Color.parse(back).get_contrast_text(1.0), share)
    return Color.parse(text)


def contrast(one: Color, other: Color) -> float:
    def luminance(color: Color) -> float:
        parts = [part / 255 for part in color.rgb]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_without_colour_nothing_is_coloured(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        colors = set(re.findall(r"fill: #(......)", screen.app.export_screenshot())) - {"c5c8c6"}  # the picture's frame
        assert colors
        assert all(color[:2] == color[2:4] == color[4:] for color in colors)

    drive(RlctlApp(session=Session.open(file)), act)


def test_quitting_asks_where_something_is_not_saved(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("run", "seed"), 2)
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert isinstance(screen.app.screen, AskScreen)
        await pilot.press("y", "q", "enter")
        await pilot.pause()
        assert not screen.app._exit, "no letter answers, and the first answer is no"
        await pilot.press("ctrl+q")
        await pilot.pause()
        await agree(pilot)
        await pilot.pause()
        assert screen.app._exit

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_cannot_be_opened_ends_the_app_with_its_error(tmp_path: Path) -> None:
    app = RlctlApp(session=lambda given: Session.open(tmp_path / "none.yaml"))
    refused = app.run(headless=True)
    assert isinstance(refused, DocumentError)
    assert "none.yaml" in str(refused)


def test_a_mistake_of_ours_leaves_the_terminal_and_is_raised(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(app: RlctlApp) -> None:
        raise LookupError("a mistake")

    monkeypatch.setattr(RlctlApp, "_open_first", mistaken)
    monkeypatch.setattr(RlctlApp, "run", lambda app: App.run(app, headless=True))
    with pytest.raises(LookupError, match="a mistake"):
        RlctlApp(session=Session.open(file)).run_to_end()
    assert "Traceback" not in "".join(capsys.readouterr())


def test_what_is_there_is_looked_through_once_more_and_then_set_aside(file: Path) -> None:
    class Ring:
        """Holds itself, so that only a search for garbage lets go of it."""

        def __init__(self) -> None:
            self.own = self

    gone = weakref.ref(Ring())
    gc.freeze()  # as a screen is that was set aside and then left
    gc.collect()
    assert gone() is not None
    RlctlApp()._tidy()
    assert gone() is None
    assert gc.get_freeze_count() > 10_000


def test_the_search_for_garbage_is_on_once_the_app_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command switches it off before it loads the app."""
    monkeypatch.setattr(app_module, "TIDY_SECONDS", 0.01)

    async def act(screen: StartScreen, pilot: Any) -> None:
        while not gc.isenabled():
            await pilot.pause(0.01)

    gc.disable()
    try:
        drive(RlctlApp(), act)
    finally:
        gc.enable()


def test_nothing_is_set_aside_while_one_types_or_resizes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "TIDY_SECONDS", 3600)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        tidying = screen.app._tidying
        assert tidying is not None
        begun = []
        monkeypatch.setattr(tidying, "reset", lambda: begun.append(True))
        await pilot.press("down")
        assert begun
        begun.clear()
        await pilot.resize_terminal(90, 30)
        assert begun

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize("words", [[], ["run.yaml"]])
def test_the_first_frame_imports_nothing_that_is_not_on_it(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("rlctl: 1\n")
    code = f"""
import sys
from rlctl import cli
from rlctl.tui.app import RlctlApp
from rlctl.tui.screens.start import StartScreen

known = []

def drawn(app):
    known.extend(sys.modules)
    app.exit()

RlctlApp._open_first = drawn
StartScreen.action_refresh = lambda page: drawn(page.app)
sys.argv = ["rlctl", "tui", *{words}]
cli.main()
heavy = ("torch", "ray", "numpy", "textual_plot", "transformers", "tree_sitter", "omegaconf", "orjson", "packaging")
print([name for name in heavy if name in known])
print(sorted(name for name in known if name.startswith("rlctl.") and name.count(".") == 1))
"""
    driver = {"TEXTUAL_DRIVER": "textual.drivers.headless_driver:HeadlessDriver"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | driver
    )
    assert done.stdout.split("\n")[:2] == ["[]", "['rlctl.cli', 'rlctl.common', 'rlctl.tui']"], done.stderr


def test_what_the_app_checks_for_is_what_its_extra_installs() -> None:
    assert {name.replace("-", "_") for name in packages.extras()[packages.TUI]} == set(MODULES)


def test_the_start_page_is_the_first_frame_and_styles_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    again = []
    monkeypatch.setattr(Stylesheet, "reparse", lambda sheet: again.append(sheet))

    async def act(screen: StartScreen, pilot: Any) -> None:
        page, below = screen.app.screen_stack[::-1]
        assert page is screen
        assert not below.query("*")
        assert Color.parse(screen.app.theme_variables["background"]) == screen.styles.background

    drive(RlctlApp(theme="light"), act)
    assert not again


@pytest.mark.parametrize("size", [(60, 15), (120, 40)])
def test_a_page_has_the_classes_of_its_size_before_the_first_resize(
    file: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[set[str]] = []
    change = Page.update_classes

    def update(page: Page, classes: dict[str, bool], *, animate: bool = True) -> None:
        changes.append({name for name, wanted in classes.items() if wanted != page.has_class(name)})
        change(page, classes, animate=animate)

    monkeypatch.setattr(Page, "update_classes", update)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        assert screen.has_class("-low") == (size[1] < 20)

    drive(RlctlApp(session=Session.open(file)), act, size=size)
    assert changes[0], "before the page is mounted"
    assert len(changes) > 1
    assert not any(changes[1:])


def test_a_table_that_was_drawn_before_it_was_measured_is_drawn_again() -> None:
    class Drawn(App[None]):
        def compose(self) -> ComposeResult:
            yield Table()

    async def go() -> None:
        async with Drawn().run_test() as pilot:
            table = pilot.app.query_one(Table)
            await pilot.pause()
            table.add_column("key")
            table.add_row("stages[0].data.seed")
            assert "data.seed" not in table.render_line(1).text
            await pilot.pause()
            assert "stages[0].data.seed" in table.render_line(1).text

    asyncio.run(go())


def test_the_app_says_what_it_does_before_the_first_screen() -> None:
    app = RlctlApp(run=Path("demo"))
    [text] = [widget for widget in app.compose() if isinstance(widget, Static) and widget.id == "opening"]
    assert "opening" in str(text.content)
