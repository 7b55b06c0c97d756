"""Records of `_schemas`, and batches for topics that validate schemas."""

import json
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.model.errors import ErrorCode
from runnel.registry.framing import framed
from runnel.registry.records import SCHEMA, TOPIC, Key
from tests.broker.requests import NOW_MS, batch, only, produce_to
from tests.broker.world import Client

VALIDATED = {"runnel_value_schema_validation": "true"}
OK, INVALID = ErrorCode.NONE.code, ErrorCode.INVALID_RECORD.code
UNAVAILABLE = ErrorCode.NOT_ENOUGH_REPLICAS.code


def schema_record(
    subject: str, schema_id: int, version: int = 1, *, name: str = "R", is_deleted: bool = False
) -> tuple[bytes, bytes]:
    """A version of a subject, with the schema of an empty record."""
    text = json.dumps({"type": "record", "name": name, "fields": []})
    fields = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": is_deleted}
    return Key(SCHEMA, subject, version).encode(), json.dumps(fields).encode()


def removal(subject: str, version: int = 1) -> tuple[bytes, None]:
    """A version is deleted for good."""
    return Key(SCHEMA, subject, version).encode(), None


async def write_schemas(
    client: Client, *records: tuple[bytes, bytes | None], transactional_id: str | None = None, **options: Any
) -> None:
    """Write records into `_schemas`, at its leader."""
    listed = [Record(index, NOW_MS, key, value) for index, (key, value) in enumerate(records)]
    data = bytes(build_batch(listed, **options))
    request = produce_to(TOPIC, (0, data), transactional_id=transactional_id)
    reply = only(await client.ask(request, 12))
    assert reply.error_code == OK, reply.error_message


async def produce(client: Client, topic: str, *ids: int, **options: Any) -> Any:
    """The response to one batch, whose records have these ids; 0 is a value that is not framed."""
    return only(await client.ask(produce_to(topic, (0, valued(*ids, **options))), 9))


def valued(*ids: int, padding: int = 0, **options: Any) -> bytes:
    """A batch whose values have these ids."""
    texts = (framed(schema_id, b"x") if schema_id else b"text of no schema" for schema_id in ids)
    return batch(*(text + bytes(padding) for text in texts), **options)
