"""The same run in any dialect, with the account of every key; and what differs from the file and from defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.widgets import OptionList, Select, Static, TextArea
from textual.widgets.option_list import Option

from rlctl.common.errors import RlctlError
from rlctl.common.report import Bucket, Entry, Finding, Level, fact_in
from rlctl.common.report_lines import SHOWN_KEYS, Line, Part, lines
from rlctl.common.secrets import redacted
from rlctl.config.chinese import in_words
from rlctl.documents import KeyPath, parse_dotted
from rlctl.editing.leads import Leads
from rlctl.editing.session import Session
from rlctl.editing.values import text_of
from rlctl.translation.difference import Difference
from rlctl.translation.translate import Translation
from rlctl.tui.language import say, shortened, told_apart
from rlctl.tui.panes.editor import EditorPane
from rlctl.tui.widgets.hanging import Hanging
from rlctl.tui.widgets.marks import marked
from rlctl.tui.widgets.port_table import LEAST, PortLine, drawn, heads, port_lines

LONGEST = 60
"""Most cells of a value."""
DIALECTS = ("rlctl", "verl", "trinity", "roll")
MARKS = {
    Bucket.UNKNOWN: "[$error bold]?[/]",
    Bucket.UNSUPPORTED: "[$error bold]✗[/]",
    Bucket.APPROXIMATED: "[$warning bold]≈[/]",
    Bucket.DEAD: "[$text-muted]-[/]",
}


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A line of the account, and where it leads: to a field, or to a fact that it asks for."""

    text: str
    path: KeyPath = ()
    fact: str = ""
    key: str = ""
    """What it is about, the same while the config changes; empty for what needs no decision."""
    heading: str = ""
    """Above it, if it is the first of its rank."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A translation as it is shown."""

    dialect: str
    text: str
    shares: str
    """How many keys went where."""
    lines: tuple[ReportRow, ...]
    keys: tuple[tuple[PortLine, KeyPath], ...] = ()
    """Every key of the source with what becomes of it, and the field that it leads to."""
    source: str = ""
    """The dialect of the source."""


class PreviewPane(EditorPane):
    """The run as text of a dialect, and below it what became of every key."""

    DEFAULT_CSS = """
    PreviewPane #port, PreviewPane #port-head { display: none; }
    PreviewPane.-columns #port, PreviewPane.-columns #port-head { display: block; }
    PreviewPane #port { height: 2fr; padding: 0; text-wrap: nowrap; }
    PreviewPane #port, PreviewPane #port:focus { border: none; }
    PreviewPane #port-head { height: 2; border-top: solid $border-blurred; border-title-color: $text-muted; }
    PreviewPane #preview-text, PreviewPane #preview-text:focus { border: none; }
    PreviewPane #preview-text { height: 2fr; }
    PreviewPane #text-head { height: 1; border-top: solid $border-blurred; border-title-color: $text-muted; }
    PreviewPane #account { height: auto; max-height: 45%; padding: 0; }
    PreviewPane #account, PreviewPane #account:focus { border: none; }
    PreviewPane #account-head { height: auto; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "accept", say("Accept"), id="preview.accept",
                tooltip=say("Accept what the target changes or loses here, and go to the next decision")),
        Binding("n", "next", say("Next format"), id="preview.next"),
        Binding("w", "write_folder", say("Write folder"), id="preview.folder",
                tooltip=say("Write config, rows, reward and launch script as a folder")),
    ]  # fmt: skip

    class Folder(Message):
        """The whole run is to be written for a framework."""

        def __init__(self, dialect: str) -> None:
            self.dialect = dialect
            super().__init__()

    class Renewed(Message):
        """Another dialect was chosen."""

    def __init__(self) -> None:
        super().__init__()
        self._order: tuple[str, ...] = DIALECTS
        """The dialects in the order in which they are offered."""
        self.dialect = self._order[0]
        self.is_chosen = False
        """Whether a person chose the dialect."""
        self._lines: tuple[ReportRow, ...] = ()
        self._keys: tuple[tuple[PortLine, KeyPath], ...] = ()
        self._drawn: tuple[object, int] = ((), 0)
        """The keys that the columns show, and their width."""
        self._heads = "", ""
        self._shares = ""
        self._asked: dict[str, dict[str, None]] = {}
        """By dialect, every decision that was asked for since the file was opened."""
        self._accepted: dict[str, set[str]] = {}
        """By dialect, what was accepted."""

    def start_from(self, own: str) -> None:
        """Offer the dialect of the file last, and first the frameworks that it can be ported to."""
        self._order = tuple(sorted(DIALECTS, key=lambda name: (name == own, name == "rlctl")))
        self.dialect = self._order[0]

    def compose(self) -> ComposeResult:
        choices = [(name, name) for name in self._order]
        yield Select(choices, value=self.dialect, allow_blank=False, id="preview-dialect", compact=True)
        yield Static("", id="account-head", markup=False)
        yield OptionList(id="account")
        yield Static("", id="port-head")
        yield OptionList(id="port")
        yield Static("", id="text-head")
        yield TextArea("", read_only=True, soft_wrap=False, show_line_numbers=True, id="preview-text", compact=True)

    def on_mount(self) -> None:
        self.query_one("#port-head").border_title = f" {say('every key')} "
        self.query_one("#text-head").border_title = f" {say('the file after saving')} "

    def read(self, session: Session) -> Any:
        found = session.preview(self.dialect)
        shares = ", ".join(f"{count} {in_words(bucket)}" for bucket, count in found.report.shares().items() if count)
        facts = ", ".join(f"{name}={value}" for name, value in session.facts.items())
        shares += say("; given: {facts}").format(facts=facts) if facts else ""
        text = found.text if found.text is not None else "\n".join(map(_finding_text, found.report.errors))
        leads = Leads(session, found)
        known = port_lines(session.report, found.report) if found.text is not None else []
        keys = tuple((line, leads.of_entry(line.entry)) for line in known)
        target = found.report.target or self.dialect
        return Preview(target, redacted(text), shares, tuple(_account(session, found)), keys, session.dialect)

    def take(self, found: Any) -> None:
        shown = self.query_one("#preview-text", TextArea)
        if shown.text != found.text:
            place = shown.scroll_offset
            shown.load_text(found.text)
            shown.scroll_to(place.x, place.y, animate=False)
        self._shares = f"{found.source.partition('@')[0]} → {found.dialect}: {found.shares}"
        self._keys, self._heads = found.keys, (found.source, found.dialect)
        self._show_columns()
        if found.lines != self._lines:
            self._lines = found.lines
            self._asked.setdefault(self.dialect, {}).update(dict.fromkeys(line.key for line in found.lines if line.key))
            self._list()
            self.refresh_bindings()
        self._tell_decisions()

    def _list(self, at: int | None = None) -> None:
        """List the account; each decision has a box, which is ticked once it is accepted."""
        listed = self.query_one("#account", OptionList)
        before = listed.highlighted if at is None else at
        listed.clear_options()
        listed.add_options([Option(Hanging(self._marked(line))) for line in self._lines])
        if self._lines and (before is not None or listed.has_focus):
            listed.highlighted = min(before or 0, len(self._lines) - 1)

    def _marked(self, line: ReportRow) -> str:
        box = "" if not line.key else "[$success bold]☑[/] " if self._is_accepted(line) else "☐ "
        head = f"[$text-muted]{line.heading}[/]\n" if line.heading else ""
        text = line.text.replace("\n", "\n  ") if box else line.text  # under the text that follows the box
        return f"{head}{box}{text}"

    def _is_accepted(self, line: ReportRow) -> bool:
        return line.key in self._accepted.get(self.dialect, ())

    def _tell_decisions(self) -> None:
        """How many decisions are made: those that were accepted, and those that an answer made needless."""
        asked = self._asked.get(self.dialect, {})
        open_ones = self._open_ones()
        told = ""
        if open_ones:
            told = say("{done} of {all} decided: Enter answers, Space accepts").format(
                done=len(asked) - len(open_ones), all=len(asked)
            )
        elif asked:
            told = say("✓ the only decision is made: ready to save with S")
            told = told if len(asked) == 1 else say("✓ all {all} decided: ready to save with S").format(all=len(asked))
        elif self._keys:
            told = say("✓ nothing to decide: ready to save with S")
        if not open_ones and self._can_be_ported():
            told += say("; w writes the whole run as a folder")
        self.query_one("#account-head", Static).update(marked("\n".join(filter(None, (told, self._shares)))))

    def _open_ones(self) -> list[ReportRow]:
        """The lines that wait for a decision."""
        return [line for line in self._lines if line.key and not self._is_accepted(line)]

    def _can_be_ported(self) -> bool:
        """Whether ``rlctl port`` moves runs of the file's framework to the one that is shown."""
        if not self._keys:
            return False
        from rlctl.porting.assemble import KNOWN

        own = self._heads[0].partition("@")[0]
        return own in KNOWN and self.dialect in KNOWN and own != self.dialect

    def action_write_folder(self) -> None:
        """Write the ported folder, once everything is decided."""
        if left := len(self._open_ones()):
            self.notify(say("{count} decisions are open: Enter answers, Space accepts").format(count=left))
        elif self._can_be_ported():
            self.post_message(self.Folder(self.dialect))

    def action_accept(self) -> None:
        """Accept the decision under the cursor, or take that back; then the next open one has the cursor."""
        at = self.query_one("#account", OptionList).highlighted
        if at is None or at >= len(self._lines) or not self._lines[at].key:
            self.notify(say("nothing to decide here"))
            return
        accepted, line = self._accepted.setdefault(self.dialect, set()), self._lines[at]
        accepted ^= {line.key}
        following = [*range(at + 1, len(self._lines)), *range(at)]
        is_open = (place for place in following if self._lines[place].key and not self._is_accepted(self._lines[place]))
        self._list(next(is_open, at) if line.key in accepted else at)
        self._tell_decisions()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Accept has to have something to decide under the cursor; a folder is written once all is decided."""
        if action == "write_folder":
            return self._can_be_ported() and (None if self._open_ones() else True)
        return action != "accept" or (any(line.key for line in self._lines) and self.query_one("#account").has_focus)

    @on(OptionList.OptionHighlighted, "#account")
    def _show_key(self, message: OptionList.OptionHighlighted) -> None:
        """Bring the key of a line into sight in the columns."""
        message.stop()
        line, listed = self._lines[message.option_index], self.query_one("#port", OptionList)
        place = next((n for n, (_, path) in enumerate(self._keys) if path and path == line.path), None)
        if place is not None and place < listed.option_count and self.query_one("#account").has_focus:
            listed.highlighted = place

    def on_resize(self) -> None:
        self._show_columns()

    def _show_columns(self) -> None:
        """Every key in three columns, where there is room for them."""
        width = self.size.width - 3
        is_wide = width >= LEAST and bool(self._keys)
        self.set_class(is_wide, "-columns")
        if width < LEAST or self._drawn == (self._keys, width):
            return
        self._drawn = self._keys, width
        head = heads(*self._heads, width)
        self.query_one("#port-head", Static).update(head)
        listed = self.query_one("#port", OptionList)
        at = listed.highlighted
        listed.clear_options()
        listed.add_options([Option(drawn(line, width)) for line, _ in self._keys])
        if self._keys and at is not None:
            listed.highlighted = min(at, len(self._keys) - 1)

    @on(OptionList.OptionSelected, "#port")
    def _to_key(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        line, path = self._keys[message.option_index]
        if fact := fact_in(line.entry.note):
            self.post_message(self.Ask(fact))
        elif path:
            self.post_message(self.Jump(path))
        else:
            self.notify(say("no field of the form has this key; 2 lists what can be fixed"))

    @on(OptionList.OptionSelected, "#account")
    def _to_field(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        line = self._lines[message.option_index]
        if line.fact:
            self.post_message(self.Ask(line.fact))
        elif line.path:
            self.post_message(self.Jump(line.path))
        else:
            self.notify(say("no field of the form has this key; 2 lists what can be fixed"))

    def action_next(self) -> None:
        """Show the run in the next dialect."""
        shown = self.query_one("#preview-dialect", Select)
        shown.value = self._order[(self._order.index(str(shown.value)) + 1) % len(self._order)]

    @on(Select.Changed)
    def _chosen(self, message: Select.Changed) -> None:
        message.stop()
        if str(message.value) != self.dialect:
            self.dialect, self.is_chosen = str(message.value), True
            self.post_message(self.Renewed())


def _account(session: Session, found: Translation) -> Iterator[ReportRow]:
    """What is worth a look in a translation, by rank: what is lost or had to be assumed, then what is computed."""
    leads = Leads(session, found)
    listed: list[tuple[Line, ReportRow]] = []
    for line in lines(found.report) if found.text is not None else []:
        if line.finding is not None:
            if line.finding in session.report.findings or line.finding.level is Level.NOTE:
                continue
            text = f"[$warning]![/] {escape(redacted(_finding_text(line.finding)))}"
            row = _told(text, f"{line.note} {line.finding.hint}", leads.of_finding(line.finding))
        else:
            row = _told(_line_text(line), line.note, leads.of_entry(line.entries[0]))
        key = f"{line.kind} {line.keys or line.note}" if line.part is Part.DECIDE else ""
        listed.append((line, replace(row, key=key)))
    heading = ""
    for line, row in sorted(listed, key=lambda pair: not pair[1].key):
        yield row if line.heading == heading else replace(row, heading=line.heading)
        heading = line.heading
    for entry in found.report.accounting:
        if entry.bucket is Bucket.DERIVED:
            yield _told(_entry_text(entry), entry.note, leads.of_entry(entry))


def _line_text(line: Line) -> str:
    """Entries of the ledger that have one reason."""
    first = line.entries[0]
    if len(line.entries) == 1:
        return _entry_text(first)
    place = f" ({first.at})" if first.at is not None else ""
    names = ", ".join(entry.key for entry in line.entries[:SHOWN_KEYS]) + (
        ", ..." if len(line.entries) > SHOWN_KEYS else ""
    )
    told = say("{count} keys: {names}").format(count=len(line.entries), names=names) + place
    return f"{MARKS.get(first.bucket, '·')} {in_words(first.bucket)}: {escape(redacted(told))}\n  [dim]{escape(line.note)}[/dim]"


def _told(text: str, asking: str, path: KeyPath = ()) -> ReportRow:
    if fact := fact_in(asking):
        text += "\n  [b]" + say("press enter or F10 to give {fact}").format(fact=fact) + "[/b]"
    return ReportRow(text, path, fact)


def _finding_text(item: Finding) -> str:
    told = f"{item.key}: {item.message}" if item.key and item.key not in item.message else item.message
    return f"{told}\n  {item.hint}" if item.hint else told


def _entry_text(entry: Entry) -> str:
    place = f" ({entry.at})" if entry.at is not None else ""
    became = ", ".join(f"{key} = {_short(value)}" for key, value in entry.targets)
    told = f"{entry.key} = {_short(entry.value)}{place}" + (f" -> {became}" if became else "")
    note = f"\n  [dim]{escape(entry.why)}[/dim]" if entry.note else ""
    return f"{MARKS.get(entry.bucket, '·')} {in_words(entry.bucket)}: {escape(redacted(told))}{note}"


def _short(value: Any) -> str:
    return shortened(text_of(value), LONGEST)


def _meaning(found: list[Difference]) -> list[tuple[str, str]]:
    lines = []
    for item in found:
        first, second = told_apart(text_of(item.first.shown), text_of(item.second.shown), LONGEST)
        lines.append((item.key, escape(redacted(f"{item.key}: {first} -> {second}"))))
    return lines


def _lines(session: Session) -> list[tuple[str, str]]:
    styles = {"+": "$success", "-": "$error", "@": "$primary"}
    try:
        lines = session.changed_lines()
    except RlctlError as error:
        lines = error.shown.splitlines()
    shown = [redacted(line) for line in lines]
    return [("", f"[{styles[line[0]]}]{escape(line)}[/]" if line[:1] in styles else escape(line)) for line in shown]


VIEWS: dict[str, tuple[str, Callable[[Session], list[tuple[str, str]]]]] = {
    "file": (say("what differs from the file"), lambda session: _meaning(session.differences())),
    "lines": (say("the file's lines, as they would be saved"), _lines),
    "defaults": (say("what differs from defaults"), lambda session: _meaning(session.from_defaults())),
}
"""What can be compared: a key and a line each."""


class DiffPane(EditorPane):
    """What differs, from the file and from defaults; a key leads to its field."""

    DEFAULT_CSS = """
    DiffPane #diff-list { height: 1fr; padding: 0; }
    DiffPane #diff-list, DiffPane #diff-list:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "next", say("Next comparison"), id="diff.next")]

    def __init__(self) -> None:
        super().__init__()
        self.view = "file"
        self._keys: list[str] = []

    def compose(self) -> ComposeResult:
        choices = [(title, name) for name, (title, _) in VIEWS.items()]
        yield Select(choices, value=self.view, allow_blank=False, id="diff-view", compact=True)
        yield OptionList(id="diff-list")

    def read(self, session: Session) -> Any:
        return VIEWS[self.view][1](session)

    def take(self, found: Any) -> None:
        listed = self.query_one("#diff-list", OptionList)
        listed.clear_options()
        self._keys = [key for key, _ in found]
        listed.add_options([Option(text) for _, text in found] or [Option(say("nothing differs"), disabled=True)])

    def action_next(self) -> None:
        names, shown = list(VIEWS), self.query_one("#diff-view", Select)
        shown.value = names[(names.index(str(shown.value)) + 1) % len(names)]

    @on(Select.Changed)
    def _chosen(self, message: Select.Changed) -> None:
        message.stop()
        if str(message.value) != self.view:
            self.view = str(message.value)
            self.post_message(PreviewPane.Renewed())

    @on(OptionList.OptionSelected)
    def _to_field(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        key = self._keys[message.option_index]
        if key:
            self.post_message(self.Jump(parse_dotted(key)))
