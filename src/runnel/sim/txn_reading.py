"""A read_committed consumer: skips the aborted transactions listed in fetch responses."""

from runnel.batch.control import read_end_marker
from runnel.batch.header import walk_headers
from runnel.batch.records import iterate_records
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.errors import ErrorCode
from runnel.sim.clients import SimClient
from runnel.sim.history import Anomaly
from runnel.sim.txn_history import PartitionKey, TransactionHistory
from runnel.sim.world import Connection, World

READ_COMMITTED = 1
REREAD_CHANCE = 0.03


def fetch_committed(topic: str, partition: int, position: int) -> tuple[FetchRequest, type[FetchResponse]]:
    wanted = FetchPartition(partition, fetch_offset=position, partition_max_bytes=2048)
    request = FetchRequest(
        max_wait_ms=50,
        min_bytes=1,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return request, FetchResponse


def committed_records(data: PartitionData, position: int) -> tuple[list[tuple[int, bytes]], int]:
    """(offset, value) of the committed records from `position` on, and the next position."""
    aborted = sorted(data.aborted_transactions or (), key=lambda entry: entry.first_offset)
    if aborted != list(data.aborted_transactions or ()):
        raise Anomaly(f"aborted transactions are not sorted by first offset: {aborted}")
    open_aborts: set[int] = set()
    found: list[tuple[int, bytes]] = []
    view = memoryview(data.records or b"")
    for start, header in walk_headers(view):
        batch = view[start : start + header.size_bytes]
        last_offset = header.base_offset + header.last_offset_delta
        if header.base_offset >= data.last_stable_offset:
            raise Anomaly(
                f"offset {header.base_offset} was returned above the last stable offset "
                f"{data.last_stable_offset}"
            )
        while aborted and aborted[0].first_offset <= last_offset:
            open_aborts.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and not marker.committed:
                open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            found += [(record.offset, bytes(record.value or b"")) for record in iterate_records(batch)]
        position = max(position, last_offset + 1)
    return found, position


class CommittedReader(SimClient):
    """Consumes the committed records of one partition; rereading must return the same records."""

    def __init__(self, key: PartitionKey, history: TransactionHistory) -> None:
        self.key = key
        self.history = history
        self.position = 0

    async def run_once(self, connection: Connection, world: World) -> None:
        if self.position and world.random.random() < REREAD_CHANCE:
            await self._reread(connection, world.random.randrange(self.position))
            return
        found = await self._read(connection, self.position)
        if found is not None:
            records, self.position = found
            for offset, value in records:
                self.history.observe(self.key, offset, value)

    async def _reread(self, connection: Connection, position: int) -> None:
        found = await self._read(connection, position)
        if found is None:
            return
        records, end = found
        again = {offset: value for offset, value in records if position <= offset < self.position}
        seen = self.history.seen[self.key]
        before = {
            offset: value for offset, value in seen.items() if position <= offset < min(end, self.position)
        }
        if again != before:
            odd = sorted(again.items() ^ before.items())[:4]
            raise Anomaly(f"{self.key} from {position} to {end} changed: {odd}")

    async def _read(
        self, connection: Connection, position: int
    ) -> tuple[list[tuple[int, bytes]], int] | None:
        answer = await connection.ask(*fetch_committed(*self.key, position))
        data = answer.responses[0].partitions[0]
        error = ErrorCode.from_code(data.error_code)
        if error is ErrorCode.NONE:
            self.history.observe_stable_offset(self.key, data.last_stable_offset, data.high_watermark)
            return committed_records(data, position)
        if not error.retriable:
            raise Anomaly(f"a fetch of {self.key} at {position} failed with {error.name}")
        return None

    async def read_to(self, connection: Connection, end_offset: int) -> dict[int, bytes]:
        """All committed records up to `end_offset`."""
        log: dict[int, bytes] = {}
        position = 0
        while position < end_offset:
            found = await self._read(connection, position)
            if found is not None:
                records, position = found
                log.update(records)
        return log
