"""Invariants of transactions: a marker is written only after its outcome is committed by the coordinator."""

from runnel.batch.control import read_end_marker
from runnel.batch.header import CONTROL, unpack_header
from runnel.batch.records import iterate_records
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.values import TRANSACTION_STATE
from runnel.coordinator.txn.transaction import PREPARED, TransactionState
from runnel.schemas.coordinator import CoordinatorRecord, read_record
from runnel.schemas.txn import TRANSACTION_RECORDS, TransactionLogValue
from runnel.sim.cluster.committed import read_batches
from runnel.sim.history import Anomaly

Outcome = tuple[int, int, bool]
"""Producer id, producer epoch, and whether the transaction is committed."""


class TransactionInvariants:
    """Compares markers with the committed records of their coordinators."""

    def __init__(self) -> None:
        self._decided: set[Outcome] = set()
        self._markers: list[tuple[ReplicatedLog, Outcome]] = []
        """Those of the present step."""

    def committed(self, partition: ReplicatedLog, first: int, end: int) -> None:
        """A leader has committed these offsets."""
        if partition.name.topic != TRANSACTION_STATE:
            return
        for batch in read_batches(partition.log, first, end):
            for record in iterate_records(batch):
                found = read_record(TRANSACTION_RECORDS, record.key or b"", record.value)
                if isinstance(found, CoordinatorRecord) and isinstance(found.value, TransactionLogValue):
                    value, state = found.value, TransactionState(found.value.transaction_status)
                    if state in PREPARED:
                        is_commit = state is TransactionState.PREPARE_COMMIT
                        self._decided.add((value.producer_id, value.producer_epoch, is_commit))

    def appended(self, partition: ReplicatedLog, first: int, end: int) -> None:
        """A leader has appended these offsets."""
        if partition.name.topic == TRANSACTION_STATE:
            return
        for batch in read_batches(partition.log, first, end):
            header = unpack_header(batch)
            marker = read_end_marker(batch) if header[5] & CONTROL else None
            if marker is not None:
                self._markers.append((partition, (header[9], header[10], marker.committed)))

    def check(self) -> None:
        """The end of a step: the outcome of each marker in it must be committed."""
        markers, self._markers = self._markers, []
        for partition, outcome in markers:
            if outcome not in self._decided:
                producer_id, epoch, is_commit = outcome
                raise Anomaly(
                    f"{partition.name}: a marker of producer {producer_id} in epoch {epoch} "
                    f"{'commits' if is_commit else 'aborts'} a transaction that is not prepared for that"
                )
