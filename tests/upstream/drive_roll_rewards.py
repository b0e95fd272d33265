"""Runs in ROLL's environment: functions of its reward workers, whose modules import far more than these functions use."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import drive_rewards

REWARDS = "roll.pipeline.rlvr.rewards"


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for what is not called: ROLL's own modules but the rewards, and packages that are not installed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        own = name.split(".")[0] in ("roll", "nltk")
        if not own or name == REWARDS or name.startswith(f"{REWARDS}.") or REWARDS.startswith(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        module = MagicMock(spec=None)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        module.Worker = object
        return module  # type: ignore[return-value]

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def main() -> None:
    """Answer as ``drive_rewards`` does."""
    sys.meta_path.insert(0, _StandIns())
    for name in ("roll", "roll.pipeline", "roll.pipeline.rlvr", REWARDS):
        package = ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}" for folder in sys.path if folder]  # type: ignore[attr-defined]
        sys.modules[name] = package
    drive_rewards.main()


if __name__ == "__main__":
    main()
