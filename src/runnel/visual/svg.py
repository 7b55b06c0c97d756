"""SVG as text. All data is escaped here and only here."""

import re
from collections.abc import Callable
from html import escape

NARROW = 340.0
"""The width of a drawing for a hand."""

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that are invalid in HTML and SVG, or that override the text direction."""


def text_of(value: object) -> str:
    """Escape data for HTML or SVG text and attributes."""
    return escape(_UNSHOWN.sub("\ufffd", str(value)), quote=True)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """One element; `content` is trusted, attributes are escaped. A trailing `_` in names is dropped."""
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            parts.append(f'{name.rstrip("_").replace("_", "-")}="{text_of(_short(value))}"')
    head = " ".join(parts)
    return f"<{head}>{content}</{tag}>" if content else f"<{head}/>"


def label(text: object, x: float, y: float, *, anchor: str = "start", class_: str = "tick") -> str:
    """A text element."""
    return element("text", text_of(text), x=x, y=y, text_anchor=anchor, class_=class_)


def hint(text: object) -> str:
    """A tooltip."""
    return f"<title>{text_of(text)}</title>"


def drawing(
    width: float, height: float, content: str, *, name: str, class_: str = "chart", role: str = "img"
) -> str:
    """An SVG element of this width, or of that of its container if that is narrower.

    The content of an `img` is hidden from screen readers: one with links is a `group`.
    """
    wide, high = _short(width), _short(height)
    return (
        f'<svg viewBox="0 0 {wide} {high}" width="{wide}" class="{class_}" role="{role}" '
        f'aria-label="{text_of(name)}">{content}</svg>'
    )


def twice(draw: Callable[[float], str], width: float) -> str:
    """A chart drawn for a desk and for a hand: the stylesheet shows the one that fits."""
    return f'<div class="desk">{draw(width)}</div><div class="hand">{draw(NARROW)}</div>'


def path(points: list[tuple[float, float]]) -> str:
    """The `d` of a line through points."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points) if points else ""


def _short(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return value
