"""Runs the example of `runnel pipeline init`: a join and windows, to a topic and to a table."""

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.pipelines.declared.counting import Outcome
from runnel.pipelines.declared.example import example_text
from runnel.pipelines.declared.example.events import MALFORMED, events
from runnel.pipelines.declared.job import DeclaredOptions, run
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables import SparkTable, open_catalog
from tests.pipelines.declared.shop import declared, minute_text, parsed, revenue, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.testing import Broker

START_MS = 1_790_856_000_000
SETTINGS = "settings: {spark.sql.shuffle.partitions: 2}\n"

pytestmark = pytest.mark.timeout(900)


def test_the_example_runs(spark: "SparkSession", runnel: "Broker", tmp_path: Path) -> None:
    text = example_text() + SETTINGS
    pipeline = declared(
        tmp_path, text, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers, RUNNEL_WAREHOUSE=str(tmp_path / "house")
    )
    everything = list(events(60, start_ms=START_MS, malformed=4))
    send(runnel, everything)
    outcome = run(spark, DeclaredOptions(pipeline, once=True), Progress())

    with runnel.client() as client:
        joined = client.read("paid-orders", committed_only=True)
        dead = client.read("orders.dead-letters", committed_only=True)
        assert client.read("payments.dead-letters") == []
    payments, orders = parsed(everything, "payments"), parsed(everything, "orders")
    rows = [json.loads(message.value or b"") for message in joined]
    assert {row["order_id"]: row["paid"] for row in rows} == {
        order: payment["paid"] for order, payment in payments.items()
    }
    assert len(rows) == len(payments)
    assert all(message.key == row["customer"].encode() for message, row in zip(joined, rows, strict=True))
    assert {row["customer"] for row in rows} <= {order["customer"] for order in orders.values()}

    check_dead_letters(dead)
    table = SparkTable(open_catalog(str(tmp_path / "house")), "shop.revenue").read(spark).collect()
    found = {
        (minute_text(row.minute.astimezone(UTC)), row.country): round(row.revenue * 100) for row in table
    }
    assert found == revenue(everything, before="2026-10-01T12:10")
    assert len(table) == len(found)
    check_counts(outcome, len(everything))


def check_dead_letters(dead: list) -> None:
    """The original key and value, with the origin and the reason in headers."""
    assert sorted((message.value or b"").decode() for message in dead) == sorted(
        MALFORMED[number % len(MALFORMED)] for number in range(4)
    )
    for message in dead:
        headers = {
            name.removeprefix("runnel.dead-letter."): value.decode() for name, value in message.headers
        }
        assert message.key == b"broken"
        assert headers["topic"] == "orders"
        assert headers["pipeline"] == "revenue"
        assert headers["reason"]
        assert int(headers["partition"]) in range(3)
        assert int(headers["offset"]) >= 0
        assert int(headers["timestamp"]) > 0


def check_counts(outcome: Outcome, count: int) -> None:
    """Every query has read all records of its topics, and reported it."""
    read = {query.name: query.records for query in outcome.queries}
    assert sorted(read) == ["dead-letters-orders", "dead-letters-payments", "paid-orders", "revenue"]
    assert read["paid-orders"] == read["revenue"] == count
    assert read["dead-letters-orders"] + read["dead-letters-payments"] == count
    assert outcome.malformed == {"orders": 4}
