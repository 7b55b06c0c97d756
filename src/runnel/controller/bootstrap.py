"""The first records of a new cluster, and what a controller writes when it takes over."""

from collections.abc import Sequence

from runnel.controller.feature_changes import min_isr_for_eligible_replicas
from runnel.controller.features import (
    ELIGIBLE_REPLICAS_VERSION,
    FIRST_LEVELS,
    METADATA_LEVEL,
    METADATA_VERSION,
    TRANSACTIONS_LEVEL,
)
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.schemas.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)


def bootstrap_records(
    settings: Settings, formatted: Sequence[MetadataRecord] | None = None
) -> list[MetadataRecord]:
    """The features of a new cluster and the settings that they require, as one transaction.

    `formatted` are the records that the directory was formatted with, if it was. metadata.version is first:
    it determines which records may follow.
    """
    first = formatted or [FeatureLevelRecord(name, level) for name, level in FIRST_LEVELS.items()]
    levels = {record.name: record.feature_level for record in first if isinstance(record, FeatureLevelRecord)}
    records: list[MetadataRecord] = [*first]
    if levels.get(ELIGIBLE_REPLICAS_VERSION):
        records += min_isr_for_eligible_replicas(MetadataImage(), settings)
    if levels.get(METADATA_VERSION, METADATA_LEVEL) < TRANSACTIONS_LEVEL:
        return records
    return [BeginTransactionRecord("Bootstrap records"), *records, EndTransactionRecord()]


def takeover_records(image: MetadataImage, has_open_transaction: bool) -> list[MetadataRecord]:
    """What a new active controller writes first: it aborts a transaction that its predecessor left open."""
    if has_open_transaction and image.metadata_level >= TRANSACTIONS_LEVEL:
        return [AbortTransactionRecord("abandoned by an earlier controller")]
    return []
