"""The compiled codecs compared with an interpreted reference, and with corrupt input."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.messages import registry
from runnel.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from runnel.messages.fetch import FetchRequest
from runnel.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.model.limits import REQUEST_ELEMENTS_MAX, REQUEST_TAGS_MAX, TEXT_BYTES_MAX
from runnel.wire import (
    MalformedMessage,
    Message,
    Struct,
    UnknownVersion,
    decode,
    decode_request,
    encode,
    encoded,
    fields_of,
)
from runnel.wire.primitives import TooManyElements, unsigned_varint
from tests.wire.reference_codec import Malformed, reference_decode, reference_encode
from tests.wire.samples import all_messages, example, structs

MESSAGES = all_messages()
SHAPES = ("full", "null", "empty", "default")


def shaped(message: type[Message], version: int, shape: str) -> Any:
    return message() if shape == "default" else example(message, version, shape)


def decode_result(message: type[Message], version: int, data: bytes) -> Any:
    """The decoded message, or None if malformed. Any other exception fails the test."""
    try:
        return decode(message, version, data)
    except MalformedMessage:
        return None


def reference_result(message: type[Message], version: int, data: bytes) -> Any:
    try:
        return reference_decode(message, version, data)
    except Malformed:
        return None


def plain(value: Any) -> Any:
    """An object as comparable data; NaN equals itself, since corruption can produce it."""
    if isinstance(value, Struct):
        return [
            type(value).__name__,
            *(plain(getattr(value, field.name)) for field in fields_of(type(value))),
        ]
    if isinstance(value, list):
        return [plain(each) for each in value]
    return repr(bytes(value) if isinstance(value, memoryview) else value)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_version_equals_the_reference(message: type[Message]) -> None:
    for version in message.versions:
        for shape in SHAPES:
            original = shaped(message, version, shape)
            data = encoded(original, version)
            assert data == reference_encode(original, version), f"v{version} {shape}"
            assert decode(message, version, data) == reference_decode(message, version, data), (
                f"v{version} {shape}"
            )
            if shape == "full":
                assert decode(message, version, data) == original


@pytest.mark.parametrize("message", MESSAGES[::3], ids=lambda message: message.__name__)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_round_trip_of_any_message(message: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message.versions))
    original = data.draw(structs(message, version))
    wire = encoded(original, version)
    assert wire == reference_encode(original, version)
    assert decode(message, version, wire) == reference_decode(message, version, wire)


def corrupted(wire: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three mutations."""
    data = bytearray(wire)
    for _ in range(chance.randint(1, 3)):
        spot = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                del data[spot:]
            case 1:
                data[spot:spot] = chance.randbytes(chance.randint(1, 3))
            case 2:
                data[spot : spot + 1] = bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))])
            case 3:
                data[spot : spot + 4] = chance.choice(
                    (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 5)
                )
            case _:
                del data[spot : spot + chance.randint(1, 4)]
    return bytes(data)


def mutations(message: type[Message], seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    chance = random.Random(f"{message.__name__}{seed}")
    versions = sorted({message.versions[0], message.versions[-1], chance.choice(message.versions)})
    for version in versions:
        for shape in ("full", "null"):
            wire = encoded(shaped(message, version, shape), version)
            for _ in range(count):
                yield version, corrupted(wire, chance)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_corrupt_input_is_rejected_or_decoded_as_the_reference_does(message: type[Message]) -> None:
    for version, data in mutations(message, 1, 12):
        ours, expected = decode_result(message, version, data), reference_result(message, version, data)
        assert plain(ours) == plain(expected), f"v{version} {data.hex()}"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_truncation_is_rejected(message: type[Message]) -> None:
    version = message.versions[-1]
    wire = encoded(example(message, version, "full"), version)
    for end in range(len(wire)):
        with pytest.raises(MalformedMessage):
            decode(message, version, wire[:end])
    with pytest.raises(MalformedMessage):
        decode(message, version, wire + b"\x00")


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(MESSAGES), st.data(), st.binary(max_size=64))
def test_random_bytes_raise_only_malformed_message(
    message: type[Message], data: st.DataObject, noise: bytes
) -> None:
    decode_result(message, data.draw(st.sampled_from(message.versions)), noise)


def test_unknown_version() -> None:
    with pytest.raises(UnknownVersion, match="FetchRequest has no version 99, only 4-18"):
        decode(FetchRequest, 99, b"")
    with pytest.raises(UnknownVersion):
        encode(FetchRequest(), 3)


def test_the_elements_of_a_request_are_counted_over_all_arrays() -> None:
    topic = TopicPartitions("t", [7] * (REQUEST_ELEMENTS_MAX - 10))
    wire = encoded(ElectLeadersRequest(topic_partitions=[topic]), 2)
    assert decode(ElectLeadersRequest, 2, wire).topic_partitions == [topic]
    wire = encoded(ElectLeadersRequest(topic_partitions=[topic, TopicPartitions("u", [7] * 10)]), 2)
    with pytest.raises(TooManyElements, match=r"TopicPartitions\.partitions"):
        decode(ElectLeadersRequest, 2, wire)
    with pytest.raises(MalformedMessage, match="more than 500 elements"):
        decode_request(ElectLeadersRequest, 2, memoryview(wire), 0, 500)


def unknown_tags(count: int) -> bytes:
    """This many empty tagged fields that no version declares."""
    return unsigned_varint(count) + b"".join(unsigned_varint(100 + tag) + b"\x00" for tag in range(count))


@pytest.mark.parametrize("structs", [1, 4])
def test_the_tagged_fields_of_a_request_are_counted_over_all_structs(structs: int) -> None:
    each = REQUEST_TAGS_MAX // structs
    topics = bytes(4) + bytes([structs]) + (b"\x02t\x01" + unknown_tags(each)) * (structs - 1)
    request = decode(ListPartitionReassignmentsRequest, 0, topics + unknown_tags(each))
    assert len(request.topics or []) == structs - 1
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode(ListPartitionReassignmentsRequest, 0, topics + unknown_tags(each + 1))


def test_structs_that_declare_tagged_fields_have_the_same_limit() -> None:
    wire = encoded(FetchRequest(), 12)[:-1]
    assert decode(FetchRequest, 12, wire + unknown_tags(REQUEST_TAGS_MAX)) == FetchRequest()
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode(FetchRequest, 12, wire + unknown_tags(REQUEST_TAGS_MAX + 1))


def test_too_many_tagged_fields_are_refused_before_they_are_read() -> None:
    count = unsigned_varint(2**31)
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode(ListPartitionReassignmentsRequest, 0, bytes(5) + count)


def test_decode_from_a_memoryview() -> None:
    wire = encoded(example(FetchRequest, 12, "full"), 12)
    for buffer in (wire, bytearray(wire), memoryview(bytearray(wire))):
        assert decode(FetchRequest, 12, buffer) == decode(FetchRequest, 12, b"head" + wire, 4)


def test_tracebacks_show_the_compiled_source() -> None:
    import traceback

    message = FetchRequest(topics=[3])  # type: ignore[list-item]
    try:
        encode(message, 12)
    except AttributeError as error:
        frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].line is not None and ".topic" in frames[-1].line


def test_registry_contains_every_message_once() -> None:
    assert len({message.__name__ for message in MESSAGES}) == 2 * len(registry.API_NAMES)


def test_a_string_of_a_request_is_never_longer_than_kafka_allows() -> None:
    longest = MetadataRequest([MetadataRequestTopic(name="x" * TEXT_BYTES_MAX)])
    assert decode(MetadataRequest, 12, encoded(longest, 12)) == longest
    longer = MetadataRequest([MetadataRequestTopic(name="x" * (TEXT_BYTES_MAX + 1))])
    with pytest.raises(MalformedMessage, match="longer than 32767 bytes"):
        decode(MetadataRequest, 12, encoded(longer, 12))
