"""The Prometheus text format, version 0.0.4: render families, parse samples.

# HELP name what it is
# TYPE name counter
name{label="value"} 12
"""

from collections.abc import Iterable, Iterator
from math import inf, isnan

from runnel.observe.metrics import Distribution, Family, Labels, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LINES_PER_PIECE = 50
"""Samples that are rendered at a time: some 100 microseconds."""


class BadExposition(ValueError):
    """A line that is not of the text format; the message has its number."""


def render(families: "Iterable[Family | None]") -> Iterator[bytes]:
    """The text, in small pieces; a piece is empty where a collector can be interrupted."""
    rendered: dict[Labels, str] = {}
    for family in families:
        if family is None:
            yield b""
            continue
        help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines = [f"# HELP {family.name} {help_text}\n# TYPE {family.name} {family.kind}\n"]
        for labels, value in family.samples:
            if isinstance(value, Distribution):
                lines.extend(_histogram(family.name, labels, value))
            else:
                text = rendered.get(labels)
                if text is None:
                    text = rendered[labels] = _labels_text(labels)
                lines.append(f"{family.name}{text} {_number(value)}\n")
            if len(lines) >= LINES_PER_PIECE:
                yield "".join(lines).encode()
                lines = []
        if lines:
            yield "".join(lines).encode()


def _histogram(name: str, labels: Labels, value: Distribution) -> Iterator[str]:
    below = 0
    for bound, count in zip((*value.bounds, inf), value.counts, strict=True):
        below += count
        bucket = _labels_text((*labels, ("le", _number(bound))))
        yield f"{name}_bucket{bucket} {below}\n"
    text = _labels_text(labels)
    yield f"{name}_sum{text} {_number(value.sum)}\n"
    yield f"{name}_count{text} {below}\n"


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels]) + "}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _number(value: Value) -> str:
    if isinstance(value, float):
        if isnan(value):
            return "NaN"
        if value in (inf, -inf):
            return "+Inf" if value > 0 else "-Inf"
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(int(value))  # type: ignore[arg-type]


def parse(text: str) -> Iterator[tuple[str, Labels, float]]:
    """The samples of a text: (name, labels, value). Raises BadExposition."""
    # Only line feeds end a line: a label value may contain any other separator.
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t")
        if line and not line.startswith("#"):
            try:
                yield _sample(line)
            except (ValueError, IndexError):
                raise BadExposition(f"line {number} is not a sample: {line[:100]!r}") from None


def _sample(line: str) -> tuple[str, Labels, float]:
    labels: list[tuple[str, str]] = []
    brace = line.find("{")
    space = min((at for at in (line.find(" "), line.find("\t")) if at >= 0), default=-1)
    if brace >= 0 and (space < 0 or brace < space or not line[space:brace].strip()):
        name, position = line[:brace].strip(), brace + 1
        while (position := _skip(line, position)) < len(line) and line[position] != "}":
            label, position = _label(line, position)
            labels.append(label)
        rest = line[position + 1 :]
        if line[position] != "}":
            raise ValueError
    else:
        name, rest = line[:space], line[space:] if space >= 0 else ""
    if not _is_name(name):
        raise ValueError
    # A timestamp may follow.
    value = rest.split()[0]
    return name, tuple(labels), float(value)


def _label(line: str, position: int) -> tuple[tuple[str, str], int]:
    equals = line.index("=", position)
    name = line[position:equals].strip()
    quote = _skip(line, equals + 1)
    if not _is_name(name) or line[quote] != '"':
        raise ValueError
    characters: list[str] = []
    position = quote + 1
    while line[position] != '"':
        if line[position] == "\\":
            position += 1
            characters.append({"n": "\n"}.get(line[position], line[position]))
        else:
            characters.append(line[position])
        position += 1
    position = _skip(line, position + 1)
    if line[position] == ",":
        return (name, "".join(characters)), position + 1
    if line[position] != "}":
        raise ValueError
    return (name, "".join(characters)), position


def _skip(line: str, position: int) -> int:
    while line[position : position + 1] in (" ", "\t"):
        position += 1
    return position


def _is_name(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace(":", "_").isidentifier()
