"""Changes of a config that are proposed: as settings of the file that was read, applied and checked.

A change is accepted if the file's framework has keys that say it, the file with these settings reads as the changed config, that
config makes no new problem, and the framework does not refuse the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rlctl.checks import new_problems
from rlctl.checks.hints import Setting, shown
from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said, translated
from rlctl.common.report import Fix, Level, Report
from rlctl.common.report_lines import framework
from rlctl.config import Config, Loaded, to_plain
from rlctl.documents import KeyPath, dotted, parse_dotted
from rlctl.planning.arithmetic import Cluster
from rlctl.translation.acceptance import findings_of
from rlctl.translation.advice import Adviser


@dataclass
class Proposals:
    """Judges changes of one file."""

    loaded: Loaded
    report: Report
    cluster: Cluster
    runner: str
    """The framework that is to run it."""
    read: Callable[[Sequence[str]], tuple[Loaded | None, Report]]
    """Reads the file with overrides in its own format."""
    settings: dict[tuple[Fix, ...], list[Setting]] = field(default_factory=dict)
    """Settings of the changes that were accepted."""

    @property
    def source(self) -> str:
        """What the file was read as, as ``verl@0.9``."""
        return self.report.dialect

    @property
    def is_own(self) -> bool:
        """Whether the file is in rlctl's own format."""
        return self.source.partition("@")[0] in ("", "rlctl")

    def why_refused(self, config: Config, fixes: Sequence[Fix]) -> str:
        """Why a change is refused; empty if it is accepted, and ``settings`` has it.

        Args:
            config: the changed config.
            fixes: the changed keys with their values.
        """
        place = config.placement
        cluster = replace(self.cluster, nodes=place.nodes, devices_per_node=place.devices_per_node)
        found = new_problems(self.loaded.config, config, cluster=cluster, silent=self.loaded.silent, runner=self.runner)
        if found:
            return found[0].message_for(self.runner)
        changed = [fix for fix in fixes if _value(self.loaded.config, fix[0]) != fix[1]]
        settings, reason = self._as_settings(changed) if changed else ([], "")
        if not reason:
            self.settings[_frozen(fixes)] = settings
        return reason

    def _as_settings(self, fixes: Sequence[Fix]) -> tuple[list[Setting], str]:
        """Changed keys as settings of the file, and why there are none, or why its framework refuses the file with them."""
        if self.is_own:
            return [Setting(dotted(key), (value,)) for key, value in fixes], ""
        adviser = self._adviser
        try:
            settings = adviser.change(fixes)
            if not settings:
                reasons = (adviser.why_not(key, value) for key, value in fixes)
                reason = next((reason for reason in reasons if reason), "no keys of the file say it")
                return [], said(
                    "{name} cannot express it: {reason}", name=framework(self.source), reason=translated(reason)
                )
            again, report = self.read([_override(setting) for setting in settings])
        except RlctlError as error:
            return [], error.message
        if again is None:
            return [], next((finding.message for finding in report.errors), "the file cannot be read with it")
        if any(_value(again.config, key) != value for key, value in fixes):
            return [], "the file would be read with other values"
        refused = [each for each in self._refused(again, report) if each not in self._refused_before]
        return (settings, "") if not refused else ([], refused[0])

    def _refused(self, loaded: Loaded, report: Report) -> list[str]:
        """What the framework of the file refuses of it."""
        if self.source.partition("@")[0] != self.runner:
            return []
        return [each.message for each in findings_of(self.runner, loaded, report) if each.level is Level.ERROR]

    @cached_property
    def _refused_before(self) -> list[str]:
        return self._refused(self.loaded, self.report)

    @cached_property
    def _adviser(self) -> Adviser:
        return Adviser(self.loaded, self.source, {})

    def now(self, key: str) -> Any:
        """What the file says at one of its keys; None if it says nothing."""
        if self.is_own:
            return _value(self.loaded.config, parse_dotted(key))
        return next((entry.value for entry in self.report.accounting if entry.key == key), None)

    def settings_of(self, fixes: Sequence[Fix]) -> list[Setting]:
        """The settings of an accepted change."""
        return self.settings[_frozen(fixes)]


def _value(config: Config, key: KeyPath) -> Any:
    value: Any = to_plain(config)
    for part in key:
        value = value[part]
    return value


def _override(setting: Setting) -> str:
    """A setting as an override; a key without a value is removed."""
    return f"{setting.key}={shown(setting.values[0])}" if setting.values else f"~{setting.key}"


def _frozen(fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Fixes as a key of a mapping."""
    return tuple((key, tuple(sorted(value.items())) if isinstance(value, Mapping) else value) for key, value in fixes)
