"""What a ConsumerGroupHeartbeat must be like before anybody looks at the group."""

from runnel.coordinator.group.consumer.draft import ASSIGNORS
from runnel.coordinator.group.consumer.member import AWAY_EPOCH, JOINING_EPOCH, LEFT_EPOCH
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.model.errors import ErrorCode, Refused

_OWN_MEMBER_ID_FROM = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: GroupSettings
) -> None:
    """Raises Refused, in Kafka's order and words."""
    epoch = request.member_epoch
    if not request.member_id and (api_version >= _OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEFT_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_joining(request)
    elif epoch == AWAY_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and (assignor not in ASSIGNORS or assignor not in settings.consumer_assignors):
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.consumer_assignors)}.",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
