"""A report as one HTML page that needs nothing but itself: no script, no font, no picture from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from runnel.visual.charts import Chart
from runnel.visual.style import SIGNS, stylesheet
from runnel.visual.svg import text_of, twice

WIDE, HALF = 1040.0, 496.0
_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Status:
    """The overall result in one line; level is good, warn, bad or plain."""

    level: str
    headline: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure; `spark` is trusted markup, the rest is escaped."""

    name: str
    value: str
    note: str = ""
    level: str = "plain"
    spark: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell with a coloured level or trusted markup."""

    text: object = ""
    level: str = "plain"
    markup: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Columns whose name starts with `#` are numeric and right-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    empty: str = "none"
    rows_max: int = 100
    is_prose: bool = False
    """Text rather than figures: on mobile, a row becomes a paragraph."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; `level` gives it a colour at the side."""

    text: str
    level: str = "plain"


@dataclass(frozen=True, slots=True)
class Wide:
    """A chart that takes the whole width."""

    chart: Chart
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Half:
    """A chart that shares its row with another."""

    chart: Chart
    caption: str = ""


Block = Table | Paragraph | Wide | Half


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the content below it."""

    title: str
    blocks: Sequence[Block]
    intro: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str
    subtitle: str
    status: Status
    figures: Sequence[Figure] = ()
    sections: Sequence[Section] = ()
    facts: Sequence[tuple[str, str]] = field(default=())
    """Source and parameters of the report, for the footer."""


def render(page: Page) -> str:
    """The page as HTML."""
    body = [
        _heading(page),
        _status(page.status),
        f'<div class="figures">{"".join(map(_figure, page.figures))}</div>' if page.figures else "",
        *map(_section, page.sections),
        _facts(page.facts),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        # Defence in depth: markup injected through data can neither load nor run anything.
        f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">\n'
        f"<title>{text_of(page.title)} · {text_of(page.status.headline)}</title>\n"
        f"<style>{_style()}</style>\n</head>\n<body><main>\n"
        + "\n".join(filter(None, body))
        + "\n</main></body>\n</html>\n"
    )


@cache
def _style() -> str:
    return stylesheet() + (files("runnel.pipelines.report") / "report.css").read_text("utf-8")


def _heading(page: Page) -> str:
    text = f'<p class="kind">{text_of(page.title)}</p><p class="soft">{text_of(page.subtitle)}</p>'
    return f"<header>{text}</header>"


def _status(status: Status) -> str:
    detail = f"<p>{text_of(status.detail)}</p>" if status.detail else ""
    sign = f'<span class="sign" aria-hidden="true">{SIGNS[status.level]}</span>'
    text = f"<div><h1>{text_of(status.headline)}</h1>{detail}</div>"
    return f'<div class="status {status.level}">{sign}{text}</div>'


def _figure(figure: Figure) -> str:
    note = f'<p class="about">{text_of(figure.note)}</p>' if figure.note else ""
    spark = figure.spark and f'<div class="beside">{figure.spark}</div>'
    name, value = text_of(figure.name), text_of(figure.value)
    return (
        f'<div class="card figure {figure.level}"><p class="name">{name}</p>'
        f'<p class="value">{value}</p>{note}{spark}</div>'
    )


def _section(section: Section) -> str:
    intro = f'<p class="intro">{text_of(section.intro)}</p>' if section.intro else ""
    blocks = "".join(map(_block, section.blocks))
    return f'<section><h2>{text_of(section.title)}</h2>{intro}<div class="blocks">{blocks}</div></section>'


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Paragraph():
            return f'<p class="note {block.level}">{text_of(block.text)}</p>'
        case Wide():
            return _chart(block.chart, block.caption, WIDE, "wide")
        case Half():
            return _chart(block.chart, block.caption, HALF, "half")


def _chart(chart: Chart, caption: str, width: float, layout: str) -> str:
    keys = "".join(
        f'<span class="key"><i class="{text_of(colour)}"></i>{text_of(name)}</span>'
        for colour, name in chart.legend
    )
    legend = f'<p class="legend">{keys}</p>' if keys else ""
    below = f"<p>{text_of(caption)}</p>" if caption else ""
    title = f"<figcaption><h3>{text_of(chart.title)}</h3>{below}</figcaption>"
    return f'<figure class="card {layout}">{title}{legend}{twice(chart.draw, width)}</figure>'


def _table(table: Table) -> str:
    title = f"<h3>{text_of(table.title)}</h3>" if table.title else ""
    if not table.rows:
        return f'<div class="card flush">{title}<p class="foot soft small">{text_of(table.empty)}</p></div>'
    numeric = [name.startswith("#") for name in table.columns]
    head = "".join(
        f"<th{_right(number)}>{text_of(name.removeprefix('#'))}</th>"
        for name, number in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(cell, number) for cell, number in zip(row, numeric, strict=True)) + "</tr>"
        for row in table.rows[: table.rows_max]
    )
    left_out = len(table.rows) - table.rows_max
    rest = f'<p class="foot soft small">and {left_out:,} more, in report.json</p>' if left_out > 0 else ""
    kind = ' class="prose"' if table.is_prose else ""
    grid = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="card flush">{title}<div class="scroll">{grid}</div>{rest}</div>'


def _cell(cell: object, is_number: bool) -> str:
    if not isinstance(cell, Cell):
        return f"<td{_right(is_number)}>{text_of('–' if cell is None else cell)}</td>"
    mark = "" if cell.level == "plain" else f'<span class="pill {cell.level}">{text_of(cell.text)}</span>'
    return f"<td{_right(is_number)}>{cell.markup or mark or text_of(cell.text)}</td>"


def _right(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    if not facts:
        return ""
    rows = "".join(f"<div><dt>{text_of(name)}</dt><dd>{text_of(value)}</dd></div>" for name, value in facts)
    return f'<footer><dl class="facts">{rows}</dl></footer>'
