"""Topics whose values have schemas of a registry."""

import uuid
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from runnel.registry.format import AVRO, JSON, PROTOBUF
from runnel.testing import Broker

FORMAT_OF = {AVRO: "avro", PROTOBUF: "protobuf", JSON: "json-schema"}


class Topic:
    """A topic whose values have the schema of its subject."""

    def __init__(self, broker: Broker, url: str, registry: SchemaRegistryClient) -> None:
        self.name = f"orders-{uuid.uuid4().hex[:8]}"
        self.subject = f"{self.name}-value"
        self.broker = broker
        self.url = url
        self.registry = registry
        self.context = SerializationContext(self.name, MessageField.VALUE)
        with broker.client() as kafka:
            kafka.create_topic(self.name, partitions=1)

    def register(self, text: str, kind: str = AVRO) -> int:
        schema_id: int = self.registry.register_schema(self.subject, Schema(text, kind))
        return schema_id

    def send(self, *values: bytes | None) -> None:
        with self.broker.client() as kafka:
            for value in values:
                kafka.send(self.name, value)

    def stored(self) -> list[bytes | None]:
        with self.broker.client() as kafka:
            return [message.value for message in kafka.read(self.name, committed_only=True)]

    def options(self, kind: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "valueFormat": FORMAT_OF[kind],
            "schemaRegistry.url": self.url,
            **more,
        }

    def read(self, spark: Any, kind: str, **more: str) -> Any:
        return spark.read.format("runnel").options(**self.options(kind, subscribe=self.name, **more)).load()

    def write(self, frame: Any, kind: str, **more: str) -> None:
        writer = frame.write.format("runnel").mode("append")
        writer.options(**self.options(kind, topic=self.name, **more)).save()
