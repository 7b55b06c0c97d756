"""Control batches: voters in the log and in snapshots, and the file quorum-state."""

import json

import pytest

from runnel.batch.errors import CorruptBatch
from runnel.controller.image import MetadataImage
from runnel.controller.snapshot_batches import read_snapshot, snapshot_batches
from runnel.model.ids import NO_ID
from runnel.raft.control import (
    bootstrap_snapshot,
    control_batch,
    leader_change,
    read_snapshot_voters,
    snapshot_header,
    voter_changes,
    voter_records,
)
from runnel.raft.election_state import BadQuorumState, decode_state, encode_state
from runnel.raft.values import ElectionState, Endpoint, ReplicaKey
from runnel.raft.voters import Voter, VoterHistory, Voters
from runnel.schemas.control import ControlType

VOTERS = Voters(
    Voter(ReplicaKey(node_id, node_id.to_bytes(16)), (Endpoint("CONTROLLER", f"node{node_id}", 9093),))
    for node_id in (1, 2, 3)
)


def views(batches: list[bytearray]) -> list[memoryview]:
    return [memoryview(batch) for batch in batches]


def test_the_voters_of_a_snapshot() -> None:
    header = snapshot_header(1000, 7, 1, VOTERS)
    batches = views(list(snapshot_batches(MetadataImage(), 1000, 7, header)))
    assert read_snapshot_voters(batches) == (1, VOTERS)
    assert list(read_snapshot(batches)) == []
    assert read_snapshot_voters(views(list(snapshot_batches(MetadataImage(), 1000, 7)))) == (0, None)
    assert read_snapshot_voters(views(bootstrap_snapshot(VOTERS, 1000))) == (1, VOTERS)


def test_a_snapshot_that_is_incomplete_or_damaged() -> None:
    header, footer = bootstrap_snapshot(VOTERS, 1000)
    damaged = bytearray(header)
    damaged[-1] ^= 1
    for batches in ([header], [footer], [], [damaged, footer], [header, footer, footer]):
        with pytest.raises(CorruptBatch):
            read_snapshot_voters(views(batches))


def test_the_voters_in_a_log() -> None:
    change = (ControlType.LEADER_CHANGE, leader_change(1, [1, 2], [1]))
    fewer = VOTERS.without(3)
    log = control_batch([change, *voter_records(1, VOTERS)], 1000, base_offset=10, epoch=3)
    log += control_batch([(ControlType.VOTERS, fewer.to_record())], 1000, base_offset=13, epoch=3)
    history = VoterHistory(Voters([Voter(ReplicaKey(9))]))
    assert history.current.ids == [9]
    for each in voter_changes(log):
        each.apply(history)
    assert (history.kraft_version, history.current, history.last_change_offset) == (1, fewer, 13)
    # What a snapshot that ends at an offset must state.
    assert [history.at(offset) for offset in (11, 12, 13, 14)] == [
        (0, None),
        (1, None),
        (1, VOTERS),
        (1, fewer),
    ]
    # Truncation restores what was before.
    history.truncated(13)
    assert history.current == VOTERS
    history.truncated(11)
    assert (history.kraft_version, history.current.ids) == (0, [9])


def test_quorum_state_is_kafkas() -> None:
    state = ElectionState(7, 2, ReplicaKey(3, b"0123456789abcdef"))
    dynamic = json.loads(encode_state(state, 1, [1, 2, 3]))
    assert dynamic.pop("checksum") > 0, "which Kafka ignores"
    assert dynamic == {
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": "MDEyMzQ1Njc4OWFiY2RlZg",
        "data_version": 1,
    }
    assert decode_state(encode_state(state, 1, [])) == state
    # Configured voters are known by their ids.
    assert decode_state(encode_state(state, 0, [1, 2])) == ElectionState(7, 2, ReplicaKey(3, NO_ID))
    assert decode_state(encode_state(ElectionState(), 0, [1])) == ElectionState()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"data_version":9}', b"[]", b'{"data_version":1,"votedId":"x"}']
)
def test_a_damaged_quorum_state(data: bytes) -> None:
    with pytest.raises(BadQuorumState):
        decode_state(data)


def test_a_changed_digit_of_the_election_state_is_detected() -> None:
    for kraft_version in (0, 1):
        data = encode_state(
            ElectionState(17, 2, ReplicaKey(3, b"0123456789abcdef")), kraft_version, [1, 2, 3]
        )
        end = data.index(b'"checksum"')
        for position, byte in enumerate(data[:end]):
            for bit in range(8):
                flipped = bytes([*data[:position], byte ^ 1 << bit, *data[position + 1 :]])
                with pytest.raises(BadQuorumState):
                    decode_state(flipped)


def test_an_election_state_of_kafka_has_no_checksum() -> None:
    fields = json.loads(encode_state(ElectionState(7, 2), 0, [1, 2, 3]))
    del fields["checksum"]
    assert decode_state(json.dumps(fields).encode()) == ElectionState(7, 2)
