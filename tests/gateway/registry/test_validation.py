"""Topics that validate schemas: serializers, producers and gateways of a broker and of a cluster."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from runnel.client.errors import BrokerError
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry.store import PARTITION
from runnel.model.errors import ErrorCode
from runnel.registry.framing import framed
from runnel.testing import Broker
from tests.compat.librdkafka import read_all, send
from tests.gateway.gateways import Visitor, serving
from tests.gateway.registry.calls import call, register
from tests.gateway.registry.test_confluent_clients import ALL_FORMATS, EVOLVED, RECORD, SERDES

VALIDATED = {"runnel.value.schema.validation": "true"}
TIMEOUT_S = 30.0


def create(broker: Broker, topic: str, partitions: int = 1, **settings: str) -> None:
    with broker.client() as kafka:
        kafka.create_topic(topic, partitions=partitions, settings={**VALIDATED, **settings})


def outcomes(
    bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **config: Any
) -> list[Message]:
    """The delivery reports of values that are sent as one batch."""
    reports: list[Message] = []
    settings = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200, **settings})
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda _, message: reports.append(message)
        )
    assert producer.flush(TIMEOUT_S) == 0
    return reports


@pytest.fixture
def client(registry: Visitor) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.origin}) as found:
        yield found


@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_what_serializers_write_is_accepted(plain_broker, client, kind):
    """The schema is registered by the serializer, immediately before its first value is produced."""
    topic = f"validated-{kind}"
    create(plain_broker, topic)
    write, _ = SERDES[kind](client, is_newer=False)
    context = SerializationContext(topic, MessageField.VALUE)
    values = [write({"id": number}, context) for number in range(3)]
    reports = send(plain_broker.bootstrap_servers, topic, values)
    assert [report.offset() for report in reports] == [0, 1, 2]
    with plain_broker.client() as kafka:
        assert kafka.send(topic, None, key=b"k").offset == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_refused_is_named_to_the_producer(plain_broker, registry, codec):
    topic = f"validated-{codec}"
    create(plain_broker, topic)
    own = register(registry, f"{topic}-value", RECORD)["id"]
    other = register(registry, f"{topic}-other", EVOLVED)["id"]
    valid, invalid = framed(own, b"\0"), (framed(other, b"\0"), b"plain text")
    for value in invalid:
        values = [valid, value, value, valid]
        reports = outcomes(plain_broker.bootstrap_servers, topic, values, compression_type=codec)
        # librdkafka looks at the indexes of records if there are several.
        named, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
        assert [report.error().code() for report in reports] == [others, named, named, others]
    send(plain_broker.bootstrap_servers, topic, [framed(own, b"\0")] * 3, compression_type=codec)
    assert len(read_all(plain_broker.bootstrap_servers, topic, 3)) == 3


def test_an_idempotent_producer_continues_after_a_refusal(plain_broker, registry):
    create(plain_broker, "idempotent")
    own = register(registry, "idempotent-value", RECORD)["id"]
    producer = Producer({"bootstrap.servers": plain_broker.bootstrap_servers, "enable.idempotence": True})
    reports: list[Message] = []
    for number in range(6):
        value = b"plain" if number % 3 == 1 else framed(own, b"%d" % number)
        producer.produce("idempotent", value, on_delivery=lambda _, message: reports.append(message))
        assert producer.flush(TIMEOUT_S) == 0
    codes = [None if report.error() is None else report.error().code() for report in reports]
    assert codes == [None, KafkaError.INVALID_RECORD, None, None, KafkaError.INVALID_RECORD, None]
    stored = [message.value() for message in read_all(plain_broker.bootstrap_servers, "idempotent", 4)]
    assert stored == [framed(own, b"%d" % number) for number in (0, 2, 3, 5)]


def test_a_transactional_producer_continues_after_a_refusal(plain_broker, registry):
    create(plain_broker, "transactional")
    own = register(registry, "transactional-value", RECORD)["id"]
    producer = Producer(
        {"bootstrap.servers": plain_broker.bootstrap_servers, "transactional.id": "validated"}
    )
    producer.init_transactions(TIMEOUT_S)

    def committed(value: bytes) -> bool:
        producer.begin_transaction()
        producer.produce("transactional", value)
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as failure:
            assert failure.args[0].txn_requires_abort(), failure
            producer.abort_transaction(TIMEOUT_S)
            return False
        return True

    assert committed(framed(own, b"0"))
    assert not committed(b"plain")
    # librdkafka has used the sequence number of the record that was refused, and must abort once more.
    assert committed(framed(own, b"2")) or committed(framed(own, b"2"))
    assert committed(framed(own, b"3"))
    stored = [message.value() for message in read_all(plain_broker.bootstrap_servers, "transactional", 3)]
    assert stored == [framed(own, b"%d" % number) for number in (0, 2, 3)]


def test_subjects_may_be_named_after_records(plain_broker, client):
    settings = {"runnel.value.subject.name.strategy": "RecordNameStrategy"}
    create(plain_broker, "by-record", 1, **settings)
    create(plain_broker, "by-topic")
    schema = RECORD.replace('"Order"', '"Order","namespace":"shop"')
    config = {"subject.name.strategy": record_subject_name_strategy}
    write = AvroSerializer(client, schema, conf=config)
    value = write({"id": 1}, SerializationContext("by-record", MessageField.VALUE))
    assert client.get_versions("shop.Order") == [1]
    send(plain_broker.bootstrap_servers, "by-record", [value])
    [report] = outcomes(plain_broker.bootstrap_servers, "by-topic", [value])
    assert report.error().code() == KafkaError.INVALID_RECORD


def test_the_http_api_answers_422_with_the_reason(plain_broker, registry):
    create(plain_broker, "by-http")
    own = register(registry, "by-http-value", RECORD)["id"]

    def publish(*values: bytes) -> tuple[int, Any]:
        records = [{"value_base64": base64.b64encode(value).decode()} for value in values]
        body = json.dumps(records if len(records) > 1 else records[0])
        reply = registry.request(
            "POST", "/topics/by-http/publish", headers={"Content-Type": "application/json"}, body=body
        )
        return reply.status, json.loads(reply.text)

    assert publish(framed(own, b"\0"))[0] == 200
    status, problem = publish(b"plain")
    assert (status, problem["error"]) == (422, "INVALID_RECORD")
    assert "the value does not begin with a zero byte and the id of a schema" in problem["detail"]
    status, found = publish(framed(own, b"\0"), framed(own + 1000, b"\0"), framed(own, b"\0"))
    assert status == 207
    assert [each.get("error", {}).get("status") for each in found["results"]] == [None, 422, None]


def test_settings_are_validated_and_described(plain_broker):
    with plain_broker.client() as kafka:
        for name, value in (
            ("runnel.value.schema.validation", "perhaps"),
            ("runnel.key.subject.name.strategy", "MyStrategy"),
        ):
            with pytest.raises(BrokerError) as refused:
                kafka.create_topic("bad-settings", partitions=1, settings={name: value})
            assert refused.value.error is ErrorCode.INVALID_CONFIG
            assert name in str(refused.value)


def test_ids_stay_valid_after_a_soft_deletion_and_a_restart():
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as registry:
        create(broker, "t")
        ids = [register(registry, "t-value", text)["id"] for text in (RECORD, EVOLVED)]
        assert call(registry, "DELETE", "/subjects/t-value/versions/1")[0] == 200
        send(broker.bootstrap_servers, "t", [framed(schema_id, b"\0") for schema_id in ids])
        broker.restart()
        send(broker.bootstrap_servers, "t", [framed(schema_id, b"\0") for schema_id in ids])

        assert call(registry, "DELETE", "/subjects/t-value/versions/1?permanent=true")[0] == 200
        deadline = time.monotonic() + TIMEOUT_S
        while (report := outcomes(broker.bootstrap_servers, "t", [framed(ids[0], b"\0")])[0]).error() is None:
            assert time.monotonic() < deadline
        assert report.error().code() == KafkaError.INVALID_RECORD
        send(broker.bootstrap_servers, "t", [framed(ids[1], b"\0")])
        broker.restart()
        [report] = outcomes(broker.bootstrap_servers, "t", [framed(ids[0], b"\0")])
        assert report.error().code() == KafkaError.INVALID_RECORD


def test_a_cluster_in_which_others_lead_the_registry():
    """Each broker leads a partition; one of them leads `_schemas`, another one after it is killed."""
    with Broker(nodes=3) as cluster, serving(GatewayOptions(cluster.bootstrap_servers)) as registry:
        with cluster.client() as kafka:
            kafka.create_topic("t", partitions=3, settings={**VALIDATED, "min.insync.replicas": "1"})
        with SchemaRegistryClient({"url": registry.origin}) as client:

            def registered(number: int) -> bytes:
                text = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
                return framed(client.register_schema("t-value", Schema(text, "AVRO")), b"")

            call(registry, "PUT", "/config/t-value", {"compatibility": "NONE"})
            for number in range(6):
                # A new schema each time, at once, at each of the leaders.
                send(cluster.bootstrap_servers, "t", [registered(number)], partition=number % 3)
            for partition in range(3):
                for value in (framed(999, b""), b"plain"):
                    [report] = outcomes(cluster.bootstrap_servers, "t", [value], partition)
                    assert report.error().code() == KafkaError.INVALID_RECORD

            with cluster.client() as kafka:
                leader = kafka.run(lambda connected: connected.leader(PARTITION))
            next(node for node in cluster.nodes if node.node_id == leader).kill()
            for number in range(6, 9):
                send(cluster.bootstrap_servers, "t", [registered(number)], partition=number % 3)
