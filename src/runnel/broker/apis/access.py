"""Which permissions each API needs: the rules of `rules.py`, one row per API.

Kafka checks a transactional id or group before topics, and topics before whether they exist; so do the rows.
An API without a row cannot be called.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from runnel.broker.apis.denials import denied_item, denied_items, empty_response
from runnel.broker.apis.produce import ATTRIBUTES, TRANSACTIONAL
from runnel.broker.apis.rules import (
    DENIED,
    Outcome,
    Rule,
    hide,
    items,
    listed,
    on_cluster,
    on_group,
    on_topic,
    on_transactional_id,
    whole,
)
from runnel.broker.apis.txn_rules import added_partitions, begins_search, producer_id
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID
from runnel.ports.gates import CLUSTER_NAME, Operation, Permission, ResourceType
from runnel.ports.service import CloseConnection
from runnel.wire import Response

_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_CLUSTER_ACTION = Operation.CLUSTER_ACTION

_CONFIG_TOPIC, _CONFIG_GROUP = 2, 32
_KEY_GROUP, _KEY_TRANSACTION = 0, 1
_TOPIC_IDS_FROM = 13
"""The version of Fetch from which topics have ids, and an error of all of them is at the top level only."""
_METADATA_BY_ID_FROM = 12
_REPLICA_STATE_FROM = 15
"""The version of Fetch from which a follower's id is in a struct of its own."""


_NOT_ASKED = -(2**31)
"""Operations that a response does not list."""


def topic_of(item: Any, ctx: Context) -> str | None:
    """The name of the topic that an element of a request names, by name or by id; None if there is none.

    An unknown id needs no permission: the handler answers UNKNOWN_TOPIC_ID.
    """
    if isinstance(item, str):
        return item
    name: str | None = getattr(item, "name", None) or getattr(item, "topic", None)
    topic_id = getattr(item, "topic_id", NO_ID)
    if topic_id != NO_ID:
        return ctx.broker.topic_name(topic_id) or name or None
    return name


def _topics(operation: Operation, array: str, into: str, alternative: Permission | None = None) -> Rule:
    """A permission on each topic of an array."""

    def permission(item: Any, ctx: Context) -> Permission | None:
        name = topic_of(item, ctx)
        return None if name is None else on_topic(operation, name)

    return items(array, permission, into, alternative)


def _groups(operation: Operation, array: str, into: str) -> Rule:
    """A permission on each group of an array of names."""
    return items(array, lambda name, ctx: on_group(operation, name), into)


def _configs(operation: Operation, into: str) -> Rule:
    """A permission on the resource that the settings belong to."""

    def permission(item: Any, ctx: Context) -> Permission:
        if item.resource_type == _CONFIG_TOPIC:
            return on_topic(operation, item.resource_name)
        if item.resource_type == _CONFIG_GROUP:
            return on_group(operation, item.resource_name)
        return on_cluster(operation)

    return items("resources", permission, into)


_READ_GROUP = whole(lambda request: on_group(_READ, request.group_id))
_WRITE_TRANSACTIONAL_ID = whole(lambda request: on_transactional_id(_WRITE, request.transactional_id))


def _cluster(operation: Operation) -> Rule:
    """A permission on the cluster, denied at the top level of the response."""
    return whole(lambda _: on_cluster(operation))


def _cluster_items(operation: Operation, array: str, into: str, *, with_top_level: bool = False) -> Rule:
    """A permission on the cluster, denied in each element."""
    return whole(lambda _: on_cluster(operation), denied_items(array, into, with_top_level=with_top_level))


def _produced(rule: Rule) -> Rule:
    """A rule of Produce: with acks=0 no response is wanted, and what is denied closes the connection."""

    def checked(request: Any, ctx: Context, check: Check) -> Outcome:
        outcome = rule(request, ctx, check)
        if outcome is not None and request.acks == 0:
            raise CloseConnection("produce with acks=0 to a topic that the client may not write to")
        return outcome

    return checked


def _fetched_topics(request: Any, ctx: Context, check: Check) -> Outcome:
    """The topics that the request names, and those of its fetch session (KIP-227), which it need not name.

    A follower needs a permission on the cluster instead, and is denied topic by topic. So does every client
    of a controller, whose only log is that of the metadata.
    """
    is_controller = ctx.listener in ctx.broker.controller_listeners
    if is_controller or _is_follower(request, ctx):
        if check(on_cluster(_CLUSTER_ACTION)):
            return None
        if is_controller:
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if ctx.api_version >= _TOPIC_IDS_FROM:
                return empty_response(request, error_code=error.code)
            return _CONTROLLER_FETCH_DENIED(request, error)
        return _FETCH_DENIED(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    remembered = ctx.broker.fetch_sessions.topics_of(request, ctx.api_version)
    if remembered is None:
        return _FETCHED_TOPICS(request, ctx, check)
    names = {name for item in (*remembered, *request.topics) if (name := topic_of(item, ctx))}
    # Not those that are denied: another connection may add topics to the session before they are read.
    ctx.readable_topics = frozenset(name for name in names if check(on_topic(_READ, name)))
    ctx.is_partly_denied = len(ctx.readable_topics) < len(names)
    return None


_FETCHED_TOPICS = _topics(_READ, "topics", "responses")
_FETCH_DENIED = denied_items("topics", "responses")
_CONTROLLER_FETCH_DENIED = denied_items("topics", "responses", with_top_level=True)


def _is_follower(request: Any, ctx: Context) -> bool:
    if ctx.api_version < _REPLICA_STATE_FROM:
        is_follower: bool = request.replica_id >= 0
    else:
        is_follower = request.replica_state is not None and request.replica_state.replica_id >= 0
    return is_follower


def _described_topics(request: Any, ctx: Context, check: Check) -> Outcome:
    """Metadata: brokers are shown to every client, topics to those that may describe them."""
    is_all = request.topics is None or (ctx.api_version == 0 and not request.topics)
    if is_all:
        return partial(hide, "topics", lambda topic: on_topic(_DESCRIBE, topic.name), check)

    topics = ctx.broker.metadata.image.topics
    creates_topics = ctx.broker.settings["auto.create.topics.enable"]

    def needed(item: Any) -> Permission | None:
        name = topic_of(item, ctx)
        # Before version 12 the handler rejects ids, whatever they stand for.
        if name is None or (ctx.api_version < _METADATA_BY_ID_FROM and item.topic_id != NO_ID):
            return None
        may_create = request.allow_auto_topic_creation and creates_topics and name not in topics
        if not may_create or not check.shows(on_topic(_DESCRIBE, name)):
            return on_topic(_DESCRIBE, name)
        return on_cluster(_CREATE) if check.shows(on_cluster(_CREATE)) else on_topic(_CREATE, name)

    kept, refused = [], []
    for item in request.topics:
        permission = needed(item)
        if permission is None or check(permission):
            kept.append(item)
            continue
        answer = denied_item(request, "topics", item, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        # A topic that was named by its id is answered without its name.
        answer.name = item.name if item.topic_id == NO_ID else None
        refused.append(answer)
    if not refused:
        return None
    request.topics = kept

    def amend(response: Any) -> None:
        # In version 0 an empty list requests all topics.
        response.topics = [*(response.topics if kept else ()), *refused]

    return amend


def _listed_topics(request: Any, ctx: Context, check: Check) -> Outcome:
    """DescribeTopicPartitions: named topics, or all."""
    if request.topics:
        return _NAMED_TOPICS(request, ctx, check)
    return partial(hide, "topics", lambda topic: on_topic(_DESCRIBE, topic.name), check)


_NAMED_TOPICS = _topics(_DESCRIBE, "topics", "topics")


def _fetched_offsets(request: Any, ctx: Context, check: Check) -> Outcome:
    """OffsetFetch: groups, and topics within each; all topics of a group are filtered."""
    if ctx.api_version < 8:
        return _fetched_offsets_of_one_group(request, ctx, check)
    refused = []
    kept = []
    denied_topics: dict[str, list[Any]] = {}
    for group in request.groups:
        if not check(on_group(_DESCRIBE, group.group_id)):
            answer = denied_item(request, "groups", group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            answer.topics = []
            refused.append(answer)
            continue
        kept.append(group)
        whole_answer = denied_item(request, "groups", group, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        denied = [name is not None and not check(on_topic(_DESCRIBE, name)) for name in _names(group, ctx)]
        if any(denied):
            pairs = zip(whole_answer.topics, denied, strict=True)
            denied_topics[group.group_id] = [topic for topic, is_denied in pairs if is_denied]
            pairs = zip(group.topics, denied, strict=True)
            group.topics = [topic for topic, is_denied in pairs if not is_denied]
    request.groups = kept
    lists_topics = {group.group_id for group in kept if group.topics is None}
    if not kept and refused:
        return empty_response(request, groups=refused)

    def amend(response: Any) -> None:
        for group in response.groups:
            if group.group_id in lists_topics:
                hide("topics", lambda topic: on_topic(_DESCRIBE, topic_of(topic, ctx) or ""), check, group)
            group.topics = [*group.topics, *denied_topics.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]

    return amend


def _names(group: Any, ctx: Context) -> list[str | None]:
    return [topic_of(topic, ctx) for topic in group.topics or ()]


def _fetched_offsets_of_one_group(request: Any, ctx: Context, check: Check) -> Outcome:
    if not check(on_group(_DESCRIBE, request.group_id)):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if ctx.api_version < 2:
            return denied_items("topics", "topics")(request, error)
        return empty_response(request, error_code=error.code)
    if request.topics is None:
        return partial(hide, "topics", lambda topic: on_topic(_DESCRIBE, topic.name), check)
    return _NAMED_TOPICS(request, ctx, check)


def _coordinators(request: Any, ctx: Context, check: Check) -> Outcome:
    """FindCoordinator: by the kind of its keys."""

    def needed(key: str) -> Permission:
        if request.key_type == _KEY_GROUP:
            return on_group(_DESCRIBE, key)
        if request.key_type == _KEY_TRANSACTION:
            return on_transactional_id(_DESCRIBE, key)
        return on_cluster(_CLUSTER_ACTION)

    if ctx.api_version < 4:
        permission = needed(request.key)
        if check(permission):
            return None
        code = DENIED[permission.resource_type].code
        return empty_response(request, error_code=code, node_id=-1, port=-1)
    return items("coordinator_keys", lambda key, _: needed(key), "coordinators")(request, ctx, check)


def _markers(request: Any, ctx: Context, check: Check) -> Outcome:
    if check.alternative(on_cluster(_ALTER)):
        return None
    return _cluster_items(_CLUSTER_ACTION, "markers", "markers")(request, ctx, check)


def _scram_changes(request: Any, ctx: Context, check: Check) -> Outcome:
    if check(on_cluster(_ALTER)):
        return None
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    changes = [*request.deletions, *request.upsertions]
    return empty_response(
        request, results=[denied_item(request, "results", change, error) for change in changes]
    )


def _subscription(request: Any, ctx: Context, check: Check) -> Outcome:
    """ConsumerGroupHeartbeat: one denied topic of the subscription rejects the heartbeat."""
    names = request.subscribed_topic_names or ()
    if all(check(on_topic(_DESCRIBE, name)) for name in names):
        return None
    return empty_response(request, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code)


def _described_members(request: Any, ctx: Context, check: Check) -> Outcome:
    """ConsumerGroupDescribe: of a group one of whose topics is hidden nothing is shown."""

    def shown(group: Any) -> Any:
        assignments = [
            each for member in group.members for each in (member.assignment, member.target_assignment)
        ]
        names = {name for member in group.members for name in member.subscribed_topic_names}
        names |= {topic.topic_name for each in assignments for topic in each.topic_partitions}
        if all(check.shows(on_topic(_DESCRIBE, name)) for name in names):
            return group
        return denied_item(request, "groups", group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def amend(response: Any) -> None:
        response.groups = [shown(group) for group in response.groups]

    return amend


def _described_transactions(request: Any, ctx: Context, check: Check) -> Outcome:
    """DescribeTransactions: the topics of a transaction are shown to those that may describe them."""

    def amend(response: Any) -> None:
        for state in response.transaction_states:
            hide("topics", lambda topic: on_topic(_DESCRIBE, topic.topic), check, state)

    return amend


def _created_configs(request: Any, ctx: Context, check: Check) -> Outcome:
    """CreateTopics: the settings of a new topic are shown to those that may describe them."""

    def amend(response: Any) -> None:
        for topic in response.topics:
            if not topic.error_code and not check.shows(on_topic(_DESCRIBE_CONFIGS, topic.name)):
                topic.configs = []
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
                topic.num_partitions = topic.replication_factor = -1

    return amend


def _produced_transactions(request: Any, ctx: Context, check: Check) -> Outcome:
    """Produce: batches of transactions need a permission on the transactional id; all are denied without."""
    name = request.transactional_id
    if any(_is_transactional(part.records) for topic in request.topic_data for part in topic.partition_data):
        if name is not None and check(on_transactional_id(_WRITE, name)):
            return None
        return _PRODUCE_DENIED(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    # Its repetitions may have batches of transactions.
    ctx.is_partly_denied = name is not None
    return None


def _is_transactional(records: Any) -> bool:
    return records is not None and len(records) > ATTRIBUTES and bool(records[ATTRIBUTES] & TRANSACTIONAL)


_PRODUCE_DENIED = denied_items("topic_data", "responses")


def _deleted_topics(request: Any, ctx: Context, check: Check) -> Outcome:
    """DeleteTopics: by name or by id."""
    if check.alternative(on_cluster(_DELETE)):
        return None
    kept, refused = [], []
    for item in (*request.topics, *request.topic_names):
        name = topic_of(item, ctx)
        if name is None or _may_delete(item, name, check):
            kept.append(item)
        else:
            refused.append(_not_deleted(request, item, name, ctx, check))
    if not refused:
        return None
    if not kept:
        return empty_response(request, responses=refused)
    request.topics = [item for item in kept if not isinstance(item, str)]
    request.topic_names = [item for item in kept if isinstance(item, str)]

    def amend(response: Any) -> None:
        # In an order that does not show which topics exist.
        response.responses = sorted(
            (*response.responses, *refused), key=lambda each: (each.name or "", each.topic_id)
        )

    return amend


def _may_delete(item: Any, name: str, check: Check) -> bool:
    # DELETE includes DESCRIBE, but that may be denied.
    return check(on_topic(_DELETE, name)) and (not _is_named(item) or check(on_topic(_DESCRIBE, name)))


def _is_named(item: Any) -> bool:
    return isinstance(item, str) or item.name is not None


def _not_deleted(request: Any, item: Any, name: str, ctx: Context, check: Check) -> Any:
    """The result of a topic; without DESCRIBE it shows neither whether it exists nor the name of its id."""
    may_describe = check.shows(on_topic(_DESCRIBE, name))
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if may_describe and name not in ctx.broker.metadata.image.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = denied_item(request, "responses", item, error)
    answer.name = name if _is_named(item) or may_describe else None
    return answer


def _described_cluster(request: Any, ctx: Context, check: Check) -> Outcome:
    """DescribeCluster: open to all on a broker, but not on a controller."""
    if ctx.listener in ctx.broker.controller_listeners:
        return _cluster(_ALTER)(request, ctx, check)
    return _permitted_on_cluster(request, ctx, check)


def _permitted_on_cluster(request: Any, ctx: Context, check: Check) -> Outcome:
    """The operations on the cluster that a response lists; none to clients that may not describe it."""
    if not request.include_cluster_authorized_operations:
        return None

    def amend(response: Any) -> None:
        permitted = check.operations(ResourceType.CLUSTER, CLUSTER_NAME)
        may_describe = permitted >> _DESCRIBE & 1
        response.cluster_authorized_operations &= permitted if may_describe else 0

    return amend


def _permitted_on_topics(request: Any, ctx: Context, check: Check) -> Outcome:
    """The operations on topics that a response lists."""
    if not getattr(request, "include_topic_authorized_operations", True):
        return None

    def amend(response: Any) -> None:
        for topic in response.topics:
            if topic.topic_authorized_operations != _NOT_ASKED:
                topic.topic_authorized_operations &= check.operations(ResourceType.TOPIC, topic.name)

    return amend


def _permitted_on_groups(request: Any, ctx: Context, check: Check) -> Outcome:
    """The operations on groups that a response lists."""
    if not request.include_authorized_operations:
        return None

    def amend(response: Any) -> None:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations &= check.operations(ResourceType.GROUP, group.group_id)

    return amend


def _described_quotas(request: Any, ctx: Context, check: Check) -> Outcome:
    """DescribeClientQuotas: a denial has no list of entries."""
    outcome = _cluster(_DESCRIBE_CONFIGS)(request, ctx, check)
    if outcome is not None:
        outcome.entries = None  # type: ignore[union-attr]
    return outcome


def _unlisted_reassignments(request: Any, error: ErrorCode) -> Response:
    """ListPartitionReassignments: a denial names the partitions that the request names."""
    from runnel.messages.list_partition_reassignments import OngoingPartitionReassignment as Ongoing

    topics = []
    for topic in request.topics or ():
        topics.append(denied_item(request, "topics", topic, error))
        topics[-1].partitions = [Ongoing(index) for index in topic.partition_indexes]
    return empty_response(request, error_code=error.code, topics=topics)


SEARCHES: dict[int, Callable[[Any, Check], bool]] = {22: begins_search}
"""APIs whose rules may need to search all ACLs of a client: begins that, if it takes several steps."""

ACCESS: dict[int, tuple[Rule, ...]] = {
    0: (  # Produce
        _produced(_produced_transactions),
        _produced(_topics(_WRITE, "topic_data", "responses")),
    ),
    1: (_fetched_topics,),  # Fetch
    2: (_topics(_DESCRIBE, "topics", "topics"),),  # ListOffsets
    3: (_described_topics, _permitted_on_topics, _permitted_on_cluster),  # Metadata
    8: (  # OffsetCommit
        whole(lambda request: on_group(_READ, request.group_id), denied_items("topics", "topics")),
        _topics(_READ, "topics", "topics"),
    ),
    9: (_fetched_offsets,),  # OffsetFetch
    10: (_coordinators,),  # FindCoordinator
    11: (_READ_GROUP,),  # JoinGroup
    12: (_READ_GROUP,),  # Heartbeat
    13: (_READ_GROUP,),  # LeaveGroup
    14: (_READ_GROUP,),  # SyncGroup
    15: (_groups(_DESCRIBE, "groups", "groups"), _permitted_on_groups),  # DescribeGroups
    16: (  # ListGroups
        listed(
            "groups", lambda group: on_group(_DESCRIBE, group.group_id), alternative=on_cluster(_DESCRIBE)
        ),
    ),
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    # CreateTopics
    19: (_topics(_CREATE, "topics", "topics", alternative=on_cluster(_CREATE)), _created_configs),
    20: (_deleted_topics,),  # DeleteTopics
    21: (_topics(_DELETE, "topics", "topics"),),  # DeleteRecords
    22: (producer_id,),  # InitProducerId
    # OffsetForLeaderEpoch
    23: (_topics(_DESCRIBE, "topics", "topics", alternative=on_cluster(_CLUSTER_ACTION)),),
    24: (added_partitions,),  # AddPartitionsToTxn
    25: (_WRITE_TRANSACTIONAL_ID, _READ_GROUP),  # AddOffsetsToTxn
    26: (_WRITE_TRANSACTIONAL_ID,),  # EndTxn
    27: (_markers,),  # WriteTxnMarkers
    28: (  # TxnOffsetCommit
        whole(
            lambda request: on_transactional_id(_WRITE, request.transactional_id),
            denied_items("topics", "topics"),
        ),
        whole(lambda request: on_group(_READ, request.group_id), denied_items("topics", "topics")),
        _topics(_READ, "topics", "topics"),
    ),
    29: (_cluster(_DESCRIBE),),  # DescribeAcls
    30: (_cluster_items(_ALTER, "creations", "results"),),  # CreateAcls
    31: (_cluster_items(_ALTER, "filters", "filter_results"),),  # DeleteAcls
    32: (_configs(_DESCRIBE_CONFIGS, "results"),),  # DescribeConfigs
    33: (_configs(_ALTER_CONFIGS, "responses"),),  # AlterConfigs
    35: (_cluster(_DESCRIBE),),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: (_topics(_ALTER, "topics", "results"),),  # CreatePartitions
    # Delegation tokens: their handlers know the owner.
    **dict.fromkeys((38, 39, 40, 41), ()),
    42: (_groups(_DELETE, "groups_names", "results"),),  # DeleteGroups
    # ElectLeaders
    43: (_cluster_items(_ALTER, "topic_partitions", "replica_election_results", with_top_level=True),),
    44: (_configs(_ALTER_CONFIGS, "responses"),),  # IncrementalAlterConfigs
    45: (_cluster_items(_ALTER, "topics", "responses", with_top_level=True),),  # AlterPartitionReassignments
    46: (whole(lambda _: on_cluster(_DESCRIBE), _unlisted_reassignments),),  # ListPartitionReassignments
    # OffsetDelete
    47: (whole(lambda request: on_group(_DELETE, request.group_id)), _topics(_READ, "topics", "topics")),
    48: (_described_quotas,),  # DescribeClientQuotas
    49: (_cluster_items(_ALTER_CONFIGS, "entries", "entries"),),  # AlterClientQuotas
    50: (_cluster_items(_DESCRIBE, "users", "results", with_top_level=True),),  # DescribeUserScramCredentials
    51: (_scram_changes,),  # AlterUserScramCredentials
    52: (_cluster(_CLUSTER_ACTION),),  # Vote
    53: (_cluster(_CLUSTER_ACTION),),  # BeginQuorumEpoch
    54: (_cluster(_CLUSTER_ACTION),),  # EndQuorumEpoch
    55: (_cluster(_DESCRIBE),),  # DescribeQuorum
    56: (_cluster(_CLUSTER_ACTION),),  # AlterPartition
    57: (_cluster(_ALTER),),  # UpdateFeatures
    58: (_cluster(_CLUSTER_ACTION),),  # Envelope: what is inside needs its own permissions
    59: (_cluster(_CLUSTER_ACTION),),  # FetchSnapshot
    60: (_described_cluster,),  # DescribeCluster
    61: (_topics(_READ, "topics", "topics"),),  # DescribeProducers
    62: (_cluster(_CLUSTER_ACTION),),  # BrokerRegistration
    63: (_cluster(_CLUSTER_ACTION),),  # BrokerHeartbeat
    64: (_cluster(_ALTER),),  # UnregisterBroker
    65: (  # DescribeTransactions
        items(
            "transactional_ids", lambda name, ctx: on_transactional_id(_DESCRIBE, name), "transaction_states"
        ),
        _described_transactions,
    ),
    # ListTransactions
    66: (listed("transaction_states", lambda state: on_transactional_id(_DESCRIBE, state.transactional_id)),),
    67: (_cluster(_CLUSTER_ACTION),),  # AllocateProducerIds
    68: (_READ_GROUP, _subscription),  # ConsumerGroupHeartbeat
    # ConsumerGroupDescribe
    69: (_groups(_DESCRIBE, "group_ids", "groups"), _described_members, _permitted_on_groups),
    70: (_cluster(_CLUSTER_ACTION),),  # ControllerRegistration
    73: (_cluster(_CLUSTER_ACTION),),  # AssignReplicasToDirs
    74: (_cluster(_DESCRIBE_CONFIGS),),  # ListConfigResources
    75: (_listed_topics, _permitted_on_topics),  # DescribeTopicPartitions
    80: (_cluster(_ALTER),),  # AddRaftVoter
    81: (_cluster(_ALTER),),  # RemoveRaftVoter
    82: (_cluster(_CLUSTER_ACTION),),  # UpdateRaftVoter
}
