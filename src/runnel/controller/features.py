"""Cluster features: the supported levels, and the initial level of a new cluster."""

METADATA_VERSION = "metadata.version"

# Kafka's feature level of 4.3-IV0, the only one whose records this release writes.
METADATA_LEVEL = 30

TRANSACTION_VERSION = "transaction.version"
"""1 uses flexible transaction state records; 2 bumps the producer epoch for every transaction (KIP-890)."""

GROUP_VERSION = "group.version"
"""1 enables the consumer group protocol (KIP-848)."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}
"""(lowest, highest) supported level by feature."""

FIRST_LEVELS: dict[str, int] = {METADATA_VERSION: METADATA_LEVEL, TRANSACTION_VERSION: 2, GROUP_VERSION: 1}
"""The levels of a new cluster. Existing clusters keep their levels until they are upgraded, as in Kafka."""
