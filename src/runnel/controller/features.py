"""Cluster features: which levels this release can work at, and which one a new cluster starts with."""

METADATA_VERSION = "metadata.version"

# Kafka's number for 4.3-IV0. This release writes the records of that level, so no other can be chosen.
METADATA_LEVEL = 30

TRANSACTION_VERSION = "transaction.version"
"""1 writes the state of transactions in a format that can grow; 2 gives each one an epoch (KIP-890)."""

GROUP_VERSION = "group.version"
"""1 lets consumers use the protocol in which the coordinator assigns (KIP-848)."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}
"""(lowest, highest) level by feature. What is not here does not exist here, and clients do without it."""

FIRST_LEVELS: dict[str, int] = {METADATA_VERSION: METADATA_LEVEL, TRANSACTION_VERSION: 2, GROUP_VERSION: 1}
"""Where a new cluster begins. An older one stays where it is until somebody raises it, as in Kafka."""
