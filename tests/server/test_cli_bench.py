"""`runnel bench`: small runs with known counts."""

import pytest

from runnel.server.bench.latency import Percentiles


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_all_produced_records_are_consumed(run, acks):
    before = run.ok("topic", "list").out
    options = [
        "-n",
        "5000",
        "-p",
        "3",
        "-c",
        "2",
        "--acks",
        acks,
        "--batch-bytes",
        "2000",
        "--latency-seconds",
        "0",
    ]
    report = run.ok("bench", *options, "--json").json
    assert report["produce"]["records"] == report["consume"]["records"] >= 5000
    assert report["produce"]["records_per_s"] > 0
    assert report["latency"] is None
    assert run.ok("topic", "list").out == before


def test_table_output(run):
    out = run.ok("bench", "-n", "1000", "--latency-seconds", "0.2", "-z", "lz4").out
    for word in ("RECORDS/S", "produce", "consume", "P99 MS", "end to end", "EVENT LOOP", "pauses"):
        assert word in out


def test_a_given_topic_is_kept(run, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, "x")
    report = run.ok("bench", "--topic", name, "-n", "100", "--latency-seconds", "0.1", "--json").json
    assert report["consume"]["records"] == report["produce"]["records"]
    assert report["latency"]["records"] == 20
    [view] = run.ok("topic", "describe", name, "--json").json
    assert view["partitions"][0]["end_offset"] == 1 + report["produce"]["records"] + 20


def test_percentiles_are_by_nearest_rank():
    view = Percentiles.of([float(number) for number in range(1, 101)])
    assert (view.p50_ms, view.p90_ms, view.p99_ms, view.max_ms) == (50.0, 90.0, 99.0, 100.0)
    assert Percentiles.of([]).max_ms == 0.0
