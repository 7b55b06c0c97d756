"""Transactions of the metadata log (KIP-868): their records take effect together, or not at all."""

from collections.abc import Iterable

from runnel.schemas.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)


class OpenTransaction:
    """Holds back the records of a transaction until it ends."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def published(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        """The records that take effect now, given the next ones of the log."""
        effective: list[MetadataRecord] = []
        for record in records:
            match record:
                case BeginTransactionRecord():
                    self._held = []
                case EndTransactionRecord():
                    effective += self._held or []
                    self._held = None
                case AbortTransactionRecord():
                    self._held = None
                case _ if self._held is not None:
                    self._held.append(record)
                case _:
                    effective.append(record)
        return effective
