"""Three nodes that replicate over mutual TLS, while all their certificates are rotated."""

import os
import socket
import ssl
import time
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.server import node_tls
from runnel.testing import Broker
from tests.server.test_tls import until
from tools.broker_process import API_VERSIONS_REQUEST
from tools.certificates import CertificateAuthority

RECORDS = 50


def client_of(folder: Path, broker: Broker, ca: CertificateAuthority) -> dict[str, str]:
    issued = ca.issue("client")
    (folder / "client.crt").write_bytes(issued.chain_pem())
    (folder / "client.key").write_bytes(issued.key_pem())
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.crt"),
        "ssl.key.location": str(folder / "client.key"),
    }


def replace(path: Path, content: bytes) -> None:
    """Write a file that is complete whenever it is read."""
    path.with_suffix(".new").write_bytes(content)
    os.replace(path.with_suffix(".new"), path)


def presented(
    listener: str, issuer: CertificateAuthority, trusted: list[CertificateAuthority], folder: Path
) -> bytes | None:
    """The certificate that a listener presents to a client of this issuer; None if that is refused."""
    host, _, port = listener.rpartition("//")[2].rpartition(":")
    context = ssl.create_default_context(cadata="".join(ca.pem() for ca in trusted))
    context.load_cert_chain(issuer.issue("probe").write(folder / "probe.pem"))
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=host) as secured:
                secured.sendall(API_VERSIONS_REQUEST)
                # With TLS 1.3 a client learns by the first response whether its certificate was accepted.
                assert secured.recv(8)
                return secured.getpeercert(binary_form=True)
        except (ssl.SSLError, ConnectionError) as refused:
            # The alert may be lost if the connection is reset.
            return None if "unknown ca" in str(refused) else b""


def values_of(client: dict[str, str], count: int) -> set[bytes]:
    """So many different values of the topic, or those that arrive in a minute."""
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: set[bytes] = set()
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            values.add(message.value())
    consumer.close()
    return values


def all_in_sync(admin: AdminClient) -> bool:
    partitions = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
    return all(len(partition.isrs) == 3 for partition in partitions)


@pytest.mark.slow
def test_keys_and_the_ca_are_rotated_under_producers(tmp_path: Path, monkeypatch) -> None:
    """The steps of docs/SECURITY.md: new keys, trust both CAs, new certificates, distrust the old CA."""
    monkeypatch.setattr(node_tls, "CHECK_SECONDS", 0.1)
    old, new = CertificateAuthority("old"), CertificateAuthority("new")
    steps = [(old, [old]), (old, [old, new]), (new, [old, new]), (new, [new])]
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": old.issue("node").write(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": old.write(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    errors: list[object] = []

    def send(producer: Producer, first: int) -> None:
        for number in range(first, first + RECORDS):
            producer.produce(
                "t", b"%d" % number, on_delivery=lambda error, _: errors.append(error) if error else None
            )
            producer.poll(0.002)

    def presents(listener: str, issuer: CertificateAuthority, expected: bytes | None) -> bool:
        return presented(listener, issuer, [old, new], tmp_path) == expected

    with Broker(settings, nodes=3, security_protocol="SSL") as cluster:
        listeners = [name for node in cluster.nodes for name in node.settings["listeners"].split(",")]
        client = client_of(tmp_path, cluster, old)
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
        for number, (issuer, trusted) in enumerate(steps):
            # Its connections stay open while its certificate and those of the nodes are rotated.
            producer = Producer({**client, "acks": "all", "linger.ms": 1})
            send(producer, 2 * number * RECORDS)
            issued = issuer.issue("node")
            replace(tmp_path / "ca.pem", "".join(ca.pem() for ca in trusted).encode())
            replace(tmp_path / "node.pem", issued.key_pem() + issued.chain_pem())
            for listener, ca in product(listeners, (old, new)):
                expected = issued.der() if ca in trusted else None
                until(partial(presents, listener, ca, expected))
            send(producer, (2 * number + 1) * RECORDS)
            assert producer.flush(60) == 0
            client = client_of(tmp_path, cluster, issuer)
        assert len(listeners) == 6
        # New connections between the nodes.
        cluster.nodes[2].restart()
        assert errors == []
        assert len(values_of(client, 2 * RECORDS * len(steps))) == 2 * RECORDS * len(steps)
        until(partial(all_in_sync, AdminClient(client)))


def test_a_node_with_a_certificate_of_another_ca_is_refused(tmp_path: Path) -> None:
    """Its trust store must accept its own key store: it could not talk to nodes like itself."""
    ca, other = CertificateAuthority(), CertificateAuthority("Others")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": other.issue("node").write(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.write(tmp_path / "ca.pem"),
    }
    with pytest.raises(ValueError, match=r"ssl\.truststore does not accept ssl\.keystore"):
        Broker(settings, nodes=3, security_protocol="SSL").start()
