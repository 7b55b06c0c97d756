"""A consumer in a consumer group, with automatic assignment and offset commits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TypeVar

from runnel.client.chunk import Chunk, Message
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError
from runnel.client.groups import Groups, check_committed, commit_request
from runnel.client.membership import Membership, MembershipState
from runnel.client.offsets import READ_UNCOMMITTED, list_offsets
from runnel.client.reader import RESETS, Reader
from runnel.messages.heartbeat import HeartbeatResponse
from runnel.messages.join_group import JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupResponse
from runnel.messages.offset_commit import OffsetCommitResponse
from runnel.messages.sync_group import SyncGroupResponse
from runnel.model.ids import TopicPartition
from runnel.wire import Request, Response

METADATA_CHECK_INTERVAL_S = 30.0
"""How often the group leader checks for new partitions."""

ResponseT = TypeVar("ResponseT", bound=Response)
Listener = Callable[[Sequence[TopicPartition]], None]


class GroupConsumer:
    """A member of a consumer group; use as `async with`, which commits and leaves at the end.

    Messages are consumed once the next ones are polled, so that delivery is at least once.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        start: str = "earliest",
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_ms: int = 3_000,
        commit_every_ms: int | None = 5_000,
        instance_id: str | None = None,
        isolation: int = READ_UNCOMMITTED,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        """`start` is the initial position in partitions without a committed offset: earliest or latest."""
        self._cluster = cluster
        self._start = start
        self._heartbeat_s = heartbeat_ms / 1000
        self._commit_every_s = None if commit_every_ms is None else commit_every_ms / 1000
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._membership = Membership(
            group_id,
            topics,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=instance_id,
        )
        self._reader = Reader(cluster, isolation=isolation, out_of_range=start)
        self._committed: dict[TopicPartition, int] = {}
        self._chunk: Chunk | None = None
        self._rest: Iterator[Message] = iter(())
        self._read: tuple[TopicPartition, int] | None = None
        self._commit_due_s = 0.0
        self._partition_counts: dict[str, int] = {}
        self._must_rejoin = False
        self._join_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._failure: ClientError | None = None

    @property
    def group_id(self) -> str:
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions with a known position."""
        if self._membership.state is not MembershipState.STABLE:
            return []
        return [partition for partition in self._membership.partitions if partition in self._reader.positions]

    def next_offset(self, partition: TopicPartition) -> int:
        """The offset after the last message that was returned."""
        if self._read is not None and self._read[0] == partition:
            return self._read[1]
        return self._reader.positions[partition]

    async def __aenter__(self) -> "GroupConsumer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def poll(self, timeout_s: float, max_messages: int | None = None) -> list[Message]:
        """The next messages, or none after the timeout. Also rebalances and commits."""
        self._update_position()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ensure_joined()
                if self._commit_every_s is not None and _now_s() >= self._commit_due_s:
                    await self.commit()
                while self._chunk is None:
                    chunk = await self._reader.next_chunk()
                    if chunk is None:
                        return []
                    self._chunk, self._rest = chunk, chunk.messages()
        except TimeoutError:
            return []
        return self._take_messages(self._chunk, max_messages)

    async def messages(self) -> AsyncIterator[Message]:
        """Iterate over messages, endlessly."""
        while True:
            for message in await self.poll(3600, 1):
                yield message

    def give_back(self, message: Message) -> None:
        """The messages of the last poll from this one on were not consumed: they will not be committed."""
        self._chunk = None
        self._read = (TopicPartition(message.topic, message.partition), message.offset)

    async def commit(self) -> None:
        """Commit the offsets of all consumed messages."""
        self._update_position()
        self._commit_due_s = _now_s() + (self._commit_every_s or 0)
        moved = {
            partition: offset
            for partition, offset in self._reader.positions.items()
            if self._committed.get(partition) != offset
        }
        if not moved or self._membership.state is not MembershipState.STABLE:
            return
        membership = self._membership
        request = commit_request(
            self.group_id,
            moved,
            generation_id=membership.generation_id,
            member_id=membership.member_id,
            instance_id=membership.instance_id,
        )

        async def attempt() -> None:
            response = await self._send(request, OffsetCommitResponse)
            check_committed(self.group_id, response)

        try:
            await self._cluster.retry(attempt, self._invalidate_coordinator)
        except BrokerError as error:
            if not membership.commit_rejected(error.error):
                raise
            # The group has rebalanced: the new owners of the partitions resume at the last commit.
            self._request_rejoin()
            return
        self._committed.update(moved)

    async def close(self) -> None:
        """Commit, leave the group and stop fetching."""
        try:
            await self._stop_tasks()
            await self.commit()
            if self._membership.leaves_on_close:
                await self._send(self._membership.leave(), LeaveGroupResponse)
        finally:
            self._membership.revoked()
            await self._reader.close()
            await self._cluster.close_lane(self)

    # Delivery.

    def _take_messages(self, chunk: Chunk, max_messages: int | None) -> list[Message]:
        messages = list(islice(self._rest, max_messages))
        if max_messages is None or len(messages) < max_messages:
            self._chunk = None
            self._read = (chunk.partition, chunk.next_offset)
        else:
            self._read = (chunk.partition, messages[-1].offset + 1)
        return messages

    def _update_position(self) -> None:
        if self._read is not None:
            partition, offset = self._read
            self._reader.positions[partition] = offset
            self._read = None

    # Joining.

    async def _ensure_joined(self) -> None:
        """Wait until the member has joined; the join continues if the caller times out."""
        if self._failure is not None:
            raise self._failure
        if self._join_task is None and (
            self._must_rejoin or self._membership.state is not MembershipState.STABLE
        ):
            self._join_task = asyncio.create_task(self._rejoin())
        if self._join_task is not None:
            await asyncio.shield(self._join_task)
            self._join_task = None

    async def _rejoin(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
        await self._revoke()
        self._must_rejoin = False
        while self._membership.state is not MembershipState.STABLE:
            await self._cluster.retry(self._join_once, self._invalidate_coordinator)
        await self._reset_positions()
        self._heartbeat_task = asyncio.create_task(self._heartbeat_loop())
        if self._on_assigned is not None:
            self._on_assigned(self._membership.partitions)

    async def _revoke(self) -> None:
        await self.commit()
        self._chunk = None
        await self._reader.assign({})
        revoked = self._membership.partitions
        self._membership.revoked()
        if revoked and self._on_revoked is not None:
            self._on_revoked(revoked)

    async def _join_once(self) -> None:
        membership = self._membership
        request = membership.join()
        response = await self._send(request, JoinGroupResponse, request.rebalance_timeout_ms / 1000)
        if membership.joined(response):
            self._partition_counts = await self._count_partitions()
            request_to_sync = membership.sync(self._partition_counts)
            timeout_s = request.rebalance_timeout_ms / 1000
            membership.synced(await self._send(request_to_sync, SyncGroupResponse, timeout_s))

    async def _count_partitions(self) -> dict[str, int]:
        """The partition counts of all subscribed topics of the group; only for the leader."""
        wanted = {topic for topics in self._membership.subscriptions.values() for topic in topics}
        if not wanted:
            return {}
        response = await self._cluster.refresh(sorted(wanted))
        return {topic.name: len(topic.partitions) for topic in response.topics if topic.name}

    async def _reset_positions(self) -> None:
        partitions = self._membership.partitions
        committed = await Groups(self._cluster).committed(self.group_id) if partitions else {}
        self._committed = {
            partition: committed[partition].offset for partition in partitions if partition in committed
        }
        unread = dict.fromkeys(set(partitions) - set(self._committed), RESETS[self._start])
        found = await list_offsets(self._cluster, unread) if unread else {}
        await self._reader.assign(
            {**self._committed, **{partition: view.offset for partition, view in found.items()}}
        )

    async def _heartbeat_loop(self) -> None:
        """Send heartbeats until a rebalance starts."""
        topics_due_s = _now_s() + METADATA_CHECK_INTERVAL_S
        while True:
            await asyncio.sleep(self._heartbeat_s)
            try:
                response = await self._send(self._membership.heartbeat(), HeartbeatResponse)
                if not self._membership.heartbeat_received(response):
                    break
                if _now_s() >= topics_due_s:
                    topics_due_s = _now_s() + METADATA_CHECK_INTERVAL_S
                    if await self._count_partitions() != self._partition_counts:
                        break
            except ClientError as error:
                self._invalidate_coordinator()
                if not error.retriable:
                    self._failure = error
                    break
        self._request_rejoin()

    def _request_rejoin(self) -> None:
        self._must_rejoin = True
        self._reader.interrupt()

    async def _stop_tasks(self) -> None:
        tasks = [task for task in (self._join_task, self._heartbeat_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._join_task is not None:
            # Responses are in order: a LeaveGroup would wait for the parked join.
            await self._cluster.close_lane(self)

    async def _send(
        self, request: Request, response_type: type[ResponseT], extra_timeout_s: float = 0.0
    ) -> ResponseT:
        timeout_s = self._cluster.timeout_s + extra_timeout_s
        return await self._cluster.send_to_coordinator(
            self.group_id, request, response_type, lane=self, timeout_s=timeout_s
        )

    def _invalidate_coordinator(self) -> None:
        self._cluster.invalidate_coordinator(self.group_id)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
