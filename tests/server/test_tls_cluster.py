"""Three nodes that replicate over mutual TLS, while all their certificates are exchanged."""

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.server import node_tls
from runnel.testing import Broker
from tests.server.test_tls import until
from tests.tls.certificates import Authority

RECORDS = 400


def client_of(folder: Path, broker: Broker, authority: Authority) -> dict[str, str]:
    issued = authority.issue("client")
    (folder / "client.crt").write_bytes(issued.chain_pem())
    (folder / "client.key").write_bytes(issued.key_pem())
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.crt"),
        "ssl.key.location": str(folder / "client.key"),
    }


@pytest.mark.slow
def test_certificates_are_exchanged_under_a_running_producer(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(node_tls, "CHECK_SECONDS", 0.2)
    caplog.set_level("INFO", "runnel.server")
    authority = Authority()
    authority.write(tmp_path / "ca.pem")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    errors: list[object] = []
    with Broker(settings, nodes=3, security_protocol="SSL") as cluster:
        client = client_of(tmp_path, cluster, authority)
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
        producer = Producer({**client, "acks": "all", "linger.ms": 1})
        for number in range(RECORDS):
            producer.produce(
                "t", b"%d" % number, on_delivery=lambda error, _: errors.append(error) if error else None
            )
            producer.poll(0.005)
            if number % 100 == 50:
                authority.issue("node").write(tmp_path / "new.pem")
                os.replace(tmp_path / "new.pem", tmp_path / "node.pem")
            if number == 250:
                # New connections between the nodes, with the new certificates.
                cluster.nodes[2].restart()
        assert producer.flush(60) == 0
        until(lambda: caplog.text.count("was loaded again") >= 3 * 2)
        assert errors == []
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        values: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(values) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and not message.error():
                values.add(message.value())
        consumer.close()
        assert len(values) == RECORDS
        partitions = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
        assert all(len(partition.replicas) == 3 for partition in partitions)


def test_a_node_with_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    """Its trust store must accept its own key store: it could not talk to nodes like itself."""
    authority, other = Authority(), Authority("Others")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": other.issue("node").write(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write(tmp_path / "ca.pem"),
    }
    with pytest.raises(ValueError, match=r"ssl\.truststore does not accept ssl\.keystore"):
        Broker(settings, nodes=3, security_protocol="SSL").start()
