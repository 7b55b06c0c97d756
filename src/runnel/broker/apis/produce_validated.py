"""Batches for topics that validate schemas, as far as that cannot be decided at once.

The connection waits for them, so that its later batches do not overtake them; those of one request are
validated and appended in their order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.broker.runtime.promise import settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.produce import PartitionProduceResponse, ProduceResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.service import Loan

if TYPE_CHECKING:
    from runnel.broker.apis.produce import Appending
    from runnel.broker.runtime.broker import Broker


@dataclass(slots=True)
class _Held:
    """A batch that is not validated yet."""

    partition: ReplicatedLog
    result: PartitionProduceResponse
    records: memoryview
    """A copy: the request's buffer is released at the end of the turn."""


class HeldBatches:
    """The batches of one request that are not validated yet."""

    __slots__ = ("_batches", "_broker")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._batches: list[_Held] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def take(self, records: memoryview, partition: ReplicatedLog, result: PartitionProduceResponse) -> bool:
        """Whether a batch is held, as it is not known to be valid. Raises ApiError if it is not valid."""
        partition.check_leader()
        validation = self._broker.schema_validation
        if not self._batches and validation.is_valid(records, partition):
            return False
        self._batches.append(_Held(partition, result, validation.hold(records)))
        return True

    async def append(self, batches: "Appending") -> ProduceResponse | None:
        """The response, once all are validated, and appended if they are valid. Raises CloseConnection."""
        validation = self._broker.schema_validation
        deadline_ms = validation.deadline_ms
        for held in self._batches:
            try:
                try:
                    await validation.validate(held.records, held.partition, deadline_ms)
                finally:
                    validation.release(held.records)
                self._append(held, batches)
            except ApiError as error:
                batches.answer.reject(held.result, error)
            except Exception as bug:  # noqa: BLE001 - reported; the other batches are appended
                self._broker.bugs.report(bug, "%s: a batch could not be validated", held.partition.name)
                why = "the batch could not be validated"
                batches.answer.reject(held.result, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why))
        appended = batches.appended()
        if appended is None:
            return None
        response: ProduceResponse = await settled(appended)
        return response

    def _append(self, held: _Held, batches: "Appending") -> None:
        partition = held.partition
        if self._broker.partition(*partition.name) is not partition:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} was recreated")
        batches.append(held.records, partition, held.result)
        # The copy is used here only: a large one is written by a thread.
        self._broker.turn.finish(Loan(lambda: None))
