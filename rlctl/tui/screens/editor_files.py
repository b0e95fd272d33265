"""What a person does with a config as a whole: save, take another text, go on after a crash, launch, leave. Nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from rlctl.common.errors import DocumentError, RlctlError
from rlctl.common.filenames import YAML_ENDINGS, expanded, is_file
from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.common.secrets import redacted
from rlctl.documents import KeyPath, dotted, read_text
from rlctl.editing import items, recovery
from rlctl.editing.deviations import changes_training
from rlctl.editing.fields import FieldView
from rlctl.editing.session import Draft, FileChangedError, Merge, SaveOverError, Session
from rlctl.editing.values import text_of
from rlctl.tui.dialogs.ask import AskScreen, ChooseScreen, TextScreen
from rlctl.tui.dialogs.facts import FactsScreen, in_app
from rlctl.tui.dialogs.items import ItemsScreen
from rlctl.tui.dialogs.save_as import Named, SaveAsScreen
from rlctl.tui.external import edited
from rlctl.tui.language import plural, say, shortened, told_apart
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.preview import DIALECTS
from rlctl.tui.screens.page import Page
from rlctl.tui.widgets.field_row import FieldRow
from rlctl.tui.widgets.section_tree import SectionTree

LOOK_SECONDS = 2.0
"""How often the file is looked at."""
SLOW_SECONDS = 0.7
"""How long a save is silent."""
LONGEST = 60
"""Most cells of a value in a list of changes."""
LINES = 200
"""Most lines of a difference that a question shows."""

WRITING = ("save", "save_as", "launch", "undo", "reset", "edit")
"""The actions with a key in the footer that change or write something."""


@dataclass(frozen=True, slots=True)
class Writing:
    """A file that is to be written."""

    make: Callable[[], Draft]
    write: Callable[[Draft, bool], None]
    """Writes the draft; with whether the user keeps values here that the file says otherwise."""
    is_listed: bool = False
    """Whether the user has read what the file says otherwise."""


class EditorFiles(Page):
    """A screen with a session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "s", "save", say("Save"), id="edit.save",
            tooltip=say("Save the file in its own format and layout"),
        ),
        Binding("ctrl+s", "save", say("Save"), id="edit.save_too"),
        Binding(
            "S", "save_as", say("Save as"), id="edit.save_as",
            tooltip=say("Save to another file, in this or another format, or export a copy"),
        ),
        Binding("f12", "save_as", say("Save as"), id="edit.save_as_too"),
        Binding("l", "launch", say("Launch"), id="edit.launch", tooltip=say("Plan a run of this, and start it")),
        Binding("f9", "launch", say("Launch"), id="edit.launch_too", show=False),
        Binding(
            "o", "edit_field", say("$EDITOR"), id="edit.field_outside", show=False,
            tooltip=say("The field in your own editor: $VISUAL, $EDITOR or vi"),
        ),
        Binding("f7", "edit_field", say("$EDITOR"), id="edit.field_outside_too", show=False),
        Binding(
            "O", "edit_file", say("File in $EDITOR"), id="edit.file_outside", show=False,
            tooltip=say("The whole file, as it would be saved, in your own editor"),
        ),
        Binding("f8", "edit_file", say("File in $EDITOR"), id="edit.file_outside_too", show=False),
        Binding(
            "F", "facts", say("Facts"), id="edit.facts", show=False,
            tooltip=say("Add facts that the config doesn't contain, such as the number of rows in the data"),
        ),
        Binding("f10", "facts", say("Facts"), id="edit.facts_too", show=False),
        Binding(
            "r", "review", say("Decide"), id="edit.review",
            tooltip=say("See what another program changed in the file, and what becomes of it"),
        ),
        Binding("ctrl+r", "review", say("Decide"), id="edit.review_too", show=False),
    ]  # fmt: skip

    class OnDisk(Message):
        """Another program wrote the file, or what it wrote is gone."""

        def __init__(self, text: str, found: Merge | RlctlError | None) -> None:
            self.text, self.found = text, found
            super().__init__()

    class Drafted(Message):
        """What would be written is known, or why nothing can be."""

        def __init__(self, found: Draft | RlctlError, writing: Writing) -> None:
            self.found, self.writing = found, writing
            super().__init__()

    def __init__(self, session: Session, *, readonly: bool) -> None:
        super().__init__()
        self.session, self.readonly = session, readonly
        session.readonly = readonly
        self._given_up = False
        self._drafting = asyncio.Lock()
        """Held while it is found out what would be written."""
        self._kept: list[tuple[str, Any, Any]] = []
        """What the file says otherwise, as the user knows: key, the value here, the one in the file."""
        self._told: str | None = None
        """The text that another program wrote, while it is not decided what becomes of it."""

    def is_useless(self, action: str) -> bool:
        return self.readonly and action in WRITING

    def renew(self, *, discard_typed: bool = False) -> None:
        """Show the config as it is now."""
        raise NotImplementedError

    async def show_again(self) -> None:
        """Show the whole form again."""
        raise NotImplementedError

    def under_cursor(self) -> FieldView | None:
        """The field that has the cursor."""
        raise NotImplementedError

    async def jump(self, path: Any) -> bool:
        """Show the field at a path."""
        raise NotImplementedError

    @property
    def shown_dialect(self) -> str:
        """The dialect that a person looks at."""
        raise NotImplementedError

    def _may_write(self) -> bool:
        if self.readonly:
            self.notify(say("opened read-only"), severity="warning")
        return not self.readonly

    def take_typed(self) -> None:
        """Take what was typed a moment ago, and is on its way still."""
        raise NotImplementedError

    @property
    def is_typed_in(self) -> bool:
        """Whether letters go into a field."""
        return any(row.is_typed_in for row in self.query(FieldRow))

    def _is_whole(self) -> bool:
        """Whether what stands in the fields is what the config says; else a person is led to the one that is not."""
        self.take_typed()
        wrong = next((row for row in self.query(FieldRow) if row.is_wrong), None)
        if wrong is None:
            return True
        told = say("{key} has an invalid value: change it, or undo it with ctrl+z")
        self.notify(told.format(key=dotted(wrong.view.path)), severity="warning", markup=False)
        wrong.focus()
        return False

    def action_facts(self) -> None:
        self.ask_facts("")

    def ask_facts(self, wanted: str) -> None:
        """Let a person state what no config says; ``wanted`` is the fact that is asked for."""
        self.app.push_screen(FactsScreen(self.session, wanted), lambda done: self.renew() if done else None)

    # Leaving

    def leave_file(self) -> None:
        """Leave, with a question where something would be lost."""
        self.take_typed()
        is_changed, invalid = recovery.is_at_stake(self.session), self.invalid_keys()
        if self.readonly or not (is_changed or invalid):
            self._go()
            return
        told = [say("There are changes that are not saved.")] if is_changed else []
        told += [say("{key} has an invalid value, which is not kept.").format(key=key) for key in invalid[:1]]
        answers = [("s", say("Save and leave"))] if is_changed else []
        answers += [("l", say("Leave without them"))]
        self.app.push_screen(ChooseScreen("\n".join(told), answers, say("Stay")), self._left)

    def invalid_keys(self) -> list[str]:
        """The keys whose typed values do not fit: they are neither saved nor kept."""
        return []

    def _left(self, answer: str | None) -> None:
        if answer == "l":
            self._given_up = True
            self._go()
        elif answer == "s":
            self._save_then(self._go)

    def _go(self) -> None:
        navigation(self.app).leave_screen(self)

    def on_unmount(self) -> None:
        if self._given_up or not recovery.is_at_stake(self.session):
            recovery.forget(self.session)
        elif not self.readonly:
            recovery.keep(self.session)

    # Saving

    def action_save(self) -> None:
        if self._may_write():
            self._save_then(lambda: None)

    def _save_then(self, after: Callable[[], Any]) -> None:
        """Save, ask first if the file has no name or would say something else than the config, and go on once it is saved."""
        if not self._is_whole():
            return
        if self.session.file is None:
            self._ask_name(after)
        else:
            self._save(after)

    def _save(self, after: Callable[[], Any]) -> None:
        def write(draft: Draft, keep: bool) -> None:
            self._write(draft, after, keep=keep, force=False)

        self._prepare(Writing(self.session.draft, write))

    def _write(self, draft: Draft, after: Callable[[], Any], *, keep: bool, force: bool) -> None:
        try:
            path = self.session.save(draft, force=force)
        except FileChangedError:
            self._review(partial(self._save, after))
        except SaveOverError as error:
            self.app.push_screen(
                AskScreen(
                    say("{error}. Overwrite it?").format(error=translated(error.message)), say("Overwrite the file")
                ),
                lambda yes: self._write(draft, after, keep=keep, force=True) if yes else None,
            )
        except RlctlError as error:
            self._not_saved(error)
        else:
            self._saved(path, after, keep=keep)

    def _not_saved(self, error: RlctlError) -> None:
        self.notify(in_app(error.shown), title=say("not saved"), severity="error", timeout=15, markup=False)

    def _saved(self, path: Path, after: Callable[[], Any], *, keep: bool) -> None:
        """Tell what was saved, and take what the file says unless the user keeps other values here."""
        self.notify(say("saved {path}").format(path=path), markup=False)
        self._kept = list(self.session.lost) if keep else []
        if self.session.lost and not keep:
            self.notify(say("the config now has the file's values; ctrl+z restores yours"))
            self.session.reopen()
            self._shown()
        else:
            self.renew()
        after()

    # What saving would change besides

    def _prepare(self, writing: Writing) -> None:
        """Find out what would be written, ask before it changes other keys, and write it.

        Of several saves of this file only the last is written, and so of several under another name; each kind has a group.
        """
        self.run_worker(self._drafted(writing), group="save-as" if writing.is_listed else "save", exclusive=True)

    async def _drafted(self, writing: Writing) -> None:
        async with self._drafting:  # in order: after a save under another name, this file is another one
            told = say("reading what saving would change...")
            slow = self.set_timer(SLOW_SECONDS, lambda: self.notify(told))
            try:
                found: Draft | RlctlError = await asyncio.to_thread(writing.make)
            except RlctlError as error:
                found = error
            finally:
                slow.stop()
            self.post_message(self.Drafted(found, writing))

    def on_editor_files_drafted(self, message: Drafted) -> None:
        draft, writing = message.found, message.writing
        if isinstance(draft, RlctlError):
            self._not_saved(draft)
        elif draft.loaded is not self.session.loaded:  # somebody typed meanwhile
            self._prepare(writing)
        elif draft.disconnected:
            self._ask_variables(draft, writing)
        else:
            self._ask_side_effects(draft, writing)

    def _ask_variables(self, draft: Draft, writing: Writing) -> None:
        """Ask whether to edit the script's variables, or to write the values where the variables are used."""
        uses = "\n".join(
            f"  {say('line {line}: {key}={word}').format(line=one.line, key=one.key, word=one.word)}"
            for one in draft.disconnected
        )
        names = ", ".join(dict.fromkeys(one.variable for one in draft.disconnected if one.variable))
        told = [say("The script sets these keys from variables:"), uses]
        if draft.also:
            told += [say("Editing the variables' defaults also changes:"), *map(_changed, draft.also)]
        answers = [
            *([("v", say("Edit the defaults: {names}").format(names=names))] if names else []),
            ("u", say("Replace the variables with the values; the variables then no longer set these keys")),
        ]

        def answered(answer: str | None) -> None:
            if answer == "v":
                try:
                    self.session.follow_variables(draft)
                except RlctlError as error:
                    self._not_saved(error)
                    return
                self.renew(discard_typed=True)
                self._prepare(writing)
            elif answer == "u":
                self._ask_side_effects(draft, writing)

        self._ask_saving("\n".join(told), answers, answered)

    def _ask_saving(
        self, question: str, answers: list[tuple[str, str]], answered: Callable[[str | None], None]
    ) -> None:
        self.app.push_screen(ChooseScreen(redacted(question), answers, say("Do not save")), answered)

    def _ask_side_effects(self, draft: Draft, writing: Writing) -> None:
        """Ask before keys of the file change that you did not change: they count in units of one that you did."""
        if not draft.side_effects:
            self._ask_lost(draft, writing)
            return
        lines = "\n".join(
            f"  {one.key}: {one.before} → {one.after}   ({dotted(one.path)} = {one.value})"
            for one in draft.side_effects
        )
        kept = [one for one in draft.side_effects if one.value_to_keep_key is not None]
        values = ", ".join(str(one.before) for one in kept)
        wanted = ", ".join(f"{dotted(one.path)} = {one.value_to_keep_key}" for one in kept)
        answers = [
            *([("k", say("Keep {values} and set {kept}").format(values=values, kept=wanted))] if kept else []),
            ("s", say("Save these changes, too")),
        ]

        def answered(answer: str | None) -> None:
            if answer == "s":
                self._ask_lost(draft, writing)
            elif answer == "k":
                try:
                    self.session.undo_side_effects(draft)
                except RlctlError as error:
                    self._not_saved(error)
                    return
                self.renew(discard_typed=True)
                self._prepare(writing)

        question = say("Saving also changes these keys, so that the rest of the config does not change:\n{lines}")
        cannot = say("{key} cannot stay {value}: no value of {path} means it now")
        told = [
            question.format(lines=lines),
            *(
                cannot.format(key=one.key, value=one.before, path=dotted(one.path))
                for one in draft.side_effects
                if one.value_to_keep_key is None
            ),
        ]
        self._ask_saving("\n".join(told), answers, answered)

    def _ask_lost(self, draft: Draft, writing: Writing) -> None:
        """Ask before a file is written that says something else than the config."""
        lost = [(item.key, item.first.value, item.second.value) for item in draft.lost]
        if not lost or writing.is_listed or lost == self._kept:
            writing.write(draft, bool(lost))
            return
        ordered = sorted(draft.lost, key=lambda item: not changes_training(self.session, item.key))
        lines = "\n".join(_changed((item.key, item.first.value, item.second.value)) for item in ordered)
        told = say("The file's format cannot express this whole config. It would become:\n{lines}").format(lines=lines)
        answers = [
            ("t", say("Save, and use the file's values here")),
            ("k", say("Save, and keep your values here")),
        ]

        def answered(answer: str | None) -> None:
            if answer in ("t", "k"):
                writing.write(draft, answer == "k")

        self._ask_saving(told, answers, answered)

    def action_save_as(self) -> None:
        if self._may_write() and self._is_whole():
            self._ask_name(lambda: None)

    def _ask_name(self, after: Callable[[], Any]) -> None:
        self.app.clear_notifications()  # one of a save that failed would cover the buttons
        self.app.push_screen(
            SaveAsScreen(self.session, DIALECTS, self.shown_dialect),
            lambda chosen: self._write_named(chosen, after, force=False) if chosen is not None else self.renew(),
        )  # also a dialog that is cancelled may have stated facts

    def _write_named(self, chosen: Named, after: Callable[[], Any], *, force: bool) -> None:
        """Write another file; what it would say otherwise was listed before."""
        same = self.session.dialect.partition("@")[0] == chosen.dialect
        path = expanded(chosen.name)
        if chosen.goes_on:
            dialect = None if same else chosen.dialect

            def make() -> Draft:
                return self.session.draft_for(path, dialect)

            def write(draft: Draft, keep: bool) -> None:
                self._write_as(path, dialect, draft, after, force=force)

            self._prepare(Writing(make, write, is_listed=True))
        else:
            self._export(path, self.session.dialect if same else chosen.dialect, force=force)

    def _write_as(
        self, path: Path, dialect: str | None, draft: Draft, after: Callable[[], Any], *, force: bool
    ) -> None:
        try:
            self.session.save_as(path, dialect, draft=draft, force=force)
        except RlctlError as error:
            again = partial(self._write_as, path, dialect, draft, after, force=True)
            self._ask_over(path, error, None if force else again)
        else:
            if dialect is not None:  # what the port showed is done
                self.remove_class("-beside", "-whole")
                self.query_one(SectionTree).focus()
            self._saved(path, after, keep=False)

    def _export(self, path: Path, dialect: str, *, force: bool) -> None:
        try:
            self.session.export(path, dialect, force=force)
        except RlctlError as error:
            self._ask_over(path, error, None if force else partial(self._export, path, dialect, force=True))
        else:
            self.notify(say("exported to {path}; you continue with this file").format(path=path), markup=False)

    def _ask_over(self, path: Path, error: RlctlError, again: Callable[[], None] | None) -> None:
        """Ask whether to write over a file that is there; tell any other error."""
        if again is None or not (isinstance(error, DocumentError) and is_file(path)):
            self._not_saved(error)
            return
        self.app.push_screen(
            AskScreen(say("{path} already exists. Overwrite it?").format(path=path), say("Overwrite")),
            lambda yes: again() if yes else None,
        )

    # Other texts

    async def action_open_field(self) -> None:
        """The items of a list or mapping, the whole text of anything else."""
        view = self.under_cursor()
        if view is not None:
            self.open_field(view)
        else:
            self.notify(say("go to a field first"))

    def on_field_row_opened(self, message: FieldRow.Opened) -> None:
        self.open_field(message.view, message.text)

    def open_field(self, view: FieldView, text: str = "") -> None:
        """More room for a field; ``text`` is what to begin with, as it was pasted."""
        if view.kind in ("list", "mapping") and not text:
            self.app.push_screen(ItemsScreen(self.session, view.path), self._left_items)
            return

        def take(typed: str) -> None:
            self.session.set(view.path, items.from_yaml(typed, view.path))

        whole = items.yaml_of(self.session, view.path) if not text else _pasted(view, text)
        title = f"{dotted(view.path)}: {view.help}"
        self.app.push_screen(TextScreen(title, whole, take), lambda done: self._shown() if done else None)

    def _left_items(self, path: Any) -> None:
        self.run_worker(self._show_item(path), group="shown")

    async def _show_item(self, path: Any) -> None:
        await self.show_again()
        if path is not None:
            await self.show_section(path)

    async def show_section(self, path: Any) -> None:
        """Show the fields of a section."""
        raise NotImplementedError

    def _shown(self) -> None:
        self.run_worker(self.show_again(), group="shown")

    def action_edit_field(self) -> None:
        """The field in the person's own editor."""
        view = self.under_cursor()
        if view is None:
            self.notify(say("go to a field first"))
            return
        about = "".join(f"# {line}\n" for line in f"{dotted(view.path)}: {view.help} ({view.type})".splitlines())

        def take(text: str) -> None:
            self.session.set(view.path, items.from_yaml(text, view.path))

        self._outside(about + items.yaml_of(self.session, view.path), "field.yaml", take)

    def action_edit_file(self) -> None:
        """The whole file in the person's own editor, as it would be saved."""
        if not self._is_whole():
            return
        try:
            text = self.session.text()
        except RlctlError as error:
            self.notify(error.shown, severity="error", markup=False)
            return
        is_yaml = self.session.place.suffix in YAML_ENDINGS
        self._outside(text, f"config{self.session.place.suffix if not is_yaml else '.yaml'}", self.session.take_text)

    def _outside(self, text: str, name: str, take: Callable[[str], None], *, refused: bool = False) -> None:
        """A text in the person's own editor; what does not fit is kept, to go on with."""
        typed = None
        try:
            typed = edited(self.app, text, name)
        except RlctlError as error:
            self.notify(error.shown, severity="error", markup=False)
        if typed is None and refused:
            typed = text
        if typed is None or (typed == text and not refused):
            self.notify(say("nothing was changed"))
            return
        self._take_outside(typed, name, take)

    def _take_outside(self, typed: str, name: str, take: Callable[[str], None]) -> None:
        try:
            take(typed)
        except RlctlError as error:
            told = say("The edited text is not valid:\n{error}").format(error=error.shown)
            self.app.push_screen(
                ChooseScreen(told, [("g", say("Discard"))], say("Edit it again")),
                lambda answer: self._outside(typed, name, take, refused=True) if answer != "g" else None,
            )
        else:
            self._shown()

    # The file on disk, and what a crash left

    def watch_files(self) -> None:
        """Look at the file every now and then, and offer what an editor that ended left."""
        self.set_interval(LOOK_SECONDS, self._look_at_file)
        if not self.readonly:
            self._offer_recovery()

    def _look_at_file(self) -> None:
        if self.app.screen is self and self.session.file is not None:
            self._read_file()

    @work(thread=True, exclusive=True, group="disk")
    def _read_file(self) -> None:
        session, file = self.session, self.session.file
        if file is None:
            return
        try:
            text = read_text(file.path)
        except DocumentError:
            text = ""
        if text == (file.text if self._told is None else self._told):
            return
        self.post_message(self.OnDisk(text, _looked_at(session) if text != file.text else None))

    def on_editor_files_on_disk(self, message: OnDisk) -> None:
        """Join what another program wrote with what was changed here; say so where that needs an answer."""
        file = self.session.file
        if self.app.screen is not self or file is None:
            return
        if message.text == file.text:
            self._tell_news("")
        elif isinstance(message.found, Merge) and not message.found.both and message.found.is_possible:
            self._merge(message.found)
        else:
            self._told = message.text
            self._tell_news(f"{self._news_of(message.found)} {say('r: decide what becomes of it')}")

    def _merge(self, found: Merge, *, keeps_mine: bool = True) -> bool:
        """Take what another program wrote; whether that was possible: if not, the file is looked at once more."""
        self.take_typed()
        if not self.session.merge(found, keeps_mine=keeps_mine):
            return False
        self._tell_news("")
        keys = ", ".join(dict.fromkeys(dotted(change.path) for change in found.theirs)) or say("comments, layout")
        told = say("{path} was changed by another program: {keys}. It is in the form now; your changes stay.")
        told = told.format(path=found.file.path.name, keys=shortened(keys, LONGEST))
        self.notify(told, markup=False)
        if self.is_typed_in:
            self.renew()
        else:
            self._shown()
        return True

    def _news_of(self, found: Merge | RlctlError | None) -> str:
        """What happened to the file."""
        name = self.session.place.name
        if not is_file(self.session.place):
            return say("{path} is gone.").format(path=name)
        if isinstance(found, RlctlError):
            return say("{path} was changed by another program, and cannot be read now.").format(path=name)
        if found is None or not found.both:
            return say("{path} was changed by another program.").format(path=name)
        told = say("{path} was changed by another program, which also changed {keys}.")
        return told.format(path=name, keys=shortened(", ".join(found.both), LONGEST))

    def _tell_news(self, told: str) -> None:
        """Show a line above the form, or take it away; it takes no key."""
        if not told:
            self._told = None
        banner = self.query_one("#news", Static)
        banner.display = bool(told)
        banner.update(told)
        self.refresh_bindings()

    @property
    def has_news(self) -> bool:
        """Whether the file was changed by another program, and it is not decided yet what becomes of that."""
        return self._told is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "review" or self.has_news

    def action_review(self) -> None:
        """Show what another program wrote, and let a person decide."""
        self._review(lambda: None)

    def _review(self, after: Callable[[], Any]) -> None:
        """Join what another program wrote, with a question where both changed a key; and go on after that."""
        self.take_typed()
        found = _looked_at(self.session)
        is_joined = isinstance(found, Merge) and found.is_possible
        if isinstance(found, Merge) and is_joined and not found.both:
            self._merge(found)
            after()
            return
        if isinstance(found, Merge) and is_joined:
            keys = shortened(", ".join(found.both), LONGEST)
            answers = [
                ("m", say("Join both; yours for {keys}").format(keys=keys)),
                ("t", say("Join both; the file's for {keys}").format(keys=keys)),
            ]
        else:
            answers = [
                *([("r", say("Load the version on disk; undo restores yours"))] if isinstance(found, Merge) else []),
                ("k", say("Keep mine: saving overwrites the file")),
            ]

        def answered(answer: str | None) -> None:
            if answer in ("m", "t") and isinstance(found, Merge):
                self._merge(found, keeps_mine=answer == "m")
            elif answer is not None:
                self._take_disk(answer)
            if answer is not None:
                after()

        told = "\n".join([self._news_of(found), "", *self._lines_on_disk(found)])
        self.app.push_screen(ChooseScreen(redacted(told), answers, say("Decide later")), answered)

    def _lines_on_disk(self, found: Merge | RlctlError) -> list[str]:
        """How the file differs from what was opened, and, where both changed a key, the three values of it."""
        file = self.session.file
        if isinstance(found, RlctlError) or file is None:
            return [found.shown] if isinstance(found, RlctlError) else []
        was, mine = ({dotted(one.path): one.value for one in each} for each in (found.theirs, self.session.unsaved))
        lines = []
        for key in (key for key in found.both if key in mine):
            theirs, ours = told_apart(_in_line(was[key]), _in_line(mine[key]), LONGEST)
            told = say("{key}: the file has {theirs}, here is {mine}")
            lines.append(told.format(key=key, theirs=theirs, mine=ours))
        pair = (file.text.splitlines(), found.file.text.splitlines())
        names = (say("as you opened it"), say("on disk"))
        changed = [*unified_diff(*pair, *names, lineterm="")]
        more = [say("and {count} more").format(count=len(changed) - LINES)] if len(changed) > LINES else []
        return [*lines, *changed[:LINES], *more]

    def _take_disk(self, answer: str) -> None:
        try:
            if answer == "r":
                self.session.reopen()
            elif answer == "k":
                self.session.keep_mine()
        except RlctlError as error:
            self.notify(error.shown, title=say("edit not applied"), severity="error", markup=False)
            return
        self._tell_news("")
        self._shown()

    def _offer_recovery(self) -> None:
        file = self.session.file
        kept = recovery.kept(file.path) if file is not None else recovery.never_saved()
        item = next((item for item in kept if item.place != recovery.place_of(self.session)), None)
        if item is None:
            return
        facts = [f"{name} = {value}" for name, value in item.facts.items()]
        lines = plural(
            len(item.text.splitlines()), later("the whole text, 1 line"), later("the whole text, {count} lines")
        )
        text = [lines] if item.text else []
        told = "\n".join(
            f"  {shortened(line, 160)}" for line in [*facts, *text, *(change.label for change in item.changes[-8:])]
        )
        what = say("changes that were not saved") if file is not None else say("a config that was never saved")
        question = say("An editor that ended unexpectedly left {what}:\n{told}").format(what=what, told=told)
        answers = [("t", say("Restore")), ("d", say("Discard changes"))]
        self.app.push_screen(ChooseScreen(question, answers, say("Later")), lambda answer: self._recover(answer, item))

    def _recover(self, answer: str | None, item: recovery.Kept) -> None:
        if answer == "d":
            recovery.forget_kept(item)
        if answer != "t":
            return
        try:
            same = recovery.recover(self.session, item)
        except RlctlError as error:
            self.notify(error.shown, title=say("not applied"), severity="error", markup=False)
            return
        if not same and self.session.file is not None:
            self.notify(say("the file has changed since then: review the differences"), severity="warning")
        self._shown()

    # Launching

    def action_launch(self) -> None:
        """Show what would run where, and start it once that is confirmed."""
        if self._may_write() and self._is_whole():
            from rlctl.tui.screens.launch import LaunchScreen

            self.app.push_screen(LaunchScreen(self.session, save=self._save_then))


def _looked_at(session: Session) -> Merge | RlctlError:
    """What the file says now; why not, where it cannot be read."""
    try:
        return session.on_disk()
    except RlctlError as error:
        return error


def _in_line(value: Any) -> str:
    return text_of(value).replace("\n", " ")


def _changed(change: tuple[str | KeyPath, Any, Any]) -> str:
    """A line of a list: a key with what it is and what it would be."""
    key, was, is_ = change
    name = key if isinstance(key, str) else dotted(key)
    before, now = told_apart(_in_line(was), _in_line(is_), LONGEST)
    return f"  {name}: {before} → {now}"


def _pasted(view: FieldView, text: str) -> str:
    """A pasted text as the value of a field: YAML as it is where the field holds more than text."""
    name = items.name_in_text(view.path)
    if view.kind in ("list", "mapping"):
        stripped = text.strip("\n")
        if stripped.lstrip().startswith(f"{name}:"):
            return stripped + "\n"
        return f"{name}:\n" + "".join(f"  {line}\n" for line in stripped.splitlines())
    return items.text_as_yaml(name, text)
