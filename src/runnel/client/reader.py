"""A consumer with manual assignment and bounded prefetching.

One task per leader fetches its partitions into a short queue, and waits while it is full. After a leader
change or a connection failure all tasks restart with new metadata.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType

from runnel.client.backoff import Backoff
from runnel.client.chunk import Chunk, Message
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError, check
from runnel.client.fetching import NO_ID, chunk_of, fetch_topics
from runnel.client.offsets import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    end_offsets,
    list_offsets,
)
from runnel.messages.fetch import FetchRequest, FetchResponse, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

CANCEL_INTERVAL_S = 0.1
CHUNKS_AHEAD = 4
"""The number of prefetched chunks; together with `max_bytes` it limits the memory."""
_OTHER_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
RESETS = {"earliest": EARLIEST, "latest": LATEST}


class Reader:
    """Reads assigned partitions; use as `async with`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        max_bytes: int = 16 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        out_of_range: str | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """`out_of_range` is the offset reset policy: earliest, latest, or None for an error.

        With the ids of its topics, it reads nothing of a topic that was created again: UNKNOWN_TOPIC_ID.
        """
        if out_of_range is not None and out_of_range not in RESETS:
            raise ValueError(f"out_of_range must be earliest, latest or None, not {out_of_range!r}")
        self._cluster = cluster
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._out_of_range = out_of_range
        self._topic_ids = {name: each for name, each in (topic_ids or {}).items() if each != NO_ID}
        self._names = {each: name for name, each in self._topic_ids.items()}
        self._unknown_id: Backoff | None = None
        """Since when the brokers do not know the id of a topic."""
        self._ahead: dict[TopicPartition, int] = {}
        self._chunks: asyncio.Queue[Chunk | ClientError | None] = asyncio.Queue(CHUNKS_AHEAD)
        self._fetching: asyncio.Task[None] | None = None
        self.positions: dict[TopicPartition, int] = {}
        """The position of the caller in each partition."""
        self.high_watermarks: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> "Reader":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign partitions with their start offsets; replaces the previous assignment."""
        await self.close()
        self.positions = dict(positions)
        self._ahead = dict(positions)
        self._chunks = asyncio.Queue(CHUNKS_AHEAD)

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Change the positions of some partitions."""
        await self.assign({**self.positions, **positions})

    async def close(self) -> None:
        """Stop fetching; positions are retained."""
        if self._fetching is not None:
            # Again if it was lost: a task group that fails at the same moment does not raise it.
            while not self._fetching.done():
                self._fetching.cancel()
                await asyncio.wait((self._fetching,), timeout=CANCEL_INTERVAL_S)
            await asyncio.gather(self._fetching, return_exceptions=True)
            self._fetching = None
        await self._cluster.close_lane(self)

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next chunk of any partition; None after `interrupt`."""
        if self._fetching is None and self._ahead:
            self._fetching = asyncio.create_task(self._fetch_forever())
        chunk = await self._chunks.get()
        if isinstance(chunk, ClientError):
            await self.close()
            raise chunk
        if chunk is not None:
            self.high_watermarks[chunk.partition] = chunk.high_watermark
        return chunk

    def interrupt(self) -> None:
        """Wake up `next_chunk`."""
        if self._chunks.empty():
            self._chunks.put_nowait(None)

    def consumed(self, chunk: Chunk) -> None:
        """Advance the position past a chunk."""
        self.positions[chunk.partition] = chunk.next_offset

    async def messages(self, *, until: Mapping[TopicPartition, int] | None = None) -> AsyncIterator[Message]:
        """Iterate over messages, without end or until every partition has reached its offset in `until`."""
        while until is None or not self._has_reached(until):
            chunk = await self.next_chunk()
            if chunk is None:
                return
            stop = None if until is None else until.get(chunk.partition)
            for message in chunk.messages():
                if stop is not None and message.offset >= stop:
                    break
                self.positions[chunk.partition] = message.offset + 1
                yield message
            self.consumed(chunk)

    async def messages_to_end(self) -> AsyncIterator[Message]:
        """Iterate over the messages up to the current end offsets."""
        ends = await end_offsets(self._cluster, self.positions, isolation=self._isolation)
        async for message in self.messages(until=ends):
            yield message

    def _has_reached(self, until: Mapping[TopicPartition, int]) -> bool:
        return all(self.positions[partition] >= offset for partition, offset in until.items())

    # Prefetching.

    async def _fetch_forever(self) -> None:
        try:
            await self._fetch_rounds()
        except Exception as error:
            # A bug; the caller must not wait forever.
            await self._chunks.put(ClientError(f"the reader stopped: {error!r}"))
            raise

    async def _fetch_rounds(self) -> None:
        backoff = Backoff(self._cluster.timeout_s)
        while True:
            try:
                groups = await self._cluster.by_leader(self._ahead)
                backoff = Backoff(self._cluster.timeout_s)
                async with asyncio.TaskGroup() as tasks:
                    for leader, partitions in groups.items():
                        tasks.create_task(self._fetch_from(leader, partitions))
            except ClientError as error:
                if not await self._back_off(error, backoff):
                    return
            except BaseExceptionGroup as errors:
                if not await self._back_off(_first(errors), backoff):
                    return

    async def _fetch_from(self, leader: int, partitions: list[TopicPartition]) -> None:
        connection = await self._cluster.connection(leader, lane=self)
        if all(partition.topic in self._topic_ids for partition in partitions):
            connection.use_topic_ids(FetchRequest.api_key)
        while True:
            request = self._request(partitions)
            timeout_s = self._cluster.timeout_s + self._max_wait_ms / 1000
            response = await connection.send(request, FetchResponse, timeout_s=timeout_s)
            check(response.error_code, f"fetching from broker {leader}")
            for topic in response.responses:
                name = topic.topic or self._names[topic.topic_id]
                for view in topic.partitions:
                    await self._fetched(TopicPartition(name, view.partition_index), view)
            # The broker fills the response in request order; rotating the list avoids starvation.
            partitions = partitions[1:] + partitions[:1]

    def _request(self, partitions: Iterable[TopicPartition]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=fetch_topics(partitions, self._ahead, self._partition_max_bytes, self._topic_ids),
        )

    async def _fetched(self, partition: TopicPartition, view: PartitionData) -> None:
        if view.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code and self._out_of_range is not None:
            moment = RESETS[self._out_of_range]
            found = await list_offsets(self._cluster, {partition: moment}, isolation=self._isolation)
            self._ahead[partition] = found[partition].offset
            return
        chunk = chunk_of(partition, self._ahead[partition], view, self._isolation)
        self._unknown_id = None
        if chunk.next_offset > chunk.from_offset:
            self._ahead[partition] = chunk.next_offset
            await self._chunks.put(chunk)

    async def _back_off(self, error: ClientError, backoff: Backoff) -> bool:
        for partition in self._ahead:
            self._cluster.invalidate_topic(partition.topic)
        if isinstance(error, BrokerError) and error.error in _OTHER_TOPIC:
            # Metadata have a leader, of the topic that was created again: that is no progress.
            self._unknown_id = backoff = self._unknown_id or Backoff(self._cluster.timeout_s)
        try:
            await backoff.after(error)
        except ClientError as final:
            await self._chunks.put(final)
            return False
        return True


def _first(errors: BaseExceptionGroup[BaseException]) -> ClientError:
    """The client error to report, preferably a fatal one; other exceptions are bugs and are raised."""
    known, bugs = errors.split(ClientError)
    if bugs is not None or known is None:
        raise errors
    leaves = [error for error in known.exceptions if isinstance(error, ClientError)]
    return next((error for error in leaves if not error.retriable), leaves[0])
