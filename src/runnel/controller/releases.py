"""Kafka's releases, by which a new cluster may be given older feature levels."""

from runnel.controller.features import FIRST_LEVELS, METADATA_VERSION

RELEASES: dict[str, int] = {
    "3.3": 7, "3.4": 8, "3.5": 11, "3.6": 14, "3.7": 19, "3.8": 20, "3.9": 21,
    "4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30,
}  # fmt: skip
"""The level of metadata.version by release."""

_FROM_LEVEL = {
    "group.version": 22,
    "transaction.version": 24,
    "eligible.leader.replicas.version": 26,
}
"""The level of metadata.version from which on a new cluster of Kafka has a feature."""


def first_levels(level: int) -> dict[str, int]:
    """The features of a new cluster with this level of metadata.version."""
    others = {
        name: first
        for name, first in FIRST_LEVELS.items()
        if name != METADATA_VERSION and level >= _FROM_LEVEL.get(name, 0)
    }
    return {METADATA_VERSION: level, **others}
