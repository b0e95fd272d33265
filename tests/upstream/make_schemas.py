"""Writes the schemas of the frameworks' releases, ``rlctl/adapters/schemas``, from what was published.

python -m tests.upstream.make_schemas verl                 # downloads the packages of verl's releases
python -m tests.upstream.make_schemas verl --cache FOLDER  # keeps them in FOLDER, or takes them from there
python -m tests.upstream.make_schemas trinity              # asks the environments that make test-upstream installs
ROLL=CHECKOUT python -m tests.upstream.make_schemas roll   # asks a checkout of ROLL at the commit of its version
python -m tests.upstream.make_schemas verl --changes 0.8 0.9       # what verl 0.9 added, dropped and changed, by the files
python -m tests.upstream.make_schemas verl --changes 0.9 CHECKOUT  # the same for a checkout of verl
python -m tests.upstream.make_schemas trinity --changes 0.6 0.4.1  # for an environment, which need not be in the files yet
python -m tests.upstream.make_schemas roll --changes 2026.8 CHECKOUT
python -m tests.upstream.make_schemas --check              # whether the files are those that were last written
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.rules import ABSENT, version_of
from rlctl.adapters.engine.schema import FOLDER, Composition, schema

from . import verl_schemas
from .frameworks import ENVIRONMENTS, ROLL_COMMIT, Framework, framework, of_roll
from .schema_lines import Place, lines

DIGESTS = Path(__file__).with_name("schemas.txt")
"""The SHA-256 of every schema file when it was last compared with the frameworks."""
HEAD = "# {framework} {kind}, from {releases}; see rlctl/adapters/engine/schema.py\n"
Defaults = dict[str, Any]
Schemas = dict[str, dict[Place, list[Defaults]]]
"""By kind of file: the defaults of every composition of every series, those of its oldest patch release first."""
Releases = Mapping[str, tuple[str, ...]]
"""The releases of each series, oldest first."""


def of_verl(cache: Path) -> tuple[Schemas, Releases]:
    """The schemas of verl, and the releases that they are of."""
    found: Schemas = {}
    for series, releases in verl_schemas.RELEASES.items():
        for release in releases:
            for kind, composition, defaults in verl_schemas.facts(verl_schemas.package(release, cache)):
                found.setdefault(kind, {}).setdefault((series, composition), []).append(defaults)
    return found, verl_schemas.RELEASES


HANDED_ON = "trainer.trainer_config."
"""Keys of verl, whose defaults Trinity-RFT replaces by its own settings."""
TRINITY: Releases = {"0.4": ("0.4.1",), "0.5": ("0.5.2",), "0.6": ("0.6.0",)}
"""The releases of Trinity-RFT that are installed under ``make test-upstream``, by series."""


def of_trinity(cache: Path) -> tuple[Schemas, Releases]:
    """The schema of Trinity-RFT, and the releases that it is of; stages repeat the keys at the top."""
    found: dict[Place, list[Defaults]] = {}
    for series, releases in TRINITY.items():
        found[series, Composition()] = [_keys_of_trinity(releases[-1])]
    return {"run": found}, TRINITY


def _keys_of_trinity(release: str) -> Defaults:
    """The defaults of every key of a release that ``make`` installed, as ``0.4.1``."""
    keys = framework(f"trinity-{release}", "drive_trinity.py").ask(keys=True)["keys"]
    own = {key: default for key, default in keys.items() if not key.startswith("stages")}
    return {key: default[0] if default and not key.startswith(HANDED_ON) else ABSENT for key, default in own.items()}


ROLL: Releases = {"2026.8": (f"commit {ROLL_COMMIT[:8]}",)}
"""ROLL has no releases: the month of the checkout that was read."""


def of_checkout(cache: Path) -> tuple[Schemas, Releases]:
    """The schemas of ROLL's pipelines, from the checkout that ``ROLL`` names."""
    made = _keys_of_roll(of_roll("drive_roll.py"))
    return {kind: {("2026.8", Composition()): [defaults]} for kind, defaults in made.items()}, ROLL


OF_THE_SCRIPT = "exp_name"
"""ROLL's default for it is the name of the script that is started."""


def _keys_of_roll(roll: Framework) -> dict[str, Defaults]:
    """The defaults of every key of each pipeline."""
    keys = roll.ask(keys=True)["keys"]
    return {
        kind: {key: default[0] if default and key != OF_THE_SCRIPT else ABSENT for key, default in own.items()}
        for kind, own in keys.items()
    }


def texts(framework: str, cache: Path) -> dict[str, str]:
    """The text of each of a framework's schema files, by kind."""
    schemas, releases = {"verl": of_verl, "trinity": of_trinity, "roll": of_checkout}[framework](cache)
    found = {}
    for kind, facts in schemas.items():
        used = [release for series in dict.fromkeys(name for name, _ in facts) for release in releases[series]]
        merged = {
            place: {key: value for one in patches for key, value in one.items()} for place, patches in facts.items()
        }
        partial = {
            (place, key): "?" if key in patches[-1] else "<"
            for place, patches in facts.items()
            for key in merged[place]
            if any(key not in one for one in patches)
        }
        head = HEAD.format(framework=framework, kind=kind, releases=", ".join(used))
        found[kind] = head + "".join(f"{line}\n" for line in lines(merged, partial))
    return found


def digests() -> str:
    """The digests of the schema files as they are."""
    files = sorted(FOLDER.rglob("*.tsv"))
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(FOLDER).as_posix()}\n" for file in files
    )


def changes(framework: str, before: str, after: str) -> Iterator[str]:
    """A line for each key that a framework added, dropped or gave another default, by kind of file and composition.

    A section that only one of the two has is one line, without its keys, and so is a kind of file or a composition.

    Args:
        framework: as ``verl``.
        before: a series, as ``0.8``.
        after: a series, the folder of a checkout, or a release of Trinity-RFT with an environment, as ``0.4.1``.
    """
    old, new = _defaults_of(framework, before), _defaults_of(framework, after)
    for place in sorted(old.keys() | new.keys()):
        name, were, are = " ".join(filter(None, place)), old.get(place, {}), new.get(place, {})
        if not (were and are):
            yield f"{'+' if are else '-'} {name}, whole"
            continue
        for key in sorted(were.keys() | are.keys()):
            above = key.rpartition(".")[0]
            if key not in were and (above in were or above not in are):
                yield f"+ {name} {key}" + ("" if are[key] is ABSENT else f" = {are[key]!r}")
            elif key not in are and (above in are or above not in were):
                yield f"- {name} {key}"
            elif key in were and key in are and were[key] != are[key]:
                yield f"~ {name} {key}: {were[key]!r} -> {are[key]!r}"


def _defaults_of(framework: str, release: str) -> dict[tuple[str, str, str], Defaults]:
    """The defaults of each kind of file, engine and trainer: those of the files, or of a release that they may not have."""
    if framework == "roll" and Path(release).is_dir():
        made = _keys_of_roll(Framework("roll", "drive_roll.py", checkout=Path(release).resolve()))
        return {(kind, "", ""): defaults for kind, defaults in made.items()}
    if Path(release).is_dir():
        found = verl_schemas.facts(Path(release) / "verl")
        return {(kind, made.engine, made.trainer): defaults for kind, made, defaults in found}
    if (ENVIRONMENTS / f"{framework}-{release}").is_dir():
        return {("run", "", ""): _keys_of_trinity(release)}
    return _defaults_by_files(framework, release)


def _defaults_by_files(framework: str, release: str) -> dict[tuple[str, str, str], Defaults]:
    of_release: dict[tuple[str, str, str], Defaults] = {}
    for file in (FOLDER / framework).glob("*.tsv"):
        table = schema(framework, file.stem)
        for engine in sorted(table.engines(release)) or [""]:
            for trainer in ("", "fully_async", "one_step_off") if engine in ("fsdp", "megatron") else ("",):
                made = Composition(engine, trainer)
                own = {path: table.default(path, version_of(release), made) for path in table}
                known = {path for path in own if made == Composition() and release in table[path]}
                defaults = {
                    ".".join(map(str, path)): value
                    for path, value in own.items()
                    if value is not ABSENT or path in known
                }
                if defaults and (file.stem == "ppo" or not trainer):
                    of_release[file.stem, engine, trainer] = defaults
    return of_release


def main() -> int:
    """Write the files and their digests, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", nargs="?", choices=["verl", "trinity", "roll"])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--changes", nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.check:
        same = digests() == DIGESTS.read_text(encoding="utf-8")
        print(
            "" if same else f"{FOLDER} was edited: write the files with python -m tests.upstream.make_schemas", end=""
        )
        return not same
    if asked.changes:
        print(*changes(asked.framework or "verl", *asked.changes), sep="\n")
        return 0
    if not asked.framework:
        parser.error("name a framework")
    with tempfile.TemporaryDirectory() as made:
        for kind, text in texts(asked.framework, asked.cache or Path(made)).items():
            file = FOLDER / asked.framework / f"{kind}.tsv"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    DIGESTS.write_text(digests(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
