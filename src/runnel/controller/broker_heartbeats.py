"""BrokerHeartbeat: brokers request to be unfenced, to be fenced, or to shut down.

| state               | request                 | next                                                       |
|---------------------|-------------------------|------------------------------------------------------------|
| fenced              | shut down               | shutdown now                                               |
| fenced              | all but fence           | unfenced, if it has applied its registration               |
| unfenced            | fence; fence, shut down | fenced; shutdown now                                       |
| unfenced            | shut down               | controlled shutdown; shutdown now if it leads nothing      |
| controlled shutdown | any                     | shutdown now, if active brokers have applied all changes   |
"""

from collections.abc import Generator
from enum import Enum

from runnel.controller.broker_changes import fail_directories, fence_broker, stop_broker, unfence_broker
from runnel.controller.broker_sessions import BrokerSessions
from runnel.controller.features import CORDONED_LEVEL, DIRECTORIES_LEVEL
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.steps import Steps
from runnel.controller.values import BrokerRegistration
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import BrokerRegistrationChangeRecord, MetadataRecord


class BrokerControlState(Enum):
    """The states of a registered broker, as in Kafka."""

    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3


FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


def registered_broker(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """The registration of the broker that sent a request. Raises STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker


def broker_heartbeat(
    image: MetadataImage,
    settings: Settings,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> Steps[BrokerHeartbeatResponse]:
    """Process a heartbeat: renew the session, and change the broker's state."""
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    sessions.contacted(broker.id, broker.epoch, now_ms)
    next_state = _state(broker)
    if broker.id not in sessions.changing:
        next_state = _next_state(image, sessions, broker, request)
        image = yield from _change(image, settings, sessions, broker, next_state)
    if next_state in (UNFENCED, CONTROLLED_SHUTDOWN):
        sessions.heartbeat(broker, request.current_metadata_offset, now_ms)
    else:
        sessions.ended(broker.id)
    yield from _report_directories(image, settings, request)
    return BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.offset,
        is_fenced=next_state in (FENCED, SHUTDOWN_NOW),
        should_shut_down=next_state is SHUTDOWN_NOW,
    )


def renew_session(
    committed: MetadataImage,
    ahead: MetadataImage,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> BrokerHeartbeatResponse | None:
    """The response to a heartbeat that changes nothing, and depends on committed metadata only; else None.

    It does not wait for changes in flight: a slow disk of the metadata log must not end sessions.
    """
    broker = ahead.brokers.get(request.broker_id)
    if (
        broker is None
        or broker.epoch != request.broker_epoch
        or broker != committed.brokers.get(broker.id)
        or _state(broker) is not UNFENCED
        or _next_state(ahead, sessions, broker, request) is not UNFENCED
        or request.offline_log_dirs
        or _cordoned(ahead, broker, request) is not None
    ):
        return None
    sessions.heartbeat(broker, request.current_metadata_offset, now_ms)
    is_caught_up = request.current_metadata_offset >= broker.offset
    return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=False)


def fence_expired_broker(
    image: MetadataImage, settings: Settings, sessions: BrokerSessions, now_ms: int
) -> Steps[int | None]:
    """Fence one broker whose session has expired; returns its id, or None if there is none."""
    broker_id = sessions.expired(now_ms)
    if broker_id is None:
        return None
    if broker_id in image.brokers:
        yield from fence_broker(image, settings, broker_id)
    sessions.ended(broker_id)
    return broker_id


def _state(broker: BrokerRegistration) -> BrokerControlState:
    if broker.is_fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.is_stopping else UNFENCED


def _next_state(
    image: MetadataImage,
    sessions: BrokerSessions,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
) -> BrokerControlState:
    match _state(broker):
        case BrokerControlState.FENCED:
            if request.want_shut_down:
                return SHUTDOWN_NOW
            is_caught_up = request.current_metadata_offset >= broker.offset
            return UNFENCED if is_caught_up and not request.want_fence else FENCED
        case BrokerControlState.UNFENCED:
            if request.want_fence:
                return SHUTDOWN_NOW if request.want_shut_down else FENCED
            if request.want_shut_down:
                return CONTROLLED_SHUTDOWN if _is_leading(image, broker) else SHUTDOWN_NOW
            return UNFENCED
        case _:
            if _is_leading(image, broker):
                return CONTROLLED_SHUTDOWN
            # A new controller does not know where the shutdown was written, but all of it is.
            sessions.stopping(broker.id, image.version - 1)
            is_known = sessions.shutdown_offset(broker.id) <= sessions.lowest_offset(image)
            return SHUTDOWN_NOW if is_known else CONTROLLED_SHUTDOWN


def _is_leading(image: MetadataImage, broker: BrokerRegistration) -> bool:
    return image.index.led.get(broker.id, 0) > 0


def _change(
    image: MetadataImage,
    settings: Settings,
    sessions: BrokerSessions,
    broker: BrokerRegistration,
    next_state: BrokerControlState,
) -> Generator[list[MetadataRecord], MetadataImage, MetadataImage]:
    """Make the change, if there is one; returns the image after it."""
    if next_state is _state(broker) and (
        next_state is not CONTROLLED_SHUTDOWN or not _is_leading(image, broker)
    ):
        return image
    changes = {
        FENCED: fence_broker,
        SHUTDOWN_NOW: fence_broker,
        UNFENCED: unfence_broker,
        CONTROLLED_SHUTDOWN: stop_broker,
    }
    changing = changes[next_state](image, settings, broker.id)
    sessions.changing.add(broker.id)
    try:
        records = next(changing)
        while True:
            image = yield records
            records = changing.send(image)
    except StopIteration:
        if next_state is CONTROLLED_SHUTDOWN:
            sessions.stopping(broker.id, image.version - 1)
        return image
    finally:
        sessions.changing.discard(broker.id)


def _report_directories(
    image: MetadataImage, settings: Settings, request: BrokerHeartbeatRequest
) -> Generator[list[MetadataRecord], MetadataImage, None]:
    """Record directories that failed, and those that get no new replicas."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return
    failed = tuple(
        directory for directory in map(bytes, request.offline_log_dirs) if directory in broker.directories
    )
    if failed and image.metadata_level >= DIRECTORIES_LEVEL:
        yield from fail_directories(image, settings, broker.id, failed)
    cordoned = _cordoned(image, broker, request)
    if cordoned is not None:
        yield [BrokerRegistrationChangeRecord(broker.id, broker.epoch, cordoned_log_dirs=cordoned)]


def _cordoned(
    image: MetadataImage, broker: BrokerRegistration, request: BrokerHeartbeatRequest
) -> list[bytes] | None:
    """The directories that get no new replicas; None if they have not changed."""
    if request.cordoned_log_dirs is None or image.metadata_level < CORDONED_LEVEL:
        return None
    cordoned = [bytes(directory) for directory in request.cordoned_log_dirs]
    is_known = broker.cordoned is not None and set(cordoned) == set(broker.cordoned)
    return None if is_known else cordoned
