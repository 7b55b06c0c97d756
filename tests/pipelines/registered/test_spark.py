"""Spark reads what confluent-kafka's serializers write, and writes what its deserializers read."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from runnel.registry.format import AVRO, JSON, PROTOBUF
from runnel.registry.framing import framed
from tests.gateway.registry.test_confluent_clients import EVOLVED, RECORD, SERDES
from tests.pipelines.registered.topics import Topic

WITHOUT_ID = '{"type":"record","name":"Order","fields":[{"name":"note","type":"string","default":""}]}'


@pytest.mark.parametrize("kind", [AVRO, PROTOBUF, JSON])
def test_both_directions(spark, topic, kind) -> None:
    """What a serializer writes is a struct; structs and JSON text become what a deserializer reads."""
    write, _ = SERDES[kind](topic.registry, is_newer=False)
    topic.send(*(write({"id": number}, topic.context) for number in range(3)), None, b"x", framed(999, b"x"))
    frame = topic.read(spark, kind)
    rows = frame.select("value", "valueError", "rawValue", "valueSchemaId").collect()

    schema_id = topic.registry.get_latest_version(topic.subject).schema_id
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint>"
    assert [row.value.id for row in rows[:3]] == [0, 1, 2]
    assert [row.valueSchemaId for row in rows] == [schema_id] * 3 + [None, None, 999]
    assert rows[3].value is rows[3].valueError is None, "a tombstone stays one"
    assert "does not begin with a zero byte" in rows[4].valueError and rows[4].rawValue == b"x"
    assert rows[5].valueError == "the registry has no schema 999"

    topic.write(frame.where("value IS NOT NULL").selectExpr("struct(value.id + 10 AS id) AS value"), kind)
    topic.write(spark.createDataFrame([('{"id": 20}',), (None,)], "value string").coalesce(1), kind)
    *written, text, tombstone = topic.stored()[6:]
    # Another client, so that nothing is known beforehand.
    with SchemaRegistryClient({"url": topic.url}) as another:
        _, read = SERDES[kind](another, is_newer=False)
        found = [read(value, topic.context)["id"] for value in (*written, text)]
    assert found == [10, 11, 12, 20]
    assert tombstone is None


def test_what_cannot_be_used_is_reported_at_the_start(spark, topic) -> None:
    with pytest.raises(Exception, match=f"{topic.subject}, version latest, is not registered"):
        topic.read(spark, AVRO)
    topic.register(RECORD)
    with pytest.raises(Exception, match=f"the schema of {topic.subject} is of type AVRO, not JSON"):
        topic.read(spark, JSON)
    frame = spark.createDataFrame([('{"id": "x"}',)], "value string")
    with pytest.raises(Exception, match=r'it does not fit .*: at id: "x" is not of type long'):
        topic.write(frame, AVRO)
    assert topic.stored() == []


@pytest.mark.slow
def test_an_evolution_while_a_stream_runs(spark, topic, tmp_path) -> None:
    """Records of a newer version are decoded, and rows are written, as the query was started."""
    source, copy = topic, Topic(topic.broker, topic.url, topic.registry)
    copy.register(RECORD)
    send_older = AvroSerializer(topic.registry, RECORD)
    source.send(send_older({"id": 1}, source.context))
    frame = (
        spark.readStream.format("runnel")
        .options(**source.options(AVRO, subscribe=source.name, startingOffsets="earliest"))
        .load()
    )
    # Between `load` and `start`, too: the columns are those of the first version.
    first = topic.registry.get_latest_version(source.subject).schema_id
    source.register(EVOLVED)
    query = (
        frame.selectExpr("value")
        .writeStream.format("runnel")
        .options(**copy.options(AVRO, topic=copy.name, checkpointLocation=str(tmp_path)))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        until(lambda: len(copy.stored()) == 1, query)
        # A version that lacks the field `id`, which the rows have.
        copy.register(WITHOUT_ID)
        send_newer = AvroSerializer(topic.registry, EVOLVED)
        source.send(send_newer({"id": 2, "note": "x"}, source.context), send_older({"id": 3}, source.context))
        until(lambda: len(copy.stored()) == 3, query)
    finally:
        query.stop()
    read = AvroDeserializer(topic.registry)
    assert [read(value, copy.context) for value in copy.stored()] == [{"id": 1}, {"id": 2}, {"id": 3}]
    newer = source.read(spark, AVRO).select("value.*", "valueSchemaId").collect()
    assert [(row.id, row.note) for row in newer] == [(1, ""), (2, "x"), (3, "")]
    assert [row.valueSchemaId == first for row in newer] == [True, False, True]
    pinned = source.read(spark, AVRO, valueVersion="1")
    assert pinned.schema["value"].dataType.simpleString() == "struct<id:bigint>"


def until(condition: Callable[[], bool], query: Any, timeout_s: float = 240) -> None:
    for _ in range(int(timeout_s / 0.3)):
        if condition():
            return
        if not query.isActive:
            raise AssertionError(f"the query has ended: {query.exception()}")
        threading.Event().wait(0.3)
    raise AssertionError("nothing has happened in time")
