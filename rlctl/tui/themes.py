"""The app's own colours: dark, light, and high contrast. Textual's themes can be chosen beside them.

Background, surface and panel are nearly grey: a terminal of 256 colours shows what is more colourful as black, all three alike.
"""

from __future__ import annotations

from textual.theme import Theme

from rlctl.tui.language import say

THEMES = (
    Theme(
        "rlctl-dark",
        primary="#4f9cf0",
        secondary="#8a7fe0",
        accent="#e0a03a",
        warning="#e5b04c",
        error="#f0717b",
        success="#5fc27a",
        foreground="#dfe3ea",
        background="#14161a",
        surface="#1c1f24",
        panel="#2a2e36",
        variables={
            "text-muted": "#a4adbb",
            "text-disabled": "#8f98a6",
            "block-cursor-foreground": "#0c1016",
            "block-cursor-text-style": "bold",
        },
    ),
    Theme(
        "rlctl-light",
        dark=False,
        primary="#1f5fae",
        secondary="#5b4bb5",
        accent="#8f5300",
        warning="#8f5300",
        error="#b3202c",
        success="#1d6b35",
        foreground="#1c2026",
        background="#ffffff",
        surface="#f4f5f6",
        panel="#e2e5e9",
        variables={
            "text-muted": "#4c5563",
            "text-disabled": "#5b6471",
            "footer-key-foreground": "#1f5fae",
            "block-cursor-foreground": "#ffffff",
        },
    ),
    Theme(
        "rlctl-contrast",
        primary="#ffff00",
        secondary="#00ffff",
        accent="#ffff00",
        warning="#ffd700",
        error="#ff9aa2",
        success="#7dff7d",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#262626",
        text_alpha=1.0,
        variables={
            "text": "#ffffff",
            "text-muted": "#ffffff",
            "text-disabled": "#d0d0d0",
            "border": "#ffffff",
            "border-blurred": "#b0b0b0",
            "block-cursor-background": "#ffff00",
            "block-cursor-foreground": "#000000",
            "block-cursor-text-style": "bold",
            "input-cursor-background": "#ffffff",
            "input-cursor-foreground": "#000000",
            "input-selection-background": "#0000c0",
            "footer-key-foreground": "#ffff00",
            "button-color-foreground": "#000000",
        },
    ),
)
FIRST = THEMES[0].name
TITLES = {"rlctl-dark": say("Dark"), "rlctl-light": say("Light"), "rlctl-contrast": say("High contrast")}
"""As they are called in the palette."""


def whole_name(name: str) -> str:
    """The theme's name: ``dark``, ``light`` and ``contrast`` are rlctl's own."""
    return f"rlctl-{name}" if f"rlctl-{name}" in TITLES else name
