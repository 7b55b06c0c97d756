"""Our client, the command line and the connections of Spark's tasks on secured listeners of Apache Kafka."""

import asyncio
import time

import pytest

from runnel.client import AuthenticationFailed, ClientError, Cluster, SyncClient, TlsFailed
from runnel.client.security import security_of
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.pipelines.source.connection import BlockingConnection
from tests.compat.secured_kafka import MECHANISMS, PASSWORD, SESSION_MS, SecuredNode, secured_node
from tests.server.cli import CommandLine

pytestmark = pytest.mark.java

LISTENERS = [
    ("SSL", ""),
    *((protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka(kafka_jars, tmp_path_factory):
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.mark.parametrize("protocol, mechanism", LISTENERS)
def test_records_pass_through_every_listener(kafka: SecuredNode, protocol, mechanism):
    properties = kafka.properties(protocol, mechanism)
    topic = f"t-{protocol}-{mechanism}"
    with SyncClient(kafka.bootstrap(protocol), properties=properties) as client:
        client.create_topic(topic, partitions=1)
        client.send(topic, b"tea")
        assert [message.value for message in client.read(topic)] == [b"tea"]
    host, _, port = kafka.bootstrap(protocol).rpartition(":")
    connection = BlockingConnection(
        host, int(port), client_id="t", timeout_s=20, security=security_of(properties)
    )
    with connection:
        answer = connection.ask(MetadataRequest(topics=None), MetadataResponse)
        assert topic in [view.name for view in answer.topics]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_reported_without_it(kafka: SecuredNode, mechanism):
    properties = kafka.properties("SASL_SSL", mechanism)
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(PASSWORD, "wrong-" + PASSWORD)
    with pytest.raises(AuthenticationFailed) as refused:
        SyncClient(kafka.bootstrap("SASL_SSL"), properties=properties)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "listener, protocol, message",
    [
        ("SASL_PLAINTEXT", "PLAINTEXT", r"closed the connection.*see security\.protocol"),
        ("SASL_SSL", "PLAINTEXT", r"uses TLS: set security\.protocol|see security\.protocol"),
        ("SASL_SSL", "SASL_PLAINTEXT", r"uses TLS: set security\.protocol|see security\.protocol"),
        ("SASL_PLAINTEXT", "SASL_SSL", r"security\.protocol"),
        ("SSL", "SASL_SSL", r"ssl\.keystore\.location"),
        ("PLAINTEXT", "SASL_PLAINTEXT", r"does not use SASL: set security\.protocol"),
    ],
)
def test_the_wrong_protocol_is_named(kafka: SecuredNode, listener, protocol, message):
    port = kafka.plain_port if listener == "PLAINTEXT" else kafka.ports[listener]
    properties = None if protocol == "PLAINTEXT" else kafka.properties(protocol)

    def connect() -> None:
        with SyncClient(f"127.0.0.1:{port}", timeout_s=3, properties=properties) as client:
            client.run(lambda cluster: cluster.refresh([]))

    with pytest.raises(ClientError, match=message):
        connect()


def test_a_client_without_a_certificate(kafka: SecuredNode):
    properties = kafka.properties("SSL")
    del properties["ssl.keystore.location"]
    with pytest.raises(TlsFailed, match=r"ssl\.keystore\.location"):
        SyncClient(kafka.bootstrap("SSL"), properties=properties)


async def ask_for(seconds: float, cluster: Cluster) -> set[int]:
    """Ask in several tasks at once, without a retry; the ids of the connections that were used."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    used: set[int] = set()

    async def ask() -> None:
        while loop.time() < end_s:
            connection = await cluster.any_connection()
            used.add(id(connection))
            await connection.send(MetadataRequest(topics=[]), MetadataResponse)
            await asyncio.sleep(0.02)

    await asyncio.gather(*(ask() for _ in range(4)))
    return used


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_session_is_renewed_on_the_same_connection(kafka: SecuredNode, mechanism):
    async def work() -> set[int]:
        properties = kafka.properties("SASL_SSL", mechanism)
        async with Cluster(kafka.bootstrap("SASL_SSL"), properties=properties) as cluster:
            return await ask_for(2.2 * SESSION_MS / 1000, cluster)

    assert len(asyncio.run(work())) == 1


def test_a_task_of_spark_renews_its_session(kafka: SecuredNode):
    security = security_of(kafka.properties("SASL_PLAINTEXT", "SCRAM-SHA-512"))
    port = kafka.ports["SASL_PLAINTEXT"]
    with BlockingConnection("127.0.0.1", port, client_id="t", timeout_s=20, security=security) as connection:
        end_s = time.monotonic() + 1.5 * SESSION_MS / 1000
        while time.monotonic() < end_s:
            connection.ask(MetadataRequest(topics=[]), MetadataResponse)
            time.sleep(0.1)


def test_the_command_line(kafka: SecuredNode, capfd, tmp_path, monkeypatch):
    run = CommandLine(kafka.bootstrap("SASL_SSL"), capfd, tmp_path, monkeypatch)
    config = tmp_path / "client.properties"
    config.write_text(
        "".join(f"{name}={value}\n" for name, value in kafka.properties("SASL_SSL", "SCRAM-SHA-512").items())
    )
    run.ok("topic", "create", "cli", "--command-config", str(config))
    run.ok("produce", "cli", "--command-config", str(config), stdin="tea\n")
    assert run.ok("consume", "cli", "--command-config", str(config)).lines == ["tea"]
    assert PASSWORD not in (failed := run.fails("topic", "list", "-X", "security.protocol=SSL")).err
    assert "ssl.truststore.location" in failed.err


def test_the_security_check_of_a_broker_of_kafka(kafka: SecuredNode, capfd, tmp_path, monkeypatch):
    properties = kafka.properties("SASL_SSL", "PLAIN")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    run = CommandLine(kafka.bootstrap("SASL_SSL"), capfd, tmp_path, monkeypatch)
    outcome = run("security", "check", "--command-config", str(file), "--json")
    found = {(each["name"], each["listener"]) for each in outcome.json["findings"]}
    assert {each["name"] for each in outcome.json["listeners"]} >= {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    assert ("secrets-in-clear", "SASL_PLAINTEXT") in found
    assert ("no-authorizer", "SASL_SSL") in found
    assert not any(name in ("no-audit-log", "not-encrypted-at-rest") for name, _ in found)
