"""The benchmark's page shows what was measured, which goals were reached and which floors missed."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.bench import charts, page
from tools.bench.__main__ import with_last_run
from tools.bench.http_table import WORKLOADS
from tools.bench.table import LATENCY_ROWS, ROWS, TIMES, Compared, Row, compare

MORE = Row("rate", "rate", "req/s", True, goal=4, floor=2)
LESS = Row("cost", "cost", "µs", False, goal=0.2, floor=0.5)


@pytest.mark.parametrize(
    ("row", "ours", "theirs", "verdict", "advantage"),
    [
        (MORE, 400, 100, "goal", 4),
        (MORE, 300, 100, "floor", 3),
        (MORE, 100, 100, "**below the floor**", 1),
        (LESS, 10, 100, "goal", 10),
        (LESS, 40, 100, "floor", 2.5),
        (LESS, 90, 100, "**below the floor**", 100 / 90),
    ],
)
def test_verdicts(row: Row, ours: float, theirs: float, verdict: str, advantage: float) -> None:
    compared = Compared(row, ours, theirs)
    assert compared.verdict == verdict
    assert compared.advantage == pytest.approx(advantage)
    assert compared.reaches(row.floor) == (verdict != "**below the floor**")


def test_medians_are_compared() -> None:
    key = ROWS[0].key
    rounds = {"Runnel": [{key: value} for value in (1.0, 300.0, 200.0)], "Kafka": [{key: 100.0}]}
    (compared,) = compare(rounds, "Runnel", "Kafka")
    assert (compared.ours, compared.theirs, compared.ratio) == (200.0, 100.0, 2.0)


def test_alone_there_is_nothing_to_judge() -> None:
    (compared,) = compare({"Runnel": [{ROWS[0].key: 5.0}]}, "Runnel", "Kafka")
    assert (compared.ratio, compared.verdict, compared.reaches(2)) == (None, "", True)


def test_what_is_a_ratio_itself_is_not_compared_with_that_of_the_other() -> None:
    compared = Compared(Row("growth", "growth", TIMES, False), 1.0, 1.5)
    assert (compared.ratio, compared.advantage, compared.verdict) == (None, None, "")
    assert "| growth, times | 1 | 1.5 | – |" in page.table([compared])


def test_the_page_holds_table_misses_and_charts(tmp_path: Path) -> None:
    rounds = {
        "Runnel": [{row.key: 2.0 for row in [*ROWS, *LATENCY_ROWS]}],
        "Kafka": [{row.key: 1.0 for row in [*ROWS, *LATENCY_ROWS]}],
    }
    sizes = [{"partitions": count, "memory_mb": count / 10, "restart_s": 1.0} for count in (10, 1000)]
    figures = {"rps": 50.0, "p50_us": 1.0, "p99_us": 2.0, "cpu_us": 3.0}
    over_http = {f"{each.key}_{name}": value for each in WORKLOADS for name, value in figures.items()}
    natively = {**over_http, **{f"{each.key}_rps": 60.0 for each in WORKLOADS}, "http_publish_1_1_rps": 500.0}
    results = {
        "rounds": rounds,
        "http": {
            "rounds": {"HTTP": [over_http], "native": [natively]},
            "warm_up": {"HTTP": {"http_publish_1_1": "steady"}, "native": {}},
            "run": {"rounds": 1, "seconds": 0.8},
        },
        "partitions": {"Runnel": sizes},
        "workers": [{"workers": 1, "produce_rps": 150_000.0}, {"workers": 2, "produce_rps": 160_000.0}],
        "settings": {"Runnel": "defaults"},
        "run": {"rounds": 1, "window_s": 4.0, "warm_up_s": 90.0, "is_quick": True},
        "warm_up": {"Runnel": {"small": "steady after 3 windows, 12 s"}, "Kafka": {}},
    }
    reasons = tmp_path / "reasons.toml"
    reasons.write_text('[miss]\nstart_s = "it is cold"\nhttp_publish_1 = "it is Python"\n')
    page.write(results, tmp_path, reasons)
    text = (tmp_path / "BENCHMARKS.md").read_text()
    assert all(row.label in text for row in ROWS)
    assert "* **start to first response** (2x): it is cold" in text
    assert "This is a short run" in text
    assert "| end to end, 50,000 records/s | 2 | 2 | 2 | 1 | 1 | 1 | 2x | 2x | 2x |" in text
    assert "| small | steady after 3 windows, 12 s | – |" in text
    assert "Runnel, 1,000" in text
    assert "POST\n/topics/{topic}/publish" in text and "1 rounds of 0.8 s" in text
    assert all(each.row.label in text for each in WORKLOADS)
    assert "* **publish 1 record** (0.1x with 1): it is Python" in text
    assert "| http_publish_1_1 | steady | – |" in text
    assert "| | 1 worker | 2 workers |" in text
    assert "in flight, req/s | 150,000 | 160,000 |" in text
    for name in ("advantage.svg", "memory.svg", "restart.svg"):
        assert f"bench/{name}" in text
        ElementTree.parse(tmp_path / "bench" / name)


def test_a_part_that_is_measured_alone_is_shown_with_the_last_run(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    found = {"rounds": {}, "warm_up": {}, "http": {"run": {}}, "workers": []}
    assert with_last_run(found, file, ["http"]) == found
    file.write_text('{"rounds": {"Runnel": []}, "workers": [{"workers": 1}]}')
    shown = with_last_run(found, file, ["http"])
    assert (shown["rounds"], shown["workers"], shown["http"]) == (
        {"Runnel": []},
        [{"workers": 1}],
        {"run": {}},
    )
    assert with_last_run(found, file, ["http", "security"]) == with_last_run(found, file, []) == found


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    ElementTree.fromstring(charts.advantage([]))
