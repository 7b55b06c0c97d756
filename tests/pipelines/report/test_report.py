"""Reports: complete pages, in which data is text."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser

from runnel.pipelines.report.page import (
    Block,
    Cell,
    Figure,
    Half,
    Page,
    Paragraph,
    Section,
    Status,
    Table,
    Wide,
    render,
)
from runnel.pipelines.report.writing import report_folder, write_report
from runnel.visual.strips import sparkline
from tests.visual.test_charts import CHARTS, HOSTILE, NOW_MS


class Strict(HTMLParser):
    """Notes every tag, and that each is closed where it should be."""

    EMPTY = frozenset({"meta", "line", "rect", "path", "circle", "br"})

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.attributes = set(), [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open and self.open.pop() == tag


def hostile_page():
    table = Table([HOSTILE, "#n"], [[HOSTILE, 1], [Cell(HOSTILE, "bad"), None]] * 80, HOSTILE)
    blocks: list[Block] = [
        *map(Wide, CHARTS),
        Half(CHARTS[0], HOSTILE),
        table,
        Paragraph(HOSTILE, "warn"),
        Table(["a"], []),
    ]
    status = Status("bad", HOSTILE, HOSTILE)
    figures = [Figure(HOSTILE, HOSTILE, HOSTILE, "good", sparkline([1, 2], HOSTILE))]
    return Page(HOSTILE, HOSTILE, status, figures, [Section(HOSTILE, blocks, HOSTILE)], [(HOSTILE, HOSTILE)])


def test_data_breaks_no_page_and_runs_nothing():
    html = render(hostile_page())
    parser = Strict()
    parser.feed(html)
    assert parser.open == []
    assert not parser.tags & {"script", "link", "img", "iframe", "object"}
    assert not [name for name in parser.attributes if name.startswith("on") or name in ("src", "href")]
    assert "http://" not in html and "https://" not in html
    assert "\x00" not in html and "\x1b" not in html and "\u202e" not in html


@dataclass
class Data:
    """Something to report."""

    name: str
    raw: bytes


def test_a_report_is_a_page_and_the_same_as_json(tmp_path):
    folder = report_folder("audit", NOW_MS, tmp_path)
    assert folder.name == "audit-20260921-141320"
    page = write_report(folder, hostile_page(), {"data": [Data("a", b"\xff")]})
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads((folder / "report.json").read_text()) == {"data": [{"name": "a", "raw": "\ufffd"}]}
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "report.json"]
