"""Insights on Spark: the numbers beside a count by hand."""

import json
import time

import pytest

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.insights.job import InsightsOptions, run
from runnel.pipelines.insights.traffic import ReadWindow, traffic_of
from runnel.pipelines.progress import Progress
from runnel.testing import Broker

pytestmark = pytest.mark.timeout(600)
MINUTE_MS = 60_000


def fill(client, began_ms):
    client.create_topic("orders", partitions=2)
    client.create_topic("empty", partitions=1)
    # Dated, seconds taken for milliseconds, and microseconds.
    client.create_topic("odd", partitions=1, settings={"message.timestamp.after.max.ms": str(2**62)})
    for stamp_ms in (began_ms, began_ms // 1000, began_ms * 1000):
        client.send("odd", b"x", timestamp_ms=stamp_ms)
    for number in range(30):
        client.send(
            "orders",
            b"x" * 100,
            key=b"hot" if number % 3 else b"k%d" % number,
            partition=0 if number % 3 else 1,
            timestamp_ms=began_ms + number * 10_000,
        )


def test_the_report_matches_the_contents(spark, tmp_path):
    began_ms = round(time.time() * 1000) // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    with Broker() as broker:
        with broker.client() as client:
            fill(client, began_ms)
        with BrokerView(broker.bootstrap_servers) as view:
            place = next(each for each in view.partitions(["orders"]) if each.partition == 0)
            view.commit_group_offsets("billing", {place: 12})
            committed_ms = round(time.time() * 1000)
            time.sleep(0.02)
            # As a reader does that has nothing to read: this is no second delay, and no longer one.
            view.commit_group_offsets("billing", {place: 12})
        options = InsightsOptions(
            bootstrap=broker.bootstrap_servers,
            since_ms=began_ms,
            report=tmp_path / "report",
            history=tmp_path / "history.jsonl",
        )
        outcome = run(spark, options, Progress())
    orders = outcome.traffic["orders"]
    assert (orders.records, orders.size_bytes, orders.largest_bytes) == (30, 3000 + 60 + 26, 103)
    assert [count for _, (count, _) in sorted(orders.steps.items())] == [6, 6, 6, 6, 6]
    assert {number: found.records for number, found in orders.partitions.items()} == {0: 20, 1: 10}
    assert (orders.hot_keys[0].key, orders.hot_keys[0].records, orders.keys) == (b"hot", 20, 11)
    assert outcome.traffic["empty"].records == 0
    odd = outcome.traffic["odd"]
    assert (odd.records, odd.unplaced, odd.steps, odd.partitions[0].end) == (3, 2, {began_ms: (1, 1)}, 3)
    assert outcome.step_ms == MINUTE_MS
    assert [(each.group, each.partition, each.lag) for each in outcome.lags] == [("billing", 0, 8)]
    assert outcome.lag_history["billing"][-1][1] == 8
    # The commit at offset 12 covers the twelfth record of partition 0, which is number 17.
    (delay,) = outcome.delays
    assert delay.delay_ms == delay.at_ms - (began_ms + 17 * 10_000)
    assert delay.at_ms <= committed_ms
    assert outcome.forecast is not None and outcome.forecast.total_bytes > outcome.forecast.used_bytes > 0
    assert len(outcome.samples) == 1
    written = json.loads((tmp_path / "report" / "report.json").read_text())
    assert written["traffic"]["orders"]["records"] == 30
    assert "hot" in (tmp_path / "report" / "index.html").read_text()


def test_all_records_are_summed_up_in_steps_of_their_span(spark):
    hour_ms = 60 * MINUTE_MS
    now_ms = 1_700_000_000_000 // hour_ms * hour_ms
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("old", partitions=1, settings={"retention.ms": "-1"})
            for days, value in ((400, b"x"), (300, b"yy"), (300, b"zz")):
                client.send("old", value, timestamp_ms=now_ms - days * 24 * hour_ms)
            client.send("old", b"x", timestamp_ms=0)
        window = ReadWindow(broker.bootstrap_servers, ("old",), None, now_ms)
        traffic, step_ms = traffic_of(spark, window, 10)
    assert step_ms == hour_ms
    assert sorted(traffic["old"].steps.values()) == [(1, 1), (2, 4)]
    assert (traffic["old"].unplaced, traffic["old"].partitions[0].ends) == (
        1,
        {now_ms - 400 * 24 * hour_ms: 1, now_ms - 300 * 24 * hour_ms: 3},
    )
