"""Stored records round-trip and match Kafka's schemas."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.messages import consumer_protocol as consumers
from runnel.schemas import control, metadata
from runnel.schemas.coordinator import (
    CoordinatorRecord,
    RecordTypes,
    UnknownRecord,
    encode_key,
    encode_value,
    read_record,
)
from runnel.schemas.group import GROUP_RECORDS, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from runnel.schemas.metadata import (
    METADATA_RECORDS,
    MetadataRecord,
    PartitionChangeRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from runnel.schemas.txn import TRANSACTION_RECORDS
from runnel.wire import Data, MalformedMessage
from runnel.wire.primitives import varint
from tests.messages.upstream import assert_as_upstream, load
from tests.wire.reference_codec import reference_encode
from tests.wire.samples import structs

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
COORDINATOR_RECORDS = [(types, kind) for types in (GROUP_RECORDS, TRANSACTION_RECORDS) for kind in types]
CONTROL_RECORDS = [
    control.ControlRecordTypeSchema,
    control.EndTxnMarker,
    control.LeaderChangeMessage,
    control.SnapshotHeaderRecord,
    control.SnapshotFooterRecord,
    control.KRaftVersionRecord,
    control.VotersRecord,
]


@pytest.mark.parametrize(("types", "kind"), COORDINATOR_RECORDS)
def test_coordinator_records_equal_upstream(types: RecordTypes, kind: int) -> None:
    facts = load("records-4.3.0.json")
    for message in types[kind]:
        assert facts[message.__name__]["apiKey"] == kind
        assert_as_upstream(message, facts[message.__name__])


@pytest.mark.parametrize("message", CONTROL_RECORDS)
def test_control_records_equal_upstream(message: type[Data]) -> None:
    assert_as_upstream(message, load("messages-4.3.0.json")[message.__name__])


@pytest.mark.parametrize(("types", "kind"), COORDINATOR_RECORDS)
@QUICK
@given(data=st.data())
def test_coordinator_records_round_trip(types: RecordTypes, kind: int, data: st.DataObject) -> None:
    key_type, value_type = types[kind]
    version = data.draw(st.sampled_from(value_type.versions))
    key, value = data.draw(structs(key_type, 0)), data.draw(structs(value_type, version))
    key_bytes, value_bytes = encode_key(key), encode_value(value, version)
    assert key_bytes == kind.to_bytes(2) + reference_encode(key, 0)
    assert value_bytes == version.to_bytes(2) + reference_encode(value, version)
    assert read_record(types, key_bytes, memoryview(value_bytes)) == CoordinatorRecord(key, value)
    assert read_record(types, key_bytes, None) == CoordinatorRecord(key, None)


def test_a_committed_offset_is_encoded_as_in_kafka() -> None:
    key = encode_key(OffsetCommitKey("g", "t", 3))
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    value = OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=1000)
    assert encode_value(value, 3) == bytes.fromhex("0003 000000000000002a 00000007 0001 6d 00000000000003e8")
    assert encode_value(value)[:2] == b"\x00\x04"


def test_unknown_coordinator_records_are_identified() -> None:
    key = encode_key(GroupMetadataKey("g"))
    assert read_record(GROUP_RECORDS, b"\x00\x63rest", b"whatever") == UnknownRecord(99, None)
    assert read_record(GROUP_RECORDS, key, b"\x00\x63rest") == UnknownRecord(2, 99)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x02\x00\x05g", None),
        (b"\x00\x02\x00\x01g", b""),
        (b"\x00\x02\x00\x01g", b"\0\0"),
    ],
)
def test_corrupt_coordinator_records_are_rejected(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        read_record(GROUP_RECORDS, key, value)


@pytest.mark.parametrize("record_type", METADATA_RECORDS.values(), ids=lambda each: each.__name__)
@QUICK
@given(data=st.data())
def test_metadata_records_round_trip(record_type: type[MetadataRecord], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(record_type.versions))
    record = data.draw(structs(record_type, version))
    wire = encode_metadata_record(record, version)
    assert wire == b"\x01" + varint(record_type.api_key) + bytes([version]) + reference_encode(
        record, version
    )
    assert decode_metadata_record(memoryview(wire)) == record


def test_a_topic_record_is_encoded_as_in_kafka() -> None:
    record = TopicRecord("orders", bytes(range(16)))
    assert (
        encode_metadata_record(record)
        == bytes.fromhex("01 02 00 07") + b"orders" + bytes(range(16)) + b"\x00"
    )


def test_a_partition_change_omits_unchanged_fields() -> None:
    change = PartitionChangeRecord(3, bytes(16), leader=2)
    assert encode_metadata_record(change) == bytes.fromhex("01 05 02 00000003") + bytes(16) + bytes.fromhex(
        "01 01 04 00000002"
    )


def test_metadata_record_types_are_unique() -> None:
    names = [
        name
        for name in dir(metadata)
        if name.endswith("Record") and name not in ("MetadataRecord", "UnknownRecord")
    ]
    assert len(METADATA_RECORDS) == len(names)


@pytest.mark.parametrize(
    ("wire", "found"), [("01 63 00 aabb", UnknownRecord(99, None)), ("01 02 63 aabb", UnknownRecord(2, 99))]
)
def test_unknown_metadata_records_are_identified(wire: str, found: UnknownRecord) -> None:
    assert decode_metadata_record(bytes.fromhex(wire)) == found


@pytest.mark.parametrize("wire", ["", "01", "0102", "0180", "020200", "010200", "01020000", "ffffffffff01"])
def test_corrupt_metadata_is_rejected(wire: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(bytes.fromhex(wire))


@given(st.binary(max_size=30))
def test_random_bytes_raise_only_malformed_message(noise: bytes) -> None:
    readers: list[Any] = [
        lambda: read_record(GROUP_RECORDS, b"\x00\x02" + noise, noise),
        lambda: decode_metadata_record(b"\x01" + noise),
        lambda: consumers.read_subscription(noise),
        lambda: consumers.read_assignment(noise),
    ]
    for reading in readers:
        try:
            reading()
        except MalformedMessage:
            continue


def test_newer_consumer_protocol_versions_are_readable() -> None:
    subscription = consumers.ConsumerProtocolSubscription(
        ["t"], owned_partitions=[consumers.TopicPartition("t", [1])]
    )
    wire = consumers.encode_consumer_protocol(subscription, 1)
    assert consumers.read_subscription(wire) == subscription
    newer = consumers.encode_consumer_protocol(subscription, 3) + b"more"
    assert consumers.read_subscription(b"\x00\x09" + newer[2:]).topics == ["t"]
    assignment = consumers.ConsumerProtocolAssignment([consumers.TopicPartition("t", [0, 2])])
    assert consumers.read_assignment(consumers.encode_consumer_protocol(assignment, 0)) == assignment
