"""The only writer of HTML: elements with everything escaped, and one page without scripts or requests, in light and dark.

Standard library only; ``pages`` says what is on a page.
"""

from __future__ import annotations

from html import escape

from rlctl.common.language import chosen
from rlctl.common.terminal import safe

STYLE = """
.rlctl{font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
.rlctl code,.rlctl pre{font:13px/1.45 ui-monospace,monospace}
.rlctl pre{padding:.7em;overflow-x:auto;overflow-wrap:normal;background:#8881;border-radius:6px}
.rlctl h1{font-size:1.3em;margin:.2em 0 .6em}.rlctl h2{font-size:1.08em;margin:1.3em 0 .4em}
.rlctl h3{font-size:1em;margin:.8em 0 .2em}
.rlctl ul{list-style:none;margin:0;padding:0}.rlctl li{margin:0 0 .6em;padding:.1em 0 .1em .7em;border-left:3px solid #8886}
.rlctl li.error{border-color:#d33}.rlctl li.warning{border-color:#c80}.rlctl li.note{border-color:#48c}
.rlctl .dim{opacity:.72;font-size:.92em}.rlctl .advice::before{content:"→ "}
.rlctl .wide{overflow-x:auto}.rlctl table{border-collapse:collapse;margin:0}
.rlctl td,.rlctl th{padding:.25em .8em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid #8884;background:none}
.rlctl td{min-width:4em;overflow-wrap:break-word}.rlctl meter{width:9em;height:.9em}
.rlctl .over{color:#d33;font-weight:600}
@media(max-width:36em){.rlctl meter{width:4em}}
""".strip()
PAGE = ":root{color-scheme:light dark}body{margin:0 auto;max-width:62em;padding:1em}"


class Markup(str):
    """HTML that is safe to be put into a page: text in it was escaped."""

    __slots__ = ()


Child = str | None
"""A text, which is escaped, or ``Markup``, which is not; None and empty ones are left out."""


def element(name: str, *children: Child, classes: str = "", **attributes: str) -> Markup:
    """An element with children; a text shows characters that have no picture as a sign."""
    known = {"class": classes, **attributes}
    told = "".join(f' {key}="{escape(safe(value))}"' for key, value in known.items() if value)
    return Markup(f"<{name}{told}>{group(*children)}</{name}>")


def group(*children: Child) -> Markup:
    """Children one after the other."""
    return Markup("".join(_html(child) for child in children if child))


def _html(child: str) -> str:
    return child if isinstance(child, Markup) else escape(safe(child))


def table(heads: list[str], rows: list[list[str]]) -> Markup:
    """A table that scrolls sideways where the screen is narrow; nothing if it has no rows."""
    if not rows:
        return Markup()
    head = element("thead", element("tr", *(element("th", title) for title in heads))) if any(heads) else None
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", head, body), classes="wide")


def items(children: list[Markup]) -> Markup:
    """A list; nothing if it is empty."""
    return element("ul", *children) if children else Markup()


def fragment(*body: Child) -> str:
    """A part of another page, as a notebook shows it."""
    return element("div", element("style", Markup(STYLE)), *body, classes="rlctl")


def page(title: str, *body: Child) -> str:
    """A whole page: one file, for a browser of any size."""
    head = element("style", Markup(PAGE + STYLE))
    name = element("title", title)
    language = "zh-CN" if chosen() == "zh" else "en"
    content = element("main", element("h1", title), *body, classes="rlctl")
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"{name}{head}</head><body>{content}</body></html>\n"
    )
