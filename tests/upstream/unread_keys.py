"""Keys that a framework accepts and never reads: those whose names no module of a release mentions.

python -m tests.upstream.unread_keys verl                 # writes rlctl/adapters/unread/verl.tsv; downloads the releases
python -m tests.upstream.unread_keys verl --cache FOLDER  # keeps the packages in FOLDER, or takes them from there
ROLL=CHECKOUT python -m tests.upstream.unread_keys roll   # reads a checkout of ROLL at the commit of its schemas

A key counts as read if its last name occurs anywhere in the syntax trees of a release: as an attribute, an argument, a variable, or
a word of a string, docstrings and help texts excepted. A field of a class that declares keys is no such place. Keys below a section
that is handed on whole, to a function of another package for example, count as read too, and so do keys of a config folder
whose code the package lacks. So a key in the file is surely not read; one that is missing may still not be.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlctl.adapters.engine.schema import FOLDER as SCHEMAS
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.engine.unread import FOLDER

from . import frameworks, verl_schemas
from .make_schemas import ROLL, TRINITY
from .schema_lines import ranges

WORD = re.compile(r"[A-Za-z_]\w*")
HELP = ("metadata", "help", "description")
"""Arguments that describe a key to people."""
WHOLE = ("to_container", "asdict", "dict", "vars", "keys", "items", "update", "to_object")
"""Functions and methods that take all keys of a section."""
COPIES = (*WHOLE, "copy", "get", "pop", "to_dict", "model_dump")
OBJECTS = ("data", "model", "actor", "ref", "critic", "rollout", "trainer", "algorithm", "teacher")
"""Sections whose names are also those of batches, modules and workers: no section of these names is handed on whole, which was read."""
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "verl": (
        *(
            "override_transformer_config",
            "override_ddp_config",
            "mcore_kwargs",
            "lora",
            "global_tool_config",
            "tool_config",
        ),
        *("moe_config", "backend_config", "turbo_config", "veomni", "transfer_queue", "ray_kwargs", "engine_kwargs"),
        *("controller_nsight_options", "worker_nsight_options", "engine"),
    ),
    "trinity": ("trainer_config",),
    "roll": ("strategy_config", "training_args", "generating_args"),
}
"""Sections that code hands on under another name, or that code of other packages reads: verl's engines, Transformers."""


def names(tree: ast.AST) -> Iterator[str]:
    """The names that a module mentions, outside the fields of classes and texts for people."""
    if isinstance(tree, ast.ClassDef):
        fields = [item for item in tree.body if isinstance(item, ast.AnnAssign)]
        inner = [part for item in fields for part in (item.annotation, item.value) if part is not None]
        body = [item for item in tree.body if item not in fields]
        below: list[ast.AST] = [*tree.bases, *tree.keywords, *tree.decorator_list, *inner, *body]
    elif (isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant)) or (
        isinstance(tree, ast.keyword) and tree.arg in HELP
    ):
        return
    else:
        below = list(ast.iter_child_nodes(tree))
    yield from _own(tree)
    for node in below:
        yield from names(node)


def _own(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute | ast.Name) and not isinstance(node.ctx, ast.Store):
        yield node.attr if isinstance(node, ast.Attribute) else node.id
    elif isinstance(node, ast.arg | ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from WORD.findall(node.value)


def whole(tree: ast.AST) -> Iterator[str]:
    """The names of what a module takes all keys of: ``**x.section``, ``asdict(x.section)``, ``x.section.items()``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is None:
            yield from _names_in(node.value)
        elif isinstance(node, ast.Dict):
            yield from (
                name
                for key, item in zip(node.keys, node.values, strict=True)
                if key is None
                for name in _names_in(item)
            )
        elif isinstance(node, ast.Call) and _last(node.func) in WHOLE:
            holders = [node.func.value] if isinstance(node.func, ast.Attribute) and not node.args else []
            for part in (*holders, *node.args):
                yield from _names_in(part)


def _names_in(node: ast.AST) -> Iterator[str]:
    """The last names of an expression: those of each branch, and the text that a lookup asks for."""
    if isinstance(node, ast.Attribute | ast.Name):
        yield _last(node)
    elif isinstance(node, ast.Subscript):
        yield from _names_in(node.slice)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.rpartition(".")[2]
    elif isinstance(node, ast.IfExp):
        yield from (*_names_in(node.body), *_names_in(node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from (name for item in node.values for name in _names_in(item))
    elif isinstance(node, ast.Call):
        copies = isinstance(node.func, ast.Attribute) and node.func.attr in COPIES
        holders = [node.func.value] if copies and isinstance(node.func, ast.Attribute) else []
        yield from (name for item in (*holders, *node.args) for name in _names_in(item))


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def assigned(tree: ast.AST, wanted: set[str]) -> Iterator[str]:
    """What the variables among some names are assigned from, in any function of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(_last(target) in wanted for target in node.targets):
            yield from _names_in(node.value)


class Source:
    """What the modules below some folders mention."""

    def __init__(self, *roots: Path) -> None:
        self.mentioned: set[str] = set()
        self.handed_on: set[str] = set()
        for root in roots:
            for file in sorted(root.rglob("*.py")):
                self._read(ast.parse(file.read_text(encoding="utf-8")))
            for file in sorted(root.rglob("*.yaml")):
                self._read_config(file)

    def _read(self, tree: ast.AST) -> None:
        self.mentioned.update(names(tree))
        taken = set(whole(tree))
        self.handed_on |= (taken | set(assigned(tree, taken))).difference(OBJECTS)

    def _read_config(self, file: Path) -> None:
        """Other keys that a key refers to; all keys if no code is packaged with the config."""
        text = file.read_text(encoding="utf-8")
        has_code = any(file.parent.parent.rglob("*.py"))
        parts = re.findall(r"\$\{([^}]*)", text) if has_code else [text]
        self.mentioned.update(word for part in parts for word in WORD.findall(part))

    def reads(self, key: str, elsewhere: tuple[str, ...]) -> bool:
        """Whether a key may be read."""
        *above, last = key.split(".")
        if last in ("*", "**", "_target_") or last in self.mentioned or not WORD.fullmatch(last):
            return True
        return any(part in self.handed_on or part in elsewhere for part in above)


def sources(framework: str, cache: Path) -> Iterator[tuple[str, list[Source]]]:
    """What each release of each series mentions."""
    if framework == "roll":
        assert frameworks.CHECKOUT, "name a checkout of ROLL: ROLL=/path"
        root = Path(frameworks.CHECKOUT)
        yield next(iter(ROLL)), [Source(root / "roll", root / "mcore_adapter" / "src", root / "examples")]
        return
    project = {"verl": "verl", "trinity": "trinity-rft"}[framework]
    for series, releases in (verl_schemas.RELEASES if framework == "verl" else TRINITY).items():
        yield series, [Source(verl_schemas.package(release, cache, project, framework)) for release in releases]


def text(framework: str, cache: Path) -> str:
    """The lines of a framework's file: kind of file, key, releases."""
    elsewhere = ELSEWHERE[framework]
    unread: dict[tuple[str, str], list[str]] = {}
    for series, found in sources(framework, cache):
        for file in sorted((SCHEMAS / framework).glob("*.tsv")):
            for path, having in schema(framework, file.stem).items():
                key = ".".join(map(str, path))
                if series in having and not any(source.reads(key, elsewhere) for source in found):
                    unread.setdefault((file.stem, key), []).append(series)
    return "".join(f"{kind}\t{key}\t{ranges(having)}\n" for (kind, key), having in sorted(unread.items()))


def main() -> int:
    """Write the file of a framework."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=["verl", "trinity", "roll"])
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        found = text(asked.framework, asked.cache or Path(made))
    (FOLDER / f"{asked.framework}.tsv").write_text(found, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
