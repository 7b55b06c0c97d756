"""Colours by day and by night, and the stylesheet of what the console and reports share.

Series are coloured after Okabe and Ito, which most kinds of colour blindness keep apart; by night a little
lighter. Each colour of text has a contrast of at least 4.5 with the surfaces that it is written on (WCAG AA).
"""

from functools import cache
from importlib.resources import files

SIGNS = {"good": "✓", "warn": "!", "bad": "✕", "plain": "·"}
"""A level is never shown by its colour alone."""

COLOURS = {
    "page": ("#f6f7f9", "#12161c"),
    "card": ("#fff", "#1a2028"),
    "raised": ("#fff", "#202731"),
    "ink": ("#1b2430", "#e6eaf0"),
    "soft": ("#566270", "#a3aebb"),
    "line": ("#e1e5ea", "#2b333e"),
    "line-strong": ("#8792a0", "#6d7987"),
    "grid": ("#e8ebef", "#262e38"),
    "hover": ("#eef2f6", "#222a34"),
    "accent": ("#0069a5", "#5fb8ee"),
    "accent-page": ("#e6f1f9", "#17293a"),
    "on-accent": ("#fff", "#0b1117"),
    "good": ("#00704f", "#4fd6ab"),
    "good-page": ("#e3f4ee", "#12322a"),
    "warn": ("#7d5100", "#f3c25c"),
    "warn-page": ("#fdf1d8", "#37290c"),
    "bad": ("#a83018", "#ff9d83"),
    "bad-page": ("#fce8e3", "#3f1b13"),
    "on-sign": ("#fff", "#12161c"),
    "good-bar": ("#4db394", "#2b9d7a"),
    "warn-bar": ("#e69f00", "#d59a1a"),
    "bad-bar": ("#d55e00", "#f0643a"),
    "s0": ("#0072b2", "#4fb0e8"),
    "s1": ("#e69f00", "#f0b840"),
    "s2": ("#009e73", "#2fc79a"),
    "s3": ("#cc79a7", "#e29cc4"),
    "s4": ("#56b4e9", "#9ad4f5"),
    "s5": ("#d55e00", "#f5813a"),
    "s6": ("#8a7a00", "#d6c93f"),
    "s7": ("#6b6b6b", "#a8a8a8"),
    "heat0": ("#eef1f4", "#232b35"),
    "heat1": ("#d6e6f2", "#1d3a52"),
    "heat2": ("#b3d1e8", "#1f4d71"),
    "heat3": ("#86b8dc", "#236694"),
    "heat4": ("#5099cb", "#3087bf"),
    "heat5": ("#1f78b0", "#5fb0e2"),
    "heat6": ("#0a4c80", "#b5dcf7"),
    "shadow": ("0 1px 2px rgb(27 36 48 / 6%)", "none"),
    "shadow-raised": ("0 12px 40px rgb(27 36 48 / 22%)", "0 12px 40px rgb(0 0 0 / 60%)"),
}
"""(by day, by night)"""


@cache
def stylesheet() -> str:
    """The colours, and the components that have them."""
    light, dark = (_block(scheme, index) for index, scheme in enumerate(("light", "dark")))
    shades = "".join(f".{name} {{ color: var(--{name}); }}\n" for name in COLOURS if _is_shade(name))
    return (
        f":root {{ {light} }}\n"
        f':root[data-theme="dark"] {{ {dark} }}\n'
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        + (files("runnel.visual") / "components.css").read_text("utf-8")
        + shades
    )


def _block(scheme: str, index: int) -> str:
    colours = " ".join(f"--{name}: {values[index]};" for name, values in COLOURS.items())
    return f"color-scheme: {scheme}; {colours}"


def _is_shade(name: str) -> bool:
    """The colours of series and of heat strips are classes of what charts draw."""
    return name.removeprefix("heat").removeprefix("s").isdecimal()
