"""Framing, version negotiation and invalid responses."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.client.connection_state import ConnectionState, FrameDecoder
from runnel.client.errors import InvalidResponse, UnsupportedVersion
from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from runnel.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.fetch import FetchRequest
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.produce import ProduceRequest
from runnel.wire.frame import response_frame


def learned(features: Sequence[FinalizedFeatureKey] = (), **versions: tuple[int, int]) -> ConnectionState:
    conversation = ConnectionState("test")
    keys = {
        "heartbeat": 12,
        "produce": 0,
        "fetch": 1,
        "api_versions": 18,
        "add_partitions_to_txn": 24,
        "end_txn": 26,
    }
    conversation.set_api_versions(
        ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=keys[name], min_version=low, max_version=high)
                for name, (low, high) in versions.items()
            ],
            finalized_features=list(features),
        )
    )
    return conversation


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=8), st.data())
def test_frames_are_reassembled(frames, data):
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    cutter, got = FrameDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += [bytes(frame) for frame in cutter.feed(stream[start:end])]
    assert got == frames


@pytest.mark.parametrize("length", [-1, 0, 3, 2**31 - 1])
def test_an_invalid_length_raises_an_error(length):
    with pytest.raises(InvalidResponse, match="is this a Kafka listener"):
        list(FrameDecoder().feed(length.to_bytes(4, "big", signed=True)))


@pytest.mark.parametrize("theirs, expected", [((0, 2), 2), ((0, 99), 4), ((4, 4), 4)])
def test_the_newest_common_version_is_used(theirs, expected):
    assert learned(heartbeat=theirs).version_of(HeartbeatRequest()) == expected


@pytest.mark.parametrize("theirs", [(5, 9), None])
def test_no_common_version_is_reported_by_api_name(theirs):
    conversation = learned(heartbeat=theirs) if theirs else learned()
    with pytest.raises(UnsupportedVersion, match="no common version of Heartbeat"):
        conversation.version_of(HeartbeatRequest())


def test_versions_with_topic_ids_are_not_used():
    assert learned(fetch=(4, 18)).version_of(FetchRequest()) == 12


@pytest.mark.parametrize("level, produce, end", [(None, 11, 4), (1, 11, 4), (2, 12, 5)])
def test_transaction_v2_versions_require_the_feature(level, produce, end):
    features = [] if level is None else [FinalizedFeatureKey("transaction.version", level, level)]
    conversation = learned(features, produce=(0, 13), end_txn=(0, 5), add_partitions_to_txn=(0, 5))
    assert conversation.version_of(ProduceRequest()) == produce
    assert conversation.version_of(EndTxnRequest()) == end
    assert conversation.version_of(AddPartitionsToTxnRequest()) == 3


def test_responses_are_matched_to_requests():
    conversation = learned(heartbeat=(0, 4))
    first, _ = conversation.send(HeartbeatRequest())
    second, _ = conversation.send(HeartbeatRequest())
    answers = b"".join(
        b"".join(response_frame(HeartbeatResponse(error_code=number), 4, number))
        for number in (first, second)
    )
    assert list(conversation.received(answers)) == [
        (first, HeartbeatResponse(error_code=first)),
        (second, HeartbeatResponse(error_code=second)),
    ]


def test_an_unexpected_correlation_id():
    frame = b"".join(response_frame(HeartbeatResponse(), 4, 77))
    with pytest.raises(InvalidResponse, match="77"):
        list(learned(heartbeat=(0, 4)).received(frame))


def test_an_older_broker_responds_to_api_versions_in_version_0():
    conversation = ConnectionState("test")
    number, _ = conversation.send(ApiVersionsRequest())
    error = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    [(_, answer)] = conversation.received(b"".join(response_frame(error, 0, number)))
    assert isinstance(answer, ApiVersionsResponse)
    conversation.set_api_versions(answer)
    assert (answer.error_code, conversation.version_of(ApiVersionsRequest())) == (35, 2)


def test_a_malformed_response_is_reported():
    conversation = learned(heartbeat=(0, 4))
    number, _ = conversation.send(HeartbeatRequest())
    frame = number.to_bytes(4, "big") + b"\x00\x01"
    with pytest.raises(InvalidResponse, match="malformed HeartbeatResponse"):
        list(conversation.received(len(frame).to_bytes(4, "big") + frame))
