"""The voters of the quorum: configured (kraft.version 0), or records in the log (kraft.version 1).

A VotersRecord takes effect when it is appended, committed or not, so that majorities of successive sets
always overlap; truncating it restores the previous set.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runnel.model.ids import NO_ID
from runnel.raft.values import Endpoint, ReplicaKey
from runnel.schemas.control import DynamicVoter, KRaftVersionFeature, VoterEndpoint, VotersRecord

STATIC_KRAFT_VERSION = 0
DYNAMIC_KRAFT_VERSION = 1
SUPPORTED_KRAFT_VERSIONS = (STATIC_KRAFT_VERSION, DYNAMIC_KRAFT_VERSION)


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter: its key, its listeners, and the levels of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: tuple[int, int] = SUPPORTED_KRAFT_VERSIONS

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address under this listener name."""
        return next((each for each in self.endpoints if each.name == listener), None)

    def matches(self, key: ReplicaKey) -> bool:
        """Is this the replica? A configured voter is known by its id alone."""
        return self.key.id == key.id and self.key.directory_id in (NO_ID, key.directory_id)


class Voters:
    """An immutable set of voters by node id."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.matches(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Voters) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"Voters({list(self._voters.values())})"

    @property
    def ids(self) -> list[int]:
        return list(self._voters)

    @property
    def majority(self) -> int:
        """The number of voters that can decide."""
        return len(self._voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def others(self, key: ReplicaKey) -> list[Voter]:
        """All voters but this replica."""
        return [voter for voter in self if not voter.matches(key)]

    def is_sole(self, key: ReplicaKey) -> bool:
        """Is this replica the only voter?"""
        return len(self) == 1 and key in self

    def having(self, voter: Voter) -> "Voters":
        """This set with the voter added or replaced."""
        return Voters((self._voters | {voter.key.id: voter}).values())

    def without(self, node_id: int) -> "Voters":
        """This set without a node."""
        return Voters(voter for voter in self if voter.key.id != node_id)

    def to_record(self) -> VotersRecord:
        """The record that describes this set."""
        return VotersRecord(
            0,
            [
                DynamicVoter(
                    voter.key.id,
                    voter.key.directory_id,
                    [VoterEndpoint(*each) for each in voter.endpoints],
                    KRaftVersionFeature(*voter.kraft_versions),
                )
                for voter in self
            ],
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> "Voters":
        """The set that a record describes."""
        return cls(
            Voter(
                ReplicaKey(each.voter_id, bytes(each.voter_directory_id)),
                tuple(Endpoint(one.name, one.host, one.port) for one in each.endpoints),
                (
                    each.kraft_version_feature.min_supported_version,
                    each.kraft_version_feature.max_supported_version,
                ),
            )
            for each in record.voters
        )


def static_voters(addresses: Mapping[int, tuple[str, int]], listener: str) -> Voters:
    """The voters of controller.quorum.voters, whose directories are unknown."""
    return Voters(
        Voter(ReplicaKey(node_id), (Endpoint(listener, host, port),))
        for node_id, (host, port) in addresses.items()
    )


class VoterHistory:
    """The voters and kraft.version by offset: those in the log, above those that were configured."""

    def __init__(self, configured: Voters | None = None) -> None:
        self.configured = configured or Voters()
        self._reports: dict[int, Voter] = {}
        """The directories and listeners that configured voters have reported."""
        self._sets: list[tuple[int, Voters]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def current(self) -> Voters:
        """The current voters."""
        if self.kraft_version == STATIC_KRAFT_VERSION:
            return self.configured
        return self._sets[-1][1] if self._sets else Voters()

    @property
    def previous(self) -> Voters:
        """The voters before the last VotersRecord."""
        return self._sets[-2][1] if len(self._sets) > 1 else Voters()

    @property
    def kraft_version(self) -> int:
        """The finalized level of the feature kraft.version."""
        return self._versions[-1][1] if self._versions else STATIC_KRAFT_VERSION

    @property
    def last_change_offset(self) -> int:
        """The offset of the last VotersRecord; -1 if there is none."""
        return self._sets[-1][0] if self._sets else -1

    def at(self, end_offset: int) -> tuple[int, Voters | None]:
        """(kraft.version, voters) after the records below this offset; None if they are configured."""
        versions = bisect_right(self._versions, end_offset - 1, key=_offset)
        version = self._versions[versions - 1][1] if versions else STATIC_KRAFT_VERSION
        sets = bisect_right(self._sets, end_offset - 1, key=_offset)
        return version, self._sets[sets - 1][1] if sets and version else None

    def voters_appended(self, offset: int, voters: Voters) -> None:
        """A VotersRecord was appended at this offset."""
        assert not self._sets or offset > self._sets[-1][0]
        self._sets.append((offset, voters))

    def version_appended(self, offset: int, kraft_version: int) -> None:
        """A KRaftVersionRecord was appended at this offset."""
        assert not self._versions or offset > self._versions[-1][0]
        self._versions.append((offset, kraft_version))

    def truncated(self, end_offset: int) -> None:
        """Records from this offset on were removed from the log."""
        self._sets = [entry for entry in self._sets if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def shortened(self, log_start_offset: int) -> None:
        """Records before this offset were dropped from the log; the last sets before it remain in effect."""
        for entries in (self._sets, self._versions):
            earlier = bisect_right(entries, log_start_offset - 1, key=_offset)
            # Two remain: the previous set may be needed until the last one is committed.
            del entries[: max(0, min(earlier - 1, len(entries) - 2))]

    def restart(self, snapshot_end: int, kraft_version: int, voters: Voters | None) -> None:
        """The log begins with a snapshot, in which these are the voters."""
        self._sets, self._versions = [], []
        if kraft_version != STATIC_KRAFT_VERSION:
            self._versions.append((snapshot_end - 1, kraft_version))
            self._sets.append((snapshot_end - 1, voters or Voters()))

    def reported(self, voter: Voter) -> None:
        """A configured voter reported its directory and its listeners."""
        if voter.key.id in self.configured.ids:
            self._reports[voter.key.id] = voter

    def dynamic_voters(self, own: Voter) -> Voters | None:
        """The configured voters as a VotersRecord describes them; None unless all have reported."""
        reports = self._reports | {own.key.id: own}
        if not all(voter_id in reports for voter_id in self.configured.ids):
            return None
        return Voters(reports[voter_id] for voter_id in self.configured.ids)


def _offset(entry: tuple[int, object]) -> int:
    return entry[0]
