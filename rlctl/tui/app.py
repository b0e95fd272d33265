"""The app: what is opened, and what holds on every screen. It draws its first frame before anything heavy is imported."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, cast

from rich import _wrap
from textual import _ansi_sequences, on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, Key, MouseEvent, Paste, Resize
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen
from textual.scrollbar import ScrollBar
from textual.timer import Timer
from textual.widgets import Input, Static

from rlctl.common.errors import RlctlError, UsageError
from rlctl.common.language import LANGUAGES
from rlctl.common.messages.reasons import said
from rlctl.tui import settings, themes
from rlctl.tui.language import LANGUAGE, WORD, say
from rlctl.tui.navigation import Opening
from rlctl.tui.safe_lines import SafeLines
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.thin_scrollbar import ThinScrollBarRender

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.widget import Widget

    from rlctl.editing.session import Session
    from rlctl.runs import Status
    from rlctl.runs.launching import Launched

SWITCH_SECONDS = 0.0005
"""How long a thread that reads or checks computes before the app gets a turn; by itself Python lets it have ten times that."""
TIDY_SECONDS = 1.0
"""So long after the last key or resize a screen that was opened is set aside from the search for garbage, which halts keys."""
YOUNG = 10_000
"""New objects after which garbage is looked for: reading a long run makes many, none of which is garbage of that kind."""
HELD_SECONDS = 10.0
"""How long a key waits at most for what the key before it does: long, because only a fault makes it wait for ever."""
TAKEN_FOR_LETTERS = [f"\x1b{digit}" for digit in range(10)]
"""What terminals send for alt and a digit, where Textual writes what a Mac's keyboard would: ``™`` over the text of a field."""
MOVES = (
    ("j", "down", say("Next line")), ("k", "up", say("Previous line")),
    ("g", "home", say("First line")), ("G", "end", say("Last line")),
)  # fmt: skip
"""Letters that do what an arrow or other key does where the cursor is."""
Make = Callable[[], "Screen[Any]"]
"""Makes a screen; what it needs is imported and read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person said that a launch script wants, and what opens it once more with what they say then."""

    given: dict[str, str]
    again: Callable[[dict[str, str]], None]


def _commands() -> type[Provider]:
    from rlctl.tui.commands import KeyCommands

    return KeyCommands


def _places() -> type[Provider]:
    from rlctl.tui.commands import Places

    return Places


class RlctlApp(App[RlctlError]):
    """Edits a config, or watches a run, or asks which; ends with the error where what was named cannot be opened."""

    TITLE = "rlctl"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-small"), (70, "-usual")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    COMMANDS: ClassVar[set[Any]] = {*App.COMMANDS, _commands, _places}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", say("Help"), id="app.help", tooltip=say(
            "All keyboard shortcuts of this page"
        )),
        Binding("f1", "help", say("Help"), id="app.help_too"),
        *(
            Binding(letter, f"press('{key}')", told, id=f"app.{key}", show=False, tooltip=say("As in vim"))
            for letter, key, told in MOVES
        ),
        Binding("q", "back", say("Back"), id="app.back", show=False, tooltip=say("One level back; quits the start page")),
        Binding(
            "ctrl+o", "jump", say("Jump"), id="app.jump", priority=True, show=False,
            tooltip=say("Put a letter on every part of the screen; press it to go there"),
        ),
        Binding(
            "ctrl+q", "quit", say("Quit"), id="app.quit", priority=True, show=False,
            tooltip=say("Leave; asks if unsaved; runs continue"),
        ),
        Binding(
            "ctrl+p", "command_palette", say("Commands"), id="app.commands", show=False, priority=True,
            tooltip=say("Every command by its name; every field, run, preset and file"),
        ),
        Binding("colon", "command_palette", say("Commands"), id="app.commands_too", show=False),
    ]  # fmt: skip

    class Opened(Message):
        """What was asked for is read: its screen can be shown."""

        def __init__(self, make: Make, shown: Screen[Any]) -> None:
            self.make, self.shown = make, shown
            super().__init__()

    class Refused(Message):
        """What was asked for cannot be opened."""

        def __init__(self, name: str, error: RlctlError, shown: Screen[Any], asked: Asked | None) -> None:
            self.name, self.error, self.shown, self.asked = name, error, shown, asked
            super().__init__()

    def __init__(
        self,
        *,
        session: Session | Opening | None = None,
        run: Path | None = None,
        runs_folder: Path = Path("runs"),
        readonly: bool = False,
        theme: str | None = None,
        machines: str = "",
    ) -> None:
        """
        Args:
            session: the config to edit, or what opens it, which is then done behind the first frame.
            run: the folder of the run to watch; without either, the start page.
            runs_folder: where runs are, for the start page.
            readonly: runs are watched, never stopped or resumed, and files are not written.
            theme: the colours; without it, those that were chosen last.
            machines: what configs are planned for, as ``2x8:H100``.

        Raises:
            UsageError: there is no such theme.
        """
        super().__init__()
        self._safe_lines = SafeLines()
        self.session, self.run_folder, self.runs_folder, self.readonly = session, run, runs_folder, readonly
        self.launched: list[Launched] = []
        """What was started from here."""
        self.watched: set[Path] = set()
        """The folders of the runs that were shown."""
        self.machines = machines
        self._held: list[Key | Paste] = []
        self._held_since = 0.0
        self._tidying: Timer | None = None
        self._waits_for: Key | None = None
        self._made: Screen[Any] | None = None
        """The screen that keys can go to: it has been made, and had the focus if it takes it."""
        for known in themes.themes(self.console.color_system):
            self.register_theme(known)
        self._dress(theme)

    def _dress(self, asked: str | None) -> None:
        if asked is not None and themes.whole_name(asked) not in self.available_themes:
            names = ", ".join(sorted(self.available_themes))
            raise UsageError(
                said("there is no theme {name!r}", name=asked),
                hint=said("dark, light, contrast, or one of {names}", names=names),
            )
        wanted = themes.whole_name(asked or settings.read().get("theme", ""))
        self.theme = wanted if wanted in self.available_themes else themes.FIRST

    def refresh_css(self, animate: bool = True) -> None:
        """Parse all styles again; before there is a screen nothing has been parsed, and the theme's colors are enough."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    def get_css_variables(self) -> dict[str, str]:
        found = super().get_css_variables()
        return {"row-cursor": found["panel"], **found}

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._safe_lines]

    @property
    def _nothing_named(self) -> bool:
        """Whether neither a run nor a config is to be opened, so that the start page asks which."""
        return self.run_folder is None and self.session is None

    def compose(self) -> ComposeResult:
        if self._nothing_named:
            return  # the start page covers it from the first frame on
        yield Head()
        yield Static(say("opening ..."), id="opening")
        yield Footer()

    def on_mount(self) -> None:
        for sequence in TAKEN_FOR_LETTERS:
            cast("dict[str, Any]", _ansi_sequences.ANSI_SEQUENCES_KEYS).pop(sequence, None)
        ScrollBar.renderer = ThinScrollBarRender
        if LANGUAGE == "zh":
            _wrap.re_word = WORD
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(YOUNG)
        self.set_timer(TIDY_SECONDS, gc.enable)  # off since before the app was loaded
        self.theme_changed_signal.subscribe(self, lambda theme: settings.choose("theme", theme.name))
        if self._nothing_named:
            self.push_screen(self._start_page())
            self._tidy_later()
        else:
            self.call_after_refresh(self.call_after_refresh, self._open_first)

    def _open_first(self) -> None:
        session = self.session
        if self.run_folder is not None:
            self.watch_run(self.run_folder)
        elif session is not None:
            self.edit(say("the config"), session if callable(session) else lambda given: session)

    # Keys, in their order however fast they come

    async def on_event(self, event: Event) -> None:
        """Let a key do what it does before the next one comes.

        A key that the focused widget does not take climbs to the app and comes back as an action; what is typed meanwhile would
        go to where the focus was before, or be lost while a box is being opened. It waits until then.
        """
        if self._tidying is not None and isinstance(event, (Key, Resize)):
            self._tidying.reset()
        if isinstance(event, MouseEvent) and self._is_on_removed(event):
            return
        if not isinstance(event, (Key, Paste)):
            await super().on_event(event)
        elif event.is_forwarded:
            await super().on_event(event)
            if event is self._waits_for:
                self._waits_for = None
                self.call_later(self._release)
        elif self._held or self._is_busy:
            if not self._held:
                self._held_since = monotonic()
                self.set_timer(0.01, self._release)
            self._held.append(event)
        else:
            await self._take(event)

    def _is_on_removed(self, event: MouseEvent) -> bool:
        """Whether the mouse is on what was removed and is seen until the next frame: Textual fails on a press there."""
        if event.is_forwarded:
            return False
        widget, _ = self.screen.get_widget_and_offset_at(event.x, event.y)
        return widget is not None and not widget.is_attached

    async def _take(self, event: Key | Paste) -> None:
        is_deaf = getattr(self.screen, "is_deaf", None)
        if is_deaf is not None and is_deaf():
            return
        focused = self.focused
        if isinstance(event, Key):
            if await self._check_bindings(event.key, priority=True):
                return
            if not _is_written_in(focused):
                taken = focused is not None and focused.check_consume_key(event.key, event.character)
                if not taken and await self._check_bindings(event.key):
                    return
            elif event.key == "enter" or not (event.is_printable or focused._bindings.key_to_bindings.get(event.key)):
                self._waits_for = event
        await super().on_event(event)

    @property
    def _is_busy(self) -> bool:
        """Whether a key or the cursor is on its way still, or a screen is being made that will have the focus."""
        shown = self.screen
        if shown is not self._made and shown.is_mounted and (shown.focused is not None or not shown.focus_chain):
            self._made = shown
        return self._waits_for is not None or shown is not self._made or getattr(shown, "is_moving", False)

    async def _release(self) -> None:
        """Take what waited, as far as it need not wait any more."""
        if self._held and monotonic() - self._held_since > HELD_SECONDS:
            self._waits_for = None
            await self._take(self._held.pop(0))
            self._held_since = monotonic()
        while self._held and not self._is_busy:
            await self._take(self._held.pop(0))
            self._held_since = monotonic()
        if self._held:
            self.set_timer(0.01, self._release)

    # What can be opened, from any screen

    def watch_run(self, folder: Path) -> None:
        """Show the monitor of a run."""
        self.watched.add(folder)

        def read() -> Make:
            from rlctl.tui.screens.monitor import MonitorScreen

            return lambda: MonitorScreen(folder, readonly=self.readonly)

        self._open(folder.name, read)

    def edit(self, name: str, opening: Opening, given: dict[str, str] | None = None, *, changed: bool = False) -> None:
        """Show the editor of a config that is opened now; a person is asked for what it wants beside ``given``.

        ``changed``: whether it opens at its first change.
        """
        known = given or {}

        def read() -> Make:
            from rlctl.tui.screens.editor import EditorScreen

            session = opening(known)
            at = session.changes[0].path if changed and session.changes else ()
            return lambda: EditorScreen(session, readonly=self.readonly, at=at)

        self._open(name, read, Asked(known, lambda said: self.edit(name, opening, said, changed=changed)))

    def edit_file(self, path: Path) -> None:
        """Show the editor of a file."""

        def opening(given: dict[str, str]) -> Session:
            from rlctl.editing.session import Session

            return Session.open(path, given=given)

        self.edit(path.name, opening)

    def edit_preset(self, name: str) -> None:
        """Show the editor of a new config that begins as a preset."""

        def opening(given: dict[str, str]) -> Session:
            from rlctl.config import presets
            from rlctl.editing.session import Session

            return Session.of_text(presets.text(name), f"{name}.yaml")

        self.edit(name, opening)

    def _start_page(self) -> Screen[None]:
        from rlctl.tui.screens.start import StartScreen

        return StartScreen(self.runs_folder, readonly=self.readonly)

    def leave_screen(self, left: Screen[Any]) -> None:
        """Go to the screen below; from the first one to the start page. Only ``action_quit`` ends the app.

        ``left``: the screen that is left; a key that comes late, when it is left already, leaves no other one.
        """
        if self.screen is not left:
            return
        if len(self.screen_stack) > 2:
            self.pop_screen()
        else:
            self.switch_screen(self._start_page())

    def _open(self, name: str, read: Callable[[], Make], asked: Asked | None = None) -> None:
        """Say what is being opened, and open it behind that."""
        if len(self.screen_stack) > 1:
            from rlctl.tui.dialogs.opening import OpeningScreen

            self.push_screen(OpeningScreen(say("opening {name} ...").format(name=name)))
        self._read(name, read, self.screen, asked)

    @work(thread=True, group="open")
    def _read(self, name: str, read: Callable[[], Make], shown: Screen[Any], asked: Asked | None) -> None:
        """Import and read in a thread; the screen itself is made where all screens are."""
        try:
            make = read()
        except RlctlError as error:
            self.post_message(self.Refused(name, error, shown, asked))
        else:
            self.post_message(self.Opened(make, shown))

    @on(Opened)
    def _opened(self, message: Opened) -> None:
        if len(self.screen_stack) == 1:
            self.push_screen(message.make())
        elif self._back_to(message.shown):
            self.switch_screen(message.make())
        self._tidy_later()

    def _tidy_later(self) -> None:
        if self._tidying is None:
            self._tidying = self.set_timer(TIDY_SECONDS, self._tidy)

    def _tidy(self) -> None:
        """Let go of what screens that are gone held, and look no more at what is there; not while a page still reads."""
        self._tidying = None
        if any(getattr(screen, "is_reading", False) for screen in self.screen_stack):
            self._tidy_later()
            return
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    @on(Refused)
    def _refused(self, message: Refused) -> None:
        if not self._back_to(message.shown):
            return
        is_first = len(self.screen_stack) == 1
        if not is_first:
            self.pop_screen()
        asked, error = message.asked, message.error
        wanted = getattr(error, "wanted", ())
        if asked is not None and (wanted or asked.given):
            self._ask(asked, message.name, error, wanted)
        elif is_first:
            self.exit(error)
        else:
            self._tell_refused(message.name, error)

    def _tell_refused(self, name: str, error: RlctlError) -> None:
        title = say("{name} cannot be opened").format(name=name)
        self.notify(error.shown, title=title, severity="error", markup=False)

    def _ask(self, asked: Asked, name: str, error: RlctlError, wanted: Iterable[str]) -> None:
        """Ask for the variables that a script wants, with the values given before; without an answer, show the start page."""
        from rlctl.tui.dialogs.wanted import WantedScreen

        def answered(said: dict[str, str] | None) -> None:
            if said is not None:
                asked.again(said)
            elif len(self.screen_stack) == 1:
                self.push_screen(self._start_page())
                self._tell_refused(name, error)

        told = error.shown_account if wanted else error.shown
        self.push_screen(WantedScreen(told, {**asked.given, **dict.fromkeys(wanted, "")}), answered)

    def _back_to(self, shown: Screen[Any]) -> bool:
        """Leave what stands over a screen; false where that is left itself: opening was given up."""
        if shown not in self.screen_stack:
            return False
        while self.screen is not shown:
            self.pop_screen()
        return True

    def tell_ended(self, name: str, status: Status) -> None:
        """Ring, and ask the terminal for a notice on the desktop: a run has ended."""
        from rlctl.tui.widgets.run_texts import SIGNS, STATUSES
        from rlctl.tui.widgets.sample_texts import plain

        told = plain(f"{SIGNS[status]} {name}: {say(STATUSES[status])}")
        self.notify(told, severity="information" if status in ("finished", "stopped") else "error", markup=False)
        self.bell()
        if self._driver is not None and not self.is_headless:
            self._driver.write(desktop_notice(told, os.environ.get("TERM", "")))

    # What holds everywhere

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield SystemCommand(say("Theme"), say("Choose the colors; rlctl remembers them"), self.action_change_theme)
        for name, title in themes.TITLES.items():
            yield SystemCommand(
                say("Theme: {title}").format(title=title), name, lambda name=name: self._choose_theme(name)
            )
        for language, title in LANGUAGES.items():
            if language != LANGUAGE:
                told = say("Takes effect at the next start")
                yield SystemCommand(title, told, lambda language=language: self._choose_language(language))
        yield SystemCommand(say("Screenshot"), say("Save the screen as an SVG file"), self.deliver_screenshot)

    def _choose_theme(self, name: str) -> None:
        self.theme = name

    def _choose_language(self, language: str) -> None:
        settings.choose("language", language)
        self.notify(say("{language} from the next start").format(language=LANGUAGES[language]))

    def action_command_palette(self) -> None:
        from textual.command import CommandPalette

        if not isinstance(self.screen, CommandPalette):
            told = say("a command, a field, a run, a preset, a file")
            self.push_screen(CommandPalette(id="--command-palette", placeholder=told))

    def action_help(self) -> None:
        from rlctl.tui.dialogs.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_jump(self) -> None:
        from rlctl.tui.jump import JumpScreen, focus

        if not isinstance(self.screen, JumpScreen):
            self.push_screen(JumpScreen(self.screen), focus)

    async def action_press(self, key: str) -> None:
        """Do what another key does where the cursor is."""
        await self._check_bindings(key)

    async def action_back(self) -> None:
        """Do what Esc does; on the start page, where there is nowhere to go back to, quit."""
        from rlctl.tui.screens.start import StartScreen

        if isinstance(self.screen, StartScreen):
            await self.action_quit()
        else:
            await self._check_bindings("escape")

    async def action_quit(self) -> None:
        from rlctl.tui.dialogs.ask import AskScreen

        if isinstance(self.screen, AskScreen):
            return
        for screen in self.screen_stack:
            if take := getattr(screen, "take_typed", None):
                take()
        invalid = [key for screen in self.screen_stack for key in getattr(screen, "invalid_keys", list)()]
        is_unsaved = any(_is_unsaved(screen) for screen in self.screen_stack)
        if not (is_unsaved or invalid):
            self.exit()
            return
        question = say(
            "There are unsaved changes. rlctl keeps them and offers to restore them when you open the file again. Quit?"
        )
        if invalid:
            told = say("{key} has an invalid value, which is not kept.").format(key=invalid[0])
            question = f"{told}\n{question if is_unsaved else say('Quit?')}"
        self.push_screen(AskScreen(question, say("Quit")), lambda yes: self.exit() if yes else None)

    def _fatal_error(self) -> None:
        """Leave the terminal as it was found; `run_to_end` raises what happened, and the command line tells it."""
        self.bell()
        self._close_messages_no_wait()

    def run_to_end(self) -> None:
        """Run the app.

        Raises:
            RlctlError: what was named cannot be opened.
            Exception: a mistake in rlctl.
        """
        refused = self.run()
        if self._exception is not None:
            raise self._exception
        if refused is not None:
            raise refused


def desktop_notice(text: str, term: str) -> str:
    """What makes a terminal show a notice: OSC 777 in rxvt and foot, else OSC 9; others ignore it."""
    shown = text.replace(";", ",")
    return f"\x1b]777;notify;rlctl;{shown}\x07" if term.startswith(("rxvt", "foot")) else f"\x1b]9;{shown}\x07"


def _is_written_in(widget: Widget | None) -> TypeGuard[Widget]:
    """Whether keys are letters there."""
    from textual.widgets import TextArea

    return isinstance(widget, (Input, TextArea))


def _is_unsaved(screen: Screen[Any]) -> bool:
    """Whether something would be lost with a screen: it edits a config that was changed."""
    session: Session | None = getattr(screen, "session", None)
    return session is not None and session.is_changed and bool(session.file is not None or session.changes)
