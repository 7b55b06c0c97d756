"""The group coordinator's shard: all groups of one partition of `__consumer_offsets`."""

from collections.abc import Callable, Collection
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment, ReplayContext, Timer
from runnel.coordinator.group import describe, expiry, offsets
from runnel.coordinator.group.consumer.cluster import Cluster
from runnel.coordinator.group.consumer.commits import check_fetch
from runnel.coordinator.group.consumer.groups import ConsumerGroups, EmptyGroupDeleted
from runnel.coordinator.group.consumer.leave import MembersRemoved, members_removed
from runnel.coordinator.group.consumer.migrate import Downgraded, Upgraded, downgraded, upgraded
from runnel.coordinator.group.consumer.records import CONSUMER_KEYS, CONSUMER_RECORD_TYPES
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.deferred_offsets import DeferredOffsets
from runnel.coordinator.group.group import Group
from runnel.coordinator.group.join import check_session_timeout, join
from runnel.coordinator.group.leave import leave
from runnel.coordinator.group.offset_store import OffsetStore
from runnel.coordinator.group.rebalance import (
    GroupEmptied,
    emptied,
    extend_session,
    join_timer_fired,
    prepare,
)
from runnel.coordinator.group.records import RECORD_TYPES, replay_group, replay_offset
from runnel.coordinator.group.responses import join_group_error, sync_group_error
from runnel.coordinator.group.session import heartbeat, session_timer_fired
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.static import StaticMemberReplaced, static_member_replaced
from runnel.coordinator.group.sync import Assigned, assigned, sync, sync_timer_fired
from runnel.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from runnel.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from runnel.messages.delete_groups import DeletableGroupResult
from runnel.messages.describe_groups import DescribedGroup
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from runnel.messages.list_groups import ListedGroup
from runnel.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from runnel.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from runnel.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runnel.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.group import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from runnel.wire import Data

_EXPIRY = Timer("expiry", "")

GROUPS_PER_EXPIRY = 100
"""The number of groups that one step of the expiration examines."""


class GroupShard:
    """The entry point for all requests to the groups of a shard."""

    can_skip_corrupt_batches = True
    record_types = RECORD_TYPES | CONSUMER_RECORD_TYPES

    def __init__(self, settings: GroupSettings, cluster: Cluster) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        """Classic groups, and simple groups that only commit offsets."""
        self.consumers = ConsumerGroups(cluster, self.groups)
        self.offsets = OffsetStore()
        self._deferred = DeferredOffsets(self.offsets)
        self._unexamined: list[str] = []
        """Groups that the current expiration has not examined yet."""

    def join(
        self, request: JoinGroupRequest, context: RequestContext, now: Moment
    ) -> CoordinatorResult[JoinGroupResponse]:
        if request.group_id not in self.consumers.by_id:
            return join(self.groups, self.settings, request, context, now)
        try:
            check_session_timeout(request, self.settings)
            return self.consumers.join(request, context, self.settings, now)
        except ApiError as error:
            return CoordinatorResult(join_group_error(error.error, request.member_id))

    def sync(
        self, request: SyncGroupRequest, context: RequestContext, now: Moment
    ) -> CoordinatorResult[SyncGroupResponse]:
        if request.group_id in self.consumers.by_id:
            return self.consumers.sync(request)
        return sync(self.groups, request, context, now)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        return heartbeat(self.groups, request, now_ms)

    def has_consumer_group(self, group_id: str) -> bool:
        """Whether classic heartbeats in this group are handled by `heartbeat_in_consumer_group`."""
        return group_id in self.consumers.by_id

    def heartbeat_in_consumer_group(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        return self.consumers.classic_heartbeat(request)

    def leave(self, request: LeaveGroupRequest, now: Moment) -> CoordinatorResult[LeaveGroupResponse]:
        if request.group_id in self.consumers.by_id:
            return self.consumers.leave(request, self.settings, now)
        return leave(self.groups, self.settings, request, now)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now: Moment
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        return self.consumers.heartbeat(request, context, self.settings, now)

    def commit(
        self, request: OffsetCommitRequest, api_version: int, now: Moment
    ) -> CoordinatorResult[OffsetCommitResponse]:
        return offsets.commit(self.groups, self.consumers.by_id, self.settings, request, api_version, now)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, id_of: Callable[[str], bytes], now: Moment
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        return offsets.commit_in_transaction(
            self.groups, self.consumers.by_id, self.settings, request, api_version, id_of, now
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, id_of: Callable[[str], bytes], require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        consumer_group = self.consumers.by_id.get(request.group_id)
        if consumer_group is not None:
            try:
                check_fetch(consumer_group, request.member_id, request.member_epoch)
            except ApiError as error:
                return OffsetFetchResponseGroup(request.group_id, error_code=error.code)
        return offsets.fetch(self.offsets, request, id_of, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        return offsets.delete(self.groups, self.consumers.by_id, self.offsets, request)

    def delete_groups(self, group_ids: Collection[str]) -> CoordinatorResult[list[DeletableGroupResult]]:
        return expiry.delete_groups(self.groups, self.consumers.by_id, self.offsets, group_ids)

    def topics_deleted(self, topics: Collection[str]) -> CoordinatorResult[None]:
        return expiry.topics_deleted(self.offsets, topics)

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        return describe.describe(self.groups, self.consumers, group_id, api_version)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        return describe.describe_consumer_group(self.consumers, self.settings, group_id)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        return describe.list_groups(self.groups, self.consumers, states, types)

    def summary(self, group_id: str) -> tuple[str, str, int] | None:
        """State, type and number of members of a group; None if it does not exist."""
        return describe.summary(self.groups, self.consumers, group_id)

    def group_ids(self) -> list[str]:
        """The groups of both types."""
        return [*self.groups, *self.consumers.by_id]

    def replay(self, key: Data, value: Data | None, context: ReplayContext) -> None:
        """Apply a record of the log."""
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue() | None:
                replay_offset(self.offsets, key, value, context)
                self._keep_simple_group(key.group)
            case GroupMetadataKey(), GroupMetadataValue() | None:
                replay_group(self.groups, key, value)
                self._keep_simple_group(key.group)
            case _ if isinstance(key, CONSUMER_KEYS):
                self._keep_simple_group(self.consumers.replay(key, value))
            case _:
                raise TypeError(f"unexpected record key {type(key).__name__}")

    def _keep_simple_group(self, group_id: str) -> None:
        """A simple group has no record of its own; it exists as long as it has offsets."""
        is_known = group_id in self.groups or group_id in self.consumers.by_id
        if not is_known and group_id in self.offsets:
            self.groups[group_id] = Group(group_id)

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Apply the end of a producer's transaction."""
        self.offsets.replay_end(producer_id, is_commit)

    def defer(self, key: bytes, value: bytes | None, offset: int) -> bool:
        """Keep offset commits: most are superseded by later ones before the log ends."""
        return self._deferred.defer(key, value, offset)

    def replay_deferred(self, count: int) -> bool:
        """Replay the last commit of each offset."""
        try:
            return self._deferred.replay(count)
        finally:
            for group_id in sorted(self._deferred.replayed):
                self._keep_simple_group(group_id)

    def committed(self, token: Any, now: Moment) -> CoordinatorResult[None]:
        """Not used: the driver delays responses until they are committed."""
        raise TypeError(f"unexpected token {type(token).__name__}")

    def resume(self, continuation: Any, error: ErrorCode | None, now: Moment) -> CoordinatorResult[None]:
        """Continue after the records of a result were appended, or the append failed."""
        group = self.groups.get(continuation.group_id)
        match continuation:
            case Assigned():
                return assigned(group, continuation, error, now)
            case StaticMemberReplaced():
                return static_member_replaced(group, continuation, error, now)
            case GroupEmptied():
                return emptied(group, error)
            case MembersRemoved():
                return members_removed(self.consumers.by_id.get(continuation.group_id), continuation, error)
            case Upgraded():
                return upgraded(continuation, error)
            case Downgraded():
                return downgraded(group, continuation, error, self.settings, now)
            case EmptyGroupDeleted():
                return self._join_classic_group(continuation, error, now)
            case _:
                raise TypeError(f"unexpected continuation {type(continuation).__name__}")

    def _join_classic_group(
        self, continuation: EmptyGroupDeleted, error: ErrorCode | None, now: Moment
    ) -> CoordinatorResult[None]:
        waiter, result = continuation.context.waiter, CoordinatorResult[None]()
        if error is not None:
            result.respond(waiter, join_group_error(error, continuation.request.member_id))
            return result
        joined = join(self.groups, self.settings, continuation.request, continuation.context, now)
        result.effects, result.records, result.continuation = (
            joined.effects,
            joined.records,
            joined.continuation,
        )
        if joined.response is not None:
            result.respond(waiter, joined.response)
        return result

    def fired(self, timer: Timer, now: Moment) -> CoordinatorResult[None]:
        """Handle a timer."""
        if timer.kind == _EXPIRY.kind:
            return self._expire(now)
        if timer.subject in self.consumers.by_id:
            return self.consumers.fired(timer, self.settings, now)
        result = CoordinatorResult[None]()
        group = self.groups.get(timer.subject)
        if group is None:
            return result
        match timer.kind:
            case "session":
                session_timer_fired(group, timer.part, self.settings, now, result)
            case "join":
                join_timer_fired(group, self.settings, now, result)
            case "sync":
                sync_timer_fired(group, self.settings, now, result)
        return result

    def _expire(self, now: Moment) -> CoordinatorResult[None]:
        if not self._unexamined:
            self._unexamined = [*self.groups, *self.consumers.by_id]
        examined, self._unexamined = (
            self._unexamined[:GROUPS_PER_EXPIRY],
            self._unexamined[GROUPS_PER_EXPIRY:],
        )
        known = [self.groups[group_id] for group_id in examined if group_id in self.groups]
        result = expiry.expire(known, self.offsets, self.settings, now)
        by_id = self.consumers.by_id
        consumer_groups = [by_id[group_id] for group_id in examined if group_id in by_id]
        result.records += expiry.expired_of_consumers(consumer_groups, self.offsets, self.settings, now)
        result.set_timer(_EXPIRY, 0 if self._unexamined else self.settings.offsets_check_interval_ms)
        return result

    def loaded(self, now: Moment) -> CoordinatorResult[None]:
        """Start a session for every member, and the expiration timer."""
        result = CoordinatorResult[None]()
        result.set_timer(_EXPIRY, self.settings.offsets_check_interval_ms)
        for group in self.groups.values():
            for member in group.members.values():
                extend_session(group, member, member.session_timeout_ms, now, result)
            if len(group.members) > self.settings.members_max:
                # The limit was lowered: all members rejoin, and the last ones are rejected.
                prepare(group, self.settings, now, result)
        self.consumers.loaded(result)
        return result

    def unloaded(self) -> CoordinatorResult[None]:
        """Fail the parked requests with NOT_COORDINATOR."""
        result = CoordinatorResult[None]()
        for group in self.groups.values():
            for member_id, waiter in group.joining.items():
                result.respond(waiter, join_group_error(ErrorCode.NOT_COORDINATOR, member_id))
            for waiter in group.syncing.values():
                result.respond(waiter, sync_group_error(ErrorCode.NOT_COORDINATOR))
        self.groups.clear()
        self.consumers.by_id.clear()
        self.offsets.clear()
        return result
