"""What the broker reports of a group, polled: which member owns what, and what is committed."""

import threading
from dataclasses import dataclass, field

from runnel.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from runnel.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from runnel.model.errors import ErrorCode
from tools.differential.comparison import Broker

INTERVAL_S = 0.1


@dataclass(slots=True)
class GroupHistory:
    """What was observed so far, and what was wrong."""

    faults: list[str] = field(default_factory=list)
    observations: int = 0
    epoch: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    member_epochs: dict[str, int] = field(default_factory=dict)

    def observe(self, group: DescribedGroup) -> None:
        """No partition has two owners, and no epoch decreases."""
        self.observations += 1
        owners: dict[int, str] = {}
        for member in group.members:
            for topic in member.assignment.topic_partitions:
                for partition in topic.partitions:
                    if other := owners.get(partition):
                        self.faults.append(f"{partition} is assigned to {other} and {member.member_id}")
                    owners[partition] = member.member_id
            if member.member_epoch < self.member_epochs.get(member.member_id, 0):
                self.faults.append(f"the epoch of {member.member_id} decreased to {member.member_epoch}")
            if member.member_epoch > group.group_epoch:
                self.faults.append(f"{member.member_id} is ahead of its group: {member.member_epoch}")
            self.member_epochs[member.member_id] = member.member_epoch
        if group.group_epoch < self.epoch:
            self.faults.append(f"the group's epoch decreased from {self.epoch} to {group.group_epoch}")
        if group.assignment_epoch > group.group_epoch:
            self.faults.append(f"assignment {group.assignment_epoch} is ahead of {group.group_epoch}")
        self.epoch = group.group_epoch

    def compare(self, committed: dict[int, int]) -> None:
        """Committed offsets never decrease."""
        for partition, offset in self.committed.items():
            if (now := committed.get(partition, -1)) < offset:
                self.faults.append(f"the committed offset of {partition} decreased from {offset} to {now}")
        self.committed = committed


class GroupMonitor:
    """Polls one group until it is stopped."""

    def __init__(self, port: int, group: str) -> None:
        self.history = GroupHistory()
        self.group = group
        self._broker = Broker(port)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "GroupMonitor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._broker.close()

    def described(self, client: str = "look") -> DescribedGroup | None:
        """The group as its coordinator describes it; None while there is none, or without a response."""
        request = ConsumerGroupDescribeRequest([self.group])
        try:
            response = self._broker.request(request, 1, client)
        except OSError:
            return None
        if isinstance(response, str) or response.groups[0].error_code:
            return None
        described: DescribedGroup = response.groups[0]
        return described

    def _committed(self) -> dict[int, int] | None:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self.group, topics=None)], require_stable=True
        )
        try:
            response = self._broker.request(request, 8, "offsets")
        except OSError:
            return None
        if isinstance(response, str) or response.groups[0].error_code not in (
            ErrorCode.NONE.code,
            ErrorCode.GROUP_ID_NOT_FOUND.code,
        ):
            return None
        topics = response.groups[0].topics
        return {part.partition_index: part.committed_offset for topic in topics for part in topic.partitions}

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            if group := self.described("monitor"):
                self.history.observe(group)
            if committed := self._committed():
                self.history.compare(committed)

    def owners(self) -> dict[str, list[int]] | None:
        """Member id → partitions, once the group is stable."""
        group = self.described()
        if group is None or group.group_state != "Stable":
            return None
        return {
            member.member_id: sorted(
                partition for topic in member.assignment.topic_partitions for partition in topic.partitions
            )
            for member in group.members
        }
