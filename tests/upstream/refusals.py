"""The inventory of what frameworks refuse: every site of a release that refuses, and a judgement of each.

python -m tests.upstream.refusals list verl                    # the sites, with the judgements that are known
python -m tests.upstream.refusals list verl --context 6        # the same, with lines of the source around each
python -m tests.upstream.refusals list verl --write            # adds new sites to the file with ?, drops those that are gone
python -m tests.upstream.refusals check verl                   # fails on sites without a judgement, and on rows without a site
python -m tests.upstream.refusals page                         # writes docs/reference/refusals.md from the files
--source FOLDER takes the packages from a folder, --cache FOLDER keeps what is downloaded, --under PREFIX lists some files.

A row of ``refusals/FRAMEWORK.tsv`` is a site: file, function, kind, digest of its conditions, lines, judgement, and by whom it is
predicted. A row whose file is a pattern, as ``verl/models/**``, judges all sites below that have no row: its lines are ``xN`` for N
of them. The page groups reasons by their words: sites with one cause have the same words.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlctl.adapters.engine.requirements import IGNORES, REFUSES, requirements_of
from rlctl.common.messages import catalogue, code_of, has
from rlctl.common.records import record

from .refusal_sites import SOURCES, Site, context, folder, sites

FILES = Path(__file__).with_name("refusals")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"
HEAD = ("file", "function", "kind", "digest", "lines", "judgement", "by")
UNKNOWN = "?"
JUDGEMENTS: Mapping[str, str] = {
    "config": "a value of the config",
    "data": "the data sets",
    "code": "the user's reward, agent or other code",
    "model": "the model's files or shape",
    "machine": "hardware, drivers, installed packages and services",
    "internal": "the framework's own code; no input of a training run decides it",
}
"""What decides whether a site refuses."""
REACHABLE = tuple(JUDGEMENTS)[:-1]
TABLES = {"vllm": ("verl", "trinity", "roll"), "megatron": ("verl", "trinity", "roll")}
"""The frameworks whose requirements predict what a library refuses."""


@record
class Row:
    """A judgement of one site, or of all below a pattern."""

    site: Site
    lines: str
    """Of the source, as ``12,40``; for a pattern the number of sites, as ``x12``."""
    judgement: str
    by: str
    """Codes of the checks that predict it, as ``path-missing runner-refuses:data.train_files``, or ``- `` and why none can."""

    @property
    def is_pattern(self) -> bool:
        return "*" in self.site.file

    @property
    def sites(self) -> int:
        """How many sites it judges."""
        return int(self.lines.removeprefix("x")) if self.is_pattern else self.lines.count(",") + 1

    @property
    def codes(self) -> tuple[str, ...]:
        """What predicts it: codes, those of requirements with the key that the row is about."""
        return () if self.by.startswith("-") else tuple(self.by.split())

    @property
    def reason(self) -> str:
        """Why no check predicts it."""
        return self.by.removeprefix("-").strip() if self.by.startswith("-") else ""

    def text(self) -> str:
        """Its line in the file."""
        place = (self.site.file, self.site.function, self.site.kind, self.site.digest)
        return "\t".join((*place, self.lines, self.judgement, self.by))


def rows(framework: str) -> list[Row]:
    """The judgements of a framework; none if it has no file."""
    file = FILES / f"{framework}.tsv"
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return [Row(Site(*parts[:4]), *parts[4:]) for parts in (line.split("\t") for line in lines)]


def write(framework: str, judged: list[Row]) -> None:
    """Write the judgements of a framework, sorted."""
    body = sorted(row.text() for row in judged)
    (FILES / f"{framework}.tsv").write_text("\n".join(("\t".join(HEAD), *body)) + "\n", encoding="utf-8")


def joined(framework: str, root: Path) -> list[Row]:
    """A row for each site of a source and each pattern, with the judgement that is known; ``?`` for the others."""
    known = {row.site: row for row in rows(framework)}
    patterns = [row for row in known.values() if row.is_pattern]
    counts: Counter[Site] = Counter()
    made = []
    for site, lines in sites(framework, root).items():
        row = known.get(site)
        over = next((each for each in patterns if fnmatch.fnmatchcase(site.file, each.site.file)), None)
        if row is None and over is not None:
            counts[over.site] += len(lines)
        else:
            judged = (row.judgement, row.by) if row else (UNKNOWN, UNKNOWN)
            made.append(Row(site, ",".join(map(str, lines)), *judged))
    return [
        *made,
        *(Row(row.site, f"x{counts[row.site]}", row.judgement, row.by) for row in patterns if counts[row.site]),
    ]


def faults(framework: str, root: Path) -> Iterator[str]:
    """What of the file does not fit a source: new sites, sites that are gone, and other numbers of them."""
    known, now = {row.site: row for row in rows(framework)}, {row.site: row for row in joined(framework, root)}
    for site, row in sorted(now.items()):
        place = f"{site.file}:{row.lines} {site.function}, {site.kind}, {site.digest}"
        if row.judgement == UNKNOWN:
            yield f"no judgement: {place}"
        elif row.sites != known[site].sites:
            yield f"{row.sites} sites, not {known[site].sites}: {place}"
    for site in sorted(known.keys() - now.keys()):
        yield f"no such site: {site.file}, {site.function}, {site.kind}, {site.digest}"


def unknown_codes(framework: str) -> Iterator[str]:
    """Codes of the file that no check has, and keys of requirements that no requirement is about."""
    codes = {code for id_ in catalogue("en") if has(f"{(code := code_of(id_))}.about")}
    tables = [found for name in TABLES.get(framework, (framework,)) if (found := requirements_of(name))]
    keys = {f"{row.code}:{row.key}" for table in tables for row in table.rows}
    for row in rows(framework):
        for code in row.codes:
            if code.partition(":")[0] in (REFUSES, IGNORES) and code not in keys:
                yield f"{row.site.file} {row.site.function}: no requirement of {code}"
            elif ":" not in code and code not in codes:
                yield f"{row.site.file} {row.site.function}: no check has the code {code}"


def coverage(judged: list[Row], judgements: tuple[str, ...] = REACHABLE) -> tuple[int, int]:
    """The sites with one of some judgements, and how many of them a check predicts."""
    chosen = [row for row in judged if row.judgement in judgements]
    return sum(row.sites for row in chosen), sum(row.sites for row in chosen if row.codes)


def page() -> str:
    """The page of the coverage, as Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# What frameworks refuse\n"
    yield "Each `assert`, `raise` and exit in the source of a release was read and judged: what decides whether it stops a run, and"
    yield "which finding of `rlctl check` predicts it. `python -m tests.upstream.refusals list verl` lists them.\n"
    for framework, source in SOURCES.items():
        judged = rows(framework)
        if judged:
            yield from _section(f"{source.title} {source.release}", judged)


def _section(title: str, judged: list[Row]) -> Iterator[str]:
    total, predicted = coverage(judged)
    yield f"## {title}\n"
    yield f"{sum(row.sites for row in judged)} sites; an input of the run decides {total}, of which `rlctl check` predicts"
    yield f"{predicted} ({_share(predicted, total)}).\n"
    yield "| decided by | sites | predicted | |"
    yield "| --- | --: | --: | --: |"
    for judgement, meaning in JUDGEMENTS.items():
        sites_of, found = coverage(judged, (judgement,))
        shown = ("", "") if judgement == "internal" else (str(found), _share(found, sites_of))
        yield f"| {judgement}: {meaning} | {sites_of} | {shown[0]} | {shown[1]} |"
    reasons: Counter[tuple[str, str]] = Counter()
    for row in judged:
        if row.judgement in REACHABLE and row.reason:
            reasons[row.judgement, row.reason] += row.sites
    if reasons:
        yield "\n| not predicted, because | decided by | sites |"
        yield "| --- | --- | --: |"
        for (judgement, reason), count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"| {reason} | {judgement} | {count} |"
    yield ""


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def listing(framework: str, root: Path, prefix: str, around: int) -> Iterator[str]:
    """The rows of a source below a folder or file, each with lines of the source."""
    for row in joined(framework, root):
        if row.site.file.startswith(prefix):
            yield row.text()
            if around and not row.is_pattern:
                yield from (context(root, row.site, int(line), around) for line in row.lines.split(","))


def main() -> int:
    """List, compare, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["list", "check", "page"])
    parser.add_argument("framework", nargs="?", choices=list(SOURCES))
    parser.add_argument("--source", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--under", default="")
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.action == "page":
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if not asked.framework:
        parser.error("name a framework")
    with tempfile.TemporaryDirectory() as made:
        root = asked.source or folder(asked.framework, asked.cache or Path(made))
        if asked.action == "check":
            wrong = [*faults(asked.framework, root), *unknown_codes(asked.framework)]
            print(*wrong, sep="\n", end="\n" if wrong else "")
            return bool(wrong)
        if asked.write:
            write(asked.framework, joined(asked.framework, root))
        else:
            print(*listing(asked.framework, root, asked.under, asked.context), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
