"""The values of a metadata image: topics, partitions, nodes, credentials and config resources."""

from dataclasses import dataclass, field
from typing import NamedTuple

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
"""The name of the metadata log. No topic may have it, because its directory would clash with the log's."""

MIGRATING_DIRECTORY = bytes(16)
"""The directory of a replica that was assigned before brokers had directory ids."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The directory of a replica whose broker has several, and has not chosen one yet."""
LOST_DIRECTORY = bytes(15) + b"\x02"

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


FeatureRange = tuple[str, int, int]
"""(name, lowest level, highest level)"""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    is_fenced: bool
    is_stopping: bool
    """In controlled shutdown."""
    directories: tuple[bytes, ...]
    """Those that are online."""
    cordoned: tuple[bytes, ...] | None = None
    """Directories that get no new replicas; None if the broker has not reported them."""
    offset: int = field(default=-1, compare=False)
    """The offset of the record of the registration, or of the snapshot in which it is."""

    @property
    def is_active(self) -> bool:
        """May it lead partitions and be in sync?"""
        return not self.is_fenced and not self.is_stopping

    @property
    def is_cordoned(self) -> bool:
        """Are all its directories closed to new replicas?"""
        return bool(self.cordoned) and set(self.cordoned or ()).issuperset(self.directories)

    @property
    def host(self) -> str:
        """The advertised host; brokers with the same one fail together."""
        return self.endpoints[0].host if self.endpoints else f"broker {self.id}"

    def has_online(self, directory: bytes) -> bool:
        """Is a replica in this directory available? Of unassigned ones that is assumed."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and (not self.directories or directory in self.directories)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The registration of a controller."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    is_ready_for_zk_migration: bool = False


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token, without the secret that is derived from its id."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A SCRAM credential, which does not include the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
