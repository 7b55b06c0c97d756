"""Requests of administrators about topics, configs and ACLs."""

from runnel.messages import alter_configs, incremental_alter_configs
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from runnel.messages.create_acls import AclCreation, CreateAclsRequest
from runnel.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from runnel.messages.create_topics import CreateTopicsRequest
from runnel.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_acls import DescribeAclsRequest
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from runnel.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from runnel.messages.list_config_resources import ListConfigResourcesRequest
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from runnel.model.errors import ErrorCode
from runnel.security.acl import Operation
from tools.differential.admin import BROKER, GROUP, METRICS, TOPIC
from tools.differential.authorization.data import topic_id
from tools.differential.authorization.probe import (
    DENY,
    GONE,
    GROUPS,
    HERE,
    TOPICS,
    Make,
    Need,
    Probe,
    on_cluster,
    on_groups,
    on_topics,
    same,
)
from tools.differential.comparison import Broker, BrokerPair
from tools.differential.topics import VERSION, new_topic

O = Operation  # noqa: E741 - shorter lines
DOOMED = "here-for-a-while"
TIMEOUT_MS = 5_000
BROKER_LOGGER = 8
Resources = tuple[tuple[int, str], ...]
RESOURCES: Resources = (
    *((TOPIC, name) for name in TOPICS),
    *((GROUP, name) for name in GROUPS),
    (BROKER, "1"),
    (BROKER, ""),
    (METRICS, "metrics"),
)
OF_BROKERS = ((BROKER, "77"), (BROKER_LOGGER, "1"), (BROKER_LOGGER, "77"))


def admin_probes() -> list[Probe]:
    """All of them."""
    return [*_topic_probes(), *_config_probes(), *_acl_probes(), *_partition_probes()]


def _topic_probes() -> list[Probe]:
    # Of a topic that is only tried Kafka shows an id.
    shown = "configs topic_id"
    creating = same(CreateTopicsRequest([new_topic(name) for name in TOPICS], TIMEOUT_MS, True))
    deleting = (on_topics(O.DELETE, DOOMED, GONE),)
    undescribed = on_topics(O.DESCRIBE, DOOMED, GONE).acls((), DENY)
    hidden = (("DELETE without DESCRIBE", frozenset(deleting[0].acls() | undescribed)),)
    configs = on_topics(O.DESCRIBE_CONFIGS)
    return [
        Probe(19, "CreateTopics", creating, (on_topics(O.CREATE), configs), ignore=shown),
        Probe(
            19,
            "CreateTopics by an ACL on the cluster",
            creating,
            (on_cluster(O.CREATE), configs),
            ignore=shown,
        ),
        Probe(20, "DeleteTopics", _delete(is_by_id=False), deleting, prepare=_recreated, extra=hidden),
        Probe(
            20,
            "DeleteTopics of ids",
            _delete(is_by_id=True),
            deleting,
            range(6, 7),
            prepare=_recreated,
            extra=hidden,
        ),
        Probe(
            20,
            "DeleteTopics of ids that may be described",
            _delete(is_by_id=True),
            (on_topics(O.DELETE, DOOMED, GONE), on_topics(O.DESCRIBE, DOOMED, GONE)),
            range(6, 7),
            prepare=_recreated,
        ),
        Probe(
            20,
            "DeleteTopics by an ACL on the cluster",
            _delete(is_by_id=False),
            (on_cluster(O.DELETE),),
            prepare=_recreated,
        ),
        Probe(37, "CreatePartitions", _grown, (on_topics(O.ALTER),)),
    ]


def _recreated(pair: BrokerPair) -> None:
    """The topic that is deleted exists again."""
    request = CreateTopicsRequest([new_topic(DOOMED, 1)], TIMEOUT_MS)
    responses = pair.begin(request, VERSION, "one").result()
    for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
        (topic,) = response.topics
        if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS.code:
            assert topic.error_code == 0, topic
            broker.topic_ids[DOOMED] = topic.topic_id
    if any(response.topics[0].error_code == 0 for response in responses):
        pair.settle()


def _delete(*, is_by_id: bool) -> Make:
    names = (DOOMED, GONE)

    def make(broker: Broker, version: int) -> DeleteTopicsRequest:
        if version < 6:
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
        if is_by_id:
            states = [DeleteTopicState(None, topic_id(broker, name)) for name in names]
        else:
            states = [DeleteTopicState(name) for name in names]
        return DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS)

    return make


def _grown(broker: Broker, version: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsTopic(name, 2) for name in TOPICS], TIMEOUT_MS, True)


def _config_probes() -> list[Probe]:
    def described(resources: Resources) -> Make:
        named = [DescribeConfigsResource(*each, ["nothing"]) for each in resources]
        return same(DescribeConfigsRequest(named))

    def replaced(resources: Resources) -> Make:
        named = [alter_configs.AlterConfigsResource(*each, []) for each in resources]
        return same(alter_configs.AlterConfigsRequest(named, True))

    def altered(resources: Resources) -> Make:
        named = [incremental_alter_configs.AlterConfigsResource(*each, []) for each in resources]
        return same(incremental_alter_configs.IncrementalAlterConfigsRequest(named, True))

    def on_all(operation: Operation) -> tuple[Need, ...]:
        return on_topics(operation), on_groups(operation), on_cluster(operation)

    return [
        Probe(32, "DescribeConfigs", described(RESOURCES), on_all(O.DESCRIBE_CONFIGS)),
        Probe(33, "AlterConfigs", replaced(RESOURCES), on_all(O.ALTER_CONFIGS)),
        Probe(44, "IncrementalAlterConfigs", altered(RESOURCES), on_all(O.ALTER_CONFIGS)),
        *(
            Probe(key, f"{name} of another broker and loggers", make(OF_BROKERS), (need,), has_all=False)
            for key, name, make, need in (
                (32, "DescribeConfigs", described, on_cluster(O.DESCRIBE_CONFIGS)),
                (33, "AlterConfigs", replaced, on_cluster(O.ALTER_CONFIGS)),
                (44, "IncrementalAlterConfigs", altered, on_cluster(O.ALTER_CONFIGS)),
            )
        ),
        Probe(
            74,
            "ListConfigResources",
            same(ListConfigResourcesRequest()),
            (on_cluster(O.DESCRIBE_CONFIGS),),
        ),
    ]


def _acl_probes() -> list[Probe]:
    alter = (on_cluster(O.ALTER),)
    creations = [
        AclCreation(2, name, 3, "User:unknown", "*", operation, 3)
        for name, operation in ((HERE, O.READ), ("", O.READ))
    ]
    filters = [DeleteAclsFilter(2, HERE, 3, "User:unknown", None, O.ANY, 1), DeleteAclsFilter(2, GONE, 1)]
    filters[1].operation = filters[1].permission_type = 1
    filters[1].principal_filter = "User:unknown"
    listing = DescribeAclsRequest(2, None, 1, "User:unknown", None, O.ANY, 1)
    return [
        Probe(29, "DescribeAcls", same(listing), (on_cluster(O.DESCRIBE),)),
        Probe(30, "CreateAcls", same(CreateAclsRequest(creations)), alter),
        Probe(31, "DeleteAcls", same(DeleteAclsRequest(filters)), alter),
    ]


def _partition_probes() -> list[Probe]:
    def elected(kind: int, names: tuple[str, ...] | None) -> Make:
        wanted = None if names is None else [TopicPartitions(name, [0]) for name in names]
        return same(ElectLeadersRequest(kind, wanted, TIMEOUT_MS))

    def moved(broker: Broker, version: int) -> AlterPartitionReassignmentsRequest:
        topics = [ReassignableTopic(name, [ReassignablePartition(0, [1])]) for name in TOPICS]
        return AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=topics)

    def moving(broker: Broker, version: int) -> ListPartitionReassignmentsRequest:
        topics = [ListPartitionReassignmentsTopics(name, [0]) for name in TOPICS]
        return ListPartitionReassignmentsRequest(TIMEOUT_MS, topics)

    def stored(broker: Broker, version: int) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest([DescribableLogDirTopic(name, [0]) for name in TOPICS])

    alter, describe = (on_cluster(O.ALTER),), (on_cluster(O.DESCRIBE),)
    return [
        Probe(35, "DescribeLogDirs", stored, describe),
        Probe(43, "ElectLeaders", elected(0, TOPICS), alter),
        Probe(43, "ElectLeaders of all", elected(0, None), alter, has_all=False),
        Probe(43, "ElectLeaders, unclean", elected(1, TOPICS), alter, range(1, 3)),
        Probe(45, "AlterPartitionReassignments", moved, alter),
        Probe(46, "ListPartitionReassignments", moving, describe),
    ]
