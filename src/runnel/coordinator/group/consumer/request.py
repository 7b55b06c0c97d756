"""What a ConsumerGroupHeartbeat must be like before anybody looks at the group."""

from runnel.coordinator.group.consumer.draft import ASSIGNORS
from runnel.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.model.errors import ApiError, ErrorCode

_OWN_MEMBER_ID_FROM = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: GroupSettings
) -> None:
    """Raises ApiError, in Kafka's order."""
    epoch = request.member_epoch
    if not request.member_id and (api_version >= _OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH):
        raise _invalid("a member needs an id")
    if not request.group_id:
        raise _invalid("a group needs a name")
    if request.instance_id == "":
        raise _invalid("an instance id, if there is one, has at least one character")
    if request.rack_id == "":
        raise _invalid("a rack, if there is one, has at least one character")
    if epoch == JOIN_EPOCH:
        _check_joining(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("only a static member can go away for a while, and this one has no instance id")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"there is no member epoch {epoch}")
    assignor = request.server_assignor
    if assignor is not None and (assignor not in ASSIGNORS or assignor not in settings.consumer_assignors):
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {assignor} here, but {', '.join(settings.consumer_assignors)}",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("who joins says how long it may take to give partitions up")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("who joins says that it has no partitions yet")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("who joins says what it wants to read: topics, a pattern, or both")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
