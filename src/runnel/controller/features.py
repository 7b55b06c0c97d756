"""Cluster features: which levels this release can work at, and which one a new cluster starts with."""

METADATA_VERSION = "metadata.version"

# Kafka's number for 4.3-IV0. This release writes the records of that level, so no other can be chosen.
METADATA_LEVEL = 30

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL)}
"""(lowest, highest) level by feature. What is not here does not exist here, and clients do without it."""
