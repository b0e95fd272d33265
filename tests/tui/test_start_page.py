"""The start page finds configs and runs of subfolders, leads into folders, and says what it does not find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.widgets import Input, OptionList

from rlctl.editing.formats import format_of
from rlctl.tui.app import RlctlApp
from rlctl.tui.screens.start import StartScreen
from tests.tui import recorded
from tests.tui.conftest import drive, settled, text, text_of

FILE = "rlctl: 1\nrun: {name: demo, seed: 1}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\n"


async def enter(screen: StartScreen, pilot: Any, typed: str) -> None:
    """Type a text into the filter, and press enter."""
    await pilot.press("slash")
    screen.query_one(Input).value = typed
    await pilot.press("enter")
    await settled(screen, pilot)


def listed(screen: StartScreen) -> list[str]:
    return [option.id or "" for option in screen.query_one("#choices", OptionList).options]


def test_a_path_that_is_nothing_is_told_and_can_be_corrected(file: Path) -> None:
    async def act(screen: StartScreen, pilot: Any) -> None:
        await enter(screen, pilot, "/no/such/file.yaml")
        assert pilot.app.screen is screen
        told = [one.message for one in pilot.app._notifications]
        assert "no file, run or folder /no/such/file.yaml, and nothing in the list matches these words" in told
        assert screen.query_one(Input).has_focus
        assert "no matching name" in text(screen, "#start-told")

    drive(RlctlApp(), act)


def test_each_config_has_its_format(tmp_path: Path) -> None:
    texts = {
        "a.yaml": "rlctl: 1\nrun: {name: a}\n",
        "b.yaml": "data: {train_files: t}\nactor_rollout_ref: {}\n",
        "c.yaml": "explorer: {}\nsynchronizer: {}\n",
        "d.json": '{"exp_name": "d", "actor_train": {}}',
        "e.sh": "set -x\npython3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo\n",
        "f.sh": "python examples/start_rlvr_pipeline.py --config_name f\n",
        "g.yaml": "services: {web: {}}\n",
    }
    for name, written in texts.items():
        (tmp_path / name).write_text(written)
    found = {name: format_of(tmp_path / name) for name in texts}
    assert list(found.values()) == ["rlctl", "verl", "trinity", "roll", "verl", "roll", ""]
    assert format_of(tmp_path / "gone.yaml") == ""


def test_configs_and_runs_of_subfolders_are_there(file: Path) -> None:
    (file.parent / "conf" / "deep").mkdir(parents=True)
    file.rename(file.parent / "conf" / "deep" / "run.yaml")
    recorded.place(file.parent / "old" / "runs")

    async def act(screen: StartScreen, pilot: Any) -> None:
        assert "file:conf/deep/run.yaml" in listed(screen)
        assert "run:old/runs/addition" in listed(screen)
        assert not [name for name in listed(screen) if "source1.yaml" in name], "a run's own files are no configs"
        await enter(screen, pilot, "conf")
        assert [name for name in listed(screen) if name.startswith(("file:", "run:"))] == ["file:conf/deep/run.yaml"]
        assert "in conf; escape goes back" in text_of(pilot.app)
        await pilot.press("escape")
        await settled(screen, pilot)
        assert "run:old/runs/addition" in listed(screen)

    drive(RlctlApp(), act)
