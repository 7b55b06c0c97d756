"""The file quorum-state: the durable election state of a member, as one line of JSON as in Kafka.

Version 0 is written with kraft.version 0, where voters are configured; version 1 with dynamic voters.
The field `checksum` is not Kafka's, which ignores it, and writes the file without it.
"""

import json
from typing import Any

from runnel.batch.checksum import crc32c
from runnel.model.ids import NO_ID, NO_LEADER, id_from_text, id_text
from runnel.raft.values import ElectionState, ReplicaKey

QUORUM_STATE = "quorum-state"
_CHECKSUM = "checksum"


class BadQuorumState(Exception):
    """The file quorum-state is damaged, or written by a newer release."""


def encode_state(state: ElectionState, kraft_version: int, voter_ids: list[int]) -> bytes:
    """The contents of the file."""
    voted = state.voted or ReplicaKey(NO_LEADER)
    fields: dict[str, Any]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": id_text(voted.directory_id),
            "data_version": 1,
        }
    return _encode({**fields, _CHECKSUM: _checksum(fields)})


def decode_state(data: bytes) -> ElectionState:
    """The state in the file. Raises BadQuorumState."""
    try:
        fields = json.loads(data)
        # A digit that has changed is still a digit; with another epoch or vote, this node could vote twice.
        if fields.pop(_CHECKSUM, None) not in (None, _checksum(fields)):
            raise BadQuorumState("quorum-state is damaged: it does not match its checksum")
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"data_version {version} is not supported")
        voted_id = int(fields["votedId"])
        directory_id = id_from_text(fields["votedDirectoryId"]) if version == 1 else NO_ID
        voted = None if voted_id < 0 else ReplicaKey(voted_id, directory_id)
        return ElectionState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadQuorumState(f"quorum-state is damaged: {error}") from error


def _checksum(fields: dict[str, Any]) -> int:
    return crc32c(_encode(fields))


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")
