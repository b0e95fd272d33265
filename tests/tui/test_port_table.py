"""The columns of a conversion: every key of the source has a line, the lost ones come first, and values are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.widgets import OptionList

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.widgets.port_table import LEAST, drawn, port_lines
from tests.tui.conftest import drive, settled, text_of
from tests.tui.test_porting import SCRIPT


def test_every_key_of_the_source_has_a_line_and_lost_ones_come_first(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.rstrip() + " \\\n    trainer.total_epochs=3 trainer.val_befor_train=True\n")
    session = Session.open(path)
    found = session.preview("roll")
    lines = port_lines(session.report, found.report)
    assert {line.entry.key for line in lines} == {entry.key for entry in found.report.accounting}
    assert lines[0].entry.key == "trainer.val_befor_train"
    shown = {line.entry.key: str(drawn(line, 120)) for line in lines}
    assert "batch.prompts_per_step" in shown["data.train_batch_size"]
    assert "✓ rollout_batch_size = 64" in shown["data.train_batch_size"]
    assert shown["trainer.val_befor_train"].split(" → ")[2].startswith("? ")
    for width in (LEAST, 120, 190):
        assert all(cell_len(str(drawn(line, width))) <= width for line in lines)


def test_the_port_key_shows_the_columns_and_enter_leads_to_the_field(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("p", "p")
        await settled(screen, pilot)
        assert "✓ rollout_batch_size = 64" in text_of(pilot.app)
        listed = screen.query_one("#port", OptionList)
        assert screen.query_one("#account", OptionList).has_focus, "what needs a decision comes first"
        listed.focus()
        place = next(n for n, option in enumerate(listed.options) if "rollout_batch_size" in str(option.prompt))
        listed.highlighted = place
        await pilot.press("enter")
        await settled(screen, pilot)
        assert screen.looked_at().path == ("batch", "prompts_per_step")
        assert not screen.has_class("-whole")

    drive(RlctlApp(session=Session.open(path)), act, (140, 45))
