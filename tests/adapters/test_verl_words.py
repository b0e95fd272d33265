"""Words and numbers of verl's files that mean something else than they look like: what verl does with them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.common.report import Report
from rlctl.config import Loaded
from rlctl.translation import translate

RUN = "python3 -m verl.trainer.main_ppo data.train_files=a data.val_files=b actor_rollout_ref.model.path=m {}\n"


def read(tmp_path: Path, override: str) -> tuple[Loaded | None, Report]:
    file = tmp_path / "run.sh"
    file.write_text(RUN.format(override))
    return translate.read(file)


@pytest.mark.parametrize("dialect", ["verl", "trinity", "roll", "rlctl"])
def test_a_run_of_no_epochs_only_evaluates(dialect: str, tmp_path: Path) -> None:
    loaded, _ = read(tmp_path, "trainer.total_epochs=0")
    assert loaded is not None
    assert loaded.config.run.mode == "evaluate_only"
    made = translate.translate(str(tmp_path / "run.sh"), dialect)
    assert made.text is not None


def test_verls_own_key_for_no_epochs_is_written(tmp_path: Path) -> None:
    read(tmp_path, "trainer.total_epochs=0")
    made = translate.translate(str(tmp_path / "run.sh"), "verl")
    assert "val_only: true" in (made.text or "")


def test_training_offline_has_an_epoch(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("torchrun -m verl.trainer.sft_trainer data.train_files=a model.path=m trainer.total_epochs=0\n")
    loaded, report = translate.read(file)
    assert loaded is None
    assert "out-of-range" in {found.code for found in report.findings}


@pytest.mark.parametrize(
    ("written", "path"), [("False", None), ("null", None), ("ck/global_step_5", "ck/global_step_5")]
)
def test_false_is_no_path_to_resume_from(written: str, path: Any, tmp_path: Path) -> None:
    loaded, _ = read(tmp_path, f"trainer.resume_from_path={written}")
    assert loaded is not None
    assert loaded.config.checkpoint.resume_path == path


@pytest.mark.parametrize(("written", "read_as"), [("auto", "auto"), ("disable", "never"), ("enable", "auto")])
def test_another_word_for_resuming_is_the_latest_checkpoint_with_a_warning(
    written: str, read_as: str, tmp_path: Path
) -> None:
    loaded, report = read(tmp_path, f"trainer.resume_mode={written}")
    assert loaded is not None
    assert loaded.config.checkpoint.resume == read_as
    told = [found for found in report.findings if found.code == "resume-latest"]
    assert bool(told) is (written == "enable")
    assert report.loses is (written == "enable")
