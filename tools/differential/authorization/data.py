"""Requests of producers and consumers about records and topics."""

from runnel.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from runnel.messages.describe_producers import DescribeProducersRequest, TopicRequest
from runnel.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from runnel.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from runnel.model.ids import NO_ID
from runnel.security.acl import Operation, PatternType, ResourceType
from tools.differential.authorization.probe import (
    DENY,
    HERE,
    TOPICS,
    TRANSACTIONAL_IDS,
    Acl,
    Make,
    Probe,
    on_cluster,
    on_topics,
    on_transactional_ids,
    same,
)
from tools.differential.comparison import Broker
from tools.differential.data import NO_SUCH_ID, batch

O = Operation  # noqa: E741 - shorter lines
T, C = ResourceType.TOPIC, ResourceType.CLUSTER
AUTO = "auto-created"

BITS = (
    ("READ of a topic", frozenset({Acl(O.READ, T, HERE)})),
    ("ALL of a topic", frozenset({Acl(O.ALL, T, HERE)})),
    ("ALL of a topic but WRITE", frozenset({Acl(O.ALL, T, HERE), Acl(O.WRITE, T, HERE, DENY)})),
    ("ALL of all topics", frozenset({Acl(O.ALL, T, "*")})),
    ("ALTER_CONFIGS of the cluster", frozenset({Acl(O.ALTER_CONFIGS, C, "kafka-cluster")})),
    ("ALTER of the cluster", frozenset({Acl(O.ALTER, C, "kafka-cluster")})),
    ("ALL of the cluster", frozenset({Acl(O.ALL, C, "kafka-cluster")})),
)
"""Sets of ACLs that show in lists of permitted operations."""

_PREFIX = Acl(O.WRITE, T, "h", pattern=PatternType.PREFIXED)
_EVERY = Acl(O.WRITE, T, "*")
_NONE = _EVERY._replace(permission=DENY)
PATTERNS = (
    ("WRITE by prefix", frozenset({_PREFIX})),
    ("WRITE by prefix, denied on the name", frozenset({_PREFIX, Acl(O.WRITE, T, HERE, DENY)})),
    ("WRITE on all, denied by prefix", frozenset({_EVERY, _PREFIX._replace(permission=DENY)})),
    (
        "WRITE on the name, denied on all",
        frozenset({Acl(O.WRITE, T, HERE), _NONE}),
    ),
    ("WRITE from this host", frozenset({_EVERY._replace(host="127.0.0.1")})),
    ("WRITE from another host", frozenset({_EVERY._replace(host="192.0.2.1")})),
    (
        "WRITE, denied from another host",
        frozenset({_EVERY, _NONE._replace(host="192.0.2.1")}),
    ),
    ("WRITE, DESCRIBE denied", frozenset({_EVERY, Acl(O.DESCRIBE, T, "*", DENY)})),
)
"""ACLs of all kinds of patterns and hosts."""


def data_probes() -> list[Probe]:
    """All of them."""
    return [
        Probe(0, "Produce", _produce(None), (on_topics(O.WRITE),), extra=PATTERNS),
        *(
            Probe(
                0,
                f"Produce for {name}",
                _produce(name, is_transactional=True),
                (on_transactional_ids(O.WRITE, name), on_topics(O.WRITE)),
                has_all=False,
            )
            for name in TRANSACTIONAL_IDS
        ),
        Probe(
            0,
            "Produce without acks",
            _produce(None, acks=0),
            (on_topics(O.WRITE, HERE),),
            has_all=False,
            closes=True,
        ),
        Probe(1, "Fetch", _fetch(-1), (on_topics(O.READ),)),
        Probe(1, "Fetch of a follower", _fetch(1), (on_cluster(O.CLUSTER_ACTION),), has_all=False),
        Probe(2, "ListOffsets", _list_offsets, (on_topics(O.DESCRIBE),)),
        *_metadata_probes(),
        Probe(21, "DeleteRecords", _delete_records, (on_topics(O.DELETE),)),
        Probe(23, "OffsetForLeaderEpoch", _leader_epochs, (on_topics(O.DESCRIBE),)),
        Probe(23, "OffsetForLeaderEpoch of a node", _leader_epochs, (on_cluster(O.CLUSTER_ACTION),)),
        Probe(61, "DescribeProducers", _producers, (on_topics(O.READ),)),
        Probe(75, "DescribeTopicPartitions", _partitions(*TOPICS), (on_topics(O.DESCRIBE),), extra=BITS),
        Probe(75, "DescribeTopicPartitions of all", _partitions(), (on_topics(O.DESCRIBE),), extra=BITS[:3]),
    ]


def _metadata_probes() -> list[Probe]:
    describe = (on_topics(O.DESCRIBE),)
    creating = on_topics(O.DESCRIBE, AUTO)
    return [
        Probe(3, "Metadata", _metadata(*TOPICS), describe, range(4, 14)),
        Probe(3, "Metadata of ids", _metadata_of_ids, describe, range(12, 14)),
        Probe(3, "Metadata of all", same(MetadataRequest(None)), describe, range(1, 14)),
        Probe(
            3,
            "Metadata with operations",
            _metadata(
                *TOPICS, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
            ),
            describe,
            range(8, 14),
            extra=BITS,
        ),
        Probe(
            3,
            "Metadata that creates a topic",
            _metadata(AUTO, allow_auto_topic_creation=True),
            (creating, on_topics(O.CREATE, AUTO)),
        ),
        Probe(
            3,
            "Metadata that creates a topic by an ACL on the cluster",
            _metadata(f"{AUTO}-2", allow_auto_topic_creation=True),
            (on_topics(O.DESCRIBE, f"{AUTO}-2"), on_cluster(O.CREATE)),
        ),
    ]


def topic_id(broker: Broker, name: str) -> bytes:
    """The id of a topic, or one that no topic has."""
    return broker.topic_ids.get(name, NO_SUCH_ID)


def _produce(name: str | None, acks: int = 1, *, is_transactional: bool = False) -> Make:
    records = batch()
    if is_transactional:
        records = batch(producer_id=987_654, producer_epoch=0, base_sequence=0, transactional=True)

    def make(broker: Broker, version: int) -> ProduceRequest:
        data = [PartitionProduceData(0, records)]
        topics = [TopicProduceData(topic, NO_ID, data) for topic in TOPICS]
        if version >= 13:
            topics = [TopicProduceData("", topic_id(broker, topic), data) for topic in TOPICS]
        return ProduceRequest(name, acks, 5_000, topics)

    return make


def _fetch(replica_id: int) -> Make:
    def make(broker: Broker, version: int) -> FetchRequest:
        parts = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
        topics = [FetchTopic(name, NO_ID, parts) for name in TOPICS]
        if version >= 13:
            topics = [FetchTopic("", topic_id(broker, name), parts) for name in TOPICS]
        request = FetchRequest(min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        request.replica_id = replica_id
        if replica_id >= 0:
            request.replica_state = ReplicaState(replica_id)
        return request

    return make


def _list_offsets(broker: Broker, version: int) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(0, timestamp=-2)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name, parts) for name in TOPICS])


def _metadata(*names: str, **options: bool) -> Make:
    options = {"allow_auto_topic_creation": False, **options}
    return lambda broker, version: MetadataRequest(
        [MetadataRequestTopic(name=name) for name in names], **options
    )


def _metadata_of_ids(broker: Broker, version: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id(broker, name), None) for name in TOPICS]
    return MetadataRequest(topics, False)


def _delete_records(broker: Broker, version: int) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(0, 0)]
    return DeleteRecordsRequest([DeleteRecordsTopic(name, parts) for name in TOPICS], 5_000)


def _leader_epochs(broker: Broker, version: int) -> OffsetForLeaderEpochRequest:
    parts = [OffsetForLeaderPartition(0, -1, 0)]
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(name, parts) for name in TOPICS])


def _producers(broker: Broker, version: int) -> DescribeProducersRequest:
    return DescribeProducersRequest([TopicRequest(name, [0]) for name in TOPICS])


def _partitions(*names: str) -> Make:
    return lambda broker, version: DescribeTopicPartitionsRequest([DescribedTopic(name) for name in names])
