"""A review as one Markdown comment for GitHub and GitLab: a line a config, then what changed in each, the gravest first.

Names and contents of files are data: whatever could be Markdown, HTML, a mention or a link is put into code, where nothing is
interpreted. A comment is never longer than the two accept; what does not fit is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from urllib.parse import quote

from rlctl.cli import diagnostics
from rlctl.cli.progress import duration
from rlctl.cli.review.comparing import LEVELS, Review, Reviewed, Stage, rank_of_difference
from rlctl.cli.review.posting import MARKER, MOST, NOTHING
from rlctl.common.errors import Location
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated
from rlctl.common.ranks import Rank
from rlctl.common.report import Finding, Level
from rlctl.common.report_lines import causes, release
from rlctl.common.terminal import safe
from rlctl.translation.difference import Difference, Side

LONGEST = 120
"""Characters of a name or a value in a table."""
SHOWN_DIFFERENCES, SHOWN_FINDINGS = 40, 20
"""Rows of one config that are shown; further ones are counted."""
SIGNS = {Level.ERROR: "🔴", Level.WARNING: "🟡", Level.NOTE: "🟢"}
_PLAIN = re.compile(r"[\w,.;:()'\"%/-]*|[=+<>x-]{1,2}")
"""A word that Markdown leaves alone, unless it is one of these."""
_MARKED = re.compile(r"://|^[:-]\w|^www\.|^_|_$|%\w", re.IGNORECASE)
_LATIN = re.compile(r"[^\s\u2e80-\u9fff\uf900-\uffee“”‘’]+")
"""A word that is not Chinese, which Markdown leaves alone."""
_EDGES = re.compile(r"^([(\['\"]*)(.*?)([)\]'\".,;:]*)$", re.DOTALL)
_SPECIAL = re.compile(r"[^\w\s.,;-]", re.ASCII)


def code(content: object, most: int = LONGEST) -> str:
    """Text as code, in which a table, a mention, HTML and Markdown have no meaning."""
    told = " ".join(safe(_printable(str(content))).split()) or "''"
    told = told if len(told) <= most else f"{told[: most - 1]}…"
    if not re.search(r"[`|\\]", told):
        return f"`{told}`"
    return f"<code>{_SPECIAL.sub(lambda match: _entity(match[0]), told)}</code>"


def _entity(character: str) -> str:
    return f"&#{ord(character)};" if ord(character) < 128 else character


def _printable(content: str) -> str:
    """Text without halves of pairs, which stand for the bytes of a name that is not UTF-8."""
    return content.encode("utf-8", "replace").decode("utf-8")


def prose(content: str) -> str:
    """A sentence of rlctl's with values of a file in it: words that Markdown could read as more than words become code."""
    told = " ".join(safe(_printable(content)).split())
    return _LATIN.sub(lambda match: _word(match[0]), told)


def _word(word: str) -> str:
    before, body, after = _EDGES.match(word).groups()  # type: ignore[union-attr]
    if re.fullmatch(r"[=+<>x-]{1,2}", word):
        return escape(word)
    if body and before[-1:] == after[:1] and before[-1:] in ("'", '"'):  # code needs no quotes
        return f"{escape(before[:-1])}{code(body)}{escape(after[1:])}"
    if _PLAIN.fullmatch(word) and not _MARKED.search(body):
        return f"{before}{code(body)}{after}" if re.search(r"\w[._]\w*[a-z_]\w*", body) else word
    before, after = (re.sub(r"[\[\]]", "", edge) for edge in (before, after))
    return f"{before}{code(body)}{after}" if body else escape(before + after)


class Links:
    """Links to lines of the changed files."""

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")
        """Where the files of the head are shown, as ``https://github.com/OWNER/NAME/blob/COMMIT``; empty for no links."""

    def line(self, file: str, line: int, *, named: bool = False) -> str:
        """A line of a file, by its number, or by name and number."""
        shown = text("place-line", line=line) if line and not named else f"{file}:{line}" if line else file
        inner = code(shown) if named or not line else shown
        if not self.root or not _is_plain(file):
            return inner
        return f"[{inner}]({self.root}/{quote(file)}{f'#L{line}' if line else ''})"


def _is_plain(file: str) -> bool:
    """Whether a name can be in the text of a link: no code span with entities, nothing that cannot be seen."""
    return _printable(file) == file and not re.search(r"[\]\[`|\\<>]", file) and safe(file) == file


def comment(review: Review, links: Links, *, most: int = MOST) -> str:
    """The whole comment, with the marker by which it is found again.

    Args:
        review: what was compared.
        links: to the files.
        most: characters of the comment.
    """
    if not review.configs:
        skipped = "\n".join(_skipped(review))
        return f"{MARKER if skipped else NOTHING}\n{text('review-none')}\n{skipped}".rstrip() + "\n"
    head = f"{MARKER}\n{_headline(review.configs)}\n\n"
    foot = "\n".join(["", *_skipped(review), _foot(review), ""])
    room = most - len(head) - len(foot) - 400
    rows, left = _fitting(_summary(review, links), room * 2 // 5)
    table = "\n".join(rows) + "\n" + (f"\n{text('review-more-configs', count=left)}\n" if left else "")
    parts, left = _fitting((_config(item, links) for item in review.configs), room - len(table))
    more = f"\n{text('review-more', count=left)}\n" if left else ""
    return head + table + "\n" + "\n".join(parts) + more + foot


def _fitting(parts: Iterable[str], room: int) -> tuple[list[str], int]:
    """The first parts that fit, and how many do not."""
    told, left, used = [], 0, 0
    for part in parts:
        used += len(part) + 1
        if left or used > room:
            left += 1
        else:
            told.append(part)
    return told, left


def _headline(configs: Sequence[Reviewed]) -> str:
    levels = [item.level for item in configs]
    worst = min(levels, key=LEVELS.index)
    names = {Level.ERROR: "review-fails", Level.WARNING: "review-warns"}
    told = [text(name, count=levels.count(level)) for level, name in names.items() if level in levels]
    told = told or [text("review-clean")]
    total = text("review-total", count=len(configs))
    return f"### {SIGNS[worst]} rlctl: {total}{text('review-colon')}{text('separator').join(told)}"


# The table


def _summary(review: Review, links: Links) -> Iterator[str]:
    """One row a config."""
    known = any(item.stages or item.stages_before for item in review.configs)
    times = any(stage.seconds for item in review.configs for stage in item.stages)
    heads = ["", text("review-config"), text("review-changes"), text("review-findings")]
    heads += [text("review-memory")] * known + [text("review-time")] * times
    yield _row(heads)
    yield _row(["---"] * len(heads))
    for item in review.configs:
        row = [SIGNS[item.level], _name(item, links), _what_changes(item), _counts(item)]
        row += [_memory(item)] * known + [_time(item)] * times
        yield _row(row)


def _row(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |"


def _name(item: Reviewed, links: Links) -> str:
    shown = code(item.file) if item.status == "deleted" else links.line(item.file, 0)
    if item.status == "renamed":
        return f"{shown} {text('review-was', name=code(item.before))}"
    if item.status == "built":
        return f"{shown} {text('review-built', names=', '.join(map(code, item.because[:3])))}"
    return shown


def _what_changes(item: Reviewed) -> str:
    if item.status in ("added", "deleted"):
        return text(f"review-{item.status}")
    if item.unread_before or not item.dialect:
        return text("review-unknown")
    written = [each for each in item.differences if each not in item.derived] or list(item.differences)
    gravest = [_brief(each, item) for each in written[:3]]
    if not gravest:
        return text("review-uncompared" if item.uncompared else "review-same")
    rest = len(written) - len(gravest)
    return "<br>".join([*gravest, *([text("review-and", count=rest)] if rest else [])])


def _brief(each: Difference, item: Reviewed) -> str:
    """A key in short with both values: the last part of the file's own key, or of rlctl's if the value follows from others."""
    key = each.key if each in item.derived else each.second.key or each.first.key or each.key
    before, after = (code(diagnostics.shown(side.shown), 30) for side in (each.first, each.second))
    return f"{code(key.rpartition('.')[2], 40)} {before} → **{after}**"


def _counts(item: Reviewed) -> str:
    """New findings; how many are on other lines than those that changed; what was there before, and what is gone."""
    told = []
    for level, name in ((Level.ERROR, "check-errors"), (Level.WARNING, "check-warnings")):
        if found := causes([each for each in item.new if each.level is level]):
            shown = text(name, count=len(found))
            codes = " ".join(code(name) for name in list(dict.fromkeys(cause.first.code for cause in found))[:2])
            told.append(f"{f'**{shown}**' if level is Level.ERROR else shown} {codes}")
    if item.fixed:
        told.append(text("review-fixed", count=len(causes(item.fixed))))
    if item.old:
        told.append(text("review-old", count=item.old))
    return "<br>".join(told) or "–"


def _memory(item: Reviewed) -> str:
    return _pairs(item, lambda stage: _gib(stage, "review-overflow" if item.overflows else "review-overflow-before"))


def _gib(stage: Stage, overflow: str) -> str:
    if stage.gib is None:
        return ""
    told = f"{stage.gib:.0f}" if stage.gib >= 10 else f"{stage.gib:.1f}"
    told = f"{told} / {stage.of:g} GiB" if stage.of else f"{told} GiB"
    return told if stage.fits else f"{told}{text('review-colon')}{text(overflow)}"


def _time(item: Reviewed) -> str:
    return _pairs(item, lambda stage: duration(stage.seconds) if stage.seconds else "")


def _pairs(item: Reviewed, shown: Callable[[Stage], str]) -> str:
    """A number of each stage before and after."""
    before = {stage.name: shown(stage) for stage in item.stages_before}
    after = {stage.name: shown(stage) for stage in item.stages}
    names = list(dict.fromkeys([*after, *before]))
    told = []
    for name in names:
        sides = [side for side in (before.get(name, ""), after.get(name, "")) if side]
        if sides:
            told.append((f"{code(name)} " if len(names) > 1 else "") + " → ".join(dict.fromkeys(sides)))
    return "<br>".join(told) or "–"


# One config


def _config(item: Reviewed, links: Links) -> str:
    """What is new in one config, and what it means."""
    parts = [f"#### {SIGNS[item.level]} {_name(item, links)}{_releases(item)}", ""]
    if item.unread_before:
        parts += [text("review-unread-before", reason=prose(translated(item.unread_before))), ""]
    parts += _findings(item, links)
    grave = [each for each in item.differences if rank_of_difference(each) is not Rank.NAMES]
    slight = [each for each in item.differences if rank_of_difference(each) is Rank.NAMES]
    parts += _differences(grave, item, links)
    if slight:
        title = text("review-slight", count=len(slight))
        parts += [f"<details><summary>{title}</summary>", "", *_differences(slight, item, links), "</details>", ""]
    if item.uncompared:
        keys = ", ".join(map(code, item.uncompared[:10])) + (" …" if len(item.uncompared) > 10 else "")
        parts += [text("review-not-compared", keys=keys), ""]
    if item.fixed:
        gone = "; ".join(prose(cause.message) for cause in causes(item.fixed)[:5])
        parts += [text("review-gone", findings=gone), ""]
    return "\n".join(parts) if len(parts) > 2 else ""


def _releases(item: Reviewed) -> str:
    told = [release(name) for name in dict.fromkeys((item.was, item.dialect)) if name]
    return f" · {' → '.join(told)}" if told else ""


def _findings(item: Reviewed, links: Links) -> list[str]:
    """The new findings: those on changed lines first, at each level."""
    placed = {id(each) for each in item.on_changed}
    ordered = sorted(item.new, key=lambda each: (LEVELS.index(each.level), id(each) not in placed))
    told = causes(ordered)
    lines = []
    for cause in told[:SHOWN_FINDINGS]:
        where = _place(cause.at, item, links)
        other = "" if id(cause.first) in placed or cause.at is None else text("review-other-line")
        advice = f"<br>→ {prose(cause.advice)}" if cause.advice else ""
        lines.append(f"- {_level(cause.first)}{where}{other}{text('review-colon')}{prose(cause.message)}{advice}")
    if len(told) > SHOWN_FINDINGS:
        lines.append(f"- {text('review-more-findings', count=len(told) - SHOWN_FINDINGS)}")
    return [*lines, ""] if lines else []


def _level(item: Finding) -> str:
    return f"{SIGNS[item.level]} **{text(f'level-{item.level}')}**"


def _place(at: Location | None, item: Reviewed, links: Links) -> str:
    if at is None:
        return ""
    return f" {links.line(at.file, at.line, named=at.file != item.file)}"


def _differences(found: Sequence[Difference], item: Reviewed, links: Links) -> list[str]:
    if not found:
        return []
    heads = [text("review-setting"), text("review-before"), text("review-after"), text("review-means")]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for each in found[:SHOWN_DIFFERENCES]:
        lines.append(
            _row(
                [
                    _setting(each, item, links),
                    _value(each.first),
                    f"**{_value(each.second)}**",
                    _means(each, item, links),
                ]
            )
        )
    lines.append("")
    if len(found) > SHOWN_DIFFERENCES:
        lines += [text("review-more-settings", count=len(found) - SHOWN_DIFFERENCES), ""]
    return lines


def _setting(each: Difference, item: Reviewed, links: Links) -> str:
    """The file's own key, and where it is written."""
    if each in item.derived:
        return code(each.key, 80)
    side = each.second if each.second.key and not each.second.default else each.first
    key = code(side.key or each.key, 80)
    return f"{key} {_line(side, item, links)}" if side is each.second else key


def _line(side: Side, item: Reviewed, links: Links) -> str:
    return links.line(side.file, side.line, named=side.file != item.file) if side.file and side.line else ""


def _value(side: Side) -> str:
    told = code(diagnostics.shown(side.shown))
    return f"{told} {text('review-default')}" if side.default and side.value is not None else told


def _means(each: Difference, item: Reviewed, links: Links) -> str:
    """The canonical key, if the file calls it otherwise; of a value that follows from others, the file's key."""
    if each in item.derived:
        return text("review-derived", key=f"{code(each.second.key, 80)} {_line(each.second, item, links)}")
    own = each.second.key or each.first.key
    return code(each.key, 80) if own != each.key else ""


# The end


def _skipped(review: Review) -> Iterator[str]:
    for file, reason in review.skipped[:10]:
        yield f"- {text('review-skipped', file=code(file), reason=translated(reason))}"
    if len(review.skipped) > 10:
        yield f"- {text('review-more-skipped', count=len(review.skipped) - 10)}"


def _foot(review: Review) -> str:
    told = [text("review-compared", base=code(review.base[:10]), head=code(review.head[:10]))]
    told.append(text("review-cluster", cluster=code(review.cluster)) if review.cluster else text("review-no-cluster"))
    told.append(text("review-scope"))
    return f"\n<sub>{'<br>'.join(told)}</sub>"
