"""The embedded consumer protocol of classic groups: subscriptions and assignments.

Opaque to the broker in classic groups. It is prefixed by an int16 version; readers ignore the fields of
newer versions.
"""

from __future__ import annotations

from struct import Struct as Layout

from runnel.wire import (
    AnyMessage,
    Buffer,
    Data,
    MalformedMessage,
    Struct,
    bytes_,
    decode_prefix,
    encoded,
    field,
    int32,
    string,
)


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: string = ""
    partitions: list[int32] = field()


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """The subscription of one consumer.

    v1 owned partitions (cooperative rebalancing) · v2 the generation they are from · v3 rack
    """

    topics: list[string] = field()
    user_data: bytes_ | None = None
    owned_partitions: list[TopicPartition] = field("1+")
    generation_id: int32 = field("2+", default=-1)
    rack_id: string | None = field("3+", default=None)


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """The assignment of one consumer."""

    assigned_partitions: list[TopicPartition] = field()
    user_data: bytes_ | None = None


_PREFIX = Layout(">h")


def encode_consumer_protocol(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int
) -> bytes:
    """The encoded bytes for JoinGroup or SyncGroup."""
    return _PREFIX.pack(version) + encoded(message, version)


def read_subscription(buffer: Buffer) -> ConsumerProtocolSubscription:
    """Decode a subscription from JoinGroup metadata."""
    return _read(ConsumerProtocolSubscription, buffer)


def read_assignment(buffer: Buffer) -> ConsumerProtocolAssignment:
    """Decode an assignment from SyncGroup."""
    return _read(ConsumerProtocolAssignment, buffer)


def _read(message: type[AnyMessage], buffer: Buffer) -> AnyMessage:
    if len(buffer) < 2:
        raise MalformedMessage(f"{message.__name__} is too short for its version")
    version: int = _PREFIX.unpack_from(buffer)[0]
    if version < 0:
        raise MalformedMessage(f"{message.__name__} has version {version}")
    return decode_prefix(message, min(version, message.versions[-1]), buffer, 2)[0]
