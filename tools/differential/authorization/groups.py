"""Requests of consumer groups, and of the tools that look after them."""

from collections.abc import Callable

from runnel.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.messages.delete_groups import DeleteGroupsRequest
from runnel.messages.describe_groups import DescribeGroupsRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.list_groups import ListGroupsRequest
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
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from runnel.messages.sync_group import SyncGroupRequest
from runnel.model.ids import NO_ID
from runnel.security.acl import Operation, ResourceType
from runnel.wire import Request
from tools.differential.authorization.data import topic_id
from tools.differential.authorization.probe import (
    DENY,
    GROUPS,
    HERE,
    TOPICS,
    TRANSACTIONAL_IDS,
    Acl,
    Make,
    Need,
    Probe,
    on_cluster,
    on_groups,
    on_topics,
    on_transactional_ids,
    same,
)
from tools.differential.comparison import Broker, BrokerPair
from tools.differential.groups import subscription

O = Operation  # noqa: E741 - shorter lines
G, T = ResourceType.GROUP, ResourceType.TOPIC
DOOMED = "group-here-for-a-while"
MEMBERS = "members-here"
"""A group of the newer protocol with a member that is subscribed to a topic."""
MEMBER = "a member of that group"

BITS = (
    ("READ of a group", frozenset({Acl(O.READ, G, GROUPS[0]), Acl(O.READ, G, MEMBERS)})),
    ("ALL of a group", frozenset({Acl(O.ALL, G, GROUPS[0])})),
    ("ALL of a group but DELETE", frozenset({Acl(O.ALL, G, GROUPS[0]), Acl(O.DELETE, G, GROUPS[0], DENY)})),
    ("ALL of all groups", frozenset({Acl(O.ALL, G, "*")})),
    ("ALL of all groups and topics", frozenset({Acl(O.ALL, G, "*"), Acl(O.ALL, T, "*")})),
)
"""Sets of ACLs that show in lists of permitted operations."""


def set_up_groups(pair: BrokerPair) -> None:
    """Groups that exist: with committed offsets, and with a member."""
    _commit_in(pair, GROUPS[0])
    joining = ConsumerGroupHeartbeatRequest(
        MEMBERS, MEMBER, 0, rebalance_timeout_ms=600_000, subscribed_topic_names=[HERE], topic_partitions=[]
    )
    for response in pair.begin(joining, 1, "one").result():
        assert response.error_code == 0, response


def _commit_in(pair: BrokerPair, group: str) -> None:
    topic = OffsetCommitRequestTopic(HERE, NO_ID, [OffsetCommitRequestPartition(0, 5)])
    request = OffsetCommitRequest(group, topics=[topic])
    responses = pair.begin(request, 9, "one").result()
    codes = {response.topics[0].partitions[0].error_code for response in responses}
    assert codes == {0}, codes


def _recreated(pair: BrokerPair) -> None:
    _commit_in(pair, DOOMED)


def group_probes() -> list[Probe]:
    """All of them."""
    return [
        *(probe for group in GROUPS for probe in _probes_of_member(group)),
        *(probe for group in GROUPS for probe in _probes_of_offsets(group)),
        Probe(9, "OffsetFetch of groups", _fetch_offsets(*GROUPS), _DESCRIBED, range(8, 11)),
        Probe(
            9, "OffsetFetch of groups, all", _fetch_offsets(*GROUPS, is_all=True), _DESCRIBED, range(8, 11)
        ),
        *_coordinator_probes(),
        Probe(
            15,
            "DescribeGroups",
            same(DescribeGroupsRequest([*GROUPS, MEMBERS], True)),
            (on_groups(O.DESCRIBE, *GROUPS, MEMBERS),),
            extra=BITS,
        ),
        Probe(
            16,
            "ListGroups",
            same(ListGroupsRequest()),
            (on_groups(O.DESCRIBE, *GROUPS, MEMBERS),),
            extra=BITS,
        ),
        Probe(16, "ListGroups of the cluster", same(ListGroupsRequest()), (on_cluster(O.DESCRIBE),)),
        Probe(
            42,
            "DeleteGroups",
            same(DeleteGroupsRequest([DOOMED, GROUPS[1]])),
            (on_groups(O.DELETE, DOOMED, GROUPS[1]),),
            prepare=_recreated,
        ),
        Probe(
            69,
            "ConsumerGroupDescribe",
            same(ConsumerGroupDescribeRequest([*GROUPS, MEMBERS], True)),
            (on_groups(O.DESCRIBE, *GROUPS, MEMBERS), on_topics(O.DESCRIBE)),
            extra=BITS,
        ),
    ]


def _probes_of_member(group: str) -> list[Probe]:
    """Requests of a member. Those that are permitted fail otherwise, so that no group changes."""

    def leave(broker: Broker, version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group, "unknown")
        return LeaveGroupRequest(group, members=[MemberIdentity("unknown")])

    def join(broker: Broker, version: int) -> JoinGroupRequest:
        request = JoinGroupRequest(group, 1, 1, "unknown", None, "consumer")
        request.protocols = [JoinGroupRequestProtocol("range", subscription(HERE))]
        return request

    def beat(broker: Broker, version: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group, "unknown", 3, rebalance_timeout_ms=1000, subscribed_topic_names=list(TOPICS)
        )

    def sync(broker: Broker, version: int) -> SyncGroupRequest:
        request = SyncGroupRequest(group, 1, "unknown")
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        return request

    needs = (on_groups(O.READ, group),)
    return [
        Probe(11, f"JoinGroup of {group}", join, needs),
        Probe(12, f"Heartbeat of {group}", same(HeartbeatRequest(group, 1, "unknown")), needs),
        Probe(13, f"LeaveGroup of {group}", leave, needs),
        Probe(14, f"SyncGroup of {group}", sync, needs),
        Probe(68, f"ConsumerGroupHeartbeat of {group}", beat, (*needs, on_topics(O.DESCRIBE))),
    ]


def _probes_of_offsets(group: str) -> list[Probe]:
    deletion = OffsetDeleteRequest(
        group, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in TOPICS]
    )

    def commit(broker: Broker, version: int) -> OffsetCommitRequest:
        parts = [OffsetCommitRequestPartition(0, 5)]
        topics = [OffsetCommitRequestTopic(name, NO_ID, parts) for name in TOPICS]
        if version >= 10:
            topics = [OffsetCommitRequestTopic("", topic_id(broker, name), parts) for name in TOPICS]
        return OffsetCommitRequest(group, topics=topics)

    def fetched(names: tuple[str, ...] | None) -> Make:
        topics = None if names is None else [OffsetFetchRequestTopic(name, [0]) for name in names]
        return same(OffsetFetchRequest(group, topics))

    describing: tuple[Need, ...] = (on_groups(O.DESCRIBE, group), on_topics(O.DESCRIBE))
    committing = (on_groups(O.READ, group), on_topics(O.READ))
    probes = [
        Probe(9, f"OffsetFetch of {group}", fetched(TOPICS), describing, range(1, 8)),
        Probe(9, f"OffsetFetch of {group}, all", fetched(None), describing, range(2, 8)),
        Probe(
            47,
            f"OffsetDelete of {group}",
            same(deletion),
            (on_groups(O.DELETE, group), on_topics(O.READ)),
        ),
    ]
    # The group that does not exist must not be created.
    has_all = group == GROUPS[0]
    return [Probe(8, f"OffsetCommit of {group}", commit, committing, has_all=has_all), *probes]


_DESCRIBED = (on_groups(O.DESCRIBE), on_topics(O.DESCRIBE))


def _fetch_offsets(*groups: str, is_all: bool = False) -> Make:
    def topics(broker: Broker, version: int) -> list[OffsetFetchRequestTopics] | None:
        if is_all:
            return None
        if version >= 10:
            return [OffsetFetchRequestTopics("", topic_id(broker, name), [0]) for name in TOPICS]
        return [OffsetFetchRequestTopics(name, NO_ID, [0]) for name in TOPICS]

    return lambda broker, version: OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=topics(broker, version)) for group in groups]
    )


def _coordinator_probes() -> list[Probe]:
    def find(kind: int, *keys: str) -> Callable[[Broker, int], Request]:
        def make(broker: Broker, version: int) -> FindCoordinatorRequest:
            if version < 4:
                return FindCoordinatorRequest(keys[0], kind)
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))

        return make

    share_key = "group-here:AAAAAAAAAAAAAAAAAAAAAQ:0"
    return [
        Probe(10, "FindCoordinator of groups", find(0, *GROUPS), (on_groups(O.DESCRIBE),)),
        Probe(
            10,
            "FindCoordinator of transactions",
            find(1, *TRANSACTIONAL_IDS),
            (on_transactional_ids(O.DESCRIBE),),
            range(1, 7),
        ),
        Probe(
            10,
            "FindCoordinator of share groups",
            find(2, share_key),
            (on_cluster(O.CLUSTER_ACTION),),
            range(6, 7),
            has_all=False,
        ),
    ]
