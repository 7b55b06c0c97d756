"""The commands of the transcripts about clusters, besides those of `commands`.

    register N [inc=1] [prev=EPOCH] [rack=] [host=] [dirs=a+b] [cluster=] [zk] [without=FEATURE]
        [FEATURE=LOW-HIGH]
    beat N [fence] [stop] [at=OFFSET] [epoch=] [offline=a] [cordoned=a+b]       a heartbeat
    tick MS · lost N [MS] · expire · activate [N=MS …]    time, lost connections, sessions, a new controller
    alter N TOPIC-P isr=1+2/EPOCH [le=] [pe=] [recovering] [v=] [epoch=]        N proposes an ISR
    balance · rescue                                      elections that the controller makes by itself
    unregister N · controller N · ids N [epoch=] · dirs N NAME TOPIC-P …
    see TOPIC-P … · brokers · level metadata.version=17   levels are set without validation

A directory is a letter, or lost; the default is one letter per broker. `--` separates batches of records.
"""

from collections.abc import Callable, Iterator
from typing import Any

from runnel.controller.alter_partition import alter_partitions
from runnel.controller.broker_heartbeats import broker_heartbeat, fence_expired_broker
from runnel.controller.broker_sessions import BrokerSessions
from runnel.controller.directories import assign_replicas_to_dirs
from runnel.controller.elections import balance_leaders, elect_unclean_leaders
from runnel.controller.features import FIRST_LEVELS, SUPPORTED_FEATURES
from runnel.controller.image import MetadataImage
from runnel.controller.producer_ids import decide_allocate_producer_ids
from runnel.controller.registrations import (
    ClusterIdentity,
    decide_controller_registration,
    register_broker,
    remove_broker,
)
from runnel.controller.steps import Steps, finish
from runnel.controller.values import LOST_DIRECTORY, PartitionState
from runnel.messages import alter_partition
from runnel.messages import assign_replicas_to_dirs as dirs
from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest
from runnel.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from runnel.messages.controller_registration import ControllerRegistrationRequest
from runnel.messages.controller_registration import Feature as ControllerFeature
from runnel.messages.unregister_broker import UnregisterBrokerRequest
from runnel.model.errors import ErrorCode
from runnel.schemas.metadata import FeatureLevelRecord, MetadataRecord
from tests.controller.commands import Commands, shortened, shown
from tests.controller.images import same

SESSION_MS = 1500


class ClusterCommands(Commands):
    """Runs transcript commands against an image and the sessions of brokers."""

    def __init__(self) -> None:
        super().__init__(first=[FeatureLevelRecord(name, level) for name, level in FIRST_LEVELS.items()])
        self.now_ms = 0
        self.sessions = BrokerSessions(SESSION_MS)
        self.identity = ClusterIdentity("cluster")
        self.between_steps: Callable[[], None] = lambda: None
        self.after_batch: Callable[[], None] = lambda: None

    def carry_out(self, records: list[MetadataRecord]) -> None:
        super().carry_out(records)
        if len(self.batches) > 1:
            self.after_batch()

    def steps(self, steps: Steps[Any]) -> tuple[list[str], Any]:
        """Carry out all steps; the lines of their records, and the response."""
        lines: list[str] = []

        def carry_out(records: list[MetadataRecord]) -> MetadataImage:
            if lines:
                lines.append("--")
            lines.extend(shortened([shown(record) for record in records]))
            self.carry_out(records)
            self.between_steps()
            return self.image

        before = self.image.copy()
        try:
            response = finish(steps, carry_out)
        except Exception:
            is_same = same(before, self.image)
            assert lines or is_same, "computing a result must not change the image"
            raise
        return lines, response

    def play_register(self, words: list[str]) -> Iterator[str]:
        broker_id = int(words[0])
        named = dict(word.partition("=")[::2] for word in words[1:])
        ranges = dict(SUPPORTED_FEATURES)
        ranges.pop(named.get("without", ""), None)
        for name in list(named):
            if name in ranges:
                low, _, high = named[name].partition("-")
                ranges[name] = int(low), int(high)
        request = BrokerRegistrationRequest(
            broker_id,
            cluster_id=named.get("cluster", "cluster"),
            incarnation_id=bytes([int(named.get("inc", "1"))]) * 16,
            listeners=[Listener("PLAINTEXT", named.get("host", f"host-{broker_id}"), 9092)],
            features=[Feature(name, *levels) for name, levels in ranges.items()],
            rack=named.get("rack"),
            is_migrating_zk_broker="zk" in named,
            log_dirs=directories(named.get("dirs", chr(ord("a") + broker_id))),
            previous_broker_epoch=int(named.get("prev", "-1")),
        )
        lines, response = self.steps(
            register_broker(self.image, self.settings, self.sessions, request, self.identity, self.now_ms)
        )
        yield from lines
        yield f"epoch {response.broker_epoch}"

    def play_beat(self, words: list[str]) -> Iterator[str]:
        broker_id = int(words[0])
        named = dict(word.partition("=")[::2] for word in words[1:])
        known = self.image.brokers.get(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id,
            broker_epoch=int(named.get("epoch", known.epoch if known else 0)),
            current_metadata_offset=int(named.get("at", self.image.version - 1)),
            want_fence="fence" in named,
            want_shut_down="stop" in named,
            offline_log_dirs=directories(named.get("offline", "")),
            cordoned_log_dirs=directories(named["cordoned"]) if "cordoned" in named else None,
        )
        lines, response = self.steps(
            broker_heartbeat(self.image, self.settings, self.sessions, request, self.now_ms)
        )
        yield from lines
        yield " ".join(
            name
            for name, is_so in (
                ("behind", not response.is_caught_up),
                ("fenced" if response.is_fenced else "unfenced", True),
                ("stops", response.should_shut_down),
            )
            if is_so
        )

    def play_tick(self, words: list[str]) -> Iterator[str]:
        self.now_ms += int(words[0])
        yield from ()

    def play_lost(self, words: list[str]) -> Iterator[str]:
        self.sessions.connection_lost(int(words[0]), self.now_ms, int(words[1]) if words[1:] else 300)
        yield from ()

    def play_refused(self, words: list[str]) -> Iterator[str]:
        self.sessions.refused(int(words[0]), self.now_ms - int(words[1]), self.now_ms)
        yield from ()

    def play_expire(self, words: list[str]) -> Iterator[str]:
        lines, broker_id = self.steps(
            fence_expired_broker(self.image, self.settings, self.sessions, self.now_ms)
        )
        yield from lines
        yield f"fenced {broker_id}" if broker_id is not None else "none has expired"

    def play_activate(self, words: list[str]) -> Iterator[str]:
        heard = {int(node): int(at) for node, _, at in (word.partition("=") for word in words)}
        self.sessions = BrokerSessions(SESSION_MS)
        self.sessions.activated(self.image.brokers.values(), self.now_ms, heard)
        yield from ()

    def play_alter(self, words: list[str]) -> Iterator[str]:
        broker_id, (topic, _, index) = int(words[0]), words[1].rpartition("-")
        named = dict(word.partition("=")[::2] for word in words[2:])
        state = self.image.partition(topic, int(index)) or PartitionState((), (), -1, 0, 0)
        members = [part.partition("/")[::2] for part in named["isr"].split("+")]
        known = self.image.brokers.get(broker_id)
        wanted = alter_partition.PartitionData(
            int(index),
            leader_epoch=int(named.get("le", state.leader_epoch)),
            new_isr=[int(member) for member, _ in members],
            new_isr_with_epochs=[
                alter_partition.BrokerState(int(member), int(epoch or "-1")) for member, epoch in members
            ],
            leader_recovery_state="recovering" in named,
            partition_epoch=int(named.get("pe", state.partition_epoch)),
        )
        topic_id = self.image.topics[topic].id if topic in self.image.topics else b"?" * 16
        request = alter_partition.AlterPartitionRequest(
            broker_id,
            int(named.get("epoch", known.epoch if known else 0)),
            [alter_partition.TopicData(topic_id, [wanted])],
        )
        version = int(named.get("v", "3"))
        lines, response = self.steps(alter_partitions(self.image, self.settings, request, version))
        yield from lines
        for result in response.topics[0].partitions:
            error = ErrorCode.from_code(result.error_code)
            leader = f"{result.leader_id}/{result.leader_epoch}"
            answer = f"leader {leader} isr {result.isr} at {result.partition_epoch}"
            yield answer if error is ErrorCode.NONE else error.name

    def play_unregister(self, words: list[str]) -> Iterator[str]:
        request = UnregisterBrokerRequest(int(words[0]))
        lines, _ = self.steps(remove_broker(self.image, self.settings, self.sessions, request))
        yield from lines

    def play_controller(self, words: list[str]) -> Iterator[str]:
        features = [ControllerFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]
        request = ControllerRegistrationRequest(int(words[0]), bytes([int(words[0])]) * 16, features=features)
        outcome = decide_controller_registration(self.image, request)
        yield from self.decided(outcome, lambda _: [])

    def play_ids(self, words: list[str]) -> Iterator[str]:
        named = dict(word.partition("=")[::2] for word in words[1:])
        epoch = int(named.get("epoch", self.image.brokers[int(words[0])].epoch))
        outcome = decide_allocate_producer_ids(self.image, AllocateProducerIdsRequest(int(words[0]), epoch))
        yield from self.decided(
            outcome, lambda response: [f"{response.producer_id_start} +{response.producer_id_len}"]
        )

    def play_dirs(self, words: list[str]) -> Iterator[str]:
        broker_id = int(words[0])
        topics = []
        for topic, _, index in (word.rpartition("-") for word in words[2:]):
            topic_id = self.image.topics[topic].id if topic in self.image.topics else b"?" * 16
            topics.append(dirs.TopicData(topic_id, [dirs.PartitionData(int(index))]))
        request = dirs.AssignReplicasToDirsRequest(
            broker_id,
            self.image.brokers[broker_id].epoch,
            [dirs.DirectoryData(directories(words[1])[0], topics)],
        )
        lines, response = self.steps(assign_replicas_to_dirs(self.image, self.settings, request))
        yield from lines
        yield " ".join(
            ErrorCode.from_code(partition.error_code).name
            for topic in response.directories[0].topics
            for partition in topic.partitions
        )

    def play_balance(self, words: list[str]) -> Iterator[str]:
        lines, _ = self.steps(balance_leaders(self.image, self.settings))
        yield from lines

    def play_rescue(self, words: list[str]) -> Iterator[str]:
        lines, _ = self.steps(elect_unclean_leaders(self.image, self.settings))
        yield from lines

    def play_see(self, words: list[str]) -> Iterator[str]:
        for word in words:
            topic, _, index = word.rpartition("-")
            state = self.image.partition(topic, int(index))
            assert state is not None, word
            yield seen(word, state)

    def play_brokers(self, words: list[str]) -> Iterator[str]:
        for broker in self.image.brokers.values():
            flags = " fenced" * broker.is_fenced + " stopping" * broker.is_stopping
            yield f"{broker.id} epoch {broker.epoch}{flags} leads {self.image.index.led.get(broker.id, 0)}"

    def play_level(self, words: list[str]) -> Iterator[str]:
        pairs = [word.partition("=") for word in words]
        self.carry_out([FeatureLevelRecord(name, int(level)) for name, _, level in pairs])
        yield from ()


def seen(name: str, state: PartitionState) -> str:
    parts = [f"{name} replicas {state.replicas} isr {state.isr} leader {state.leader}/{state.leader_epoch}"]
    for label, value in (
        ("elr", state.eligible),
        ("last", state.last_known_eligible),
        ("adding", state.adding),
        ("removing", state.removing),
    ):
        if value:
            parts.append(f"{label} {value}")
    parts.append(f"at {state.partition_epoch}" + " recovering" * state.recovery)
    return " ".join(parts).replace(",)", ")")


def directories(names: str) -> list[bytes]:
    return [LOST_DIRECTORY if name == "lost" else name.encode() * 16 for name in names.split("+") if name]
