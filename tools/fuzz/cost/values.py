"""Values for the fields of requests: things that exist, things that do not, and one thing repeated."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from runnel.controller.config_topic import TOPIC_CONFIGS
from tools.fuzz.cost.population import Population

MISSING_PARTITION = 1 << 20
MISSING_DIFFERENT_MAX = 20_000
"""Building a request takes longer than serving it."""


class Fill(StrEnum):
    """With what an array is filled."""

    EXISTING = "existing"
    MISSING = "missing"
    SAME = "same"


NUMBERS = {
    "acks": 1,
    "broker_id": 1,
    "config_operation": 0,
    "count": 1 << 13,
    "current_leader_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "leader_epoch": -1,
    "match_type": 1,
    "max_bytes": 1 << 26,
    "member_epoch": 0,
    "num_partitions": 1,
    "operation": 1,
    "partition_max_bytes": 1 << 20,
    "pattern_type": 3,
    "pattern_type_filter": 1,
    "permission_type": 1,
    "principal_type": 1,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "resource_type_filter": 1,
    "response_partition_limit": 2000,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timestamp": -1,
    "transaction_timeout_ms": 10_000,
}
"""Numbers that let a handler do its work instead of refusing at once; all others are 0."""

_PARTITION_FIELDS = {"partition", "partition_id", "partition_index", "partition_indexes", "partitions"}
_GROUP_FIELDS = {"group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key"}
_TXN_FIELDS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
_FRESH_TOPIC_STRUCTS = {"CreatableTopic"}
_CONFIG_FIELDS = {"configuration_keys"}


METADATA_TOPIC = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\x01"
QUORUM_APIS = frozenset({1, 52, 53, 54, 59})
"""Requests to controllers about the partition of the metadata."""


@dataclass(frozen=True)
class Values:
    """The values of one case."""

    population: Population
    ids: dict[str, bytes]
    fill: Fill
    fresh: str = "fresh"
    """Begins the names of what a case creates."""
    cluster_id: str = ""
    broker_epoch: int = -1
    """Of the measured broker: requests between nodes are sent in its name."""

    @cached_property
    def _topics(self) -> list[str]:
        return [METADATA_TOPIC] if METADATA_TOPIC in self.ids else self.population.topics

    @cached_property
    def _id_list(self) -> list[bytes]:
        return [self.ids[name] for name in self._topics if name in self.ids] or [bytes(16)]

    def different(self, struct: str, count: int) -> int:
        """The number of distinct elements in an array of this length, before they repeat."""
        if self.fill is Fill.SAME:
            return min(count, 1)
        if struct in _FRESH_TOPIC_STRUCTS:
            return count
        if self.fill is Fill.MISSING:
            return min(count, MISSING_DIFFERENT_MAX)
        return min(count, max(self.population.wide_partitions, self.population.groups))

    def text(self, struct: str, field: str, index: int) -> str:
        """The text of the index-th element."""
        if field == "cluster_id":
            return self.cluster_id
        number = 0 if self.fill is Fill.SAME else index
        names = self._names(struct, field)
        if names is not None and self.fill is not Fill.MISSING:
            return names[number % len(names)]
        if struct in _FRESH_TOPIC_STRUCTS and field == "name":
            return f"{self.fresh}-{number}"
        return "" if field == "member_id" else f"missing-{number}"

    def _names(self, struct: str, field: str) -> list[str] | None:
        if struct in _FRESH_TOPIC_STRUCTS:
            return None
        if ("Config" in struct and field in ("name", "config_name")) or field in _CONFIG_FIELDS:
            return list(TOPIC_CONFIGS)
        if field == "value" and "Config" in struct:
            return ["1000"]
        if field in _GROUP_FIELDS:
            return self.population.group_ids
        if field in _TXN_FIELDS:
            return self.population.transactional_id_names
        if field == "protocol_type":
            return ["consumer"]
        if field == "server_assignor":
            return ["uniform"]
        topical = "topic" in field or (field in ("name", "resource_name") and "Feature" not in struct)
        return self._topics if topical and "regex" not in field else None

    def number(self, kind: str, field: str, index: int) -> object:
        """The number of the index-th element."""
        number = 0 if self.fill is Fill.SAME else index
        if kind == "uuid":
            if self.fill is Fill.MISSING:
                return (number + 1).to_bytes(16, "big")
            return self._id_list[number % len(self._id_list)]
        if kind == "bool":
            return False
        if kind == "float64":
            return 1.0
        if field == "broker_epoch" or (field == "epoch" and self.broker_epoch >= 0):
            return self.broker_epoch
        if field in _PARTITION_FIELDS:
            if self.fill is Fill.MISSING:
                return MISSING_PARTITION + number
            return number % self.population.wide_partitions
        return NUMBERS.get(field, 1 if "wait" in field or "timeout" in field else 0)
