"""The frameworks' own validators refuse what ``--runner`` refuses, and accept what it accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.common.report import Level
from rlctl.documents import Document, read_yaml
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import read_document
from tests.adapters.refused import NULLS, ROLL_REFUSED, TRINITY_RANKS, TRINITY_REFUSED, VERL_REFUSED, changed, tree

from .frameworks import ROOT, framework, of_roll
from .test_verl import composed_by

pytestmark = pytest.mark.upstream
CORPUS = ROOT.parent / "shared" / "corpus"
VALIDATED = ("verl/utils/config.py", "verl/workers/config/actor.py", "verl/workers/config/critic.py")
"""Where verl's ``validate_config`` refuses; the rest are its trainer and workers, which need GPUs."""
NEWER = {"sapo_trainer_run_qwen3_30b_a3b_fsdp": "sets tau_pos, which verl has after 0.9.1"}
MISSING = (
    "No module named",
    "couldn't connect to 'https://huggingface.co'",
    "Could not find any running Ray instance",
)
"""What a framework wants and this test does not have."""


def verl_overrides(values: dict[str, Any]) -> list[str]:
    shown = {None: "null", True: "true", False: "false"}
    texts = {key: shown[value] if value is None or isinstance(value, bool) else value for key, value in values.items()}
    return [f"{key}={value}" for key, value in texts.items()]


def asked_of_verl(config: str, overrides: list[str]) -> dict[str, Any]:
    return framework("verl-0.9.1", "drive_verl.py").ask(config=config, overrides=overrides, rows=1000, ticks=[0])


def test_verl_accepts_the_base() -> None:
    answer = asked_of_verl("ppo_trainer", verl_overrides(changed("verl", {})))
    assert answer["accepted"], answer


@pytest.mark.parametrize(("change", "key"), VERL_REFUSED)
def test_verl_refuses_what_the_table_refuses(change: dict[str, Any], key: str) -> None:
    values = changed("verl", change)
    overrides = verl_overrides({name: value for name, value in values.items() if name != "model_engine"})
    overrides += [f"model_engine={values['model_engine']}"] if "model_engine" in values else []
    answer = asked_of_verl("ppo_trainer", overrides)
    assert not answer["accepted"], key
    assert answer["stage"] == "validate", answer


@pytest.mark.parametrize("path", sorted((CORPUS / "verl" / "overrides").glob("*.yaml")), ids=lambda path: path.stem)
def test_verl_agrees_on_its_examples(path: Path) -> None:
    item = yaml.safe_load(path.read_text())
    config, own = composed_by(item)
    if config != "ppo_trainer":
        pytest.skip("the table is for the PPO trainer")
    lines = [line for line in item["overrides"] if not line.startswith(("--", "hydra."))]
    _, report = read_document(Document("overrides", {}), dialect="verl", overrides=lines, environment={})
    found = [item for item in findings_of("verl", None, report) if item.level is Level.ERROR]
    ours = [item.message for item in found if any(source in item.message for source in VALIDATED)]
    if path.stem in NEWER:
        pytest.skip(NEWER[path.stem])
    answer = asked_of_verl(config, own)
    if not answer["accepted"] and answer["stage"] == "compose":
        pytest.skip(f"verl 0.9.1 does not compose it: {answer['error'][:150]}")
    refused = not answer["accepted"] and answer["stage"] == "validate"
    assert refused is bool(ours), (answer.get("error"), ours)


def asked_of_trinity(values: dict[str, Any], release: str = "0.6.0", rows: int = 0) -> dict[str, Any]:
    answer = framework(f"trinity-{release}", "drive_trinity.py").ask(text=yaml.safe_dump(tree(values)), rows=rows)
    if any(text in answer.get("error", "") for text in MISSING):
        pytest.skip(answer["error"][:200])
    return answer


def test_trinity_accepts_the_base() -> None:
    answer = asked_of_trinity(changed("trinity", {}))
    assert answer["accepted"], answer


@pytest.mark.parametrize(("change", "key"), TRINITY_REFUSED)
def test_trinity_refuses_what_the_table_refuses(change: dict[str, Any], key: str) -> None:
    assert not asked_of_trinity(changed("trinity", change))["accepted"], key


@pytest.mark.parametrize(("change", "key"), TRINITY_REFUSED)
def test_an_older_trinity_refuses_what_the_table_says_of_it(change: dict[str, Any], key: str) -> None:
    older = requirements_of("trinity").of("0.5")
    values = Document("run.yaml", tree(changed("trinity", change)))
    told = [row.key for row, _ in refused(older, dialect_called("trinity"), values, release="0.5", environment={})]
    assert (key in told) is not asked_of_trinity(changed("trinity", change), "0.5.2")["accepted"]


@pytest.mark.parametrize(("release", "rows"), [("0.5.2", 0), ("0.6.0", 1000)])
@pytest.mark.parametrize(("change", "key"), TRINITY_RANKS)
def test_trinity_divides_a_train_batch_by_its_ranks(change: dict[str, Any], key: str, release: str, rows: int) -> None:
    """Release 0.5 checks it before it starts, 0.6 in the workers."""
    assert asked_of_trinity(changed("trinity", {}), release, rows)["accepted"]
    answer = asked_of_trinity(changed("trinity", change), release, rows)
    assert not answer["accepted"] or answer["too_few"], key


def asked_of_roll(values: dict[str, Any]) -> dict[str, Any]:
    return of_roll("drive_roll.py").ask(text=yaml.safe_dump(tree(values)))


def test_roll_accepts_the_base() -> None:
    answer = asked_of_roll(changed("roll", {}))
    assert answer["accepted"], answer


@pytest.mark.parametrize(("change", "key"), ROLL_REFUSED)
def test_roll_refuses_what_the_table_refuses(change: dict[str, Any], key: str) -> None:
    assert not asked_of_roll(changed("roll", change))["accepted"], key


@pytest.mark.parametrize("path", sorted((CORPUS / "trinity").rglob("*.yaml"))[::6], ids=lambda path: path.name)
def test_trinity_agrees_on_its_examples(path: Path) -> None:
    text = path.read_text()
    for name in ("TRINITY_MODEL_PATH", "TRINITY_CRITIC_MODEL_PATH", "TRINITY_TASKSET_PATH", "TRINITY_SFT_DATASET_PATH"):
        text = text.replace("${oc.env:" + name + "}", "org/model")
    answer = framework("trinity-0.6.0", "drive_trinity.py").ask(text=text)
    if any(missing in answer.get("error", "") for missing in MISSING) or "stages" in yaml.safe_load(text):
        pytest.skip("Trinity needs something that is not here")
    _, report = read_document(read_yaml(text, path.name), dialect="trinity", environment={})
    ours = [item.message for item in findings_of("trinity", None, report) if item.level is Level.ERROR]
    assert answer["accepted"] is not bool(ours), (answer.get("error"), ours)


@pytest.mark.parametrize(("dialect", "key", "is_refused"), NULLS)
def test_a_framework_takes_null_for_a_section_as_the_table_says(dialect: str, key: str, is_refused: bool) -> None:
    values = changed(dialect, {key: None})
    if dialect == "verl":
        answer = asked_of_verl("ppo_trainer", verl_overrides(values))
    else:
        answer = asked_of_trinity(values) if dialect == "trinity" else asked_of_roll(values)
    assert answer["accepted"] is not is_refused, answer
