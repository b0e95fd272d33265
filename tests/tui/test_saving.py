"""Saving asks before it writes if the file would say something else than the config, or a script's variable would stop working."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, Select

from rlctl.common.errors import ConfigError, DocumentError
from rlctl.documents import parse_dotted
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import AskScreen, ChooseScreen, Tick
from rlctl.tui.dialogs.save_as import SaveAsScreen
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.widgets.field_row import FieldRow
from tests.tui.conftest import agree, answer, drive, settled, text, until

FILE = """\
data: {train_files: train.parquet, train_batch_size: 96}
actor_rollout_ref:
  model: {path: m}
  actor: {ppo_mini_batch_size: 32}
  rollout: {name: vllm, n: 7}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 2}
"""
SCRIPT = """\
n=${N:-7}
long=${LONG:-1024}
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    data.max_response_length=${long} \\
    actor_rollout_ref.rollout.n=$n \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${long} \\
    trainer.total_epochs=1
"""
PATIENCE = 60.0
MINI = "batch.mini_batch_responses"


async def change(screen: EditorScreen, pilot: Any, key: str, value: Any) -> None:
    screen.session.set(parse_dotted(key), value)
    screen.renew()
    await settled(screen, pilot)


async def asked(pilot: Any, *keys: str) -> ChooseScreen:
    """The question that keys lead to."""
    await pilot.press(*keys)
    await until(pilot, lambda: isinstance(pilot.app.screen, ChooseScreen) and pilot.app.screen.is_mounted)
    await settled(pilot.app.screen, pilot)
    return pilot.app.screen  # type: ignore[no-any-return]


def test_nothing_is_written_before_the_answer(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, MINI, 400)
        for leave in ("enter", "escape"):
            asking = await asked(pilot, "ctrl+s")
            assert f"{MINI}: 400 → 399" in asking.question
            await pilot.press(leave)
            await until(pilot, lambda: pilot.app.screen is screen)
            assert file.read_text() == FILE
            assert screen.session.is_changed
        await asked(pilot, "ctrl+s")
        await answer(pilot, "t")
        await until(pilot, lambda: not screen.session.is_changed)
        assert screen.session.config.batch.mini_batch_responses == 399
        assert screen.session.lost == []
        screen.session.undo()
        assert screen.session.config.batch.mini_batch_responses == 400

    drive(RlctlApp(session=Session.open(file)), act)
    assert file.read_text() == FILE.replace("size: 32", "size: 57")


def test_a_write_protected_file_is_saved_over_only_after_a_question(file: Path) -> None:
    file.chmod(0o444)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        for says, written in (("escape", FILE), ("yes", FILE.replace("size: 96", "size: 64"))):
            await change(screen, pilot, "batch.prompts_per_step", 64)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: isinstance(pilot.app.screen, AskScreen))
            assert f"{file} is write-protected. Overwrite it?" in pilot.app.screen.question
            await (agree(pilot) if says == "yes" else pilot.press(says))
            await until(pilot, lambda written=written: pilot.app.screen is screen and file.read_text() == written)
        assert not screen.session.is_changed
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_save_that_failed_does_not_cover_the_box_that_saves_elsewhere(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DocumentError("cannot be written")

    monkeypatch.setattr(Session, "save", refuse)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "data.seed", 5)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "not saved" in [note.title for note in pilot.app._notifications])
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(pilot.app.screen, SaveAsScreen))
        assert not [*pilot.app._notifications]

    drive(RlctlApp(session=Session.open(file)), act)


def test_the_cursor_stays_when_the_file_says_otherwise(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(parse_dotted(MINI))
        await change(screen, pilot, MINI, 400)
        await asked(pilot, "ctrl+s")
        await answer(pilot, "t")
        await until(pilot, lambda: not screen.session.is_changed)
        await settled(screen, pilot)
        assert isinstance(screen.focused, FieldRow)
        assert screen.focused.view.path == parse_dotted(MINI)

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_save_that_takes_long_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go, drafted = threading.Event(), Session.draft
    monkeypatch.setattr(Session, "draft", lambda session: (may_go.wait(PATIENCE), drafted(session))[1])

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "data.seed", 5)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "reading what saving" in "".join(note.message for note in pilot.app._notifications))
        may_go.set()
        await until(pilot, lambda: not screen.session.is_changed)
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)


def test_values_that_the_user_keeps_are_not_asked_about_twice(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, MINI, 400)
        await asked(pilot, "ctrl+s")
        await answer(pilot, "k")
        await until(pilot, lambda: not screen.session.is_changed)
        assert screen.session.config.batch.mini_batch_responses == 400
        await change(screen, pilot, "data.seed", 5)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not screen.session.is_changed)
        await change(screen, pilot, MINI, 402)
        assert "402 → 399" in (await asked(pilot, "ctrl+s")).question

    drive(RlctlApp(session=Session.open(file)), act)
    assert "seed: 5" in file.read_text()


def test_a_variable_of_a_script_is_asked_about(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    followed = SCRIPT.replace("LONG:-1024", "LONG:-2048")

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "rollout.max_response_tokens", 2048)
        question = (await asked(pilot, "ctrl+s")).question
        assert "line 5: data.max_response_length=${long}" in question
        assert "batch.micro_batch.size: 1024 → 2048" in question
        await answer(pilot, "v")
        await until(pilot, lambda: script.read_text() == followed)
        assert screen.session.config.batch.micro_batch.size == 2048
        await settled(screen, pilot)
        await change(screen, pilot, "rollout.max_response_tokens", 512)
        await asked(pilot, "ctrl+s")
        await answer(pilot, "u")
        await until(pilot, lambda: script.read_text() != followed)

    drive(RlctlApp(session=Session.open(script)), act)
    assert script.read_text() == followed.replace("length=${long}", "length=512")


def test_save_as_lists_what_changes_and_waits_until_it_is_read(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(pilot.app.screen, SaveAsScreen))
        dialog = pilot.app.screen
        await until(pilot, lambda: "Nothing changes: the file can express the whole config." in text(dialog, "#lost"))
        dialog.query_one("#dialect", Select).value = "trinity"
        dialog._save()  # before the list is there
        await until(pilot, lambda: text(dialog, "#lost").startswith("Changes training ("))
        await settled(dialog, pilot)
        assert pilot.app.screen is dialog
        assert "data.train_on_truncated_prompts: true → false" in text(dialog, "#lost")
        dialog.query_one("#name", Input).value = str(file.with_name("t.yaml"))
        dialog.query_one(Tick).value = False
        dialog._save()
        await until(pilot, lambda: file.with_name("t.yaml").exists())

    drive(RlctlApp(session=Session.open(file)), act)
    assert Session.open(file.with_name("t.yaml")).dialect.startswith("trinity")
    assert file.read_text() == FILE


def test_saving_asks_before_it_changes_a_key_that_was_not_edited(file: Path) -> None:
    """verl counts a mini-batch in prompts: with other responses per prompt its key would change, too."""

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "batch.responses_per_prompt", 14)
        asking = await asked(pilot, "ctrl+s")
        assert f"actor_rollout_ref.actor.ppo_mini_batch_size: 32 → 16   ({MINI} = 224)" in asking.question
        assert [key for key, _ in asking.answers] == ["k", "s"]
        assert asking.answers[0][1] == f"Keep 32 and set {MINI} = 448"
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert file.read_text() == FILE
        await asked(pilot, "ctrl+s")
        await answer(pilot, "k")
        await until(pilot, lambda: not screen.session.is_changed)
        assert file.read_text() == FILE.replace("n: 7", "n: 14")
        assert screen.session.config.batch.mini_batch_responses == 448
        await change(screen, pilot, "batch.responses_per_prompt", 7)
        await asked(pilot, "ctrl+s")
        await answer(pilot, "s")
        await until(pilot, lambda: not screen.session.is_changed)
        assert file.read_text() == FILE.replace("size: 32", "size: 64")

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_value_that_the_canonical_key_does_not_take_is_not_offered(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ConfigError("too large")

    session = Session.open(file)
    session.set(("batch", "responses_per_prompt"), 14)
    assert [effect.value_to_keep_key for effect in session.draft().side_effects] == [448]
    monkeypatch.setattr("rlctl.editing.session._with", refuse)
    assert [effect.value_to_keep_key for effect in session.draft().side_effects] == [None]


def test_saving_says_which_key_cannot_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_value_to_keep", lambda *_: None)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "batch.responses_per_prompt", 14)
        asking = await asked(pilot, "ctrl+s")
        assert f"ppo_mini_batch_size cannot stay 32: no value of {MINI} means it now" in asking.question
        assert [key for key, _ in asking.answers] == ["s"]

    drive(RlctlApp(session=Session.open(file)), act)


@pytest.mark.parametrize(("responses", "kept"), [(5, 160), (8, 256), (13, 416), (1, 32), (300, 9600)])
def test_a_key_of_the_file_can_stay_if_its_new_value_would_be_rounded(file: Path, responses: int, kept: int) -> None:
    """224 responses are 44.8 prompts of 5 responses, and the file counts whole prompts."""
    session = Session.open(file)
    session.set(("batch", "responses_per_prompt"), responses)
    [effect] = session.draft().side_effects
    assert (effect.before, effect.value_to_keep_key) == (32, kept)
    session.undo_side_effects(session.draft())
    assert session.text() == FILE.replace("n: 7", f"n: {responses}")


def test_a_fix_that_keeps_a_key_of_the_file_is_offered(file: Path) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await change(screen, pilot, "batch.responses_per_prompt", 16)
        await pilot.press("2", "down")
        asking = await asked(pilot, "f")
        assert [label for _, label in asking.answers] == [
            f"{MINI} = 192",
            f"{MINI} = 256",
            f"{MINI} = 512   keeps ppo_mini_batch_size = 32",
        ]
        await answer(pilot, "3")
        await until(pilot, lambda: screen.session.config.batch.mini_batch_responses == 512)
        await settled(screen, pilot)

    drive(RlctlApp(session=Session.open(file)), act)
