"""Third-party clients over TLS, with and without certificates of their own."""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer

from runnel.testing import Broker
from tools.certificates import CertificateAuthority, Issued, distinguished_name
from tools.kafka import commands

VALUES = [b"%d" % number + b"x" * 100_000 for number in range(30)]
"""Together more than a megabyte, so that fetches are sent from files."""


@dataclass(slots=True)
class Secured:
    """A broker, and what its clients need."""

    broker: Broker
    folder: Path
    ca: CertificateAuthority
    client: Issued

    @property
    def trust_store(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.folder / "client.crt")

    @property
    def key(self) -> str:
        return str(self.folder / "client.key")


@pytest.fixture(scope="module", params=["none", "required"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, ca = tmp_path_factory.mktemp("tls"), CertificateAuthority()
    client = ca.issue(distinguished_name("alice", O="Example"))
    (folder / "client.crt").write_bytes(client.chain_pem())
    (folder / "client.key").write_bytes(client.key_pem())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": ca.issue("broker", is_rsa=True).write(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.write(folder / "ca.pem"),
        "ssl.client.auth": request.param,
    }
    with Broker(settings, security_protocol="SSL") as broker:
        yield Secured(broker, folder, ca, client)


def test_confluent_kafka(secured: Secured) -> None:
    config = {
        "bootstrap.servers": secured.broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": secured.trust_store,
        "ssl.certificate.location": secured.certificate,
        "ssl.key.location": secured.key,
    }
    producer = Producer({**config, "enable.idempotence": True})
    for value in VALUES:
        producer.produce("confluent", value)
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    read: list[bytes] = []
    while len(read) < len(VALUES):
        message = consumer.poll(30)
        assert message is not None and not message.error()
        read.append(message.value())
    consumer.close()
    assert read == VALUES


def test_kafka_python(secured: Secured) -> None:
    config = {
        "bootstrap_servers": secured.broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": secured.trust_store,
        "ssl_certfile": secured.certificate,
        "ssl_keyfile": secured.key,
    }
    producer = KafkaProducer(**config)
    for value in VALUES:
        producer.send("python", value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        "python", **config, group_id="python", auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    read = []
    for record in consumer:
        read.append(record.value)
        if len(read) == len(VALUES):
            break
    consumer.close()
    assert read == VALUES


def test_aiokafka(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.trust_store)
    context.load_cert_chain(secured.certificate, secured.key)

    async def scenario() -> list[bytes]:
        config = {
            "bootstrap_servers": secured.broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**config) as producer:
            for value in VALUES:
                await producer.send_and_wait("aio", value)
        read: list[bytes] = []
        async with AIOKafkaConsumer(
            "aio", **config, group_id="aio", auto_offset_reset="earliest"
        ) as consumer:
            while len(read) < len(VALUES):
                async with asyncio.timeout(30):
                    read.append((await consumer.getone()).value)
        return read

    assert asyncio.run(scenario()) == VALUES


@pytest.mark.parametrize("uses_tls", [True, False])
def test_clients_that_do_not_trust_the_broker_or_do_not_use_tls(secured: Secured, uses_tls: bool) -> None:
    errors: list[int] = []
    config = (
        {"security.protocol": "SSL", "ssl.ca.pem": CertificateAuthority("Others").pem()} if uses_tls else {}
    )
    producer = Producer(
        {
            "bootstrap.servers": secured.broker.bootstrap_servers,
            "error_cb": lambda error: errors.append(error.code()),
            "message.timeout.ms": 1000,
            "log_level": 0,
            **config,
        }
    )
    producer.produce("t", b"x")
    producer.flush(30)
    assert KafkaError._ALL_BROKERS_DOWN in errors
    if uses_tls:
        assert KafkaError._SSL in errors


@pytest.mark.long
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize("secured", ["required"], indirect=True)
def test_kafkas_own_tools(secured: Secured) -> None:
    """Java's TLS reads and writes a topic, and exchanges the certificate of the broker."""
    client, folder = secured.client, secured.folder
    (folder / "java.pem").write_bytes(client.key_pem() + client.chain_pem())
    stores = {"keystore": "java.pem", "truststore": "ca.pem"}
    lines = [f"ssl.{store}.type=PEM\nssl.{store}.location={folder / file}" for store, file in stores.items()]
    (folder / "client.properties").write_text("\n".join(["security.protocol=SSL", *lines]))
    server = ["--bootstrap-server", secured.broker.bootstrap_servers]
    config = ["--command-config", str(folder / "client.properties")]
    tool("kafka-console-producer", *server, *config, "--topic", "java", stdin="one\ntwo\n")
    renewed = secured.ca.issue("broker").write(folder / "renewed.pem")
    setting = f"listener.name.ssl.ssl.keystore.location={renewed}"
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    tool("kafka-configs", *server, *config, *entity, "--alter", "--add-config", setting)
    described = tool("kafka-configs", *server, *config, *entity, "--describe")
    assert setting in described
    reading = ["--topic", "java", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"]
    assert "one\ntwo\n" in tool("kafka-console-consumer", *server, *config, *reading)


def tool(script: str, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        commands.tool(script, *arguments), input=stdin, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
