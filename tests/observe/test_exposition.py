"""The text format: what is rendered is what two parsers read, ours and that of Prometheus' own library."""

import contextlib
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from runnel.observe.exposition import BadExposition, parse, render
from runnel.observe.metrics import Distribution, Family, LatencyCounts, one

NAMES = st.from_regex(r"\A[a-z_][a-z0-9_]{0,20}\Z").filter(
    # The library treats these endings as parts of a histogram or summary.
    lambda name: not name.endswith(("_bucket", "_sum", "_count", "_total", "_created", "_info"))
)
# The library splits at these; values with them are tested with our parser.
TEXTS = st.text(
    st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=["Cs"])
)
LABEL_NAMES = st.sampled_from(["topic", "partition", "api", "consumergroup"])
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(allow_nan=False, width=64), st.sampled_from([math.inf, -math.inf])
)
LABELS = st.dictionaries(LABEL_NAMES, TEXTS).map(lambda labels: tuple(sorted(labels.items())))
GAUGES = st.builds(
    lambda name, help_text, samples: Family(name, "gauge", help_text, list(samples.items())),
    NAMES,
    TEXTS,
    st.dictionaries(LABELS, NUMBERS, min_size=1, max_size=5),
)


def text_of(families: Iterable[Family | None]) -> str:
    return b"".join(render(families)).decode()


def read_by_library(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read_by_us(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(name, frozenset(labels)): value for name, labels, value in parse(text)}


@given(st.lists(GAUGES, max_size=4, unique_by=lambda family: family.name))
def test_both_parsers_read_what_was_rendered(families: list[Family]) -> None:
    text = text_of(families)
    expected = {
        (family.name, frozenset(labels)): float(value)
        for family in families
        for labels, value in family.samples
        if not isinstance(value, Distribution)
    }
    assert read_by_us(text) == expected
    assert read_by_library(text) == expected


@given(st.text(max_size=20))
def test_any_label_value_is_read_as_it_was_written(name: str) -> None:
    text = text_of([one("x", "gauge", "", 1, (("topic", name),))])
    assert read_by_us(text) == {("x", frozenset({("topic", name)})): 1.0}


@given(st.lists(st.floats(0, 10_000), max_size=50))
def test_a_histogram_counts_what_is_below_each_bound(seconds: list[float]) -> None:
    counts = LatencyCounts()
    for each in seconds:
        counts.add(each)
    text = text_of([one("x", "histogram", "how long", counts.distribution(), (("api", "Fetch"),))])
    read = read_by_us(text)
    assert read_by_library(text) == read
    assert read["x_count", frozenset({("api", "Fetch")})] == len(seconds)
    assert read["x_sum", frozenset({("api", "Fetch")})] == pytest.approx(math.fsum(seconds))
    bounds = [dict(labels)["le"] for name, labels in read if name == "x_bucket"]
    assert len(bounds) == 24 and "+Inf" in bounds
    for bound in bounds:
        below = sum(each < float(bound) for each in seconds)
        shown = read["x_bucket", frozenset({("api", "Fetch"), ("le", bound)})]
        # A duration of exactly a bound is in the next bucket.
        assert shown == below


def test_types_and_help_are_those_of_the_library() -> None:
    families = [
        one("kafka_brokers", "gauge", 'a \\ backslash,\nand a "line"', 3),
        one("requests_total", "counter", "all", 7, (("api", "Fetch"),)),
    ]
    read = list(text_string_to_metric_families(text_of(families)))
    assert [(family.name, family.type) for family in read] == [
        ("kafka_brokers", "gauge"),
        ("requests", "counter"),
    ]
    assert read[0].documentation == 'a \\ backslash,\nand a "line"'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a 1", ("a", (), 1.0)),
        ("a{} 1", ("a", (), 1.0)),
        ('a{x="1",} 2', ("a", (("x", "1"),), 2.0)),
        ('  a { x = "1" , y="2" }  3  1700000000000', ("a", (("x", "1"), ("y", "2")), 3.0)),
        ('a{x="}"} 4', ("a", (("x", "}"),), 4.0)),
        (r'a{x="\"\\\n"} 5', ("a", (("x", '"\\\n'),), 5.0)),
        ("a +Inf", ("a", (), math.inf)),
        ("a -Inf", ("a", (), -math.inf)),
        ("a:b\t1e3", ("a:b", (), 1000.0)),
    ],
)
def test_what_other_exporters_write_is_read(line: str, expected: tuple) -> None:
    assert list(parse(line)) == [expected]
    library = {(name, labels): value for (name, labels), value in read_by_library(line + "\n").items()}
    assert library == {(expected[0], frozenset(expected[1])): expected[2]}


def test_not_a_number_is_read() -> None:
    ((_, _, value),) = parse("a NaN")
    assert math.isnan(value)
    assert text_of([one("a", "gauge", "", math.nan)]).endswith("a NaN\n")


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a b",
        "{} 1",
        "1a 1",
        'a{x="1} 2',
        "a{x=1} 2",
        'a{x="1"',
        'a{x="1"y="2"} 1',
        'a{"x"} 1',
        "a{x} 1",
        "é 1",
    ],
)
def test_what_is_not_a_sample_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(BadExposition, match="line 3"):
        list(parse(f"# HELP x\nx 1\n{line}\n"))


@given(st.text(alphabet='a{}="\\, \t1\n#', max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(BadExposition):
        list(parse(text))


def test_a_long_family_is_rendered_in_pieces() -> None:
    samples = [((("partition", str(index)),), index) for index in range(1_000)]
    pieces = list(render([None, Family("x", "gauge", "", samples)]))
    assert pieces[0] == b""
    assert len(pieces) > 10
    assert len(read_by_us(b"".join(pieces).decode())) == 1_000
