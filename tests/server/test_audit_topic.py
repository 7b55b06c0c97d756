"""The audit log as a topic: of one node and of a cluster, with clients of different permissions."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from runnel.client import ClientProperties, SyncClient
from runnel.client.errors import BrokerError
from runnel.model.ids import TopicPartition
from runnel.testing import Broker, BrokerNode
from tests.server.test_sasl_cluster import PLAIN

TOPIC = "audit-events"
SETTINGS = {
    "authorizer.class.name": "acl",
    "super.users": "User:node",
    "audit.log.topic": TOPIC,
    "audit.log.allowed": "all",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="node" password="n" user_node="n" user_alice="a";',
}


def user(name: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": name[0],
    }


def events(broker: Broker, is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """What the topic has, once it has what is waited for."""
    deadline = time.monotonic() + 60
    with broker.client(properties=user("node")) as client:
        while True:
            found = []
            if TOPIC in client.topics():
                found = [json.loads(record.value or b"") for record in client.read(TOPIC)]
            if is_enough(found) or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


def denied(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["principal"], each["resource_name"]) for each in found if each.get("outcome") == "denied"]


def is_denied(broker: Broker, name: str, topic: str) -> bool:
    with broker.client(properties=user(name)) as client:
        try:
            client.read(topic)
        except BrokerError as error:
            return "AUTHORIZATION_FAILED" in str(error)
    return False


def test_decisions_are_records_that_survive_restarts(tmp_path):
    settings = {**SETTINGS, "allow.everyone.if.no.acl.found": "true"}
    with Broker(settings, data_dir=tmp_path / "data", security_protocol="SASL_PLAINTEXT") as broker:
        with broker.client(properties=user("node")) as admin:
            admin.create_topic("orders")
        found = events(broker, lambda found: any(each.get("api") == "CreateTopics" for each in found))
        (created,) = [each for each in found if each.get("api") == "CreateTopics"]
        assert (created["principal"], created["outcome"]) == ("User:node", "allowed")
        # Unlike other topics it is not open to those whom no ACL names.
        assert not is_denied(broker, "alice", "orders")
        assert is_denied(broker, "alice", TOPIC)
        with broker.client(properties=user("alice")) as alice, pytest.raises(BrokerError, match="AUTHORIZ"):
            alice.delete_topic(TOPIC)
        assert ("User:alice", TOPIC) in denied(events(broker, lambda found: bool(denied(found))))
        broker.restart()
        after = events(broker, lambda found: bool(denied(found)))
        assert created in after and ("User:alice", TOPIC) in denied(after)


def cause_denial(node: BrokerNode, topic: str) -> tuple[str, str]:
    """Let a client be denied by this node, which asks no other; what is recorded of it."""
    address = node.settings["listeners"].split(",")[0].rpartition("//")[2]
    with (
        SyncClient(address, properties=ClientProperties(user("alice"))) as client,
        pytest.raises(BrokerError),
    ):
        client.read(topic)
    return "User:alice", topic


def leader_of(cluster: Broker) -> int:
    with cluster.client(properties=user("node")) as client:
        return client.run(lambda each: each.leader(TopicPartition(TOPIC, 0)))


def test_events_of_all_nodes_of_a_cluster_are_in_the_topic():
    with Broker(SETTINGS, nodes=3, security_protocol="SASL_PLAINTEXT") as cluster:
        wanted = {cause_denial(node, f"of-{node.node_id}") for node in cluster.nodes}
        found = events(cluster, lambda found: wanted <= set(denied(found)))
        assert wanted <= set(denied(found))
        # Nodes whose events another one stores are not events themselves.
        own = [each for each in found if each.get("resource_name") == TOPIC and each["operation"] == "WRITE"]
        assert own == []
        leader = leader_of(cluster)
        remaining = [node for node in cluster.nodes if node.node_id != leader]
        next(node for node in cluster.nodes if node.node_id == leader).kill()
        wanted |= {cause_denial(node, f"later-of-{node.node_id}") for node in remaining}
        assert wanted <= set(denied(events(cluster, lambda found: wanted <= set(denied(found)))))
