"""The YAML parser's complaints in plain words: what is wrong on that line, and what to do."""

from __future__ import annotations

from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said

_PLAIN_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a ': ' appears where no key can start",
        "check the indentation; put strings that contain ': ' in quotes",
    ),
    (
        "that cannot start any token",
        "a value cannot start with this character",
        "put the value in quotes; indent with spaces",
    ),
    ("expected ',' or ']'", "a list opened with '[' is not closed", "add ']' or the missing ','"),
    ("expected ',' or '}'", "a mapping opened with '{' is not closed", "add '}' or the missing ','"),
    ("could not find expected ':'", "a line is not 'key: value'", "write 'key: value', with a space after the colon"),
    ("found unexpected end of stream", "a quote is opened and never closed", "close the quote"),
    ("unexpected document indicator", "a quote is opened and never closed", "close the quote"),
    (
        "did not find expected key",
        "the line's indentation does not match its neighbors",
        "keys of one mapping start in one column; check indentation and quotes above",
    ),
    (
        "expected <block end>",
        "the line's indentation does not match its neighbors",
        "keys of one mapping start in one column; check indentation and quotes above",
    ),
    (
        "expected '-' indicator",
        "a list item was expected",
        "items of one list start with '- ' in one column",
    ),
    (
        "block sequence entries are not allowed",
        "a '- ' appears where no list can start",
        "put it on a separate line",
    ),
    ("unknown escape", "a backslash in double quotes starts no known escape", "use single quotes, or write '\\\\'"),
    ("hexadecimal", "a backslash escape in double quotes lacks digits", "use single quotes, or write '\\\\'"),
    ("undefined tag handle", "a string that starts with '!' is read as a tag", "put it in quotes"),
    ("expected the node content", "a value was expected", "put the value in quotes"),
    ("did not find expected node content", "a value was expected", "put the value in quotes"),
    ("found unexpected ':'", "a ':' appears where no key can start", "put the string around it in quotes"),
    ("incompatible YAML document", "a %YAML line asks for another version of YAML", "delete the line"),
    ("directive", "a line that starts with '%' is read as a YAML directive", "put the value in quotes"),
)
_BLAME_THE_START = ("could not find expected ':'", "found unexpected end of stream", "unexpected document indicator")


def parse_error(error: Any, text: str, name: str) -> DocumentError:
    """Return a parser's exception as one that names file, line and column, and says what to do."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if mark is None:
        return DocumentError(said("is not YAML: {problem}", problem=problem), at=Location(name))
    opened = getattr(error, "context_mark", None)
    if opened is not None and any(key in problem for key in _BLAME_THE_START):
        mark = opened
    at = Location(name, mark.line + 1, mark.column + 1)
    if (tab := _tab_near(text, mark.line)) is not None:
        return DocumentError(
            said("line {tab} is indented with a tab", tab=tab),
            at=Location(name, tab, 1),
            hint="YAML allows spaces only: replace it",
        )
    message, hint = next(((plain, fix) for key, plain, fix in _PLAIN_WORDS if key in problem), (problem, ""))
    since = (
        said(" (it started on line {line})", line=opened.line + 1)
        if opened is not None and opened.line != mark.line
        else ""
    )
    return DocumentError(
        said("column {value}: {message}{since}", value=mark.column + 1, message=message, since=since), at=at, hint=hint
    )


def _tab_near(text: str, line: int) -> int | None:
    """Return the number, from 1, of the line at or just above ``line`` whose indentation holds a tab."""
    lines = text.split("\n", line + 1)[: line + 1]
    for number in (line, line - 1):
        if 0 <= number < len(lines):
            indentation = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
            if "\t" in indentation and lines[number].strip():
                return number + 1
    return None
