"""The topic with the state of alerts: a mirror of its records, and the transactions that change them.

All evaluators use one transactional id. Initializing it fences the others: their transactions fail from then
on, so that two of them never write alternately.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError, TimedOut
from runnel.client.offsets import READ_COMMITTED, end_offsets, start_offsets
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.client.transactional import TransactionalProducer, is_fenced
from runnel.gateway.own_topics import create_if_missing
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.observe.alerts.silences import Silence

TOPIC = "__runnel_alerts"
PARTITION = TopicPartition(TOPIC, 0)
TRANSACTIONAL_ID = "runnel-alerts"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
TRANSACTION_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_S = 10.0
TAIL_PAUSE_S = 1.0
REREAD_S = 3600.0
"""Readers begin again after this time: compaction removes deletions that they did not read within a day, and
a topic that was deleted and created again has other records at the same offsets."""

log = logging.getLogger("runnel.alerts")


class Fenced(Exception):
    """Another evaluator has taken over."""


class StateTopic:
    """The records of the topic; `follow` keeps them current."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: TransactionalProducer | None = None
        self._position = 0
        self._progressed = asyncio.Event()
        self.records: dict[str, str] = {}
        self.changed: Callable[[str, str | None], None] = lambda key, value: None
        """Called with every record that is read."""
        self.failed: Callable[[], None] = lambda: None
        """Called when the topic cannot be read."""

    # Reading.

    async def follow(self) -> None:
        """Read the topic until cancelled; failures are retried."""
        while True:
            try:
                await self._follow()
            except ClientError as error:
                log.info("the topic %s cannot be read: %s", TOPIC, error)
                self.failed()
                await asyncio.sleep(TAIL_PAUSE_S)

    async def _follow(self) -> None:
        starts = await start_offsets(self._cluster, [PARTITION])
        self._position = max(self._position, starts[PARTITION])
        async with Reader(self._cluster, isolation=READ_COMMITTED, out_of_range="earliest") as reader:
            await reader.assign({PARTITION: self._position})
            while True:
                chunk = await reader.next_chunk()
                if chunk is None:
                    return
                for message in chunk.messages():
                    if message.key is not None:
                        self._read(message.key, message.value)
                self._position = chunk.next_offset
                self._signal()

    def _read(self, key: bytes, value: bytes | None) -> None:
        name = key.decode(errors="replace")
        text = None if value is None else value.decode(errors="replace")
        if text is None:
            self.records.pop(name, None)
        else:
            self.records[name] = text
        self.changed(name, text)

    async def caught_up(self) -> None:
        """Wait until all records that are committed now are in the mirror."""
        ends = await end_offsets(self._cluster, [PARTITION], isolation=READ_COMMITTED)
        try:
            async with asyncio.timeout(self._cluster.api_timeout_s):
                while self._position < ends[PARTITION]:
                    await self._progressed.wait()
        except TimeoutError:
            raise TimedOut(f"the topic {TOPIC} was not read in time") from None

    def _signal(self) -> None:
        progressed, self._progressed = self._progressed, asyncio.Event()
        progressed.set()

    # Writing.

    async def take(self) -> None:
        """Fence all other evaluators; on return the mirror has all that they have committed."""
        await self.release()
        producer = TransactionalProducer(
            self._cluster,
            TRANSACTIONAL_ID,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_s=DELIVERY_TIMEOUT_S,
        )
        try:
            async with producer.transaction():
                # Initializes the transactional id.
                pass
            await self.caught_up()
        except BaseException:
            await _close(producer)
            raise
        self._producer = producer

    async def store(self, changes: Mapping[str, str | None]) -> None:
        """Write records in one transaction; None deletes one. Fenced, or ClientError: then `take` again."""
        producer = self._producer
        if producer is None:
            raise ClientError("the state of alerts is not taken")
        try:
            async with producer.transaction():
                for key, value in changes.items():
                    text = None if value is None else value.encode()
                    sent = await producer.send(TOPIC, text, key=key.encode(), partition=0)
                    # The transaction fails with it.
                    sent.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        except ClientError as error:
            # Whether this producer may continue is unknown; initializing it again might fence a successor.
            await self.release()
            if is_fenced(error):
                raise Fenced(str(error)) from None
            raise

    async def release(self) -> None:
        """Abandon the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _close(producer)


async def prepare(cluster: Cluster) -> None:
    """Create the topic unless it exists."""
    await create_if_missing(cluster, TOPIC, SETTINGS)


class StoredRecords:
    """The records of the topic, for readers: each call reads the records that are new."""

    def __init__(self, cluster: Cluster, prefixes: tuple[str, ...] = ("",)) -> None:
        """Only records whose keys begin with one of the prefixes are kept."""
        self._cluster = cluster
        self._prefixes = prefixes
        self._forget()

    def _forget(self) -> None:
        self._records: dict[str, str] = {}
        self._position = 0
        self._began_s = time.monotonic()

    async def read(self) -> dict[str, str]:
        """All records; none if the topic does not exist."""
        try:
            starts = await start_offsets(self._cluster, [PARTITION])
            ends = await end_offsets(self._cluster, [PARTITION], isolation=READ_COMMITTED)
        except BrokerError as error:
            if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._forget()
            return {}
        is_old = time.monotonic() - self._began_s > REREAD_S
        if is_old or self._position > ends[PARTITION]:
            self._forget()
        if self._position < ends[PARTITION]:
            await self._read(max(self._position, starts[PARTITION]), ends[PARTITION])
        return dict(self._records)

    async def _read(self, first: int, end: int) -> None:
        async with Reader(self._cluster, isolation=READ_COMMITTED, out_of_range="earliest") as reader:
            await reader.assign({PARTITION: first})
            async for message in reader.messages(until={PARTITION: end}):
                key = (message.key or b"").decode(errors="replace")
                if message.key is None or not key.startswith(self._prefixes):
                    continue
                if message.value is None:
                    self._records.pop(key, None)
                else:
                    self._records[key] = message.value.decode(errors="replace")
        self._position = end


async def read_records(cluster: Cluster) -> dict[str, str]:
    """All records; none if the topic does not exist."""
    return await StoredRecords(cluster).read()


async def write_silence(cluster: Cluster, silence: Silence) -> None:
    """Add or change a silence; the active evaluator reads it from the topic."""
    await prepare(cluster)
    key, text = silence.to_record()
    async with Producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, text.encode(), key=key.encode(), partition=0)


def object_of(text: str | None) -> dict[str, object]:
    """The text as a JSON object; empty if it is not one."""
    with suppress(ValueError):
        value = json.loads(text or "")
        if isinstance(value, dict):
            return value
    return {}


async def _close(producer: TransactionalProducer) -> None:
    with suppress(ClientError):
        await producer.close()
