"""``+key=value`` for a key that the release's config has: Hydra refuses it, so rlctl does; it shows an older release."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.verl.additions import refused
from rlctl.common.report import Level
from rlctl.documents import Document, read_yaml
from rlctl.translation.translate import read_document

from .corpus import ROOT

GIVEN = ["actor_rollout_ref.model.path=m", "data.train_files=a.parquet", "algorithm.adv_estimator=grpo"]


def _found(override: str, release: str = "") -> Any:
    text = read_yaml("", "f", allow_empty=True)
    asked = f"verl@{release}" if release else None
    _, report = read_document(text, dialect=asked, overrides=[*GIVEN, override], environment={})
    return [item for item in report.findings if item.code == "added-key"]


@pytest.mark.parametrize("release", ["", "0.4", "0.8", "0.9"])
def test_a_key_that_is_there_cannot_be_added(release: str) -> None:
    [found] = _found("+trainer.val_before_train=False", release)
    assert found.key == "trainer.val_before_train"
    assert found.level is (Level.WARNING if release else Level.ERROR), "which defaults hold is known if the release is"
    assert "--from verl@0.3" in found.hint


def test_no_older_release_is_shown_by_a_key_beside_newer_ones() -> None:
    text = read_yaml("", "f", allow_empty=True)
    lines = [*GIVEN, "+trainer.val_before_train=False", "trainer.use_v1=False"]
    loaded, report = read_document(text, overrides=lines, environment={})
    assert loaded is not None
    [found] = [item for item in report.findings if item.code == "added-key"]
    assert found.level is Level.WARNING
    assert found.hint == "remove the +"


@pytest.mark.parametrize(
    ("override", "release"),
    [
        ("+trainer.val_before_train=False", "0.3"),
        ("++trainer.val_before_train=False", "0.8"),
        ("trainer.val_before_train=False", "0.8"),
        ("+actor_rollout_ref.actor.optim.override_optimizer_config.eps=1e-8", "0.9"),
        ("+actor_rollout_ref.model.override_config={a: 1}", "0.9"),
        ("+data.max_samples_of_ours=1", "0.9"),
        ("+trainer.default_hdfs_dir=x", "0.9"),
        ("+actor_rollout_ref.actor.megatron.use_mbridge=True", "0.9"),
    ],
)
def test_what_hydra_takes_is_no_error(override: str, release: str) -> None:
    assert _found(override, release) == []


RELEASES = [f"0.{minor}" for minor in range(3, 10)]


@pytest.mark.parametrize("release", RELEASES)
def test_no_key_is_refused_that_the_composed_config_lacks_or_has_as_null(release: str) -> None:
    """Every key of the tables, added to a config for FSDP, against the values that the release composes."""
    files = [
        file
        for folder in (ROOT / "verl" / "defaults").glob(f"v{release}*")
        for file in folder.glob("*ppo_trainer.yaml")
        if "megatron" not in file.name
    ]
    if not files:
        pytest.skip("needs verl's composed configs")
    values = yaml.safe_load(files[0].read_text())
    table = dialect("verl").tables["ppo"]
    plain = [path for path in table.index if not {"*", "**"} & set(path) and not any(isinstance(p, int) for p in path)]
    added: dict[str, Any] = {}
    for path in plain:
        if isinstance(find(added, path[:1]), dict) or path[0] not in added:
            put(added, path, 1)
    put(added, ("actor_rollout_ref", "actor", "strategy"), "fsdp")
    document = Document("f", added, appended=frozenset(plain))
    found = [item.key for item in refused(document, table, release, tuple(RELEASES))]
    assert len(found) > 50
    assert [key for key in found if not _has_value(values, tuple(key.split(".")))] == []


def _has_value(values: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return values is not None and not isinstance(values, (dict, list))
