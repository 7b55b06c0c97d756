"""The commands of the group transcripts.

    join GROUP CLIENT [id=] [instance=] [v=] [session=] [rebalance=] [type=] [protocols=range:t+u,sticky:…]
    sync GROUP MEMBER gen=N [instance=] [v=] [type=] [protocol=] [MEMBER:WORK …]
    beat GROUP MEMBER gen=N [instance=]
    leave GROUP MEMBER|@INSTANCE|MEMBER@INSTANCE …
    commit GROUP [member=] [gen=] [instance=] [v=] [retention=] [metadata=] TOPIC-N:OFFSET …
    txn-commit GROUP producer=P/EPOCH [member=] [gen=] [instance=] [v=] [metadata=] TOPIC-N:OFFSET …
    end P/EPOCH commit|abort
    fetch GROUP [stable=1] [TOPIC-N …]
    delete-offsets GROUP TOPIC-N …
    describe GROUP · list [states=] [types=] · delete GROUP … · drop-topic TOPIC …
    wait MILLISECONDS · reload · log refuses ERROR · log works · set NAME=NUMBER

A member's id is its client's name and a number. `#3` is the third request that can be parked.
"""

from dataclasses import replace
from struct import pack
from typing import Any

from runnel.coordinator.contract import ProducerIdAndEpoch
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from runnel.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.coordinator import CoordinatorRecord
from runnel.schemas.group import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.coordinator.world import World


def subscription(*topics: str) -> bytes:
    """A consumer's subscription in version 1, with user data and owned partitions."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">ii", -1, 0)


def protocols(text: str) -> list[JoinGroupRequestProtocol]:
    """Parse `range:t1+t2,sticky:t1`."""
    wishes = [wish.partition(":") for wish in text.split(",") if wish]
    return [
        JoinGroupRequestProtocol(name, subscription(*topics.split("+")) if topics else b"opaque")
        for name, _, topics in wishes
    ]


def error_name(code: int) -> str:
    return ErrorCode.from_code(code).name


def producer(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition("/")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def split_partition(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


class Commands:
    """Runs transcript commands against a shard."""

    def __init__(self) -> None:
        self.world = World(on_record=self.show_record)
        self.lines: list[str] = []
        self.reported: set[int] = set()
        self.commands = {
            "join": self.join,
            "sync": self.sync,
            "beat": self.beat,
            "leave": self.leave,
            "commit": self.commit,
            "txn-commit": self.commit_in_transaction,
            "end": self.end_transaction,
            "fetch": self.fetch,
            "delete-offsets": self.delete_offsets,
            "describe": self.describe,
            "list": self.list_groups,
            "delete": self.delete,
            "drop-topic": self.drop_topic,
            "wait": self.wait,
            "reload": self.reload,
            "log": self.set_log,
            "set": self.set_setting,
        }

    def play(self, command: str) -> list[str]:
        """Run one command; returns its output lines."""
        verb, *words = command.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.lines = []
        try:
            self.commands[verb](plain, named)
        except ApiError as error:
            self.lines.append(f"refused {error.error.name}")
        for waiter in sorted(self.world.answers.keys() - self.reported):
            self.reported.add(waiter)
            self.lines.append(f"#{waiter} {self.shown(self.world.answers[waiter])}")
        return self.lines

    def say(self, line: str) -> None:
        self.lines.append(line)

    def shown(self, response: Any) -> str:
        match response:
            case None:
                return "waits"
            case ErrorCode():
                return f"refused {response.name}"
            case JoinGroupResponse(error_code=0):
                role = (
                    " leads " + ",".join(member.member_id for member in response.members)
                    if response.members
                    else ""
                )
                skips = " skips assignment" if response.skip_assignment else ""
                head = f"{response.member_id} joined generation {response.generation_id}"
                return f"{head} by {response.protocol_name}, leader {response.leader}{role}{skips}"
            case SyncGroupResponse(error_code=0):
                return f"assigned {bytes(response.assignment).decode() or 'nothing'}"
            case JoinGroupResponse():
                return f"refused {error_name(response.error_code)} {response.member_id}".rstrip()
            case _:
                return f"refused {error_name(response.error_code)}"

    def show_record(self, record: CoordinatorRecord) -> None:
        match record.key, record.value:
            case GroupMetadataKey(group), GroupMetadataValue() as value:
                work = " ".join(f"{m.member_id}:{bytes(m.assignment).decode() or '-'}" for m in value.members)
                self.say(f"log {group} generation {value.generation} {value.protocol} [{work}]")
            case GroupMetadataKey(group), None:
                self.say(f"log {group} removed")
            case OffsetCommitKey(group, topic, partition), OffsetCommitValue(offset):
                self.say(f"log {group} {topic}-{partition} at {offset}")
            case OffsetCommitKey(group, topic, partition), None:
                self.say(f"log {group} {topic}-{partition} removed")

    def parked(self, decide: Any, waiter: int) -> None:
        reply = self.world.decide(decide)
        if waiter not in self.world.answers:
            self.say(f"#{waiter} {self.shown(reply)}")

    def join(self, plain: list[str], named: dict[str, str]) -> None:
        group, client = plain
        version = int(named.get("v", 9))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=int(named.get("session", 10_000)),
            rebalance_timeout_ms=-1 if version == 0 else int(named.get("rebalance", 60_000)),
            member_id=named.get("id", ""),
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type", "consumer"),
            protocols=protocols(named.get("protocols", "range:t")),
        )
        caller = self.world.caller(client, version)
        self.parked(self.world.shard.join(request, caller, self.world.now()), caller.waiter)

    def sync(self, plain: list[str], named: dict[str, str]) -> None:
        group, member, *work = plain
        version = int(named.get("v", 3))
        shares = [share.partition(":") for share in work]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=int(named["gen"]),
            member_id=member,
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type"),
            protocol_name=named.get("protocol"),
            assignments=[SyncGroupRequestAssignment(name, share.encode()) for name, _, share in shares],
        )
        caller = self.world.caller(version=version)
        self.parked(self.world.shard.sync(request, caller, self.world.now()), caller.waiter)

    def beat(self, plain: list[str], named: dict[str, str]) -> None:
        group, member = plain
        request = HeartbeatRequest(group, int(named["gen"]), member, named.get("instance"))
        self.say(self.world.shard.heartbeat(request, self.world.now_ms).name)

    def leave(self, plain: list[str], named: dict[str, str]) -> None:
        group, *names = plain
        identities = [name.partition("@") for name in names]
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member, instance or None) for member, _, instance in identities],
        )
        reply = self.world.decide(self.world.shard.leave(request, self.world.now()))
        if isinstance(reply, ErrorCode):
            self.say(f"refused {reply.name}")
        else:
            self.say("left " + " ".join(error_name(member.error_code) for member in reply.members))

    def commit(self, plain: list[str], named: dict[str, str]) -> None:
        group, *marks = plain
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for mark in marks:
            name, _, offset = mark.partition(":")
            topic, partition = split_partition(name)
            metadata = named.get("metadata")
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition, int(offset), committed_metadata=metadata)
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=int(named.get("gen", -1)),
            member_id=named.get("member", ""),
            group_instance_id=named.get("instance"),
            retention_time_ms=int(named.get("retention", -1)),
            topics=[
                OffsetCommitRequestTopic(name=topic, topic_id=self.world.id_of(topic), partitions=parts)
                for topic, parts in topics.items()
            ],
        )
        decision = self.world.shard.commit(request, int(named.get("v", 8)), self.world.now())
        self.show_commit(self.world.decide(decision))

    def show_commit(self, reply: Any) -> None:
        if isinstance(reply, ErrorCode):
            self.say(f"refused {reply.name}")
        else:
            codes = [part.error_code for topic in reply.topics for part in topic.partitions]
            self.say("committed " + " ".join(map(error_name, codes)))

    def commit_in_transaction(self, plain: list[str], named: dict[str, str]) -> None:
        group, *marks = plain
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            **producer(named["producer"])._asdict(),
            generation_id=int(named.get("gen", -1)),
            member_id=named.get("member", ""),
            group_instance_id=named.get("instance"),
        )
        for mark in marks:
            name, _, offset = mark.partition(":")
            topic, partition = split_partition(name)
            commit = TxnOffsetCommitRequestPartition(
                partition, int(offset), committed_metadata=named.get("metadata")
            )
            request.topics.append(TxnOffsetCommitRequestTopic(topic, [commit]))
        version = int(named.get("v", 5))
        world = self.world
        self.show_commit(
            world.decide(world.shard.commit_in_transaction(request, version, world.id_of, world.now()))
        )

    def end_transaction(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.end_transaction(producer(plain[0]), plain[1] == "commit")

    def fetch(self, plain: list[str], named: dict[str, str]) -> None:
        group, *names = plain
        topics = None
        if names:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
                for topic, index in map(split_partition, names)
            ]
        reply = self.world.shard.fetch_offsets(
            OffsetFetchRequestGroup(group, topics=topics), self.world.id_of, "stable" in named
        )
        for topic in reply.topics:
            for part in topic.partitions:
                note = f" {part.metadata}" if part.metadata else ""
                if part.error_code:
                    note = f" {error_name(part.error_code)}"
                self.say(f"{topic.name}-{part.partition_index} at {part.committed_offset}{note}")

    def delete_offsets(self, plain: list[str], named: dict[str, str]) -> None:
        group, *names = plain
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index)])
            for topic, index in map(split_partition, names)
        ]
        reply = self.world.decide(self.world.shard.delete_offsets(OffsetDeleteRequest(group, topics)))
        if isinstance(reply, ErrorCode):
            self.say(f"refused {reply.name}")
            return
        self.say(
            "deleted " + " ".join(error_name(part.error_code) for t in reply.topics for part in t.partitions)
        )

    def describe(self, plain: list[str], named: dict[str, str]) -> None:
        reply = self.world.shard.describe(plain[0], int(named.get("v", 6)))
        error = f" {error_name(reply.error_code)}" if reply.error_code else ""
        self.say(f"{reply.group_id} {reply.group_state} {reply.protocol_type}/{reply.protocol_data}{error}")
        for member in reply.members:
            instance = f" @{member.group_instance_id}" if member.group_instance_id else ""
            work = bytes(member.member_assignment).decode() or "nothing"
            self.say(f"  {member.member_id}{instance} on {member.client_host} has {work}")

    def list_groups(self, plain: list[str], named: dict[str, str]) -> None:
        states = named["states"].lower().split(",") if "states" in named else []
        types = named["types"].lower().split(",") if "types" in named else []
        for group in self.world.shard.list_groups(states, types):
            self.say(
                f"{group.group_id} {group.group_state} {group.group_type} {group.protocol_type}".rstrip()
            )

    def delete(self, plain: list[str], named: dict[str, str]) -> None:
        reply = self.world.decide(self.world.shard.delete_groups(plain))
        if isinstance(reply, ErrorCode):
            self.say(f"refused {reply.name}")
            return
        self.say(" ".join(f"{result.group_id} {error_name(result.error_code)}" for result in reply))

    def drop_topic(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.carry_out(self.world.shard.topics_deleted(plain))

    def wait(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.wait(int(plain[0]))

    def reload(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.reload()

    def set_log(self, plain: list[str], named: dict[str, str]) -> None:
        self.world.log_refuses = ErrorCode[plain[1]] if plain[0] == "refuses" else None

    def set_setting(self, plain: list[str], named: dict[str, str]) -> None:
        changes: dict[str, Any] = {name: int(number) for name, number in named.items()}
        self.world.settings = replace(self.world.settings, **changes)
        self.world.shard.settings = self.world.settings
