"""Decisions that were made without all records of the topic are not carried out."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import BrokerError
from runnel.gateway.registry.store import SETTINGS, Store, Workers
from runnel.model.errors import ErrorCode
from runnel.registry import lookup
from runnel.registry.decision import Decision
from runnel.registry.records import TOPIC
from runnel.registry.registration import register
from runnel.registry.state import RegistryState
from runnel.testing import Broker

END_S = 30.0
THEIRS = b'{"keytype":"SCHEMA","subject":"theirs","version":1,"magic":1}'


class BehindCluster(Cluster):
    """Metadata that do not have the topic for the first look-ups, as those of a broker that lags."""

    look_ups = 0

    async def topic(self, name: str, **options: Any) -> TopicView:
        if name == TOPIC and options.get("max_age_s") == 0.0 and self.look_ups:
            self.look_ups -= 1
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return await super().topic(name, **options)


class AheadCluster(Cluster):
    """Metadata with the topic as it was created again, which its leader does not know yet."""

    async def topic(self, name: str, **options: Any) -> TopicView:
        return replace(await super().topic(name, **options), topic_id=b"\1" * 16)


def registered(state: RegistryState, subject: str, schema: str) -> Decision[Any]:
    return register(state, subject, {"schema": json.dumps(schema)})


def written(cluster: Cluster, subject: str, schema: str, other: Broker | None = None) -> Any:
    """What is registered; another registry registers a schema with the first id after the decision."""
    calls = 0

    def decide(state: RegistryState, verdicts: object) -> Decision[Any]:
        nonlocal calls
        calls += 1
        decision = registered(state, subject, schema)
        # The first one is made before the transaction.
        if other is not None and calls == 2:
            value = {"subject": "theirs", "version": 1, "id": 1, "schema": '"bytes"', "deleted": False}
            with other.client() as client:
                client.send(TOPIC, json.dumps(value).encode(), key=THEIRS)
        return decision

    async def run() -> Any:
        workers = Workers()
        try:
            async with cluster, asyncio.timeout(END_S):
                return await Store(cluster, workers).write(decide)
        finally:
            workers.close()

    return asyncio.run(run())


async def read_by(cluster: Cluster) -> list[str]:
    workers = Workers()
    try:
        async with cluster, asyncio.timeout(END_S):
            return await Store(cluster, workers).read(lambda state, verdicts: lookup.subjects(state))
    finally:
        workers.close()


def ids_of(broker: Broker) -> list[int]:
    with broker.client() as client:
        values = [json.loads(message.value or b"{}") for message in client.read(TOPIC, committed_only=True)]
    return [value["id"] for value in values]


def test_no_id_is_assigned_twice_if_metadata_do_not_have_the_topic_yet():
    with Broker() as broker:
        first = written(Cluster(broker.bootstrap_servers), "a", "int")
        behind = BehindCluster(broker.bootstrap_servers)
        # Once before the transaction, and once within.
        behind.look_ups = 2
        second = written(behind, "b", "string")

        assert (first["id"], second["id"]) == (1, 2)
        assert ids_of(broker) == [1, 2]


def test_no_id_is_assigned_twice_if_a_record_is_written_after_the_decision():
    """By a registry that takes no part in the lock."""
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic(TOPIC, partitions=1, settings=dict(SETTINGS))
        mine = written(Cluster(broker.bootstrap_servers), "mine", "int", broker)

        assert mine["id"] == 2
        assert ids_of(broker) == [1, 2]


def test_the_records_of_a_topic_are_not_taken_for_those_of_the_next_one():
    with Broker() as broker:
        written(Cluster(broker.bootstrap_servers), "a", "int")

        assert asyncio.run(read_by(Cluster(broker.bootstrap_servers))) == ["a"]
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_ID"):
            asyncio.run(read_by(AheadCluster(broker.bootstrap_servers, timeout_s=1.0)))
