"""Proposals of ISRs to the controller (AlterPartition): one request in flight, with all that are pending.

answer                                                       the leader
none                                                         takes the ISR that it contains
INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED                  returns to the committed ISR
it is behind, or does not lead: FENCED_LEADER_EPOCH, …       waits for the metadata of the change, and
                                                             retries after METADATA_DELAY_MS
any other, for the request or a partition                    retries after a delay
"""

import asyncio
import logging
from collections import defaultdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from runnel.controller.values import BrokerRegistration
from runnel.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.replica.leader import IsrProposal, LeaderReplica

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

log = logging.getLogger("runnel.broker")

RETRY_DELAY_MS = 50
METADATA_DELAY_MS = 2_000
"""How long a leader waits for metadata. It may have arrived before the answer that announces it."""
TIMEOUT_MS = 10_000
WARNING_INTERVAL_MS = 10_000
"""Refused attempts are logged this often."""
PARTITIONS_MAX = 2_000
"""Partitions of one request."""

_REFUSALS = frozenset({ErrorCode.INELIGIBLE_REPLICA.code, ErrorCode.OPERATION_NOT_ATTEMPTED.code})
"""The proposal was certainly not applied."""

_WAITS = frozenset(
    error.code
    for error in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)
"""The proposal stays pending until newer metadata is applied, or is sent again after a delay."""

Pending = dict["ReplicatedLog", IsrProposal]


class IsrChanges:
    """Sends the proposals of all partitions that this node leads."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._pending: Pending = {}
        self._task: asyncio.Task[None] | None = None
        self._warned_ms = -WARNING_INTERVAL_MS
        self._refused: dict[TopicPartition, int] = {}
        """Partitions whose last proposal was refused, and its leader epoch."""
        self._is_closed = False

    def submit(self, partition: "ReplicatedLog", proposal: IsrProposal) -> None:
        """Send this proposal soon."""
        self._pending[partition] = proposal
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, name: TopicPartition) -> None:
        """The partition was removed from this node."""
        self._refused.pop(name, None)

    async def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        try:
            while self._pending:
                some = dict(islice(self._pending.items(), PARTITIONS_MAX))
                for partition in some:
                    del self._pending[partition]
                if not await self._send_guarded({p: q for p, q in some.items() if _is_current(p, q)}):
                    await asyncio.sleep(RETRY_DELAY_MS / 1000)
        finally:
            self._task = None

    async def _send_guarded(self, some: Pending) -> bool:
        try:
            return await self._send(some)
        except Exception as bug:  # noqa: BLE001 - reported
            # A partition whose proposal is pending makes no other one.
            self._broker.bugs.report(bug, "an ISR could not be proposed")
            self._repeat(some)
            return False

    async def _send(self, some: Pending) -> bool:
        """False if a part of it must be repeated."""
        if not some:
            return True
        request = _request(self._broker, some)
        try:
            response = await self._broker.controller.request(request, timeout_ms=TIMEOUT_MS)
        except ApiError as error:
            self._warn("%d changed ISRs could not be proposed, will retry: %s", len(some), error)
            self._repeat(some)
            return False
        if response.error_code:
            error_name = ErrorCode.from_code(response.error_code).name
            self._warn("the controller refused %d changed ISRs, will retry: %s", len(some), error_name)
            self._repeat(some)
            return False
        return self._answered(some, response)

    def _warn(self, message: str, *arguments: object) -> None:
        """Log a failure as a warning once per interval."""
        now_ms = self._broker.clock.monotonic_ms()
        is_new = now_ms - self._warned_ms >= WARNING_INTERVAL_MS
        log.log(logging.WARNING if is_new else logging.DEBUG, message, *arguments)
        if is_new:
            self._warned_ms = now_ms

    def _answered(self, some: Pending, response: AlterPartitionResponse) -> bool:
        results = {
            (topic.topic_id, result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }
        unsettled: Pending = {}
        for partition, proposal in some.items():
            result = results.get((partition.topic_id, partition.name.partition))
            if result is None or not self._settle(partition, proposal, result):
                unsettled[partition] = proposal
        self._repeat(unsettled)
        return not unsettled

    def _settle(self, partition: "ReplicatedLog", proposal: IsrProposal, result: PartitionResult) -> bool:
        """False if the proposal must be repeated."""
        leader = partition.replica
        if not isinstance(leader, LeaderReplica) or leader.epoch != proposal.leader_epoch:
            # Another epoch has begun.
            return True
        if result.error_code in _REFUSALS:
            self._note_refusal(partition, leader, proposal)
            if leader.refused(proposal, self._broker.clock.monotonic_ms()):
                partition.advance()
            return True
        if result.error_code in _WAITS:
            self._broker.timers.call_later(METADATA_DELAY_MS, partial(self._again, partition, proposal))
            return True
        if result.error_code:
            return False
        self._refused.pop(partition.name, None)
        before = leader.isr
        if result.leader_epoch == leader.epoch and leader.accepted(
            proposal, frozenset(result.isr), result.partition_epoch
        ):
            partition.advance()
        self._broker.events.isr_changed(before, leader.isr)
        return True

    def _note_refusal(self, partition: "ReplicatedLog", leader: LeaderReplica, proposal: IsrProposal) -> None:
        """Report a replica that cannot join the ISR. The first refusal may be of a change on its way here."""
        if self._refused.get(partition.name) != proposal.leader_epoch:
            self._refused[partition.name] = proposal.leader_epoch
            return
        for node, epoch in proposal.isr:
            if node not in leader.isr:
                reason = _obstacle(self._broker.metadata.image.brokers.get(node), epoch)
                self._warn(
                    "%s: the controller does not let broker %d join the ISR: %s", partition.name, node, reason
                )

    def _again(self, partition: "ReplicatedLog", proposal: IsrProposal) -> None:
        """The metadata did not decide about the proposal: compare it with what is known, and repeat it."""
        if not self._is_closed and _is_current(partition, proposal):
            self._broker.replication.compare(partition)
        if not self._is_closed and _is_current(partition, proposal):
            self._warn("a refused ISR is proposed again: %s", partition.name)
            self.submit(partition, proposal)

    def _repeat(self, some: Pending) -> None:
        for partition, proposal in some.items():
            self._pending.setdefault(partition, proposal)


def _is_current(partition: "ReplicatedLog", proposal: IsrProposal) -> bool:
    leader = partition.replica
    return partition.is_leader and isinstance(leader, LeaderReplica) and leader.proposed is proposal


def _obstacle(registration: BrokerRegistration | None, epoch: int) -> str:
    """Why the controller does not accept a member of the ISR, as far as this node knows."""
    if registration is None:
        return "it is not registered"
    if registration.is_fenced:
        return "it is fenced"
    if registration.is_stopping:
        return "it is shutting down"
    if registration.epoch != epoch:
        return f"it has restarted, its broker epoch is {registration.epoch} and no longer {epoch}"
    return "the metadata of this broker has no reason for it"


def _request(broker: "Broker", some: Pending) -> AlterPartitionRequest:
    topics: dict[bytes, list[PartitionData]] = defaultdict(list)
    for partition, proposal in some.items():
        topics[partition.topic_id].append(
            PartitionData(
                partition.name.partition,
                proposal.leader_epoch,
                # For version 2, which has no broker epochs.
                [node for node, _ in proposal.isr],
                [BrokerState(node, epoch) for node, epoch in proposal.isr],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker.node_id, broker.epoch, [TopicData(topic_id, found) for topic_id, found in topics.items()]
    )
