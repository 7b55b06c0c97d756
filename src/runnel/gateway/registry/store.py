"""The topic `_schemas`: its replay, and the transactions that change it.

All gateways use one transactional id, which is their lock: initializing it fences the others.

    initialize → replay to the end → decide → produce, commit → replay → respond

A commit proves that no other gateway has written since the decision. A fenced one begins again. The offset
of the first record proves that the decision was made with all records before it: metadata or a leader that
is behind may have shown fewer of them.

A commit may also fail after the coordinator has carried it out: the response is lost, and the next gateway
fences this one before it asks again. So an attempt that follows a commit looks for its records first.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.client.cluster import MISSING_TOPIC_TIMEOUT_S, Cluster
from runnel.client.errors import BrokerError, ClientError
from runnel.client.fetching import fetch_once
from runnel.client.offsets import READ_COMMITTED, end_offsets
from runnel.client.reader import Reader
from runnel.client.transactional import TransactionalProducer, is_fenced
from runnel.gateway.own_topics import COMPACT, POLICY, cleanup_policy, create_if_missing
from runnel.gateway.registry.limits import (
    ATTEMPT_PAUSE_MAX_S,
    ATTEMPT_PAUSE_S,
    CHECK_WORKERS,
    CHECKS_S,
    FRESH_S,
    PERMITTED_S,
    REPLAY_RECORDS,
    STATE_AGE_MAX_S,
    TRANSACTION_TIMEOUT_MS,
    VISIBLE_PAUSE_S,
    WORKERS,
    WRITE_S,
)
from runnel.gateway.registry.metrics import RegistryMetrics
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.registry.checks import Unchecked, Verdicts
from runnel.registry.decision import Decision
from runnel.registry.errors import RegistryError
from runnel.registry.records import TOPIC
from runnel.registry.state import RegistryState

T = TypeVar("T")

log = logging.getLogger("runnel.registry")

PARTITION = TopicPartition(TOPIC, 0)
TRANSACTIONAL_ID = "runnel-schema-registry"
SETTINGS: Mapping[str, str] = {POLICY: COMPACT}


class Workers:
    """What the stores of a gateway share: threads for deciding and comparing, verdicts, and metrics."""

    def __init__(self, metrics: RegistryMetrics | None = None) -> None:
        self.metrics = metrics or RegistryMetrics()
        self._deciding = ThreadPoolExecutor(WORKERS, thread_name_prefix="registry")
        self._checking = ThreadPoolExecutor(CHECK_WORKERS, thread_name_prefix="registry-checks")
        self.verdicts = Verdicts()
        self.writing = asyncio.Lock()
        """Writers of one gateway wait for each other instead of fencing each other."""
        self.written_s = float("-inf")
        """When this gateway last wrote: all its clients read that."""
        self.lasting_topic = b""
        """The id of the topic that was found to keep its records."""
        self.has_skipped = False
        """Did a record fail to replay? Only the first one is logged: all stores skip the same ones."""

    async def run(self, lock: asyncio.Lock, call: Callable[[], T]) -> T:
        """Call a function in a thread, with a lock that is held until it ends, even if its caller is gone."""
        await lock.acquire()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._deciding, call)
        except BaseException:
            lock.release()
            raise
        future.add_done_callback(lambda _: lock.release())
        return await asyncio.shield(future)

    async def check(self, unchecked: Unchecked) -> None:
        """Carry out checks. What was compared when the time is up is remembered for the next request."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CHECKS_S
        for check in unchecked.checks:
            if loop.time() >= deadline_s:
                raise RegistryError(50002, f"comparing all versions takes over {CHECKS_S:g} s; try again")
            self.verdicts.add(check, await loop.run_in_executor(self._checking, check.run))

    def close(self) -> None:
        """End the threads."""
        for threads in (self._deciding, self._checking):
            threads.shutdown(wait=False, cancel_futures=True)


class Overtaken(Exception):
    """The topic has records that a decision was made without."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """Records that were sent, and the response to give once they are committed."""

    response: T
    topic_id: bytes
    offsets: frozenset[int]


@dataclass(slots=True)
class Change(Generic[T]):
    """A request that changes something, with all its attempts."""

    decide: Callable[[RegistryState, Verdicts], Decision[T]]
    sent: Sent[T] | None = None
    """What the last attempt was about to commit; until its outcome is known, nothing else is decided."""


class Store:
    """The registry as one principal reads and writes it."""

    def __init__(self, cluster: Cluster, workers: Workers) -> None:
        self._cluster = cluster
        self._workers = workers
        self._state = RegistryState()
        self._position = 0
        self._topic_id: bytes | None = None
        """The topic that the state is of; None if it does not exist."""
        self._refreshed_s = float("-inf")
        self._refreshed_at_s = 0.0
        """When that was, by the wall clock, which does not stop while a machine sleeps."""
        self._permitted_s = float("-inf")
        """When a broker has last permitted to read the topic."""
        self._state_lock = asyncio.Lock()
        """Held while the state changes, and while a request is decided against it."""

    async def read(self, query: Callable[[RegistryState, Verdicts], T]) -> T:
        """The result of a query; one that finds nothing is repeated with all records of the topic."""
        try:
            async with asyncio.timeout(WRITE_S + CHECKS_S):
                return await self._read(query)
        except TimeoutError:
            raise RegistryError(50002, f"{TOPIC} could not be read in time; try again") from None

    async def _read(self, query: Callable[[RegistryState, Verdicts], T]) -> T:
        is_fresh = await self._refresh(FRESH_S)
        try:
            return await self._decide_with_checks(query)
        except RegistryError as error:
            if error.status != 404 or is_fresh:
                raise
        await self._refresh(0.0)
        return await self._decide_with_checks(query)

    async def write(self, decide: Callable[[RegistryState, Verdicts], Decision[T]]) -> T:
        """Carry out what a request leads to."""
        change = Change(decide)
        try:
            async with asyncio.timeout(WRITE_S + CHECKS_S):
                return await self._write(change)
        except TimeoutError:
            if change.sent is not None:
                reason = "the change may have been made; read before trying again"
            else:
                reason = "the registry was changed by others for too long; try again"
            raise RegistryError(50002, reason) from None

    async def _write(self, change: Change[T]) -> T:
        await self._refresh(0.0)
        # Most requests register what is registered already: these, and refusals, need no transaction.
        decision = await self._decide_with_checks(change.decide)
        if not decision.records:
            return decision.response
        pause_s = ATTEMPT_PAUSE_S
        while True:
            try:
                async with self._workers.writing:
                    return await self._attempt(change)
            except Unchecked as unchecked:
                # A version was added meanwhile. Others write while it is compared with.
                await self._workers.check(unchecked)
            except Overtaken:
                # The transaction is aborted, and the next attempt reads what it was decided without.
                change.sent = None
            except ClientError as error:
                is_in_doubt = change.sent is not None and error.retriable
                if not is_in_doubt and not is_fenced(error):
                    raise
            await asyncio.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, ATTEMPT_PAUSE_MAX_S)

    async def _attempt(self, change: Change[T]) -> T:
        await create_if_missing(self._cluster, TOPIC, SETTINGS)
        await self._check_lasts()
        producer = TransactionalProducer(
            self._cluster, TRANSACTIONAL_ID, timeout_ms=TRANSACTION_TIMEOUT_MS, delivery_timeout_s=WRITE_S
        )
        try:
            async with producer.transaction():
                await self._refresh(0.0)
                sent = change.sent
                if sent is None or not await self._is_committed(sent):
                    change.sent = None
                    decision, position = await self._decide(change.decide)
                    if not decision.records:
                        return decision.response
                    sent = await self._send(producer, decision)
                    if min(sent.offsets) != position:
                        raise Overtaken
                    change.sent = sent
        finally:
            with suppress(ClientError):
                await producer.close()
        await self._replay_past(sent)
        self._workers.written_s = asyncio.get_running_loop().time()
        return sent.response

    async def _check_lasts(self) -> None:
        """Raise RegistryError if the topic drops records, as one that a broker has created by itself."""
        topic_id = (await self._cluster.topic(TOPIC)).topic_id
        if topic_id == self._workers.lasting_topic:
            return
        policy = await cleanup_policy(self._cluster, TOPIC)
        if policy is None:
            # Most principals need not know.
            return
        if policy != COMPACT:
            reason = f"the topic {TOPIC} has {POLICY}={policy}: set it to {COMPACT}, or schemas will be lost"
            raise RegistryError(50001, reason)
        self._workers.lasting_topic = topic_id

    async def _send(self, producer: TransactionalProducer, decision: Decision[T]) -> Sent[T]:
        records = decision.records
        sent = [await producer.send(TOPIC, one.value, key=one.key, partition=0) for one in records]
        await producer.flush()
        offsets = set()
        for result in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            offsets.add(result.offset)
        if min(offsets) < 0:
            # The broker has them, and no longer knows where: the transaction is aborted.
            raise RegistryError(50002, f"{TOPIC} could not be written; try again")
        topic = await self._cluster.topic(TOPIC)
        return Sent(decision.response, topic.topic_id, frozenset(offsets))

    async def _is_committed(self, sent: Sent[T]) -> bool:
        """Were records committed? Initializing has ended their transaction, so that they can be read.

        They are not compacted yet: that needs newer records and a new segment, which take longer.
        """
        await self._replay_past(sent)
        if self._topic_id != sent.topic_id:
            return False
        first = {PARTITION: min(sent.offsets)}
        [fetched] = await fetch_once(self._cluster, first, isolation=READ_COMMITTED)
        return any(message.offset in sent.offsets for message in fetched.chunk.messages())

    async def _replay_past(self, sent: Sent[T]) -> None:
        """Replay until the end of a transaction is reached, as long as its topic exists.

        Markers are written after the response to EndTxn: until then, no other gateway reads the records.
        """
        await self._refresh(0.0)
        while self._topic_id == sent.topic_id and self._position <= max(sent.offsets):
            await asyncio.sleep(VISIBLE_PAUSE_S)
            await self._refresh(0.0)

    async def _decide_with_checks(self, decide: Callable[[RegistryState, Verdicts], T]) -> T:
        while True:
            try:
                return (await self._decide(decide))[0]
            except Unchecked as unchecked:
                await self._workers.check(unchecked)

    async def _decide(self, decide: Callable[[RegistryState, Verdicts], T]) -> tuple[T, int]:
        """What is decided, and the offset up to which the records are known. Raises Unchecked."""

        def call() -> tuple[T, int]:
            return decide(self._state, self._workers.verdicts), self._position

        return await self._workers.run(self._state_lock, call)

    # Replay.

    async def _refresh(self, age_max_s: float) -> bool:
        """Replay all committed records unless that was done a moment ago; returns whether it was done."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refreshed_s < age_max_s and self._refreshed_s > self._workers.written_s:
            return False
        async with self._state_lock:
            now_at_s = time.time()
            topic_id = await self._current_topic_id()
            end_offset = 0 if topic_id is None else await self._end_offset()
            # A topic that was deleted and created again may have as many records as before.
            is_other = topic_id != self._topic_id or end_offset < self._position
            if is_other or abs(now_at_s - self._refreshed_at_s) > STATE_AGE_MAX_S:
                self._state, self._position, self._refreshed_s = RegistryState(), 0, float("-inf")
                # A replay that is interrupted is continued by the next request.
                self._refreshed_at_s = now_at_s
            self._topic_id = topic_id
            if end_offset > self._position:
                await self._replay(end_offset)
                self._permitted_s = now_s
            elif topic_id is not None and now_s - self._permitted_s >= PERMITTED_S:
                await self._check_permission()
                self._permitted_s = now_s
            self._refreshed_s, self._refreshed_at_s = now_s, now_at_s
            self._workers.metrics.subjects = len(self._state.subjects)
            self._workers.metrics.schemas = sum(len(one.by_id) for one in self._state.contexts.values())
        return True

    async def _check_permission(self) -> None:
        """Raise an error if the topic may not be read any more: nothing has to be read of it now."""
        try:
            await fetch_once(self._cluster, {PARTITION: self._position}, isolation=READ_COMMITTED)
        except BrokerError as error:
            if error.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise

    async def _current_topic_id(self) -> bytes | None:
        """The id of the topic; None if it does not exist."""
        # After a failover, a broker may not know a topic for a moment; looking for a new one does not wait.
        missing_s = 0.0 if self._topic_id is None else MISSING_TOPIC_TIMEOUT_S
        try:
            return (await self._cluster.topic(TOPIC, missing_s=missing_s, max_age_s=0.0)).topic_id
        except BrokerError as error:
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise

    async def _end_offset(self) -> int:
        try:
            ends = await end_offsets(self._cluster, [PARTITION], isolation=READ_COMMITTED)
        except BrokerError as error:
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return 0
            raise
        return ends[PARTITION]

    async def _replay(self, end_offset: int) -> None:
        # A leader that lags behind may still have the topic before this one.
        ids = {} if self._topic_id is None else {TOPIC: self._topic_id}
        async with Reader(
            self._cluster, isolation=READ_COMMITTED, out_of_range="earliest", topic_ids=ids
        ) as reader:
            await reader.assign({PARTITION: self._position})
            replayed = 0
            async for message in reader.messages(until={PARTITION: end_offset}):
                try:
                    self._state.replay(message.key, message.value)
                except Exception:
                    # One record must not keep all others from being read, by every gateway and for ever.
                    if not self._workers.has_skipped:
                        self._workers.has_skipped = True
                        log.exception("the record of %s at offset %d is skipped", TOPIC, message.offset)
                self._position = message.offset + 1
                replayed += 1
                if replayed % REPLAY_RECORDS == 0:
                    await asyncio.sleep(0)
        # Markers of transactions have offsets too; the reader may be further, at records not replayed.
        self._position = end_offset
