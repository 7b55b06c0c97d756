"""A valid frame of every request in every version: what the mutations start from."""

from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.messages.registry import API_NAMES, api
from runnel.wire import Request, Struct, fields_of
from runnel.wire.frame import request_frame
from runnel.wire.primitives import RECORDS, ArrayOf, Blob, Fixed, StructOf, Text, WireType

TOPIC = "fuzz"
GONE = "gone"
# Their samples change the cluster for all later frames: they name what does not exist, or only try.
DESTRUCTIVE = {20, 42, 64}


def sample_frames() -> list[bytes]:
    """One whole frame, size included, per API and version that we know of."""
    frames = []
    for api_key in API_NAMES:
        request = api(api_key).request
        for version in request.versions:
            message = _struct(request, GONE if api_key in DESTRUCTIVE else TOPIC)
            assert isinstance(message, Request)
            if hasattr(message, "validate_only"):
                message.validate_only = True
            frames.append(b"".join(bytes(part) for part in request_frame(message, version, 7, "fuzzer")))
    return frames


def _struct(struct: type[Struct], name: str) -> Struct:
    return struct(**{field.name: _value(field.type, field.name, name) for field in fields_of(struct)})


def _value(wire_type: WireType, field: str, name: str) -> Any:
    match wire_type:
        case StructOf(struct):
            return _struct(struct, name)
        case ArrayOf(element):
            return [_value(element, field, name)]
        case Text():
            return name
        case Blob():
            return _batch() if wire_type is RECORDS else b"some bytes"
        case Fixed(kind):
            return _number(kind, field)


def _number(kind: str, field: str) -> Any:
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return False
    if kind == "float64":
        return 1.0
    # Waiting is not what is tried here; most other numbers are counts, ids and indexes.
    return 1 if "wait" in field or "timeout" in field else 0


def _batch() -> bytes:
    records = [Record(offset, 1_700_000_000_000 + offset, b"key", b"value", ()) for offset in range(3)]
    return bytes(build_batch(records))
