"""kio, an independent implementation of Kafka's messages, as a test oracle."""

import dataclasses
import datetime
import enum
import io
import typing
import uuid
from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from runnel.messages.registry import module_name
from runnel.wire import Message, fields_of
from runnel.wire.primitives import ArrayOf, StructOf
from runnel.wire.struct import Field, Struct

ERROR_CODES = [int(code.value) for code in ErrorCode]
# kio turns these into datetimes and timedeltas, which cannot hold every number that the wire can.
NARROWER = {
    "error_code": st.sampled_from(ERROR_CODES),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "timedelta_i64": st.integers(0, 2**40),
    "datetime_i64": st.integers(0, 2**41),
}


@cache
def kio_class(message: type[Message], version: int) -> Any:
    """kio's class for this message and version, or None if it has none."""
    api, direction = message.__name__, "data"
    for suffix in ("Request", "Response"):
        if message.__name__.endswith(suffix):
            api, direction = message.__name__.removesuffix(suffix), suffix.lower()
    try:
        module = import_module(f"kio.schema.{module_name(api)}.v{version}.{direction}")
    except ModuleNotFoundError:
        return None
    return getattr(module, message.__name__)


def kio_fields(kio: Any, struct: type[Struct], version: int) -> dict[str, Any]:
    """kio's fields under our names: the order is the wire's in both, the names differ in units only."""
    ours = [field.name for field in fields_of(struct) if field.versions.covers(version)]
    theirs = dataclasses.fields(kio)
    assert len(ours) == len(theirs), (
        f"{struct.__name__} v{version}: {ours} / {[each.name for each in theirs]}"
    )
    for name, field in zip(ours, theirs, strict=True):
        stem = name.removesuffix("_ms").removesuffix("_timestamp")
        assert field.name.replace("_", "").startswith(stem.replace("_", "")), f"{name} / {field.name}"
    return dict(zip(ours, theirs, strict=True))


def narrower(kio: Any, struct: type[Struct], version: int) -> dict[tuple[type[Struct], str], Any]:
    """The fields of which kio accepts only some values."""
    found = {}
    hints = typing.get_type_hints(kio)
    by_name = {field.name: field for field in fields_of(struct)}
    for name, field in kio_fields(kio, struct, version).items():
        kafka_type = field.metadata.get("kafka_type")
        if kafka_type in NARROWER:
            found[struct, name] = NARROWER[kafka_type]
        kind = by_name[name].type
        element = kind.element if isinstance(kind, ArrayOf) else kind
        if isinstance(element, StructOf):
            found |= narrower(inner_class(hints[field.name]), element.struct, version)
    return found


def inner_class(hint: Any) -> Any:
    """The dataclass inside `tuple[X, ...] | None`."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next(found for each in typing.get_args(hint) if (found := inner_class(each)) is not None)


def kio_decode(kio: Any, data: bytes) -> Any:
    """The entity decoded from the bytes."""
    entity, size = entity_reader(kio)(data, 0)
    assert size == len(data), f"kio read {size} of {len(data)} bytes"
    return entity


def kio_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def assert_same(ours: Struct, kios: Any, version: int) -> None:
    """Assert that both objects are equal, field by field."""
    by_name = {field.name: field for field in fields_of(type(ours))}
    for name, kio_field in kio_fields(type(kios), type(ours), version).items():
        compare(by_name[name], getattr(ours, name), getattr(kios, kio_field.name), version)


def compare(field: Field, ours: Any, kios: Any, version: int) -> None:
    if isinstance(ours, Struct):
        assert_same(ours, kios, version)
    elif ours is None and isinstance(field.type, StructOf) and kios is not None:
        assert_same(field.type.struct(), kios, version)  # omitted: kio fills in the defaults
    elif isinstance(ours, list):
        assert len(ours) == len(kios)
        for mine, theirs in zip(ours, kios, strict=True):
            compare(field, mine, theirs, version)
    else:
        assert ours == as_wire(kios, ours), field.name


def as_wire(value: Any, ours: Any) -> Any:
    """The number or bytes that kio's rich value represents."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if value is None and ours is not None:
        return bytes(16) if isinstance(ours, bytes) else -1  # kio's None for the zero UUID and for no time
    return value
