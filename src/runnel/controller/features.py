"""Cluster features: the supported levels, and the initial levels of a new cluster.

The level of metadata.version decides which records may be written, and in which versions: every node of the
cluster must be able to read them.
"""

METADATA_VERSION = "metadata.version"

METADATA_LEVEL_MIN = 7
"""Kafka's 3.3-IV3: the lowest level that Kafka 4 reads."""
METADATA_LEVEL = 30
"""Kafka's 4.3-IV0: the newest level whose records this release writes."""

# The levels from which on Kafka writes or omits something.
SCRAM_LEVEL = 11
"""SCRAM credentials."""
KEPT_EPOCH_LEVEL = 12
"""An ISR that shrinks keeps the leader epoch."""
TRANSACTIONS_LEVEL = 13
TOKENS_LEVEL = 14
"""Delegation tokens."""
CONTROLLERS_LEVEL = 15
"""Controllers register."""
DIRECTORIES_LEVEL = 17
ELIGIBLE_REPLICAS_LEVEL = 23
CORDONED_LEVEL = 30

CHANGED_RECORDS = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""The levels that introduced records or fields: they cannot be downgraded."""

TRANSACTION_VERSION = "transaction.version"
"""1 uses flexible transaction state records; 2 bumps the producer epoch for every transaction (KIP-890)."""

GROUP_VERSION = "group.version"
"""1 enables the consumer group protocol (KIP-848)."""

ELIGIBLE_REPLICAS_VERSION = "eligible.leader.replicas.version"
"""1 keeps replicas that left a small ISR eligible as leaders (KIP-966)."""

KRAFT_VERSION = "kraft.version"
"""1 for a quorum whose voters can be changed; finalized by a control record of the quorum."""

SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_LEVEL_MIN, METADATA_LEVEL),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    ELIGIBLE_REPLICAS_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
}
"""(lowest, highest) level by feature, as nodes register them: a cluster refuses nodes that do not support all
its finalized features.

Share and streams groups are listed although they are not served, because a new cluster of Kafka 4.3 finalizes
both; clients find out by the APIs that a node offers.
"""

FIRST_LEVELS: dict[str, int] = {
    METADATA_VERSION: METADATA_LEVEL,
    ELIGIBLE_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""The levels of a new cluster. Existing clusters keep their levels until they are upgraded, as in Kafka."""


def is_way_down(present: int, level: int) -> bool:
    """May metadata.version be lowered to this level? Only if no level in between changed the records."""
    return not any(level < changed <= present for changed in CHANGED_RECORDS)
