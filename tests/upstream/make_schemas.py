"""Writes the schemas of the frameworks' releases, ``rlctl/adapters/schemas``, from what was published.

python -m tests.upstream.make_schemas verl                 # downloads the packages of verl's releases
python -m tests.upstream.make_schemas verl --cache FOLDER  # keeps them in FOLDER, or takes them from there
python -m tests.upstream.make_schemas trinity              # asks the environments that make test-upstream installs
ROLL=CHECKOUT python -m tests.upstream.make_schemas roll   # asks a checkout of ROLL at the commit of its version
python -m tests.upstream.make_schemas --changes 0.8 0.9    # what verl 0.9 added, dropped and changed, by the files
python -m tests.upstream.make_schemas --changes 0.9 PATH   # the same for a checkout of verl
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
from .frameworks import ROLL_COMMIT, framework, of_roll
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
TRINITY: Releases = {"0.5": ("0.5.2",), "0.6": ("0.6.0",)}
"""The releases of Trinity-RFT that are installed under ``make test-upstream``, by series."""


def of_trinity(cache: Path) -> tuple[Schemas, Releases]:
    """The schema of Trinity-RFT, and the releases that it is of; stages repeat the keys at the top."""
    found: dict[Place, list[Defaults]] = {}
    for series, releases in TRINITY.items():
        keys = framework(f"trinity-{releases[-1]}", "drive_trinity.py").ask(keys=True)["keys"]
        own = {key: default for key, default in keys.items() if not key.startswith("stages")}
        found[series, Composition()] = [
            {key: default[0] if default and not key.startswith(HANDED_ON) else ABSENT for key, default in own.items()}
        ]
    return {"run": found}, TRINITY


ROLL: Releases = {"2026.8": (f"commit {ROLL_COMMIT[:8]}",)}
"""ROLL has no releases: the month of the checkout that was read."""


def of_checkout(cache: Path) -> tuple[Schemas, Releases]:
    """The schemas of ROLL's pipelines, from the checkout that ``ROLL`` names."""
    keys = of_roll("drive_roll.py").ask(keys=True)["keys"]
    made = {
        kind: {key: default[0] if default else ABSENT for key, default in own.items()} for kind, own in keys.items()
    }
    return {kind: {("2026.8", Composition()): [defaults]} for kind, defaults in made.items()}, ROLL


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
            (place, key)
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


def changes(before: str, after: str) -> Iterator[str]:
    """A line for each key that verl added, dropped or gave another default, by kind of file and composition.

    Args:
        before: a series, as ``0.8``.
        after: a series, or the folder of a checkout.
    """
    old, new = _defaults_of(before), _defaults_of(after)
    for place in sorted(old.keys() | new.keys()):
        name, were, are = " ".join(filter(None, place)), old.get(place, {}), new.get(place, {})
        for key in sorted(were.keys() | are.keys()):
            if key not in were:
                yield f"+ {name} {key} = {are[key]!r}"
            elif key not in are:
                yield f"- {name} {key}"
            elif were[key] != are[key]:
                yield f"~ {name} {key}: {were[key]!r} -> {are[key]!r}"


def _defaults_of(release: str) -> dict[tuple[str, str, str], Defaults]:
    """The defaults of each kind of file, engine and trainer, by the schemas or by a checkout."""
    if Path(release).is_dir():
        found = verl_schemas.facts(Path(release) / "verl")
        return {(kind, made.engine, made.trainer): defaults for kind, made, defaults in found}
    of_release: dict[tuple[str, str, str], Defaults] = {}
    for file in (FOLDER / "verl").glob("*.tsv"):
        table = schema("verl", file.stem)
        for engine in sorted(table.engines(release)) or [""]:
            for trainer in ("", "fully_async", "one_step_off") if engine in ("fsdp", "megatron") else ("",):
                made = Composition(engine, trainer)
                own = {path: table.default(path, version_of(release), made) for path in table}
                defaults = {".".join(map(str, path)): value for path, value in own.items() if value is not ABSENT}
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
        print(*changes(*asked.changes), sep="\n")
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
