"""Reading what is committed, as clients do it: the broker names what was aborted, the reader skips it."""

from runnel.batch.control import read_end_marker
from runnel.batch.header import walk_headers
from runnel.batch.records import iterate_records
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.errors import ErrorCode
from runnel.sim.actors import Actor
from runnel.sim.history import Anomaly
from runnel.sim.network import Line
from runnel.sim.txn_history import Place, TransactionHistory
from runnel.sim.world import Life

READ_COMMITTED = 1
LOOK_BACK_CHANCE = 0.03


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
    """(offset, value) of what counts from `position` on, and where to go on."""
    aborted = sorted(data.aborted_transactions or (), key=lambda entry: entry.first_offset)
    if aborted != list(data.aborted_transactions or ()):
        raise Anomaly(f"aborted transactions are not in the order of their offsets: {aborted}")
    open_aborts: set[int] = set()
    found: list[tuple[int, bytes]] = []
    view = memoryview(data.records or b"")
    for start, header in walk_headers(view):
        batch = view[start : start + header.size_bytes]
        last_offset = header.base_offset + header.last_offset_delta
        if header.base_offset >= data.last_stable_offset:
            raise Anomaly(
                f"{header.base_offset} was given to a reader of what is stable, which ends at "
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


class CommittedReader(Actor):
    """Follows the committed records of one partition; looking back, it must see the same again."""

    def __init__(self, place: Place, history: TransactionHistory) -> None:
        self.place = place
        self.history = history
        self.position = 0

    async def speak(self, line: Line, life: Life) -> None:
        if self.position and life.random.random() < LOOK_BACK_CHANCE:
            await self._look_back(line, life.random.randrange(self.position))
            return
        found = await self._read(line, self.position)
        if found is not None:
            records, self.position = found
            for offset, value in records:
                self.history.show(self.place, offset, value)

    async def _look_back(self, line: Line, position: int) -> None:
        found = await self._read(line, position)
        if found is None:
            return
        records, end = found
        again = {offset: value for offset, value in records if position <= offset < self.position}
        seen = self.history.seen[self.place]
        before = {
            offset: value for offset, value in seen.items() if position <= offset < min(end, self.position)
        }
        if again != before:
            odd = sorted(again.items() ^ before.items())[:4]
            raise Anomaly(f"{self.place} from {position} to {end} is not what it was: {odd}")

    async def _read(self, line: Line, position: int) -> tuple[list[tuple[int, bytes]], int] | None:
        answer = await line.ask(*fetch_committed(*self.place, position))
        data = answer.responses[0].partitions[0]
        error = ErrorCode.from_code(data.error_code)
        if error is ErrorCode.NONE:
            self.history.stand(self.place, data.last_stable_offset, data.high_watermark)
            return committed_records(data, position)
        if not error.retriable:
            raise Anomaly(f"a reader of {self.place} at {position} was told {error.name}")
        return None

    async def read_to(self, line: Line, end_offset: int) -> dict[int, bytes]:
        """All committed records up to here."""
        log: dict[int, bytes] = {}
        position = 0
        while position < end_offset:
            found = await self._read(line, position)
            if found is not None:
                records, position = found
                log.update(records)
        return log
