"""A valid frame of every request in every version: what the mutations start from."""

import itertools
import time
from collections.abc import Iterable
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.broker.apis.handlers import APIS
from runnel.messages.registry import API_NAMES, api
from runnel.wire import Request, Struct, fields_of
from runnel.wire.frame import request_frame
from runnel.wire.primitives import RECORDS, ArrayOf, Blob, Fixed, StructOf, Text, WireType

TOPIC = "fuzz"
MISSING = "missing"
MISSING_ID = b"gone" * 4
# These would change the cluster for later frames: their samples name what does not exist, or only validate.
DESTRUCTIVE = {20, 37, 42, 64}
DELETE_TOPICS = (20).to_bytes(2, "big")

# Numbers that a handler accepts instead of rejecting the request at once.
NUMBERS = {
    "acks": 1,
    "count": 2,
    "current_leader_epoch": -1,
    "generation_id": -1,
    "leader_epoch": -1,
    "max_bytes": 1 << 20,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "replication_factor": 1,
    "response_partition_limit": 100,
    "session_epoch": -1,
    "timestamp": -1,
}
SERVED_WEIGHT = 8
QUORUM = {1, 52, 53, 54, 55, 59}
"""Requests about the metadata partition."""
CLUSTER_METADATA = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\x01"


def sample_frames(topic_id: bytes, *, is_harmless: bool = True) -> list[bytes]:
    """Whole frames, size included, of every API and version; those that the broker serves come more often."""
    frames = []
    for api_key in API_NAMES:
        samples = _samples(api_key, topic_id, is_harmless=is_harmless)
        frames += samples * SERVED_WEIGHT if api_key in APIS else samples
    return frames


def peer_frames(cluster_id: str, topic_id: bytes, api_keys: Iterable[int]) -> list[bytes]:
    """Whole frames of requests between nodes: about the metadata partition or a topic, nodes and epochs."""
    frames = []
    for api_key in sorted(api_keys):
        if api_key in DESTRUCTIVE:
            frames += _samples(api_key, topic_id)
            continue
        for node, epoch in itertools.product((1, 2, 3), (0, 1, 2)):
            named = (CLUSTER_METADATA, METADATA_ID) if api_key in QUORUM else (TOPIC, topic_id)
            frames += _framed(_peer_struct(api(api_key).request, cluster_id, *named, node, epoch))
    return frames


def _peer_struct(
    struct: type[Struct], cluster_id: str, name: str, topic_id: bytes, node: int, epoch: int
) -> Struct:
    def value(wire_type: WireType, field: str) -> Any:
        match wire_type:
            case StructOf(inner):
                return _peer_struct(inner, cluster_id, name, topic_id, node, epoch)
            case ArrayOf(element):
                return [value(element, field)]
            case Text() if field == "cluster_id":
                return cluster_id
            case Fixed(kind) if kind != "uuid" and "epoch" in field:
                return epoch
            case Fixed(kind) if kind != "uuid" and field.endswith(("_id", "replicas", "isr")):
                return node
        return _value(wire_type, field, name, topic_id)

    return struct(**{field.name: value(field.type, field.name) for field in fields_of(struct)})


def ends_topic(frame: bytes, topic_id: bytes) -> bool:
    """Would it delete the topic? Without it, all later frames would be rejected at once."""
    return frame[4:6] == DELETE_TOPICS and (TOPIC.encode() in frame or topic_id in frame)


def _samples(api_key: int, topic_id: bytes, *, is_harmless: bool = True) -> list[bytes]:
    request = api(api_key).request
    is_missing = is_harmless and api_key in DESTRUCTIVE
    name, topic_id = (MISSING, MISSING_ID) if is_missing else (TOPIC, topic_id)
    return _framed(_struct(request, name, topic_id), is_harmless=is_harmless)


def _framed(message: Struct, *, is_harmless: bool = True) -> list[bytes]:
    """In every version."""
    assert isinstance(message, Request)
    if hasattr(message, "validate_only"):
        message.validate_only = is_harmless
    return [
        b"".join(bytes(part) for part in request_frame(message, version, 7, "fuzzer"))
        for version in message.versions
    ]


def _struct(struct: type[Struct], name: str, topic_id: bytes) -> Struct:
    values = {field.name: _value(field.type, field.name, name, topic_id) for field in fields_of(struct)}
    return struct(**values)


def _value(wire_type: WireType, field: str, name: str, topic_id: bytes) -> Any:
    match wire_type:
        case StructOf(struct):
            return _struct(struct, name, topic_id)
        case ArrayOf(element):
            return [_value(element, field, name, topic_id)]
        case Text():
            return name
        case Blob():
            return _batch() if wire_type is RECORDS else b"some bytes"
        case Fixed(kind):
            return topic_id if kind == "uuid" else _number(kind, field)


def _number(kind: str, field: str) -> Any:
    if kind == "bool":
        return False
    if kind == "float64":
        return 1.0
    # Short timeouts: waiting is not tested here.
    return NUMBERS.get(field, 1 if "wait" in field or "timeout" in field else 0)


def _batch() -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(build_batch([Record(offset, now_ms, b"key", b"value") for offset in range(3)]))
