"""confluent-kafka's client of the registry, and its serializers and deserializers."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.schema_registry_client import ServerConfig
from confluent_kafka.serialization import MessageField, SerializationContext

from runnel.registry.formats import AVRO, FORMATS, JSON, PROTOBUF

RECORD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
EVOLVED = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":"string","default":""}]}'
)
BROKEN = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string"}]}'
)
PROTO = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'
JSON_SCHEMA = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object",'
    '"properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":false}'
)


@pytest.fixture
def client(registry):
    with SchemaRegistryClient({"url": registry.origin}) as found:
        yield found


def of_format(name: str) -> Any:
    """A row of a format that may not be there."""
    missing = pytest.mark.skipif(name not in FORMATS, reason=f"the format {name} is not built in")
    return pytest.param(name, marks=missing)


TEXTS = {AVRO: RECORD, JSON: JSON_SCHEMA, PROTOBUF: PROTO}
ALL_FORMATS = [of_format(name) for name in (AVRO, JSON, PROTOBUF)]


@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_a_schema_is_registered_and_found(client, kind):
    subject = f"client-{kind}"
    schema = Schema(TEXTS[kind], kind)
    schema_id = client.register_schema(subject, schema)

    assert client.register_schema(subject, schema) == schema_id
    assert client.get_schema(schema_id).schema_type == kind
    registered = client.lookup_schema(subject, schema)
    assert (registered.schema_id, registered.version, registered.subject) == (schema_id, 1, subject)
    assert client.get_latest_version(subject).schema_id == schema_id
    assert client.get_version(subject, 1).schema.schema_type == kind
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, schema)
    guid = registered.guid
    assert client.get_schema_by_guid(guid).schema_type == kind


def test_versions_evolve(client):
    subject = "client-evolution"
    client.register_schema(subject, Schema(RECORD, "AVRO"))

    assert client.test_compatibility(subject, Schema(EVOLVED, "AVRO"))
    assert not client.test_compatibility(subject, Schema(BROKEN, "AVRO"))
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema(subject, Schema(BROKEN, "AVRO"))
    assert (error.value.http_status_code, error.value.error_code) == (409, 409)
    assert "field note" in error.value.error_message
    client.register_schema(subject, Schema(EVOLVED, "AVRO"))
    assert client.get_versions(subject) == [1, 2]
    assert client.delete_version(subject, 2) == 2
    assert client.delete_version(subject, 2, permanent=True) == 2
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as error:
        client.get_latest_version(subject)
    assert error.value.error_code == 40401


def test_levels_and_settings(client):
    subject = "client-levels"
    client.set_compatibility(subject, "FULL")

    assert client.get_compatibility(subject) == "FULL"
    assert client.get_compatibility() == "BACKWARD"
    client.set_config(subject, ServerConfig(compatibility_group="major"))
    found = client.get_config(subject)
    assert (found.compatibility_level, found.compatibility_group) == ("FULL", "major")
    client.delete_config(subject)
    with pytest.raises(SchemaRegistryError) as error:
        client.get_config(subject)
    assert error.value.error_code == 40408


def test_references_metadata_and_rules(client):
    client.register_schema("client-base", Schema(RECORD, "AVRO"))
    text = (
        '{"type":"record","name":"Cart","fields":[{"name":"orders","type":{"type":"array","items":"Order"}}]}'
    )
    reference = SchemaReference("Order", "client-base", 1)
    metadata = Metadata(tags=None, properties=MetadataProperties({"owner": "sales"}), sensitive=None)
    schema = Schema(text, "AVRO", [reference], metadata)
    schema_id = client.register_schema("client-cart", schema)

    found = client.get_schema(schema_id)
    assert found.references == [reference]
    assert found.metadata.properties.properties == {"owner": "sales"}
    assert client.get_latest_with_metadata("client-cart", {"owner": "sales"}).schema_id == schema_id
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_subject("client-base")
    assert error.value.error_code == 42206


def test_contexts(client):
    first = client.register_schema(":.team:client", Schema('"long"', "AVRO"))

    assert first == 1
    assert client.get_schema(1, ":.team:client").schema_str == '"long"'
    assert ":.team:client" in client.get_subjects()


def avro(client: SchemaRegistryClient, *, is_newer: bool) -> tuple[Any, Any]:
    return AvroSerializer(client, RECORD), AvroDeserializer(client, EVOLVED if is_newer else RECORD)


def json_schema(client: SchemaRegistryClient, *, is_newer: bool) -> tuple[Any, Any]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    read = JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)
    return JSONSerializer(JSON_SCHEMA, client), read


def protobuf(client: SchemaRegistryClient, *, is_newer: bool) -> tuple[Any, Any]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="id", number=1, json_name="id")
    field.type, field.label = field.TYPE_INT64, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    return (
        lambda value, context: serialize(order(**value), context),
        lambda data, context: {"id": deserialize(data, context).id},
    )


SERDES = {AVRO: avro, JSON: json_schema, PROTOBUF: protobuf}


@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_records_are_written_and_read_with_schemas(registry, plain_broker, client, kind):
    """A newer reader reads what an older writer wrote."""
    topic = f"client-orders-{kind}"
    context = SerializationContext(topic, MessageField.VALUE)
    write, _ = SERDES[kind](client, is_newer=False)
    with plain_broker.client() as kafka:
        kafka.create_topic(topic, partitions=1)
        for number in range(3):
            kafka.send(topic, write({"id": number}, context))
        values = [message.value for message in kafka.read(topic)]
    assert all(value is not None and value[0] == 0 for value in values)

    # Another client, so that nothing is known beforehand.
    with SchemaRegistryClient({"url": registry.origin}) as another:
        _, read = SERDES[kind](another, is_newer=True)
        found = [read(value, context) for value in values]
    more = {"note": ""} if kind == AVRO else {}
    assert found == [{"id": number, **more} for number in range(3)]
    assert client.get_versions(f"{topic}-value") == [1]
