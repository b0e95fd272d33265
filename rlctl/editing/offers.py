"""The fixes of a finding that a file can hold: what is written for one must read back as the value that it offers."""

from __future__ import annotations

from rlctl.config import Loaded
from rlctl.difference import differences
from rlctl.documents import dotted
from rlctl.editing.session import Session, reads_back, with_value
from rlctl.errors import RlctlError
from rlctl.report import Finding, Fix


class Offers:
    """Of one session; what was found out is kept while its config stays as it is."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._of: Loaded | None = None
        self._known: dict[str, bool] = {}
        self._otherwise: set[str] | None = None
        """The keys that the dialect says otherwise anyway; None where it cannot say the config at all."""

    def offered(self, finding: Finding) -> tuple[Fix, ...]:
        """The fixes of a finding that the session's dialect can say without changing another key."""
        return tuple(fix for fix in finding.fixes if self._is_said(fix))

    def _is_said(self, fix: Fix) -> bool:
        loaded = self._session.loaded
        if self._session.dialect.partition("@")[0] == "rlctl":
            return True
        if loaded is not self._of:
            self._of, self._known, self._otherwise = loaded, {}, self._said_otherwise(loaded)
        path, value = fix
        name = f"{dotted(path)} = {value!r}"
        if name not in self._known:
            self._known[name] = self._can_say(loaded, fix)
        return self._known[name]

    def _can_say(self, loaded: Loaded, fix: Fix) -> bool:
        path, value = fix
        try:
            changed = with_value(loaded, path, value)
        except RlctlError:
            return False
        found, key = self._said_otherwise(changed), dotted(path)
        if found is None or self._otherwise is None:
            return False
        return found <= self._otherwise and not any(one == key or one.startswith(f"{key}.") for one in found)

    def _said_otherwise(self, loaded: Loaded) -> set[str] | None:
        try:
            said = reads_back(self._session, loaded)
        except RlctlError:
            return None
        return {item.key for item in differences(loaded, said)}
