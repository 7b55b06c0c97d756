"""What an image is made of: topics, partitions, brokers, credentials, and the owners of settings."""

from dataclasses import dataclass, field
from typing import NamedTuple

NO_LEADER = -1
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
"""The metadata log's own name. No topic may have it: its partition would take the place of the log."""

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


class ConfigResource(NamedTuple):
    """One owner of settings; the broker with the empty name is the default of all brokers."""

    type: int
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs sorted by type; the name None is the default of its type."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition and who leads it. Equal states are one object, as most partitions are alike."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovery: int = 0
    eligible: tuple[int, ...] = ()
    """Replicas that left the ISR and may still be elected (KIP-966)."""
    last_known_eligible: tuple[int, ...] = ()


@dataclass(slots=True)
class Topic:
    """A topic and its partitions, the first of which is number 0."""

    name: str
    id: bytes
    partitions: list[PartitionState] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one listener of a broker can be reached."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker as it introduced itself."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    """(name, lowest level, highest level)"""
    rack: str | None
    is_fenced: bool
    is_stopping: bool
    directories: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """How a user proves to know a password; the password itself is not here."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
