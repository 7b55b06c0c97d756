"""All consumer groups of a shard: requests, timers and replay."""

from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment, Timer
from runnel.coordinator.group.consumer.classic import (
    classic_heartbeat,
    classic_join,
    classic_sync,
    joined,
    leaving,
)
from runnel.coordinator.group.consumer.cluster import Cluster
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.heartbeat import (
    Heartbeat,
    HeartbeatResult,
    extend_session,
    handle_heartbeat,
    heartbeat_response,
    is_keepalive,
)
from runnel.coordinator.group.consumer.leave import leave_response, leave_static, remove_members
from runnel.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberState
from runnel.coordinator.group.consumer.migrate import can_downgrade, downgrade, upgrade
from runnel.coordinator.group.consumer.records import consumer_group_tombstones, replay_consumer_record
from runnel.coordinator.group.consumer.request import check_heartbeat
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.records import group_tombstone
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.group import ConsumerGroupMetadataKey
from runnel.wire import Data


@dataclass(slots=True)
class EmptyGroupDeleted:
    """Continuation: an empty consumer group was deleted, and a classic group can be created with its id."""

    group_id: str
    request: JoinGroupRequest
    context: RequestContext


class ConsumerGroups:
    """Consumer groups by id. A group id is either a consumer group or a classic group."""

    def __init__(self, cluster: Cluster, classic: dict[str, Group]) -> None:
        self.cluster = cluster
        self.by_id: dict[str, ConsumerGroup] = {}
        self._classic = classic

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        settings: GroupSettings,
        now: Moment,
    ) -> HeartbeatResult:
        """Handle a ConsumerGroupHeartbeat. Raises ApiError."""
        check_heartbeat(request, context.api_version, settings)
        result = HeartbeatResult()
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._leave(request, settings, now, result)
            return result
        group = self.by_id.get(request.group_id)
        version = self.cluster.version
        if group is not None and is_keepalive(group, request, context, version):
            extend_session(group, request.member_id, self.cluster, result)
            result.response = heartbeat_response(
                group, group.members[request.member_id], self.cluster, with_assignment=False
            )
            return result
        if group is not None:
            draft = Draft(group.copy(), self.cluster, now)
            checked_version = group.checked_version
        else:
            draft, checked_version = self._new_group(request, settings, now, result), -1
        draft.shows_topic = context.shows_topic
        handle_heartbeat(Heartbeat(request, context, settings, draft, result, checked_version))
        if group is not None and draft.group.epoch == group.epoch:
            # Checked, and no epoch bump is pending in the log.
            group.checked_version = version
        return result

    def join(
        self, request: JoinGroupRequest, context: RequestContext, settings: GroupSettings, now: Moment
    ) -> CoordinatorResult[JoinGroupResponse]:
        """Handle a JoinGroup of a classic member in a consumer group. Raises ApiError."""
        group = self.by_id[request.group_id]
        result = CoordinatorResult[JoinGroupResponse]()
        if not group.members:
            return self._delete_empty_group(group, request, context, result)
        draft = Draft(group.copy(), self.cluster, now, shows_topic=context.shows_topic)
        member = classic_join(group, draft, settings, request, context, result)
        if member is None:
            return result
        joined(group, member, result)
        replaced = group.static_members.get(request.group_instance_id or "", member.id)
        if replaced != member.id and can_downgrade(group, {replaced}, settings, is_replaced=True):
            downgrade(group, draft, [], now, result)
        else:
            result.records += draft.records
        return result

    def sync(self, request: SyncGroupRequest) -> CoordinatorResult[SyncGroupResponse]:
        """Handle a SyncGroup of a classic member. Raises ApiError."""
        return classic_sync(self.by_id[request.group_id], self.cluster, request)

    def classic_heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Handle a Heartbeat of a classic member. Raises ApiError."""
        return classic_heartbeat(self.by_id[request.group_id], request)

    def leave(
        self, request: LeaveGroupRequest, settings: GroupSettings, now: Moment
    ) -> CoordinatorResult[LeaveGroupResponse]:
        """Handle a LeaveGroup of classic members or of an admin client."""
        group = self.by_id[request.group_id]
        responses, removed = leaving(group, request)
        result = CoordinatorResult[LeaveGroupResponse](LeaveGroupResponse(members=responses))
        if removed:
            timers = [group.session_timer(member_id) for member_id in removed]
            self._remove(group, timers, settings, now, result)
        return result

    def get(self, group_id: str) -> ConsumerGroup:
        """A consumer group; GROUP_ID_NOT_FOUND if it does not exist or is a classic group."""
        group = self.by_id.get(group_id)
        if group is None:
            reason = "is not a consumer group" if group_id in self._classic else "not found"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        return group

    def replay(self, key: Any, value: Data | None) -> str:
        """Apply a record of a consumer group; returns the group id."""
        group_id: str = key.group_id
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            self.by_id.pop(group_id, None)
            return group_id
        if group_id not in self.by_id and value is not None:
            self.by_id[group_id] = ConsumerGroup(group_id)
            self._classic.pop(group_id, None)
        if group_id in self.by_id:
            replay_consumer_record(self.by_id[group_id], key, value)
        return group_id

    def loaded(self, result: CoordinatorResult[None]) -> None:
        """Start a session for every member, and revocation timeouts."""
        for group in self.by_id.values():
            session_ms = self.cluster.group_setting(group.id, "consumer.session.timeout.ms")
            for member in group.members.values():
                timeout_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
                result.set_timer(group.session_timer(member.id), timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                    result.set_timer(group.revocation_timer(member.id), member.rebalance_timeout_ms)

    def fired(self, timer: Timer, settings: GroupSettings, now: Moment) -> CoordinatorResult[None]:
        """Remove a member whose timer has fired."""
        result = CoordinatorResult[None]()
        group = self.by_id.get(timer.subject)
        member = None if group is None else group.members.get(timer.part)
        if group is None or member is None:
            return result
        is_late = timer.kind != "revocation" or member.state is MemberState.UNREVOKED_PARTITIONS
        if is_late:
            self._remove(group, [timer], settings, now, result)
        return result

    def _delete_empty_group(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        context: RequestContext,
        result: CoordinatorResult[JoinGroupResponse],
    ) -> CoordinatorResult[JoinGroupResponse]:
        """Delete a consumer group without members; the classic join continues once that is appended."""
        if request.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} has no members")
        result.records += consumer_group_tombstones(group)
        result.continuation = EmptyGroupDeleted(group.id, request, context)
        return result

    def _new_group(
        self,
        request: ConsumerGroupHeartbeatRequest,
        settings: GroupSettings,
        now: Moment,
        result: HeartbeatResult,
    ) -> Draft:
        """Create a consumer group for the first member, or upgrade a classic group."""
        group_id = request.group_id
        if request.member_epoch != JOIN_EPOCH:
            self.get(group_id)
        draft = Draft(ConsumerGroup(group_id), self.cluster, now)
        classic = self._classic.get(group_id)
        if classic is not None and classic.state is GroupState.EMPTY:
            draft.records.append(group_tombstone(group_id))
        elif classic is not None:
            upgrade(classic, draft, settings, result)
        return draft

    def _leave(
        self,
        request: ConsumerGroupHeartbeatRequest,
        settings: GroupSettings,
        now: Moment,
        result: HeartbeatResult,
    ) -> None:
        group = self.get(request.group_id)
        member = group.check_member(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            leave_static(group, member, result)
        else:
            self._remove(group, [group.session_timer(member.id)], settings, now, result)
            result.response = leave_response(request)

    def _remove(
        self,
        group: ConsumerGroup,
        timers: list[Timer],
        settings: GroupSettings,
        now: Moment,
        result: CoordinatorResult[Any],
    ) -> None:
        """Remove the members of these timers from their group; the timers are set again to retry."""
        draft = Draft(group.copy(), self.cluster, now)
        removed = {timer.part for timer in timers}
        if can_downgrade(group, removed, settings, is_replaced=False):
            for member_id in removed:
                draft.group.remove(member_id)
            downgrade(group, draft, timers, now, result)
        else:
            remove_members(draft, timers, result)
