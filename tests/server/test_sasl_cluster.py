"""Three nodes that authenticate at each other, again and again, over SASL_PLAINTEXT and SASL_SSL."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.testing import Broker
from tools.certificates import CertificateAuthority

RECORDS = 100
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.jaas.config": (
        f'{PLAIN} username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret";'
    ),
    "connections.max.reauth.ms": "2000",
}


def ssl_settings(folder: Path) -> dict[str, str]:
    ca = CertificateAuthority()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": ca.issue("node").write(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.write(folder / "ca.pem"),
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_nodes_replicate_over_several_sessions(tmp_path: Path, protocol: str, caplog) -> None:
    settings = {**SASL, **(ssl_settings(tmp_path) if protocol == "SASL_SSL" else {})}
    with Broker(settings, nodes=3, security_protocol=protocol) as cluster:
        client = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            **({"ssl.ca.location": str(tmp_path / "ca.pem")} if protocol == "SASL_SSL" else {}),
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
        errors: list[object] = []
        producer = Producer({**client, "acks": "all"})
        deadline = time.monotonic() + 5
        for number in range(RECORDS):
            producer.produce(
                "t", b"%d" % number, on_delivery=lambda error, _: errors.append(error) if error else None
            )
            while time.monotonic() < deadline - 5 * (1 - number / RECORDS):
                producer.poll(0.01)
        assert producer.flush(60) == 0
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
    assert "authentication failed" not in caplog.text
    assert "has expired" not in caplog.text
