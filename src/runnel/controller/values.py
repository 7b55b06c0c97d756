"""The values of a metadata image: topics, partitions, brokers, credentials and config resources."""

from dataclasses import dataclass, field
from typing import NamedTuple

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
"""The name of the metadata log. No topic may have it, because its directory would clash with the log's."""

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


class ConfigResource(NamedTuple):
    """A resource with configs; the broker with the empty name holds the cluster-wide defaults."""

    type: int
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs sorted by type; a None name is the default entity of its type."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas, ISR and leader of a partition. Equal states share one object."""

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
    """A topic and its partitions, by index."""

    name: str
    id: bytes
    partitions: list[PartitionState] = field(default_factory=list)
    owner: object = field(default=None, repr=False, compare=False)
    """The image that may change this object; images copied from each other share what none of them owns."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker's listener."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker."""

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
    """A SCRAM credential, which does not include the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
