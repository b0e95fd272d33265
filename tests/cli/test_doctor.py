"""``doctor`` says what is installed without importing it, and what is missing with how to get it."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any

import pytest

from rlctl.cli import doctor
from rlctl.common import packages
from rlctl.common.errors import SandboxUnavailable


def test_versions_are_those_of_the_installed_packages(rlctl: Any) -> None:
    found = json.loads(rlctl("doctor", "--json").out)
    assert found["packages"]["omegaconf"] == importlib.metadata.version("omegaconf")
    assert found["machine"]["cpu_cores"] >= 1
    assert {"name", "available", "missing", "hint"} == set(found["abilities"][0])


def test_what_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.ability_of("track with MLflow", "mlflow").available
    monkeypatch.setitem(sys.modules, "mlflow", None)
    able = doctor.ability_of("track with MLflow", "mlflow")
    assert able.missing == ("mlflow",)
    assert able.hint == packages.install("mlflow")


def test_a_driver_that_fails_is_unknown_not_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gpus() == "unknown"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559 MiB'\n")
    assert doctor.gpus() == ["NVIDIA H100 80GB HBM3, 81559 MiB"]


def test_the_text_holds_every_ability(rlctl: Any) -> None:
    shown = rlctl("doctor").out
    assert all(name in shown for name in doctor.ABILITIES)


def test_a_sandbox_that_is_not_available_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise SandboxUnavailable("no user namespaces", hint="allow them")

    monkeypatch.setattr("rlctl.sandbox.find_bwrap", refuse)
    found = doctor.sandbox_ability()
    assert (found.available, found.missing, found.hint) == (False, ("no user namespaces",), "allow them")
    monkeypatch.setattr("rlctl.sandbox.find_bwrap", lambda: "/usr/bin/bwrap")
    assert doctor.sandbox_ability().available
