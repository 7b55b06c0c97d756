"""A synchronous client.

with SyncClient("127.0.0.1:9092") as client:
    client.send("orders", b"a cup of tea", key=b"anna")
    for message in client.read("orders"):
        print(message.offset, message.value)
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from runnel.batch.records import Headers
from runnel.client.accumulator import Delivery
from runnel.client.admin import BROKER_DEFAULT, Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.loop_thread import LoopThread
from runnel.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, offsets_since, start_offsets
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition

T = TypeVar("T")


class SyncClient:
    """A synchronous client; use as `with`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "runnel",
        timeout_s: float = 30.0,
        acks: str = "all",
        compression: str = "none",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` are those of Kafka's clients for TLS and SASL, such as `security.protocol`."""
        self._thread = LoopThread("runnel client")
        try:
            self._cluster, self._producer = self._thread.call(
                _connect(
                    Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s, properties=properties),
                    acks,
                    compression,
                )
            )
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flush, and close the connections."""
        try:
            self._thread.call(self._close())
        finally:
            self._thread.close()

    def create_topic(
        self, name: str, *, partitions: int = BROKER_DEFAULT, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic."""
        self.run(lambda cluster: Admin(cluster).create_topic(name, partitions=partitions, settings=settings))

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.run(lambda cluster: Admin(cluster).delete_topic(name))

    def topics(self) -> list[str]:
        """The names of all topics except internal ones."""
        views = self.run(lambda cluster: cluster.topics())
        return [view.name for view in views if not view.is_internal]

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a record and wait for its acknowledgement."""
        return self._thread.call(
            self._producer.send_and_wait(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    def send_all(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Delivery]:
        """Send (key, value) pairs and wait for all acknowledgements."""
        return self._thread.call(self._send_all(topic, list(records)))

    def read(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        offset: int | None = None,
        since_ms: int | None = None,
        committed_only: bool = False,
    ) -> list[Message]:
        """All current messages from the start, from an offset, or from a timestamp.

        `committed_only` reads with isolation level read_committed.
        """
        isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        return self._thread.call(self._read(topic, partitions, offset, since_ms, isolation))

    def run(self, operation: Callable[[Cluster], Awaitable[T]]) -> T:
        """Run any other operation on the cluster and wait for its result."""

        async def call() -> T:
            return await operation(self._cluster)

        return self._thread.call(call())

    async def _close(self) -> None:
        try:
            await self._producer.close()
        finally:
            await self._cluster.close()

    async def _send_all(
        self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[Delivery]:
        futures = [await self._producer.send(topic, value, key=key) for key, value in records]
        return [await future for future in futures]

    async def _read(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        offset: int | None,
        since_ms: int | None,
        isolation: int,
    ) -> list[Message]:
        if partitions is None:
            partitions = range(len((await self._cluster.topic(topic)).partitions))
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        if offset is not None:
            positions = dict.fromkeys(wanted, offset)
        elif since_ms is not None:
            positions = await offsets_since(self._cluster, wanted, since_ms)
        else:
            positions = await start_offsets(self._cluster, wanted)
        async with Reader(self._cluster, isolation=isolation) as reader:
            await reader.assign(positions)
            return [message async for message in reader.messages_to_end()]


async def _connect(cluster: Cluster, acks: str, compression: str) -> tuple[Cluster, Producer]:
    await cluster.__aenter__()
    return cluster, Producer(cluster, acks=acks, compression=compression)
