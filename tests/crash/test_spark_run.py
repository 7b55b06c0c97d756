"""What the verification of a copy by Spark finds, and how it is reported."""

from collections import Counter

from tools.crash.__main__ import report_spark
from tools.crash.spark.run import SparkOutcome, differences
from tools.crash.spark.to_topic import values


def test_equal_logs_have_no_differences():
    log = {("in", 0): [(0, b"a"), (1, b"b")], ("in", 1): [(0, b"a")]}
    other = {("out", 0): [(5, b"a")], ("out", 1): [(9, b"b"), (11, b"a")]}
    assert values(log) == Counter({b"a": 2, b"b": 1})
    assert differences(values(log), values(other)) == []


def test_lost_duplicated_and_unknown_records_are_named():
    found = differences({b"a": 1, b"b": 1, b"c": 1}, {b"a": 2, b"c": 1, b"d": 1})
    assert found == [
        "1 records lost: [b'b']",
        "1 records duplicated: [b'a']",
        "1 records unknown: [b'd']",
    ]


def test_a_violation_fails_the_run(capsys):
    assert report_spark("topic to table", SparkOutcome(kills=Counter({"driver": 2}), inputs=5, outputs=5))
    assert "2 kills (2 of drivers)" in capsys.readouterr().out
    assert not report_spark("topic to table", SparkOutcome(violations=["1 records lost: [b'b']"]))
    assert "VIOLATION 1 records lost" in capsys.readouterr().out
