"""ACLs as third-party clients and Apache Kafka's tool see them.

All clients are User:ANONYMOUS, which may do everything that no ACL is about.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tools.broker_process import BrokerProcess
from tools.kafka.commands import tool

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ANYONE = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("acls")
    settings = {**SETTINGS, "audit.log.file": str(folder / "audit.jsonl")}
    with BrokerProcess(folder / "data", settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(secured: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": secured.bootstrap})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"t-{uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    return name


def deny(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation, **options: Any) -> None:
    pattern = options.get("pattern", ResourcePatternType.LITERAL)
    binding = AclBinding(kind, name, pattern, ANYONE, "127.0.0.1", operation, AclPermissionType.DENY)
    for future in admin.create_acls([binding]).values():
        future.result(20)


def produced(bootstrap: str, topic: str) -> KafkaError | None:
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    return errors[0]


def consumed(bootstrap: str, topic: str, group: str) -> int:
    """The error code of the first message, 0 for a record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        assert message is not None
        return 0 if message.error() is None else message.error().code()
    finally:
        consumer.close()


def test_a_denied_producer_gets_a_topic_authorization_error(secured, admin, topic):
    assert produced(secured.bootstrap, topic) is None
    deny(admin, ResourceType.TOPIC, topic, AclOperation.WRITE)
    error = produced(secured.bootstrap, topic)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    events = [json.loads(line) for line in Path(secured.settings["audit.log.file"]).read_text().splitlines()]
    denied = [each for each in events if each["outcome"] == "denied" and each["resource_name"] == topic]
    assert denied[0]["principal"] == ANYONE and denied[0]["host"] == "127.0.0.1"
    assert any(each["api"] == "CreateAcls" and each["outcome"] == "allowed" for each in events)


def test_a_denied_consumer_gets_the_error_of_its_topic_or_group(secured, admin, topic):
    group = f"g-{uuid4().hex[:12]}"
    assert produced(secured.bootstrap, topic) is None
    assert consumed(secured.bootstrap, topic, group) == 0
    deny(admin, ResourceType.TOPIC, topic, AclOperation.READ)
    assert consumed(secured.bootstrap, topic, f"{group}-2") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    deny(admin, ResourceType.GROUP, group, AclOperation.READ, pattern=ResourcePatternType.PREFIXED)
    assert consumed(secured.bootstrap, topic, f"{group}-3") == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_denied_transactional_id_and_denied_settings(secured, admin, topic):
    deny(
        admin,
        ResourceType.TRANSACTIONAL_ID,
        "denied-",
        AclOperation.ALL,
        pattern=ResourcePatternType.PREFIXED,
    )
    producer = Producer({"bootstrap.servers": secured.bootstrap, "transactional.id": "denied-1"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(20)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    deny(admin, ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    with pytest.raises(KafkaException) as refused:
        admin.describe_configs([resource])[resource].result(20)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_acls_are_described_and_deleted_by_filters(secured, admin, topic):
    deny(admin, ResourceType.TOPIC, topic, AclOperation.ALTER)
    deny(admin, ResourceType.TOPIC, topic[:5], AclOperation.DELETE, pattern=ResourcePatternType.PREFIXED)
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found = admin.describe_acls(wanted).result(20)
    assert {acl.operation for acl in found} == {AclOperation.ALTER, AclOperation.DELETE}
    (future,) = admin.delete_acls([wanted]).values()
    assert {acl.name for acl in future.result(20)} == {topic, topic[:5]}
    assert admin.describe_acls(wanted).result(20) == []


@pytest.mark.long
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_acls(secured, topic):
    def acls(*arguments: str) -> str:
        command = tool("kafka-acls", "--bootstrap-server", secured.bootstrap, *arguments)
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    pattern = ("--topic", topic[:-2], "--resource-pattern-type", "prefixed")
    added = acls("--add", "--allow-principal", "User:alice", "--producer", *pattern)
    assert "Adding ACLs" in added and "operation=WRITE" in added
    matching = ("--topic", topic, "--resource-pattern-type", "match")
    listed = acls("--list", *matching)
    assert "principal=User:alice" in listed and "patternType=PREFIXED" in listed
    assert "User:alice" not in acls("--list", "--topic", topic)
    removed = acls("--remove", "--force", *matching)
    assert "User:alice" not in acls("--list", *matching), removed
