"""Validation of ConsumerGroupHeartbeat requests."""

from runnel.coordinator.group.consumer.draft import ASSIGNORS
from runnel.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.model.errors import ApiError, ErrorCode

_OWN_MEMBER_ID_FROM = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: GroupSettings
) -> None:
    """Validate a request, in the same order as Kafka. Raises ApiError."""
    epoch = request.member_epoch
    if not request.member_id and (api_version >= _OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_joining(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid(f"member epoch {LEAVE_STATIC_EPOCH} requires an instance id")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"invalid member epoch {epoch}")
    assignor = request.server_assignor
    if assignor is not None and (assignor not in ASSIGNORS or assignor not in settings.consumer_assignors):
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"unsupported assignor {assignor}; supported: {', '.join(settings.consumer_assignors)}",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be set in the first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty in the first request.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set in the first request.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
