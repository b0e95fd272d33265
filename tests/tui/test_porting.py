"""Taking a config to another dialect in the editor: what has to be stated for it, what is lost, and keys that come fast."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual._xterm_parser import XTermParser
from textual.containers import VerticalScroll
from textual.events import Key, Paste
from textual.widgets import Input, OptionList, Select, TabbedContent, TextArea

from rlctl.cli import tui as command
from rlctl.common.errors import UsageError
from rlctl.common.report import fact_in
from rlctl.editing.deviations import Deviation, Outlook
from rlctl.editing.session import Draft, Session
from rlctl.translation.translate import FACTS
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import Tick
from rlctl.tui.dialogs.facts import MEANINGS, FactsScreen
from rlctl.tui.dialogs.port_folder import PortFolderScreen
from rlctl.tui.dialogs.save_as import SaveAsScreen, lines_of
from rlctl.tui.dialogs.wanted import WantedScreen
from rlctl.tui.panes.preview import DIALECTS, PreviewPane
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.start import StartScreen
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.section_tree import SectionTree
from tests.porting import runs
from tests.tui.conftest import drive, edit, settled, text, text_of, until
from tests.tui.test_editor import FILE, row

FILE = FILE + "schedule: {total_epochs: 2}\n"
SCRIPT = """\
#!/bin/bash
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=64 \\
    actor_rollout_ref.model.path=model
"""


async def burst(screen: Any, pilot: Any, *keys: str) -> None:
    """Keys that all wait in the terminal when the app comes to read it."""
    for key in keys:
        screen.app.post_message(Key(key, key if len(key) == 1 else None))
    await settled(screen, pilot)


def test_every_fact_can_be_stated() -> None:
    assert MEANINGS.keys() == FACTS.keys()
    assert [fact_in(f"it needs more: state {name}") for name in FACTS] == list(FACTS)
    assert fact_in("it has no such key") == ""


def test_a_fact_goes_into_plan_and_text_and_a_wrong_one_is_refused(file: Path) -> None:
    from rlctl.editing.planning import planned

    session = Session.open(file)
    plan = planned(session).plan
    assert plan is not None
    assert plan.stages[0].schedule.total_steps is None
    assert "max_steps" not in session.text_in("roll")
    with pytest.raises(UsageError):
        session.assume({"dataset_rows": "many"})
    session.assume({"dataset_rows": " 80 ", "explorer_gpus": ""})
    assert session.facts == {"dataset_rows": "80"}
    plan = planned(session).plan
    assert plan is not None
    assert plan.stages[0].schedule.total_steps == 20
    assert "max_steps: 20" in session.text_in("roll")


def test_the_account_asks_for_a_fact_and_the_preview_goes_by_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.action_tab("preview")
        screen.query_one("#preview-dialect", Select).value = "roll"
        await settled(screen, pilot)
        assert "max_steps" not in screen.query_one("#preview-text", TextArea).text
        account = screen.query_one("#account", OptionList)
        assert account.has_focus
        prompts = [str(account.get_option_at_index(index).prompt) for index in range(account.option_count)]
        account.highlighted = next(index for index, prompt in enumerate(prompts) if "dataset_rows" in prompt)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(screen.app.screen, FactsScreen)
        await pilot.press("8", "0", "enter")
        await settled(screen, pilot)
        assert screen.app.screen is screen
        assert "max_steps: 20" in screen.query_one("#preview-text", TextArea).text
        assert "dataset_rows=80" in text(screen, "#account-head")

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_fact_that_is_stated_in_a_dialog_which_is_cancelled_then_holds_in_the_preview(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await burst(screen, pilot, "f4", "f4", "f4")
        assert screen.query_one(PreviewPane).dialect == "roll"
        assert "press enter or F10 to give dataset_rows" in account(screen)
        await burst(screen, pilot, "f12", "f10")
        await pilot.press("8", "0", "enter")
        await settled(screen, pilot)
        await pilot.press("escape")
        await settled(screen, pilot)
        assert pilot.app.screen is screen
        assert "dataset_rows=80" in text(screen, "#account-head")
        assert "F10" not in account(screen)

    drive(RlctlApp(session=Session.open(file)), act)


def account(screen: EditorScreen) -> str:
    return "\n".join(str(option.prompt) for option in screen.query_one("#account", OptionList).options)


def test_a_warning_of_the_account_leads_to_its_field_and_no_loss_is_told_twice(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.action_tab("preview")
        screen.query_one("#preview-dialect", Select).value = "roll"
        await settled(screen, pilot)
        account = screen.query_one("#account", OptionList)
        lines = [str(account.get_option_at_index(place).prompt) for place in range(account.option_count)]
        assert not [line for line in lines if "cannot be said in the target" in line]
        account.highlighted = next(place for place, line in enumerate(lines) if "ROLL reads the columns" in line)
        await pilot.press("enter")
        await settled(screen, pilot)
        looked = screen.looked_at()
        assert looked is not None
        assert looked.path == ("data", "train", 0, "path")

    drive(RlctlApp(session=Session.open(file)), act)


def test_saving_as_another_dialect_tells_what_is_lost_and_writes_over_nothing(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await burst(screen, pilot, "f12")
        dialog = screen.app.screen
        assert isinstance(dialog, SaveAsScreen)
        dialog.query_one("#dialect", Select).value = "roll"
        await settled(screen, pilot)
        assert dialog.query_one("#name", Input).value == str(file.with_name("run.roll.yaml"))
        assert "press F10 to give dataset_rows" in text(dialog, "#lost")
        await pilot.press("f10", "8", "0", "enter")
        await settled(screen, pilot)
        listed = text(dialog, "#lost")
        assert "F10" not in listed
        assert listed.startswith("Changes training (")
        assert listed.index("data.overlong_prompts") < listed.index("Changes speed, memory, names or records only (")
        held = dialog.query_one("#account", VerticalScroll)
        assert held.max_scroll_y
        await pilot.press("pagedown")
        while not held.scroll_y:
            await pilot.pause(0.05)
        while screen.session.is_changed or screen.session.file.path == file:
            if screen.app.screen is dialog:  # which asks to read the list first if it has changed meanwhile
                dialog._save()
            await settled(screen, pilot)
        assert screen.session.config.schedule.total_steps == 20
        assert not screen.session.is_changed

    drive(RlctlApp(session=Session.open(file)), act, (120, 24))  # the list is longer than its box
    assert file.read_text() == FILE
    saved = Session.open(file.with_name("run.roll.yaml"))
    assert saved.dialect.startswith("roll")
    assert saved.config.schedule.total_steps == 20


def test_the_port_begins_with_another_framework_and_ends_with_the_format_of_the_file(file: Path) -> None:
    orders = {}
    for own in DIALECTS:
        pane = PreviewPane()
        pane.start_from(own)
        orders[own] = pane._order
    assert orders == {
        "rlctl": ("verl", "trinity", "roll", "rlctl"),
        "verl": ("trinity", "roll", "rlctl", "verl"),
        "trinity": ("verl", "roll", "rlctl", "trinity"),
        "roll": ("verl", "trinity", "rlctl", "roll"),
    }

    async def act(screen: EditorScreen, pilot: Any) -> None:
        for dialect in (*orders["rlctl"], "verl"):
            await pilot.press("p")
            await settled(screen, pilot)
            assert f"rlctl → {dialect}@" in text_of(pilot.app)

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_list_of_what_changes_begins_with_the_gravest() -> None:
    keys = ("data.train[0].split", "checkpoint.export", "algorithm.old_log_probs", "data.seed")
    found = Outlook(None, "", tuple(Deviation(key, "1", "2", "", changes_training=True) for key in keys), {})
    listed = [line.partition(":")[0].strip() for line in lines_of(found)]
    assert listed[1:5] == ["algorithm.old_log_probs", "data.train[0].split", "data.seed", "checkpoint.export"]


def test_a_port_that_is_saved_leads_back_to_the_form(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("p")
        await settled(screen, pilot)
        assert not screen.query_one("#middle").region.width, "the port has the whole screen"
        await pilot.press("S")
        await settled(screen, pilot)
        dialog = screen.app.screen
        assert isinstance(dialog, SaveAsScreen)
        assert dialog.query_one(".box").region.width >= 72, "a narrow box breaks each line of the list"
        while dialog is screen.app.screen:
            dialog._save()
            await settled(screen, pilot)
        await settled(screen, pilot)
        assert screen.session.dialect.startswith("verl")
        assert screen.query_one("#middle").region.width
        assert screen.query_one(SectionTree).has_focus

    drive(RlctlApp(session=Session.open(file)), act, (80, 24))


def test_saving_as_proposes_the_dialect_that_is_looked_at_and_a_name_that_no_file_has(file: Path) -> None:
    file.with_name("run.roll.yaml").write_text("{}")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        def proposed() -> tuple[Any, str]:
            dialog = screen.app.screen
            return dialog.query_one("#dialect", Select).value, dialog.query_one("#name", Input).value

        await burst(screen, pilot, "f12")
        assert proposed() == ("rlctl", str(file)), "nobody looks at another dialect"
        await burst(screen, pilot, "escape", "f4", "f4", "2", "f12")
        await settled(screen, pilot)
        assert screen.query_one(PreviewPane).dialect == "trinity"
        assert proposed() == ("trinity", str(file.with_name("run.trinity.yaml")))
        screen.app.screen.query_one("#dialect", Select).value = "roll"
        await settled(screen, pilot)
        assert proposed() == ("roll", str(file.with_name("run.roll-2.yaml")))

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_counts_of_the_head_are_seen_however_long_the_name_is(file: Path) -> None:
    long = file.with_name(f"run_{'qwen3_next_' * 9}megatron.yaml")
    long.write_text(file.read_text())

    async def act(screen: EditorScreen, pilot: Any) -> None:
        def head() -> str:
            return text_of(screen.app).splitlines()[0]

        assert re.search(r" run_qwen3\S*…\S*megatron.yaml +rlctl@1   (✗|!) \d+ (error|warning)", head())
        await pilot.resize_terminal(180, 24)
        await settled(screen, pilot)
        assert long.name in head()

    drive(RlctlApp(session=Session.open(long)), act, size=(80, 24))


def test_keys_that_come_at_once_go_where_they_are_meant_to(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "seed")
        await burst(screen, pilot, "end", "backspace", "7", "7", "ctrl+s", "f12", "end", "ctrl+u", *"new.yaml", "enter")
        await settled(screen, pilot)
        assert screen.app.screen is screen
        assert screen.session.config.run.seed == 77
        assert row(screen, "run.seed").query_one(Input).value == "77"

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("seed: 1", "seed: 77")
    assert (file.parent / "new.yaml").read_text() == file.read_text()


def test_a_save_is_written_before_the_save_under_another_name_after_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.draft

    def slow(session: Session) -> Draft:
        time.sleep(1.0)
        return real(session)

    monkeypatch.setattr(Session, "draft", slow)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "seed")
        await burst(screen, pilot, "end", "7", "ctrl+s", "f12", "end", "ctrl+u", *"new.yaml", "enter")
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("seed: 1", "seed: 17")
    assert (file.parent / "new.yaml").read_text() == file.read_text()


def test_a_search_typed_at_once_is_whole(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await burst(screen, pilot, "slash", *"seed")
        assert screen.query_one("#search", Input).value == "seed"

    drive(RlctlApp(session=Session.open(file)), act)


def test_enter_goes_to_what_was_typed_however_fast_and_so_do_the_keys_after_it(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await burst(screen, pilot, "slash", *"run.seed", "enter", "e", "end", "backspace", "7")
        assert screen.query_one("#search", Input).value == "run.seed"
        assert next(field.view.path for field in screen.rows) == ("run", "seed")
        assert screen.session.config.run.seed == 7

    drive(RlctlApp(session=Session.open(file)), act)


def test_keys_after_a_page_was_asked_for_are_the_pages(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "name")
        await burst(screen, pilot, "alt+4", "n", "n")
        assert screen.query_one("#preview-dialect", Select).value == "roll"
        assert screen.session.config.run.name == "demo"

    drive(RlctlApp(session=Session.open(file)), act)


def test_findings_are_at_hand_once_one_goes_there(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        screen.session.set(("batch", "mini_batch_responses"), 5)
        screen.renew()
        await settled(screen, pilot)
        await edit(screen, pilot, "run", "name")
        await pilot.press("alt+2")  # out of a field, where digits are text
        await settled(screen, pilot)
        assert screen.query_one("#finding-list", OptionList).highlighted == 1, "the first one, below its heading"
        assert screen.session.config.run.name == "demo"

    drive(RlctlApp(session=Session.open(file)), act)


def test_alt_and_a_digit_lead_to_a_page_in_terminals_that_send_an_escape_before_the_digit(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await edit(screen, pilot, "run", "name")
        terminal = XTermParser()
        for event in [*terminal.feed("\x1b3"), *terminal.feed("")]:  # nothing comes after it
            screen.app.post_message(event)
        await settled(screen, pilot)
        assert screen.query_one("#beside", TabbedContent).active == "plan"
        assert screen.session.config.run.name == "demo"

    drive(RlctlApp(session=Session.open(file)), act)


def test_what_is_beside_the_form_can_have_the_whole_screen(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        for whole, form in ((True, False), (False, True), (False, True)):
            await pilot.press("f5")
            await pilot.pause()
            assert (screen.query_one("#beside").region.width == 140, screen.query_one("#middle").region.width > 0) == (
                whole,
                form,
            )
        assert screen.query_one("#beside").region.width > 0

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_script_is_saved_as_yaml_or_as_a_script_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT)
    for name, start in (("other.sh", "#!/bin/bash"), ("other.yaml", "data:"), ("bare", "#!/bin/bash")):
        session = Session.open(tmp_path / "train.sh")
        session.save_as(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
        assert session.config.batch.prompts_per_step == 64
    session.export(tmp_path / "copy.sh", "verl")
    assert (tmp_path / "copy.sh").stat().st_mode & 0o100
    with pytest.raises(UsageError, match="roll cannot be written as sh"):
        session.export(tmp_path / "roll.sh", "roll")


def test_a_path_is_opened_from_the_start_page(file: Path) -> None:
    (file.parent / "deep").mkdir()
    file.rename(file.parent / "deep" / "run.yaml")

    async def act(screen: Any, pilot: Any) -> None:
        await burst(screen, pilot, "slash", *"deep/run.yaml", "enter")
        while not isinstance(screen.app.screen, EditorScreen):
            await settled(screen.app.screen, pilot)
        assert screen.app.screen.session.config.run.name == "demo"

    drive(RlctlApp(), act)


def test_the_keys_of_a_stage_are_fields(file: Path) -> None:
    file.write_text(FILE + "stages:\n  - {name: warm, schedule: {total_epochs: 2}}   # first\n")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        labels = [str(node.label) for node in screen.query_one(SectionTree).root.children]
        assert {"stages", "rewards", "critic"} <= {label.split()[0] for label in labels}
        assert await screen.jump(("stages", 0))
        await settled(screen, pilot)
        shown = [".".join(map(str, field.view.path[2:])) for field in screen.rows]
        assert shown[:2] == ["name", "schedule.total_epochs"]  # what it says; lists of the stage come after
        assert "batch.prompts_per_step" not in shown
        await edit(screen, pilot, "stages", 0, "schedule", "total_epochs")
        await pilot.press("end", "backspace", "3", "ctrl+s")
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text().endswith("  - {name: warm, schedule: {total_epochs: 3}}   # first\n")


WANTS = (
    "set -u\nif [ $# -lt 1 ]; then echo 'usage: sft.sh GPUS'; exit 1; fi\n"
    "python3 -m verl.trainer.main_ppo \\\n    data.train_files=$DATA \\\n    trainer.n_gpus_per_node=$1\n"
)


@pytest.mark.parametrize("first", [False, True])
def test_what_a_script_wants_is_asked_for_and_what_is_refused_stays_with_the_reason(file: Path, first: bool) -> None:
    script = file.with_name("sft.sh")
    script.write_text(WANTS)

    async def act(screen: Any, pilot: Any) -> None:
        app = screen.app
        if not first:
            app.edit_file(script)
            await settled(screen, pilot)
        assert "usage: sft.sh GPUS" in " ".join(text_of(app).replace("│", " ").split()), "wherever the line breaks"
        await pilot.press(*"x.parquet", "enter", "f", "enter")
        await settled(app.screen, pilot)
        assert isinstance(app.screen, WantedScreen), text_of(app)
        assert [line.value for line in app.screen.query(Line)] == ["x.parquet", "f"]
        assert "trainer.n_gpus_per_node" in text_of(app)
        await pilot.press("tab", "end", "backspace", "4", "enter")
        await settled(app.screen, pilot)
        assert isinstance(app.screen, EditorScreen), text_of(app)
        assert app.screen.session.given == {"1": "4", "DATA": "x.parquet"}
        assert app.screen.session.config.placement.devices_per_node == 4
        assert app.screen.session.config.data.train[0].path == "x.parquet"

    session = partial(command._session, str(script), None, [], {}) if first else None
    drive(RlctlApp(session=session, runs_folder=file.parent / "runs"), act)


def test_a_script_that_is_not_given_what_it_wants_is_left_with_what_to_give(file: Path) -> None:
    script = file.with_name("sft.sh")
    script.write_text(WANTS)

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("escape")
        await settled(pilot.app.screen, pilot)
        assert isinstance(pilot.app.screen, StartScreen)
        assert "--env DATA=VALUE" in [*pilot.app._notifications][-1].message

    drive(RlctlApp(session=lambda given: Session.open(script, given=given)), act)


def test_a_value_that_is_another_one_each_time_is_asked_for(file: Path) -> None:
    script = file.with_name("sft.sh")
    script.write_text("python3 -m verl.trainer.main_ppo trainer.nnodes=$RANDOM\n")

    async def act(screen: Any, pilot: Any) -> None:
        shown = " ".join(text_of(screen.app).replace("│", " ").split())  # a long path wraps the line
        assert "$RANDOM has a different value in each run" in shown
        await pilot.press("7", "enter")
        await settled(screen.app.screen, pilot)
        assert screen.app.screen.session.config.placement.nodes == 7

    drive(RlctlApp(session=lambda given: Session.open(script, given=given)), act)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])  # terminals send \r
def test_several_pasted_lines_are_taken_whole(file: Path, end: str) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("model", "path"))
        await settled(screen, pilot)
        await pilot.press("e")
        screen.app.post_message(Paste(end.join(("one", "two", "three", ""))))
        await settled(screen, pilot)
        assert "one\ntwo\nthree" in screen.app.screen.query_one(TextArea).text.replace("  ", "")

    drive(RlctlApp(session=Session.open(file)), act)


async def write_again(screen: EditorScreen, pilot: Any, folder: Path) -> None:
    """A folder that has files is written into only where that is allowed, and keeps its other files."""
    (folder / "config.yaml").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    await pilot.press("w")
    await until(pilot, lambda: isinstance(screen.app.screen, PortFolderScreen))
    box = screen.app.screen
    await settled(box, pilot)
    await pilot.press("enter")
    await settled(box, pilot)
    assert screen.app.screen is box
    assert (folder / "config.yaml").read_text() == "mine"
    box.query_one("#replaces", Tick).value = True
    await settled(box, pilot)
    await pilot.press("enter")
    await until(pilot, lambda: (folder / "config.yaml").read_text() != "mine")
    assert (folder / "notes.txt").read_text() == "mine"
    await settled(screen, pilot)


def test_a_ported_folder_is_written_once_everything_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs.write(tmp_path)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        pane = screen.query_one(PreviewPane)
        screen.action_tab("preview")
        screen.query_one("#preview-dialect", Select).value = "trinity"
        await settled(screen, pilot)
        pane.action_write_folder()
        await pilot.pause()
        assert screen.app.screen is screen, "decisions are open"
        assert pane.check_action("write_folder", ()) is None
        for _ in range(9):
            if "w writes the whole run" in text(screen, "#account-head"):
                break
            await pilot.press("space")
            await pilot.pause()
        assert pane.check_action("write_folder", ()) is True
        await pilot.press("w")
        await until(pilot, lambda: isinstance(screen.app.screen, PortFolderScreen))
        box = screen.app.screen
        await settled(box, pilot)
        assert box.query_one("#folder", Input).value == str(tmp_path / "run-trinity")
        assert not box.query_one("#replaces").display
        box.query_one("#folder", Input).value = str(tmp_path)
        await settled(box, pilot)
        await pilot.press("enter")
        await settled(box, pilot)
        assert screen.app.screen is box, "the script that is ported is there"
        box.query_one("#folder", Input).value = str(tmp_path / "run-trinity")
        await settled(box, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "run-trinity/config.yaml").exists())
        await settled(screen, pilot)
        await write_again(screen, pilot, tmp_path / "run-trinity")
        await settled(screen, pilot)
        screen.query_one("#preview-dialect", Select).value = "rlctl"
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(tmp_path / "run.sh")), act)
    assert (tmp_path / "run-trinity/config.yaml").exists()
    assert (tmp_path / "run-trinity/verl_reward.py").exists()
