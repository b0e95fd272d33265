"""The app's own colors: dark, light and high contrast, each for true color, 256 and 16 colors.

A terminal of fewer colors shows the nearest one it has, which makes three greys into one black. So each depth has its own values:
those for 256 colors are members of xterm's cube and grey ramp, those for 16 are the terminal's own colors. Its
yellow and its light grey cannot be read on white: there a warning is magenta, and borders are dark grey.
"""

from __future__ import annotations

from textual.color import Color, Gradient
from textual.theme import Theme

from rlctl.tui.language import say

ROLES = (
    "primary", "secondary", "warning", "error", "success", "foreground", "background", "surface", "panel",
    "text-muted", "text-disabled", "border", "border-blurred", "row-cursor",
    "series-1", "series-2", "series-3", "series-4", "series-5", "series-6",
)  # fmt: skip
"""What a color is for. `primary` is the accent: focus, cursor and keys. Warning is amber; series are curves, phases and roles."""
COLORS = {
    ("rlctl-dark", "truecolor"): (
        "#6cb2f7", "#a79bf0", "#e5b04c", "#f4818a", "#74cf8c", "#dfe3ea", "#14161a", "#191c21", "#2a2e36",
        "#a4adbb", "#969fad", "#6cb2f7", "#414855", "#243447",
        "#6cb2f7", "#74cf8c", "#c99bf5", "#5fd0c5", "#f2a07b", "#e58fc1",
    ),
    ("rlctl-dark", "256"): (
        "#5fafff", "#af87ff", "#d7af5f", "#ff8787", "#87d787", "#dadada", "#121212", "#1c1c1c", "#262626",
        "#a8a8a8", "#a8a8a8", "#5fafff", "#585858", "#3a3a3a",
        "#5fafff", "#87d787", "#af87ff", "#5fd7d7", "#ffaf87", "#ff87d7",
    ),
    ("rlctl-dark", "standard"): (
        "#55ffff", "#ff55ff", "#ffff55", "#ff5555", "#55ff55", "#ffffff", "#000000", "#000000", "#555555",
        "#aaaaaa", "#aaaaaa", "#55ffff", "#555555", "#0000aa",
        "#55ffff", "#55ff55", "#ff55ff", "#5555ff", "#aaaaaa", "#ffffff",
    ),
    ("rlctl-light", "truecolor"): (
        "#1f5fae", "#5b4bb5", "#8a5000", "#b3202c", "#1d6b35", "#1c2026", "#ffffff", "#f7f8f9", "#e4e7eb",
        "#4c5563", "#565f6c", "#1f5fae", "#b9c0ca", "#dbe8f7",
        "#1f5fae", "#1d6b35", "#6b3fb0", "#0d6b6b", "#97431a", "#98307a",
    ),
    ("rlctl-light", "256"): (
        "#005faf", "#5f5faf", "#875f00", "#af0000", "#005f00", "#121212", "#ffffff", "#ffffff", "#eeeeee",
        "#4e4e4e", "#585858", "#005faf", "#bcbcbc", "#d7ffff",
        "#005faf", "#005f00", "#5f00af", "#005f5f", "#875f00", "#870087",
    ),
    ("rlctl-light", "standard"): (
        "#0000aa", "#aa5500", "#aa00aa", "#aa0000", "#00aa00", "#000000", "#ffffff", "#ffffff", "#aaaaaa",
        "#555555", "#555555", "#0000aa", "#555555", "#55ffff",
        "#0000aa", "#00aa00", "#aa00aa", "#00aaaa", "#555555", "#000000",
    ),
    ("rlctl-contrast", "truecolor"): (
        "#00ffff", "#ff9aff", "#ffd700", "#ff9aa2", "#7dff7d", "#ffffff", "#000000", "#000000", "#262626",
        "#ffffff", "#d0d0d0", "#00ffff", "#b0b0b0", "#000080",
        "#00ffff", "#7dff7d", "#ff9aff", "#ffff00", "#ffb080", "#ffffff",
    ),
    ("rlctl-contrast", "256"): (
        "#00ffff", "#ff87ff", "#ffd700", "#ffafaf", "#87ff87", "#ffffff", "#000000", "#000000", "#262626",
        "#ffffff", "#d0d0d0", "#00ffff", "#b2b2b2", "#0000af",
        "#00ffff", "#87ff87", "#ff87ff", "#ffff00", "#ffaf87", "#ffffff",
    ),
    ("rlctl-contrast", "standard"): (
        "#55ffff", "#ff55ff", "#ffff55", "#ff5555", "#55ff55", "#ffffff", "#000000", "#000000", "#555555",
        "#ffffff", "#ffffff", "#55ffff", "#aaaaaa", "#0000aa",
        "#55ffff", "#55ff55", "#ff55ff", "#ffff55", "#aaaaaa", "#ffffff",
    ),
}  # fmt: skip
"""The colors of `ROLES`, by theme and what the terminal shows."""
HEIGHTS = tuple(f"$height-{number}" for number in range(1, 9))
"""Colors of a curve from the bottom of its chart to the top; one where a gradient would have steps, or little contrast."""
_RISE = ("series-3", "primary", "series-4")
TITLES = {"rlctl-dark": say("Dark"), "rlctl-light": say("Light"), "rlctl-contrast": say("High contrast")}
"""As they are called in the palette."""
FIRST = "rlctl-dark"
SERIES = tuple(f"$series-{number}" for number in range(1, 7))
"""Colors of curves, phases and roles, each of which also has a letter."""


def themes(depth: str | None) -> tuple[Theme, ...]:
    """The app's themes for a terminal; ``depth`` as rich calls it: ``truecolor``, ``256`` or ``standard``."""
    known = depth if depth in ("256", "standard") else "truecolor"
    return tuple(_theme(name, dict(zip(ROLES, COLORS[name, known], strict=True)), known) for name in TITLES)


def _heights(color: dict[str, str], has_steps: bool) -> dict[str, str]:
    """The colors of ``HEIGHTS``."""
    rise = Gradient.from_colors(*(Color.parse(color["primary" if has_steps else role]) for role in _RISE))
    last = len(HEIGHTS) - 1
    return {name.removeprefix("$"): rise.get_color(place / last).hex for place, name in enumerate(HEIGHTS)}


def _theme(name: str, color: dict[str, str], depth: str) -> Theme:
    is_contrast = name == "rlctl-contrast"
    named = ("primary", "secondary", "warning", "error", "success", "foreground", "background", "surface", "panel")
    cursor = {
        "block-cursor-background": color["primary"],
        "block-cursor-foreground": color["background"],
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": color["row-cursor"],
        "block-cursor-blurred-foreground": color["foreground"],
        "block-hover-background": color["panel"],
        "input-cursor-background": color["foreground"],
        "input-cursor-foreground": color["background"],
        "input-selection-background": color["row-cursor"],
    }
    around = {
        "scrollbar": color["border-blurred"],
        "scrollbar-hover": color["text-muted"],
        "scrollbar-active": color["primary"],
        "scrollbar-background": color["background"],
        "scrollbar-background-hover": color["background"],
        "scrollbar-background-active": color["background"],
        "scrollbar-corner-color": color["background"],
        "footer-background": color["background"],
        "footer-key-foreground": color["primary"],
        "footer-description-foreground": color["text-muted"],
    }
    heights = _heights(color, is_contrast or depth != "truecolor")
    contrast = {"text": color["foreground"], "button-color-foreground": "#000000"} if is_contrast else {}
    return Theme(
        name,
        dark=name != "rlctl-light",
        accent=color["primary"],
        text_alpha=1.0 if is_contrast else 0.95,
        variables={role: color[role] for role in ROLES if role not in named} | cursor | around | heights | contrast,
        primary=color["primary"],
        secondary=color["secondary"],
        warning=color["warning"],
        error=color["error"],
        success=color["success"],
        foreground=color["foreground"],
        background=color["background"],
        surface=color["surface"],
        panel=color["panel"],
    )


THEMES = themes("truecolor")
DEFAULTS = {role: THEMES[0].variables[role] for role in ROLES if role.startswith("series")} | {
    name.removeprefix("$"): THEMES[0].variables[name.removeprefix("$")] for name in HEIGHTS
}
"""Of Textual's own themes, what the app's style sheet needs and they lack."""


def whole_name(name: str) -> str:
    """The theme's name: ``dark``, ``light`` and ``contrast`` are rlctl's own."""
    return f"rlctl-{name}" if f"rlctl-{name}" in TITLES else name
