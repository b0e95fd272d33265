"""Makes ``presets/published`` and ``tests/config/published.json`` from the sources that ``recipes.yaml`` names.

``python -m tests.upstream.make_recipes CHECKOUTS`` wants one git repository a source in ``CHECKOUTS/OWNER+NAME``. A recipe is the
source as ``rlctl convert`` reads it, with the changes of its entry, and only what differs from rlctl's defaults. The numbers are
not rlctl's: bash itself runs the script in a sandbox, and the oracle of the tests works them out of the command that it starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlctl.config import Loaded, to_file
from rlctl.config.load import set_keys
from rlctl.shell.tracing import trace
from rlctl.translation import translate
from tests.adapters.corpus import ROWS, of_overrides, plain
from tests.adapters.effective import Numbers, effective

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = HERE / "recipes.yaml"
OUTPUT = ROOT / "presets" / "published"
NUMBERS = ROOT / "tests" / "config" / "published.json"
HOME = "/home/me"
SCHEMA = "# yaml-language-server: $schema=https://raw.githubusercontent.com/rlctl/rlctl/main/docs/reference/rlctl.schema.json"
WIDTH = 118

Entry = Mapping[str, Any]


def entries() -> list[Entry]:
    """The sources with what is known of each run."""
    found: list[Entry] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return found


def checkout(folder: Path, entry: Entry) -> Path:
    """The git directory of a source's repository: bare, or of a work tree."""
    place = folder / entry["repository"].replace("/", "+")
    return next((inner for name in (".git", "repo") if (inner := place / name).is_dir()), place)


def source(folder: Path, entry: Entry, into: Path) -> Path:
    """The file of a source at its commit, written into a folder."""
    place = f"{entry['commit']}:{entry['path']}"
    shown = subprocess.run(
        ["git", f"--git-dir={checkout(folder, entry)}", "show", place], capture_output=True, check=True
    )
    file = into / Path(entry["path"]).name
    file.write_bytes(shown.stdout)
    return file


def read(file: Path, entry: Entry) -> Loaded:
    """The source as rlctl reads it, with the entry's changes."""
    found = translate.read(
        file,
        trace=entry.get("traced", False),
        variables=entry.get("fixed"),
        dialect=entry["release"],
        environment={"HOME": HOME, **entry.get("variables", {})},
        overrides=list(entry.get("arguments", ())),
        options={"dataset_rows": str(ROWS)},
    )
    loaded, _ = translate.with_config(*found, str(file))
    return set_keys(loaded, ["run.project=published", f"run.name={entry['name']}", *entry.get("set", ())])


def numbers(file: Path, entry: Entry) -> Numbers:
    """The effective numbers of the source, of the command that bash itself comes to."""
    environment = {"HOME": HOME, **entry.get("variables", {})}
    traced = trace(str(file), list(entry.get("arguments", ())), environment, fixed=entry.get("fixed"))
    command = next(call for call in traced.calls if any("verl" in word or "main_" in word for word in call))
    words = [word for word in command if "=" in word and not word.startswith("--")]
    _, _, release = entry["release"].partition("@")
    tree = plain(of_overrides(words))
    return effective("verl", tree, version=tuple(map(int, release.split("."))), rows=ROWS)


def text(entry: Entry, loaded: Loaded) -> str:
    """The file of a recipe."""
    lines = [
        entry["title"],
        f"needs: {entry['needs']}",
        f"run: rlctl launch {entry['name']}.yaml",
        f"expect: {entry['result']} ({entry['stated']})",
        f"source: {place(entry)}",
        f"plan: rlctl plan {entry['name']}.yaml --runner verl --cluster {entry['cluster']}",
        f"algorithm: {entry['algorithm']}",
        f"model: {entry['model']}",
        f"data: {entry['data']}",
        f"made: rlctl convert --from {entry['release']} of the source; paths are changed",
        *(f"note: {line}" for line in entry.get("notes", ())),
    ]
    return "\n".join([*(f"# {line}" for line in lines), SCHEMA, *_settings(to_file(loaded.config)), ""])


def place(entry: Entry) -> str:
    """Where a source is, and its paper."""
    paper = f"; arXiv {entry['paper']}" if entry.get("paper") else ""
    return f"https://github.com/{entry['repository']}/blob/{entry['commit']}/{entry['path']}{paper}"


def _settings(plain_config: Mapping[str, Any]) -> Iterator[str]:
    """A section a line where it fits, a key a line where it does not."""
    for key, value in plain_config.items():
        line = f"{key}: {_flow(value)}"
        if len(line) <= WIDTH or not isinstance(value, dict):
            yield line
            continue
        yield f"{key}:"
        yield from (f"  {name}: {_flow(item)}" for name, item in value.items())


def _flow(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).strip()
    return yaml.safe_dump(value, width=10_000).removesuffix("...\n").strip()


def make(folder: Path) -> tuple[dict[str, str], dict[str, Numbers]]:
    """The texts of all recipes and the numbers of their sources, by name."""
    texts, table = {}, {}
    with tempfile.TemporaryDirectory() as into:
        for entry in entries():
            file = source(folder, entry, Path(into))
            texts[entry["name"]] = text(entry, read(file, entry))
            table[entry["name"]] = json.loads(json.dumps(numbers(file, entry)))
    return texts, table


def as_json(table: Mapping[str, Numbers]) -> str:
    """The table as its file holds it: a run a block, a number a line."""
    return json.dumps(table, indent=1) + "\n"


if __name__ == "__main__":
    texts, table = make(Path(sys.argv[1]))
    OUTPUT.mkdir(exist_ok=True)
    for name, content in texts.items():
        (OUTPUT / f"{name}.yaml").write_text(content, encoding="utf-8")
    NUMBERS.write_text(as_json(table), encoding="utf-8")
