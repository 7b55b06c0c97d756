"""Metrics of the controller and of the metadata quorum, with the names of the JMX exporter."""

from collections.abc import Iterator

from runnel.broker.metrics.series import ROWS_PER_STEP, TOPIC_SERIES_MAX
from runnel.broker.runtime.broker import Broker
from runnel.model.ids import NO_LEADER
from runnel.observe.metrics import Family, LatencyCounts, Sample, one
from runnel.raft.leader import Leader
from runnel.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached

_CONTROLLER = "kafka_controller_kafkacontroller_"
_STATS = "kafka_controller_controllerstats_"
_RAFT = "kafka_server_raftmetrics_"
_STATES = {
    Leader: "leader",
    Follower: "follower",
    Candidate: "candidate",
    Prospective: "prospective",
    Resigned: "resigned",
    Unattached: "unattached",
}


class ClusterMetrics:
    """The cluster as the active controller sees it, and the part of this node in the quorum."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self) -> Iterator[Family | None]:
        is_active = self._broker.metadata.is_active
        yield one(
            f"{_CONTROLLER}activecontrollercount",
            "gauge",
            "1 on the active controller.",
            is_active,
        )
        if is_active:
            yield from self._as_controller()
        else:
            yield _offline_partitions(0)
        yield from self._elections()
        yield from self._quorum()

    def _as_controller(self) -> Iterator[Family | None]:
        image = self._broker.metadata.image
        offline = imbalanced = 0
        topics: list[Sample] = []
        partitions = 0
        for number, topic in enumerate(list(image.topics.values())):
            for state in topic.partitions:
                offline += state.leader == NO_LEADER
                imbalanced += state.leader not in (NO_LEADER, state.replicas[0]) if state.replicas else False
            partitions += len(topic.partitions)
            topics.append(((("topic", topic.name),), len(topic.partitions)))
            if number % ROWS_PER_STEP == 0:
                yield None
        fenced = sum(broker.is_fenced for broker in image.brokers.values())
        active = len(image.brokers) - fenced
        yield _offline_partitions(offline)
        for name, help_text, value in (
            ("preferredreplicaimbalancecount", "Partitions not led by their preferred leader.", imbalanced),
            ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
            ("globalpartitioncount", "Partitions of the cluster.", partitions),
            ("activebrokercount", "Brokers that are not fenced.", active),
            ("fencedbrokercount", "Brokers that are registered and fenced.", fenced),
        ):
            yield one(_CONTROLLER + name, "gauge", help_text, value)
        yield one("kafka_brokers", "gauge", "Brokers that are not fenced.", active)
        if len(topics) <= TOPIC_SERIES_MAX:
            yield Family("kafka_topic_partitions", "gauge", "Partitions of a topic.", topics)

    def _elections(self) -> Iterator[Family]:
        events = self._broker.events
        yield one(
            f"{_STATS}leaderelections_total",
            "counter",
            "Leaders of partitions that this node elected as the active controller.",
            events.leader_elections,
        )
        yield one(
            f"{_STATS}uncleanleaderelections_total",
            "counter",
            "Elections of leaders that may lack committed records.",
            events.unclean_elections,
        )
        yield Family(
            "runnel_election_seconds",
            "histogram",
            "kind=partition: from the last contact of a failed broker to new leaders of its partitions, on "
            "the active controller. kind=controller: how long this node knew no leader of the quorum.",
            (
                ((("kind", "partition"),), events.failovers.distribution()),
                ((("kind", "controller"),), events.controller_elections.distribution()),
            ),
        )

    def _quorum(self) -> Iterator[Family]:
        quorum, image = self._broker.quorum, self._broker.metadata.image
        role = quorum.core.role
        voted = getattr(role, "voted", None)
        vote = -1 if voted is None else voted.id
        elections = self._broker.events.controller_elections
        yield one(
            f"{_RAFT}current_state",
            "gauge",
            "1 for the state of this node in the quorum; a follower that cannot vote is an observer.",
            1,
            (("current_state", self._state()),),
        )
        for name, help_text, value in (
            ("current_leader", "Node id of the leader of the quorum, -1 if unknown.", quorum.leader_id),
            ("current_epoch", "Epoch of the quorum.", quorum.epoch),
            ("current_vote", "Node id for which this node voted, -1 if none.", vote),
            ("high_watermark", "End of the committed metadata.", quorum.high_watermark),
            ("log_end_offset", "End of the metadata log on this node.", quorum.end_offset),
            ("log_end_epoch", "Epoch of the last record of the metadata log.", quorum.view.last_epoch),
            ("number_of_voters", "Voters of the quorum.", len(quorum.voters.ids)),
            ("election_latency_avg", "Mean time without a leader, in milliseconds.", _mean_ms(elections)),
            ("election_latency_max", "Longest such time, in milliseconds.", elections.longest * 1000),
        ):
            yield one(_RAFT + name, "gauge", help_text, value)
        yield one(
            "kafka_server_brokermetadatametrics_last_applied_record_offset",
            "gauge",
            "Last metadata record that this node has applied.",
            image.version - 1,
        )
        yield one(
            "runnel_metadata_failed",
            "gauge",
            "1 if this node can no longer apply metadata.",
            self._broker.metadata.failure is not None,
        )

    def _state(self) -> str:
        role = self._broker.quorum.core.role
        name = _STATES[type(role)]
        return "observer" if name == "follower" and not self._broker.quorum.core.is_voter else name


def _offline_partitions(count: int) -> Family:
    return one(
        f"{_CONTROLLER}offlinepartitionscount",
        "gauge",
        "Partitions without a leader, on the active controller.",
        count,
    )


def _mean_ms(counts: LatencyCounts) -> float:
    total = counts.total
    return 1000 * counts.seconds / total if total else 0.0
