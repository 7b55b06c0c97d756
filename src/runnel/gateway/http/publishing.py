"""Records in: one, a batch, or an upload of any length."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from runnel.batch.records import IDEMPOTENCY_KEY_HEADER, Record
from runnel.client.accumulator import Delivery
from runnel.client.admin import Admin
from runnel.client.cluster import TopicView
from runnel.client.deliveries import Deliveries
from runnel.client.errors import BrokerError, ClientError
from runnel.gateway.http import cloud_events
from runnel.gateway.http.counting import Element, check_count
from runnel.gateway.http.idempotency import key_of_request, partition_of, with_key
from runnel.gateway.http.limits import (
    BUFFER_BYTES_MAX,
    BUFFER_REFUSED_SHARE,
    BULK_ERRORS_MAX,
    BULK_IN_FLIGHT_MAX,
    KEYED_BUFFER_BYTES_MAX,
    LINE_BYTES_MAX,
    OUTCOME_S,
)
from runnel.gateway.http.message_ids import message_ids
from runnel.gateway.http.models import (
    FailedLine,
    Published,
    PublishOutcome,
    PublishOutcomes,
    PublishQuery,
    UploadSummary,
)
from runnel.gateway.http.operations import JSON, NDJSON
from runnel.gateway.http.principals import Principal
from runnel.gateway.http.problems import UNKNOWN_OUTCOME, Problem, problem_of
from runnel.gateway.http.records import TRACE_HEADER, GivenRecord, OutgoingRecord, to_record
from runnel.gateway.http.requests import Call, decode, unsupported
from runnel.gateway.http.responses import LineStream
from runnel.gateway.http.topic_names import check_may_change, check_no_system_topic
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

T = TypeVar("T")
ONE_OR_MANY: Any = GivenRecord | list[GivenRecord]
TURN = 250
"""Records that are converted or sent before other requests have their turn."""
HEADERS_BYTES = 1_000
"""Headers that take as long as a record."""

Sent = asyncio.Future[Delivery]


async def publish(call: Call) -> Response:
    """Write one record, or many."""
    key = key_of_request(call.request.headers)
    view = await _topic(call)
    kind = call.media_type
    if kind == NDJSON:
        _check_no_key(key)
        return await _upload(call, view)
    if cloud_events.is_event(kind, call.request.headers):
        body = await call.body()
        records = cloud_events.to_records(kind, call.request.headers, body)
        is_batch = kind == cloud_events.BATCH
    elif kind == JSON:
        trace = call.request.headers.get(TRACE_HEADER)
        body = await call.body()
        check_count(body, Element | list[Element], decode)
        given = decode(body, ONE_OR_MANY)
        is_batch = isinstance(given, list)
        all_given = given if isinstance(given, list) else [given]
        records = await _converted(all_given, trace)
    else:
        raise unsupported(call.operation, kind)
    if not is_batch:
        record = records[0] if key is None else with_key(records[0], key)
        return call.answer(await publish_one(call.principal, view, record))
    _check_no_key(key)
    outcomes = await publish_all(call.principal, view, records)
    status = 207 if any(outcome.error is not None for outcome in outcomes) else 200
    return call.answer(PublishOutcomes(outcomes), status)


def _check_no_key(key: bytes | None) -> None:
    if key is not None:
        raise Problem(
            422, "an Idempotency-Key is for one record: send an idempotencyKey with each of several"
        )


async def _topic(call: Call) -> TopicView:
    """The topic, created if that is asked for; internal ones are refused."""
    query = call.query(PublishQuery)
    check_no_system_topic(call.topic)
    try:
        view = await call.topic_view()
    except Problem as missing:
        if not query.create or missing.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            raise
        try:
            await Admin(call.cluster).create_topic(call.topic)
        except BrokerError as refusal:
            if refusal.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        view = await call.cluster.topic(call.topic)
        call.principal.topics.invalidate()
    check_may_change(view)
    return view


async def send(principal: Principal, topic: str, record: OutgoingRecord, *, waits: bool = False) -> Sent:
    """Queue a record; with `waits`, also while the buffer is full."""
    if record.idempotency_key is not None:
        sent = await _send_with_key(principal, topic, record, record.idempotency_key, waits)
    else:
        sent = await principal.producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            buffered_max=None if waits else int(BUFFER_BYTES_MAX * BUFFER_REFUSED_SHARE),
        )
    # A request that has ended does not retrieve it.
    sent.add_done_callback(lambda future: future.cancelled() or future.exception())
    return sent


async def _send_with_key(
    principal: Principal, topic: str, record: OutgoingRecord, key: bytes, waits: bool
) -> Sent:
    if record.timestamp_ms is not None:
        raise Problem(
            422, "a record with an idempotency key has the time at which it is written as timestamp"
        )
    await principal.dedup.check(topic)
    view = await principal.cluster.topic(topic)
    target = TopicPartition(topic, partition_of(record, len(view.partitions)))
    if target.partition >= len(view.partitions):
        # It may have been added since.
        principal.cluster.invalidate_topic(topic)
        await principal.cluster.leader(target)
    headers = [*record.headers, (IDEMPOTENCY_KEY_HEADER, key)]
    return await principal.keyed_producer.send(
        target,
        Record(0, time.time_ns() // 1_000_000, record.key, record.value, headers),
        buffered_max=None if waits else int(KEYED_BUFFER_BYTES_MAX * BUFFER_REFUSED_SHARE),
    )


async def publish_one(principal: Principal, view: TopicView, record: OutgoingRecord) -> Published:
    """Write a record; Problem if it was not, or if that is unknown."""
    return await published(view, await send(principal, view.name, record))


async def published(view: TopicView, sent: Sent) -> Published:
    """Where a record that was sent is; Problem if it was not written, or if that is unknown."""
    timer = asyncio.get_running_loop().call_later(OUTCOME_S, _give_up, sent)
    try:
        delivery = await sent
    finally:
        timer.cancel()
    number = delivery.partition.partition
    return Published(_id(view, delivery), number, delivery.offset)


def _give_up(sent: Sent) -> None:
    if not sent.done():
        sent.set_exception(Problem(504, UNKNOWN_OUTCOME))


async def publish_all(
    principal: Principal, view: TopicView, records: Sequence[OutgoingRecord]
) -> list[PublishOutcome]:
    """Write records; the outcome of each."""
    plain = [each for each in records if each.idempotency_key is None]
    together = [await _send_together(principal, view, part) async for part in _in_turns(plain)]
    keyed: list[Sent | Problem] = []
    async for part in _in_turns([each for each in records if each.idempotency_key is not None]):
        keyed += [await _send_or_refuse(principal, view, each) for each in part]
    loop = asyncio.get_running_loop()
    until_s = loop.time() + OUTCOME_S
    for deliveries in together:
        await deliveries.wait(until_s - loop.time())
    waiting = [each for each in keyed if isinstance(each, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting, timeout=max(until_s - loop.time(), 0.0))
    of_plain = (_outcome(view, found) for deliveries in together for found in deliveries.outcomes)
    of_keyed = (outcome_of(view, each) for each in keyed)
    outcomes: list[PublishOutcome] = []
    async for part in _in_turns(records):
        outcomes += [next(of_plain if each.idempotency_key is None else of_keyed) for each in part]
    return outcomes


async def _send_together(
    principal: Principal, view: TopicView, records: Sequence[OutgoingRecord]
) -> Deliveries:
    """Queue records without idempotency keys."""
    now_ms = time.time_ns() // 1_000_000
    given = [
        (
            Record(
                0,
                now_ms if each.timestamp_ms is None else each.timestamp_ms,
                each.key,
                each.value,
                each.headers,
            ),
            each.partition,
        )
        for each in records
    ]
    buffered_max = int(BUFFER_BYTES_MAX * BUFFER_REFUSED_SHARE)
    try:
        return await principal.producer.send_all(view.name, given, buffered_max=buffered_max)
    except ClientError as error:
        refused = Deliveries(len(records))
        for index in range(len(records)):
            refused.set(index, error)
        return refused


async def _send_or_refuse(principal: Principal, view: TopicView, record: OutgoingRecord) -> Sent | Problem:
    try:
        return await send(principal, view.name, record)
    except Problem as problem:
        return problem
    except ClientError as error:
        return problem_of(error)


async def _in_turns(items: Sequence[T]) -> AsyncGenerator[Sequence[T]]:
    """The items in parts, between which other requests have their turns."""
    for begin in range(0, len(items), TURN):
        if begin:
            await asyncio.sleep(0)
        yield items[begin : begin + TURN]


async def _converted(given: Sequence[GivenRecord], trace: str | None) -> list[OutgoingRecord]:
    """The records of a request, between which other requests have their turns."""
    found: list[OutgoingRecord] = []
    done = 0
    for each in given:
        found.append(to_record(each, trace))
        done += 1 + each.headers_bytes // HEADERS_BYTES
        if done >= TURN:
            done = 0
            await asyncio.sleep(0)
    return found


def _outcome(view: TopicView, found: Delivery | Exception | None) -> PublishOutcome:
    if isinstance(found, Delivery):
        return PublishOutcome(_id(view, found), found.partition.partition, found.offset)
    if found is None:
        return PublishOutcome(error=Problem(504, UNKNOWN_OUTCOME).details)
    if isinstance(found, ClientError):
        return _failed(found)
    raise found


def _failed(error: ClientError) -> PublishOutcome:
    return PublishOutcome(error=problem_of(error).details)


def outcome_of(view: TopicView, sent: Sent | Problem) -> PublishOutcome:
    """What became of a record."""
    if isinstance(sent, Problem):
        return PublishOutcome(error=sent.details)
    if not sent.done():
        return _outcome(view, None)
    error = sent.exception()
    return _failed(error) if isinstance(error, ClientError) else _outcome(view, sent.result())


def _id(view: TopicView, delivery: Delivery) -> str | None:
    if delivery.offset < 0:
        # The broker has it already, and does not say where.
        return None
    return message_ids(view.topic_id, delivery.partition.partition).text(delivery.offset)


# Uploads.


@dataclass(slots=True)
class Upload:
    """An upload, line by line: a bounded number of records is in flight, and only counts are kept."""

    principal: Principal
    view: TopicView
    trace: str | None
    line: int = 0
    published: int = 0
    failed: int = 0
    errors: list[FailedLine] = field(default_factory=list)
    _in_flight: deque[tuple[int, Sent | Problem]] = field(default_factory=deque)

    async def add(self, line: bytes | None) -> None:
        """Queue a line, waiting while the buffer is full."""
        self.line += 1
        self._in_flight.append((self.line, await self._sent(line)))

    async def _sent(self, line: bytes | None) -> Sent | Problem:
        try:
            if line is None:
                raise Problem(413, f"the line is longer than {LINE_BYTES_MAX} bytes")
            record = to_record(decode(line, GivenRecord), self.trace)
            return await send(self.principal, self.view.name, record, waits=True)
        except Problem as problem:
            return problem
        except ClientError as error:
            return problem_of(error)

    async def outcomes(self, *, in_flight_max: int) -> AsyncGenerator[PublishOutcome]:
        """The outcomes in the order of lines, until no more than this many are in flight."""
        while self._in_flight:
            number, sent = self._in_flight[0]
            if isinstance(sent, asyncio.Future) and not sent.done():
                if len(self._in_flight) <= in_flight_max:
                    return
                await asyncio.wait((sent,), timeout=OUTCOME_S)
            self._in_flight.popleft()
            outcome = outcome_of(self.view, sent)
            if outcome.error is None:
                self.published += 1
            else:
                self.failed += 1
                if len(self.errors) < BULK_ERRORS_MAX:
                    self.errors.append(FailedLine(number, outcome.error))
            yield outcome


async def _upload(call: Call, view: TopicView) -> Response:
    upload = Upload(call.principal, view, call.request.headers.get(TRACE_HEADER))
    if call.accepts(NDJSON):
        return LineStream(_encoded(_uploaded(call, upload)))
    problem: Problem | None = None
    try:
        async for _ in _uploaded(call, upload):
            pass
    except Problem as early:
        if not upload.line:
            raise
        problem = early
    summary = UploadSummary(upload.published, upload.failed, upload.errors)
    if problem is not None:
        summary.error = problem.details
        return call.answer(summary, 207, problem.headers)
    return call.answer(summary, 207 if upload.failed else 200)


async def _uploaded(call: Call, upload: Upload) -> AsyncGenerator[PublishOutcome]:
    """The outcomes of all lines; then the problem, if the upload has ended early."""
    problem: Problem | None = None
    try:
        async for line in call.lines():
            await upload.add(line)
            async for outcome in upload.outcomes(in_flight_max=BULK_IN_FLIGHT_MAX):
                yield outcome
    except Problem as early:
        problem = early
    async for outcome in upload.outcomes(in_flight_max=0):
        yield outcome
    if problem is not None:
        raise problem


async def _encoded(outcomes: AsyncIterator[PublishOutcome]) -> AsyncGenerator[bytes]:
    try:
        async for outcome in outcomes:
            yield msgspec.json.encode(outcome) + b"\n"
    except Problem as problem:
        # Too late for a status.
        yield msgspec.json.encode(PublishOutcome(error=problem.details)) + b"\n"
