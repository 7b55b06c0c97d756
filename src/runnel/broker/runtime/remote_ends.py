"""Ends and records of partitions that other brokers lead, for the lag of groups.

Each leader has one series of requests in flight; one that does not respond delays no other.
"""

import asyncio
from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from runnel.broker.runtime.leader_requests import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TIMEOUT_MS,
    aborted_of,
    batches_of,
    check_answer,
    fetch_request,
    offsets_of,
    offsets_request,
    one_offset,
)
from runnel.controller.log_settings import resolve_log_config
from runnel.messages.fetch import FetchResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.observe.lag.first_unread import FirstUnread, first_unread
from runnel.observe.lag.partitions import Ends, GroupPosition, ObservedPartition
from runnel.observe.lag.tracker import LagTracker
from runnel.ports.disk import Disk
from runnel.ports.peers import PeerFailed

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

PURPOSE = "lag"

PARTITIONS_PER_REQUEST = 250
PARTITIONS_PER_ROUND = 2000
"""Of one leader; if it leads more, each is asked for in some of the rounds."""

FETCH_BYTES = 64 * 1024
"""At least one batch is returned."""


class RemoteEnds:
    """Asks the leaders of other partitions."""

    def __init__(self, broker: "Broker", tracker: LagTracker) -> None:
        self._broker = broker
        self._tracker = tracker
        self._busy: set[int] = set()
        """Leaders with requests in flight."""
        self._asked: dict[int, int] = {}
        """How many partitions each leader was asked for: where the next round continues."""

    def observe(self, by_leader: dict[int, list[ObservedPartition]]) -> None:
        """Ask leaders for the ends of their partitions, unless they have not answered the last time."""
        for leader, partitions in by_leader.items():
            if leader not in self._busy:
                self._busy.add(leader)
                self._broker.run(self._ask(leader, self._next(leader, partitions)))
        for leader in self._asked.keys() - by_leader.keys():
            del self._asked[leader]

    def _next(self, leader: int, partitions: list[ObservedPartition]) -> list[ObservedPartition]:
        if len(partitions) <= PARTITIONS_PER_ROUND:
            return partitions
        start = self._asked.get(leader, 0) % len(partitions)
        self._asked[leader] = start + PARTITIONS_PER_ROUND
        return list(islice(cycle(partitions), start, start + PARTITIONS_PER_ROUND))

    async def _ask(self, leader: int, partitions: list[ObservedPartition]) -> None:
        try:
            for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
                await self._ask_some(leader, partitions[start : start + PARTITIONS_PER_REQUEST])
        except (ApiError, PeerFailed) as error:
            for partition in partitions:
                if partition.ends is None:
                    partition.problem = f"broker {leader} does not answer: {error}"
        except Exception as bug:  # noqa: BLE001 - reported; asked again in the next round
            self._broker.bugs.report(bug, "the end offsets of broker %d could not be read", leader)
        finally:
            self._busy.discard(leader)

    async def _ask_some(self, leader: int, partitions: list[ObservedPartition]) -> None:
        # As of when the requests are sent: a record that is not in the answer was appended later.
        step, at_ms = self._tracker.next_step(), self._broker.clock.monotonic_ms()
        channel = self._broker.links.to(leader, PURPOSE)
        names = [(partition.topic, partition.index) for partition in partitions]
        answers = await asyncio.gather(
            *(
                channel.send(offsets_request(names, isolation), timeout_ms=TIMEOUT_MS)
                for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
            )
        )
        (ends, errors), (stable, _) = map(offsets_of, answers)
        for partition in partitions:
            name = (partition.topic, partition.index)
            if name in ends:
                if partition.ends is None:
                    partition.is_compacted = self._is_compacted(partition.topic)
                start = 0 if partition.ends is None else partition.ends.start
                observed = Ends(ends[name], stable.get(name, ends[name]), start)
                self._tracker.observe(partition, observed, step, at_ms)
            elif partition.ends is None and name in errors:
                partition.problem = f"broker {leader} returned {errors[name].name}"

    def _is_compacted(self, topic: str) -> bool:
        broker = self._broker
        return resolve_log_config(broker.metadata.image, broker.settings, topic).cleanup_compact

    async def first_unread(self, position: GroupPosition, offset: int) -> FirstUnread:
        """The first unread record of a group in a partition. Raises ApiError and PeerFailed."""
        partition = position.partition
        state = self._broker.metadata.image.partition(partition.topic, partition.index)
        if state is None or state.leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic} has no leader")
        channel = self._broker.links.to(state.leader, PURPOSE)
        isolation = READ_UNCOMMITTED if position.group.reads_uncommitted else READ_COMMITTED
        request = fetch_request(
            partition.topic, partition.index, partition.topic_id, offset, isolation, FETCH_BYTES
        )
        response: FetchResponse = await channel.send(request, timeout_ms=TIMEOUT_MS)
        check_answer(response.error_code)
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
            names = [(partition.topic, partition.index)]
            earliest = offsets_request(names, READ_UNCOMMITTED, EARLIEST)
            start = one_offset(await channel.send(earliest, timeout_ms=TIMEOUT_MS))
            return FirstUnread(max(start, offset), None)
        check_answer(data.error_code)
        batches = batches_of(data)
        if not batches:
            end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
            if position.group.reads_uncommitted:
                end = data.high_watermark
            return FirstUnread(max(end, offset), None)
        return await scan(self._broker.disk, batches, offset, aborted_of(data))


class _Scan:
    """Looks through batches in a thread: records of compacted batches have to be decompressed."""

    def __init__(
        self, batches: Sequence[memoryview], offset: int, aborted: Sequence[tuple[int, int]]
    ) -> None:
        self._arguments = (batches, offset, aborted)
        self._found: FirstUnread | None = None

    def run(self) -> None:
        self._found = first_unread(*self._arguments)

    def finish(self) -> FirstUnread:
        assert self._found is not None
        return self._found


async def scan(
    disk: Disk, batches: Sequence[memoryview], offset: int, aborted: Sequence[tuple[int, int]]
) -> FirstUnread:
    """The first record in batches, found by a thread. Raises ApiError if they are corrupt."""
    return await disk.run_blocking(_Scan(batches, offset, aborted))
