"""All consumer groups of a shard: what reaches them, by request, by timer and from the log."""

from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import Decision, Moment, Timer
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.consumer.classic import (
    beat_as_classic,
    join_as_classic,
    joined,
    leaving,
    sync_as_classic,
)
from runnel.coordinator.group.consumer.cluster import Cluster
from runnel.coordinator.group.consumer.depart import left, remove_members, stay_away
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.heartbeat import Beat, HeartbeatDecision, answer, beat, is_quiet, touch
from runnel.coordinator.group.consumer.member import AWAY_EPOCH, JOINING_EPOCH, LEFT_EPOCH, MemberState
from runnel.coordinator.group.consumer.migrate import can_downgrade, downgrade, upgrade
from runnel.coordinator.group.consumer.records import consumer_group_tombstones, replay_consumer_record
from runnel.coordinator.group.consumer.request import check_heartbeat
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
class MadeWay:
    """Written: an empty consumer group is gone, and a classic one can have its id."""

    group_id: str
    request: JoinGroupRequest
    caller: Caller


class ConsumerGroups:
    """Consumer groups by id. No id has a classic group as well."""

    def __init__(self, cluster: Cluster, classic: dict[str, Group]) -> None:
        self.cluster = cluster
        self.by_id: dict[str, ConsumerGroup] = {}
        self._classic = classic

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        settings: GroupSettings,
        now: Moment,
    ) -> HeartbeatDecision:
        """Decide on a ConsumerGroupHeartbeat. Raises ApiError."""
        check_heartbeat(request, caller.api_version, settings)
        decision = HeartbeatDecision()
        if request.member_epoch in (LEFT_EPOCH, AWAY_EPOCH):
            self._leave(request, settings, now, decision)
            return decision
        group = self.by_id.get(request.group_id)
        version = self.cluster.version
        if group is not None and is_quiet(group, request, caller, version):
            touch(group, request.member_id, self.cluster, decision)
            decision.reply = answer(
                group, group.members[request.member_id], self.cluster, with_assignment=False
            )
            return decision
        if group is not None:
            draft = Draft(group.copy(), self.cluster, now)
            checked_version = group.checked_version
        else:
            draft, checked_version = self._found(request, settings, now, decision), -1
        beat(Beat(request, caller, settings, draft, decision, checked_version))
        if group is not None and draft.group.epoch == group.epoch:
            # Looked at, and nothing found that the log must know first.
            group.checked_version = version
        return decision

    def join(
        self, request: JoinGroupRequest, caller: Caller, settings: GroupSettings, now: Moment
    ) -> Decision[JoinGroupResponse]:
        """Decide on a JoinGroup of a classic member in a consumer group. Raises ApiError."""
        group = self.by_id[request.group_id]
        decision = Decision[JoinGroupResponse]()
        if not group.members:
            return self._make_way(group, request, caller, decision)
        draft = Draft(group.copy(), self.cluster, now)
        member = join_as_classic(group, draft, settings, request, caller, decision)
        if member is None:
            return decision
        joined(group, member, decision)
        replaced = group.static_members.get(request.group_instance_id or "", member.id)
        if replaced != member.id and can_downgrade(group, {replaced}, settings, is_replaced=True):
            downgrade(group, draft, [], now, decision)
        else:
            decision.records += draft.records
        return decision

    def sync(self, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
        """Decide on a SyncGroup of a classic member. Raises ApiError."""
        return sync_as_classic(self.by_id[request.group_id], self.cluster, request)

    def classic_heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        """Decide on a Heartbeat of a classic member. Raises ApiError."""
        return beat_as_classic(self.by_id[request.group_id], request)

    def leave(
        self, request: LeaveGroupRequest, settings: GroupSettings, now: Moment
    ) -> Decision[LeaveGroupResponse]:
        """Decide on a LeaveGroup, of classic members or by an administrator."""
        group = self.by_id[request.group_id]
        answers, gone = leaving(group, request)
        decision = Decision[LeaveGroupResponse](LeaveGroupResponse(members=answers))
        if gone:
            timers = [group.session_timer(member_id) for member_id in gone]
            self._remove(group, timers, settings, now, decision)
        return decision

    def get(self, group_id: str) -> ConsumerGroup:
        """A consumer group; GROUP_ID_NOT_FOUND if there is none, or it is a classic one."""
        group = self.by_id.get(group_id)
        if group is None:
            reason = "is not a consumer group" if group_id in self._classic else "not found"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        return group

    def replay(self, key: Any, value: Data | None) -> str:
        """The log holds this record of a consumer group; the id of the group."""
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

    def loaded(self, decision: Decision[None]) -> None:
        """Every member that the log knows gets one session to show that it is alive."""
        for group in self.by_id.values():
            session_ms = self.cluster.group_setting(group.id, "consumer.session.timeout.ms")
            for member in group.members.values():
                timeout_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
                decision.set_timer(group.session_timer(member.id), timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                    decision.set_timer(group.revocation_timer(member.id), member.rebalance_timeout_ms)

    def fired(self, timer: Timer, settings: GroupSettings, now: Moment) -> Decision[None]:
        """A member did not do in time what it had to."""
        decision = Decision[None]()
        group = self.by_id.get(timer.subject)
        member = None if group is None else group.members.get(timer.part)
        if group is None or member is None:
            return decision
        is_late = timer.kind != "revocation" or member.state is MemberState.UNREVOKED_PARTITIONS
        if is_late:
            self._remove(group, [timer], settings, now, decision)
        return decision

    def _make_way(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller,
        decision: Decision[JoinGroupResponse],
    ) -> Decision[JoinGroupResponse]:
        """A consumer group without members gives its id to a classic group, once the log has forgotten it."""
        if request.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} has no members")
        decision.records += consumer_group_tombstones(group)
        decision.then = MadeWay(group.id, request, caller)
        return decision

    def _found(
        self,
        request: ConsumerGroupHeartbeatRequest,
        settings: GroupSettings,
        now: Moment,
        decision: HeartbeatDecision,
    ) -> Draft:
        """A new consumer group for whoever joins first, in the place of a classic one if need be."""
        group_id = request.group_id
        if request.member_epoch != JOINING_EPOCH:
            self.get(group_id)
        draft = Draft(ConsumerGroup(group_id), self.cluster, now)
        classic = self._classic.get(group_id)
        if classic is not None and classic.state is GroupState.EMPTY:
            draft.records.append(group_tombstone(group_id))
        elif classic is not None:
            upgrade(classic, draft, settings, decision)
        return draft

    def _leave(
        self,
        request: ConsumerGroupHeartbeatRequest,
        settings: GroupSettings,
        now: Moment,
        decision: HeartbeatDecision,
    ) -> None:
        group = self.get(request.group_id)
        member = group.check_member(request.member_id, request.instance_id)
        if request.member_epoch == AWAY_EPOCH:
            stay_away(group, member, decision)
        else:
            self._remove(group, [group.session_timer(member.id)], settings, now, decision)
            decision.reply = left(request)

    def _remove(
        self,
        group: ConsumerGroup,
        timers: list[Timer],
        settings: GroupSettings,
        now: Moment,
        decision: Decision[Any],
    ) -> None:
        """Take the members that these timers are of out of their group; the timers try again if they must."""
        draft = Draft(group.copy(), self.cluster, now)
        gone = {timer.part for timer in timers}
        if can_downgrade(group, gone, settings, is_replaced=False):
            for member_id in gone:
                draft.group.remove(member_id)
            downgrade(group, draft, timers, now, decision)
        else:
            remove_members(draft, timers, decision)
