"""The lag of a group from a real node: by its admin listener, in its metrics and on the command line."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from runnel.server import admin
from runnel.testing import Broker
from tests.observe.scraping import get, scrape, value
from tests.server.cli import CommandLine

RECORDS, READ = 10, 4


def eventually(probe: Callable[[], Any]) -> Any:
    """What a probe returns once it is not None; lag is sampled once a second."""
    for _ in range(200):
        if (found := probe()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError("it was not sampled")


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, READ)], asynchronous=False)
    consumer.close()


def test_the_lag_of_a_group_of_a_node(monkeypatch: pytest.MonkeyPatch, capfd, tmp_path) -> None:
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 0.0)
    settings = {"num.partitions": 1, "offsets.topic.num.partitions": 1}
    with Broker(settings, admin=True) as broker:
        fill(broker.bootstrap_servers)

        def sampled() -> dict[str, Any] | None:
            status, _, body = get(broker.admin_address, "/lag?group=billing")
            assert status == 200
            groups = json.loads(body)["groups"]
            return groups[0] if groups and groups[0]["lag"] is not None and groups[0]["partitions"] else None

        group = eventually(sampled)
        assert group["group"] == "billing"
        assert group["lag"] == RECORDS - READ
        (partition,) = group["partitions"]
        assert (partition["committed"], partition["end"]) == (READ, RECORDS)
        samples = scrape(broker.admin_address)
        assert (
            value(samples, "kafka_consumergroup_lag", consumergroup="billing", topic="orders", partition="0")
            == RECORDS - READ
        )
        run = CommandLine(broker.bootstrap_servers, capfd, tmp_path, monkeypatch)
        view = run.ok("group", "describe", "billing", "--json").json
        assert (view["lag"], view["lag_by"]) == (RECORDS - READ, "append time")
        assert get(broker.admin_address, "/lag?limit=none")[0] == 400
