"""Messages out, a request at a time: from an offset, a time, a cursor, or the position of a group."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec
from starlette.responses import Response

from runnel.client.chunk import Message as KafkaMessage
from runnel.client.chunk import NoRoom, Room
from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import BrokerError
from runnel.client.fetching import Fetched, FetchSizes, fetch_once
from runnel.client.moments import InvalidMoment
from runnel.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, end_offsets, start_offsets
from runnel.client.start_positions import start_positions
from runnel.gateway.http import cloud_events, groups
from runnel.gateway.http.limits import (
    POLL_BYTES_MAX,
    POLL_FEW_BYTES,
    POLL_FEW_MESSAGES,
    POLL_MESSAGE_BYTES,
    POLL_PARTITION_BYTES,
    POLL_PARTITIONS_MAX,
    POLL_ROUNDS_MAX,
)
from runnel.gateway.http.message_ids import OFFSET_MAX, RECREATED, Cursor, read_cursor, read_message_id
from runnel.gateway.http.models import (
    Acknowledged,
    AckRequest,
    CommittedOffset,
    Gap,
    Isolation,
    Messages,
    SubscribeQuery,
)
from runnel.gateway.http.operations import EVENT_STREAM, NDJSON
from runnel.gateway.http.principals import Principal
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.records import View
from runnel.gateway.http.requests import NO_STORE, Call, find_topic
from runnel.gateway.http.responses import LineStream
from runnel.gateway.http.streams.feeds import FeedKey, RecordsDeleted
from runnel.gateway.turns import Turns, converted, new_room, size_of
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

MESSAGES_DEFAULT = 100
READ_AGAIN_S = 1.0
"""The pause after a read without messages although there should be some, unless more arrive."""
Positions = dict[TopicPartition, int]


@dataclass(slots=True)
class Subscription:
    """What a client reads, and from where."""

    cluster: Cluster
    view: TopicView
    query: SubscribeQuery
    positions: Positions
    shown: View
    gaps: list[Gap] = field(default_factory=list)
    is_assumed: bool = False
    """The positions are an offset that was given, which may be outside of some partitions."""

    @property
    def isolation(self) -> int:
        return READ_COMMITTED if self.query.isolation is Isolation.READ_COMMITTED else READ_UNCOMMITTED

    @property
    def feed_key(self) -> FeedKey:
        """What it has in common with others."""
        return FeedKey(self.view.name, self.query.partition, self.isolation, self.shown)

    @property
    def wake_key(self) -> FeedKey:
        """The feed that wakes a poll, which reads on its own: the same for all groups and formats."""
        return FeedKey(self.view.name, self.query.partition, self.isolation, View(self.view.topic_id))

    @property
    def moves_group(self) -> bool:
        """Do acks of what is read move the group?"""
        return self.query.group is not None and not self.shown.is_replayed

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, too, from where a client begins that has read nothing of them."""
        added = [each for each in sorted(partitions) if each not in self.positions]
        if not added:
            return
        if self.query.group is not None and self.moves_group:
            self.positions |= await groups.deliverable(self.cluster, self.query.group, added)
        else:
            self.positions |= await start_offsets(self.cluster, added)

    async def grow(self) -> None:
        """Read partitions that were added to the topic, too."""
        view = await find_topic(self.cluster, self.view.name, max_age_s=0.0)
        if view.topic_id != self.view.topic_id:
            raise Problem(409, RECREATED)
        self.view = view
        await self.add(TopicPartition(view.name, number) for number in range(len(view.partitions)))

    def cursor(self) -> Cursor:
        """The positions as clients see them."""
        return Cursor(self.view.topic_id, {each.partition: at for each, at in self.positions.items()})


async def subscription(
    cluster: Cluster,
    view: TopicView,
    query: SubscribeQuery,
    default_start: str,
    resumed: str | None = None,
    *,
    is_read_next: bool = False,
) -> Subscription:
    """Find where a subscription begins; `resumed` is the last cursor of an earlier stream of it.

    A given offset is verified, unless what is read next does that.
    """
    cursor = resumed or query.cursor
    if cursor is not None or (query.partition or 0) >= len(view.partitions):
        # The topic may have been recreated, or have more partitions, since its metadata was cached.
        view = await find_topic(cluster, view.name, max_age_s=0.0)
    count = len(view.partitions)
    if query.partition is not None and query.partition >= count:
        raise Problem(404, f"the topic {view.name} has {count} partitions, numbered from 0")
    if query.partition is None and count > POLL_PARTITIONS_MAX:
        detail = f"the topic has more than {POLL_PARTITIONS_MAX} partitions: read one of them, by partition="
        raise Problem(422, detail)
    numbers = range(count) if query.partition is None else (query.partition,)
    partitions = [TopicPartition(view.name, number) for number in numbers]
    is_replayed = query.group is not None and (query.offset is not None or query.cursor is not None)
    shown = View(view.topic_id, query.format, query.group or "", is_replayed)
    found = Subscription(cluster, view, query, {}, shown)
    if cursor is not None:
        given = read_cursor(cursor, view.topic_id)
        found.positions = {each: given[each.partition] for each in partitions if each.partition in given}
        # Those that were added since.
        await found.add(partitions)
    elif query.group is not None and query.offset is None:
        found.positions = await groups.deliverable(cluster, query.group, partitions)
    elif is_read_next and (number := _number(query.offset)) is not None:
        found.positions = dict.fromkeys(partitions, number)
        found.is_assumed = True
    else:
        try:
            found.positions = await start_positions(
                cluster, partitions, query.offset or default_start, isolation=found.isolation
            )
        except InvalidMoment as error:
            raise Problem(422, f"offset: {error}") from None
    return found


def _number(offset: str | None) -> int | None:
    """A given offset as such; None if it is something else."""
    number = int(offset) if offset is not None and offset.isdecimal() else -1
    return number if 0 <= number <= OFFSET_MAX else None


# One response.


async def subscribe(call: Call) -> Response:
    """Messages, waiting for them if asked to; a stream for clients that accept one."""
    query = call.query(SubscribeQuery)
    view = await call.topic_view()
    if call.accepts(EVENT_STREAM):
        from runnel.gateway.http.streams.sse import event_stream

        return await event_stream(call, view, query)
    found = await subscription(call.cluster, view, query, "earliest", is_read_next=True)
    if call.accepts(NDJSON):
        messages = await poll(call, found, query.max or MESSAGES_DEFAULT)
        return LineStream(_lines(found, messages), {"runnel-next": found.cursor().text()})
    is_single = query.group is not None and query.max is None and not found.shown.is_replayed
    is_event = cloud_events.is_single(call, query.format)
    if is_event and (query.max or 1) > 1:
        raise Problem(422, f"one event is a whole response: use max=1, or accept {cloud_events.BATCH}")
    messages = await poll(call, found, 1 if is_single or is_event else query.max or MESSAGES_DEFAULT)
    as_events = await cloud_events.response_of(call, found.shown, view.name, messages, found.cursor().text())
    if as_events is not None:
        return as_events
    if not is_single:
        shown = await converted(messages, found.shown.of)
        content = Messages(shown, found.cursor().text(), found.gaps)
        return call.answer(content)
    if not messages:
        return Response(status_code=204, headers=NO_STORE)
    return call.answer(found.shown.of(messages[0]))


async def _lines(found: Subscription, messages: list[KafkaMessage]) -> AsyncGenerator[bytes]:
    part: list[bytes] = []
    turns = Turns()
    for message in messages:
        part.append(msgspec.json.encode(found.shown.of(message)) + b"\n")
        if turns.is_over(message):
            yield b"".join(part)
            part.clear()
            await asyncio.sleep(0)
    if part:
        yield b"".join(part)


async def poll(call: Call, found: Subscription, limit: int) -> list[KafkaMessage]:
    """The next messages; waits for the first as long as the query says. Moves the positions."""
    messages = await read(found, limit)
    deadline_s = asyncio.get_running_loop().time() + found.query.wait / 1000
    if messages or not found.query.wait:
        return messages
    try:
        return await _wait(call.principal, found, limit, deadline_s)
    except RecordsDeleted:
        return await read(found, limit)


async def _wait(
    principal: Principal, found: Subscription, limit: int, deadline_s: float
) -> list[KafkaMessage]:
    """Read again when the feed of the topic has seen something that was not read."""
    loop = asyncio.get_running_loop()
    async with principal.feeds.follow(found.wake_key, list(found.positions)) as feed:
        while (left_s := deadline_s - loop.time()) > 0 and not feed.is_stopped:
            if feed.is_beyond(found.positions):
                messages = await read(found, limit)
                if messages:
                    return messages
                # What the feed has seen is not for this client, or was deleted: this must not become a loop.
                left_s = min(left_s, READ_AGAIN_S)
            await feed.changed(left_s)
    return []


async def read(found: Subscription, limit: int) -> list[KafkaMessage]:
    """The next messages that are there; moves the positions behind them."""
    few = limit <= POLL_FEW_MESSAGES
    most = sizes = FetchSizes(POLL_BYTES_MAX, POLL_FEW_BYTES if few else POLL_PARTITION_BYTES)
    if len(found.positions) == 1 and limit * POLL_MESSAGE_BYTES < most.partition_bytes:
        # Of several partitions, a broker returns large batches only of the first.
        sizes = FetchSizes(POLL_BYTES_MAX, limit * POLL_MESSAGE_BYTES)
    pending = list(found.positions)
    for _ in range(POLL_ROUNDS_MAX):
        fetched = await fetch(found, pending, sizes)
        if fetched is None:
            continue
        positions = dict(found.positions)
        messages = await take(fetched, limit, positions)
        if len(messages) < limit and sizes is not most and any(each.has_more for each in fetched):
            # They are larger than expected.
            sizes = most
            continue
        found.positions = positions
        if messages:
            return messages
        # Another one is first, of which a broker returns a batch of any size.
        pending = [each.chunk.partition for each in fetched if each.has_more]
        pending = pending[1:] + pending[:1]
        if not pending:
            break
    return []


async def fetch(
    found: Subscription, pending: Sequence[TopicPartition], sizes: FetchSizes
) -> list[Fetched] | None:
    """Fetch partitions from their positions; None if these were not in the log, and were moved into it."""
    wanted = {partition: found.positions[partition] for partition in pending}
    try:
        fetched = await fetch_once(found.cluster, wanted, isolation=found.isolation, sizes=sizes)
    except BrokerError as error:
        if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        await into_range(found, list(found.positions))
        return None
    if found.is_assumed:
        # An offset in the log can be after the last that is shown.
        found.positions |= {each.chunk.partition: each.end_offset for each in fetched if each.is_behind_end}
        fetched = [each for each in fetched if not each.is_behind_end]
        found.is_assumed = False
    return fetched


async def into_range(found: Subscription, partitions: Sequence[TopicPartition]) -> None:
    """Move positions that are not in the log into it, and note what is left out as gaps.

    A position after the end is one of a log that was truncated since, and written again from an offset that
    is not known. A group starts over, like a new one: at least once.
    """
    starts, ends, visible_ends = await asyncio.gather(
        start_offsets(found.cluster, partitions),
        end_offsets(found.cluster, partitions),
        end_offsets(found.cluster, partitions, isolation=found.isolation),
    )
    for each in partitions:
        position, start = found.positions[each], starts[each]
        if found.moves_group and position > max(ends[each], start):
            moved = start
        else:
            moved = min(max(position, start), max(visible_ends[each], start))
        if moved == position:
            continue
        if not found.is_assumed:
            found.gaps.append(Gap(each.partition, position, moved))
        found.positions[each] = moved
    found.is_assumed = False


async def take(fetched: list[Fetched], limit: int, positions: Positions) -> list[KafkaMessage]:
    """The oldest messages over all partitions; moves the positions behind them."""
    begun, streams = _begun(fetched, new_room())
    messages: list[KafkaMessage] = []
    size_bytes = 0
    turns = Turns()
    try:
        for message in heapq.merge(*streams, key=lambda message: message.timestamp_ms):
            messages.append(message)
            size_bytes += size_of(message)
            # Compressed batches can be much larger than what was fetched.
            if len(messages) == limit or size_bytes > 4 * POLL_BYTES_MAX:
                return _up_to(messages, positions)
            if turns.is_over(message):
                await asyncio.sleep(0)
    except NoRoom:
        # The next request goes on.
        return _up_to(messages, positions)
    for each in begun:
        positions[each.chunk.partition] = each.chunk.next_offset
    return messages


def _begun(fetched: list[Fetched], room: Room) -> tuple[list[Fetched], list[Iterator[KafkaMessage]]]:
    """Those partitions that can be read at the same time, and their messages."""
    begun: list[Fetched] = []
    streams: list[Iterator[KafkaMessage]] = []
    for each in fetched:
        stream = each.chunk.messages(room)
        try:
            first = next(stream, None)
        except NoRoom:
            continue
        begun.append(each)
        if first is not None:
            streams.append(chain((first,), stream))
    return begun, streams


def _up_to(messages: list[KafkaMessage], positions: Positions) -> list[KafkaMessage]:
    last = {each.partition: each for each in messages}
    positions |= {TopicPartition(each.topic, each.partition): each.offset + 1 for each in last.values()}
    return messages


# Acknowledgements.


async def ack(call: Call) -> Response:
    """Acknowledge messages."""
    given = await call.json(AckRequest)
    return call.answer(await acknowledged(call.api.acks, call.cluster, call.topic, given))


async def acknowledged(acks: groups.Acks, cluster: Cluster, topic: str, given: AckRequest) -> Acknowledged:
    """Acknowledge the messages of a request."""
    # Not cached: the ids may be of a topic that was deleted and recreated.
    view = await find_topic(cluster, topic, max_age_s=0.0)
    one, many = given.message_id, given.message_ids
    if isinstance(one, str) == isinstance(many, list):
        raise Problem(422, "give messageId or messageIds")
    texts = [one] if isinstance(one, str) else many if isinstance(many, list) else []
    committed = await acks.acknowledge(cluster, view, [read_message_id(text) for text in texts])
    return Acknowledged([CommittedOffset(*each) for each in sorted(committed.items())])
