"""Headers and frames."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from runnel.messages.api_versions import ApiVersionsResponse
from runnel.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from runnel.messages.heartbeat import HeartbeatResponse
from runnel.messages.registry import FLEXIBLE_FROM
from runnel.model.limits import REQUEST_TAGS_MAX
from runnel.wire import MalformedMessage, decode, encoded
from runnel.wire.frame import (
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
    size_of,
)
from tests.wire.test_codec import unknown_tags

FETCH = 1


class FileRange:
    """A range of a file that is sent without being read."""

    def __init__(self, length: int) -> None:
        self.length = length


class Stored:
    """Records in a file, preceded by a buffer."""

    def __init__(self, *parts: object) -> None:
        self.parts = list(parts)
        self.size_bytes = size_of(self.parts)


@pytest.mark.parametrize(("version", "header"), [(11, KioHeaderV1), (12, KioHeaderV2)])
@pytest.mark.parametrize("client_id", [None, "", "näme", "n" * 200])
def test_request_header_equals_kio(version: int, header: type, client_id: str | None) -> None:
    buffer = io.BytesIO()
    entity = header(
        request_api_key=FETCH, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    entity_writer(header)(buffer, entity)
    theirs = buffer.getvalue()
    ours = b"".join(request_frame(FetchRequest(), version, -7, client_id))
    assert ours == (len(ours) - 4).to_bytes(4) + theirs + encoded(FetchRequest(), version)
    read = read_request_header(memoryview(ours)[4:], FLEXIBLE_FROM)
    assert (read.api_key, read.api_version, read.correlation_id, read.client_id) == (
        FETCH,
        version,
        -7,
        client_id,
    )
    assert read.body_position == len(theirs)


def test_unknown_header_tags_are_skipped() -> None:
    head = bytes.fromhex("0001 000c 00000005 ffff")
    frame = memoryview(head + bytes.fromhex("02 00 01 aa 8001 00") + b"body")
    assert bytes(frame[read_request_header(frame, FLEXIBLE_FROM).body_position :]) == b"body"


def test_header_of_an_unknown_api() -> None:
    header = read_request_header(memoryview(bytes.fromhex("7fff 7fff 00000005 0001 61")), FLEXIBLE_FROM)
    assert (header.api_key, header.client_id) == (0x7FFF, "a")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "0001000c00000005",  # ends before the client id
        "0001000c000000057fff6161",  # a client id longer than the frame
        "0001000c00000005fffe00",  # a negative length other than null
        "0001000c000000050001ff00",  # not UTF-8
        "0001000c00000005ffff",  # no tag count in a flexible header
        "0001000c00000005ffff01",  # a missing tag
        "0001000c00000005ffff010005aa",  # a tag longer than the frame
        "0001000c00000005ffff02000000 00",  # the same tag twice
    ],
)
def test_malformed_request_headers_are_rejected(bad: str) -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(memoryview(bytes.fromhex(bad)), FLEXIBLE_FROM)


@given(st.binary(max_size=40))
def test_random_headers_raise_only_malformed_message(noise: bytes) -> None:
    for reading in (
        lambda: read_request_header(memoryview(b"\x00\x01\x00\x0c" + noise), FLEXIBLE_FROM),
        lambda: read_response_header(memoryview(noise), True),
        lambda: read_response_header(memoryview(noise), False),
    ):
        try:
            reading()
        except MalformedMessage:
            continue


def test_response_header_of_flexible_messages() -> None:
    assert b"".join(response_frame(HeartbeatResponse(), 3, 9)) == bytes.fromhex(
        "0000000a 00000009 00000000 0000"
    )
    flexible = b"".join(response_frame(HeartbeatResponse(), 4, 9))
    assert flexible == bytes.fromhex("0000000c 00000009 00 00000000 0000 00")
    assert read_response_header(memoryview(flexible)[4:], True) == (9, 5)


def test_api_versions_response_has_no_header_tags() -> None:
    frame = b"".join(response_frame(ApiVersionsResponse(error_code=35), 3, 9))
    assert frame[4:8] + frame[8:10] == bytes.fromhex("00000009 0023")
    assert int.from_bytes(frame[:4]) == len(frame) - 4


def test_records_are_sent_without_copying() -> None:
    memory, stretch = memoryview(bytes(5000)), FileRange(100_000)
    partitions = [
        PartitionData(0, records=memory),
        PartitionData(1, records=Stored(b"first", stretch)),
        PartitionData(2, records=b"small"),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse("topic", partitions=partitions)])
    buffers = response_frame(response, 12, 1)
    assert [buffer for buffer in buffers if buffer is memory or buffer is stretch] == [memory, stretch]
    assert int.from_bytes(buffers[0][:4]) == size_of(buffers) - 4

    wire = b"".join(bytes(buffer.length) if buffer is stretch else buffer for buffer in buffers)
    read = decode(FetchResponse, 12, wire, 9).responses[0].partitions
    assert [bytes(each.records or b"") for each in read] == [bytes(5000), b"first" + bytes(100_000), b"small"]


def test_decoded_records_are_a_view_of_the_frame() -> None:
    records = b"r" * 5000
    response = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=records)])]
    )
    frame = bytearray(encoded(response, 12))
    view = decode(FetchResponse, 12, frame).responses[0].partitions[0].records
    assert isinstance(view, memoryview) and not view.readonly
    view[0] = 0
    assert frame.count(0x72) == 4999


def test_the_tagged_fields_of_a_request_header_are_bounded() -> None:
    head = b"\x00\x01\x00\x0c\x00\x00\x00\x07\xff\xff"
    allowed = unknown_tags(REQUEST_TAGS_MAX)
    header = read_request_header(memoryview(head + allowed), FLEXIBLE_FROM)
    assert header.body_position == len(head + allowed)
    with pytest.raises(MalformedMessage, match="tagged fields"):
        read_request_header(memoryview(head + unknown_tags(REQUEST_TAGS_MAX + 1)), FLEXIBLE_FROM)
