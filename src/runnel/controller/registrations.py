"""BrokerRegistration, UnregisterBroker and ControllerRegistration: which nodes belong to the cluster."""

from dataclasses import dataclass

from runnel.controller.broker_changes import leave_partitions, unregister_broker
from runnel.controller.broker_sessions import BrokerSessions
from runnel.controller.features import (
    CONTROLLERS_LEVEL,
    DIRECTORIES_LEVEL,
    KRAFT_VERSION,
    METADATA_LEVEL_MIN,
    METADATA_VERSION,
)
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.controller.settings import Settings
from runnel.controller.snapshot import controller_record, registration_record
from runnel.controller.steps import Steps
from runnel.controller.values import BrokerRegistration, ControllerRegistration, Endpoint, FeatureRange
from runnel.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from runnel.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from runnel.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import REGISTERED_DIRECTORIES_MAX, REGISTERED_LISTENERS_MAX

RESERVED_DIRECTORIES = 100
"""Ids below this number have a meaning of their own, or will have one."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a registration is checked against, besides the image."""

    cluster_id: str
    kraft_version: int = 0


def _replaces(
    known: BrokerRegistration | None, request: BrokerRegistrationRequest, sessions: BrokerSessions
) -> bool:
    """Has the process of the known registration certainly ended?

    The new process has bound its address. A new controller would wait until the session expires, since it
    does not know the last contact; after a heartbeat the session decides.
    """
    if known is None or sessions.is_contacted(request.broker_id):
        return False
    bound = {(listener.host, listener.port) for listener in request.listeners}
    return bound == {(endpoint.host, endpoint.port) for endpoint in known.endpoints}


def register_broker(
    image: MetadataImage,
    settings: Settings,
    sessions: BrokerSessions,
    request: BrokerRegistrationRequest,
    identity: ClusterIdentity,
    now_ms: int,
) -> Steps[BrokerRegistrationResponse]:
    """Register a broker, fenced at first. The same incarnation keeps its epoch and state (KAFKA-16952).

    A new incarnation leaves the ISRs of its predecessor; after an unclean stop it may have lost records, and
    leaves the ELRs too. In both cases its partitions get new leader epochs (KAFKA-18106).
    """
    if request.cluster_id != identity.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {identity.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    others = max(len(request.log_dirs), len(request.features))
    _check_limits(request.broker_id, len(request.listeners), others)
    known = image.brokers.get(request.broker_id)
    is_same = known is not None and known.incarnation_id == bytes(request.incarnation_id)
    is_live = not is_same and sessions.is_live(request.broker_id, now_ms)
    if is_live and not _replaces(known, request, sessions):
        sessions.contested(request.broker_id, now_ms)
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id."
        )
    if request.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
        )
    _check_directories(image, request)
    features = _checked_features(image, request, identity.kraft_version)
    if known is not None and is_same:
        sessions.contacted(known.id, known.epoch, now_ms)
        registration = _registration(image, request, features, known.epoch, known)
        if registration != known:
            yield [registration_record(registration)]
        return BrokerRegistrationResponse(broker_epoch=known.epoch)
    is_clean = known is not None and known.epoch == request.previous_broker_epoch
    image, batch = yield from leave_partitions(image, settings, request.broker_id, is_clean=is_clean)
    # The offset of the next record: higher than that of any earlier registration.
    registration = _registration(image, request, features, image.version)
    batch.append(registration_record(registration))
    sessions.ended(request.broker_id)
    yield batch
    return BrokerRegistrationResponse(broker_epoch=registration.epoch)


def _check_limits(node_id: int, listeners: int, others: int) -> None:
    """What is registered is in every image and snapshot, and negative ids have a meaning in records."""
    complaint = None
    if node_id < 0:
        complaint = f"{node_id} is not a node id"
    elif listeners > REGISTERED_LISTENERS_MAX:
        complaint = f"{listeners} listeners, at most {REGISTERED_LISTENERS_MAX} can be registered"
    elif others > REGISTERED_DIRECTORIES_MAX:
        complaint = (
            f"{others} directories or features, at most {REGISTERED_DIRECTORIES_MAX} can be registered"
        )
    if complaint:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, complaint)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if image.metadata_level < DIRECTORIES_LEVEL:
        return
    directories = [bytes(directory) for directory in request.log_dirs]
    complaint = None
    if not directories:
        complaint = "No directories specified in request"
    elif any(int.from_bytes(directory) < RESERVED_DIRECTORIES for directory in directories):
        complaint = "Reserved directory ID in request"
    elif duplicates_in(directories):
        complaint = "Duplicate directory ID in request"
    own = set(directories)
    for other in image.brokers.values():
        if other.id != request.broker_id and not complaint:
            shared = own.intersection(other.directories)
            if shared:
                complaint = f"Broker {other.id} is already registered with directory {min(shared).hex()}"
    if complaint:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, complaint)


def _checked_features(
    image: MetadataImage, request: BrokerRegistrationRequest, kraft_version: int
) -> tuple[FeatureRange, ...]:
    """The broker's features. Raises UNSUPPORTED_VERSION unless they include all finalized levels."""
    finalized = image.features | ({KRAFT_VERSION: kraft_version} if kraft_version else {})
    features = [
        (feature.name, feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    ]
    listed = {name for name, _, _ in features}
    if METADATA_VERSION not in listed:
        features.append((METADATA_VERSION, METADATA_LEVEL_MIN, METADATA_LEVEL_MIN))
    missing = [(name, 0, 0) for name in finalized if name not in listed and name != METADATA_VERSION]
    for name, lowest, highest in (*features, *missing):
        level = finalized.get(name, image.metadata_level if name == METADATA_VERSION else 0)
        if not lowest <= level <= highest:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of "
                f"{name}. The broker wants a version between {lowest} and {highest}, inclusive.",
            )
    return tuple(features)


def _registration(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    features: tuple[FeatureRange, ...],
    epoch: int,
    known: BrokerRegistration | None = None,
) -> BrokerRegistration:
    has_directories = image.metadata_level >= DIRECTORIES_LEVEL
    return BrokerRegistration(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=bytes(request.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features=features,
        rack=request.rack,
        is_fenced=known.is_fenced if known else True,
        is_stopping=known.is_stopping if known else False,
        directories=tuple(bytes(directory) for directory in request.log_dirs) if has_directories else (),
        cordoned=known.cordoned if known else None,
    )


def remove_broker(
    image: MetadataImage, settings: Settings, sessions: BrokerSessions, request: UnregisterBrokerRequest
) -> Steps[UnregisterBrokerResponse]:
    """Remove the registration of a broker, alive or not."""
    if request.broker_id not in image.brokers:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    yield from unregister_broker(image, settings, request.broker_id)
    sessions.ended(request.broker_id)
    return UnregisterBrokerResponse(error_message=None)


def decide_controller_registration(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Register a controller, or change its registration."""
    if image.metadata_level < CONTROLLERS_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    _check_limits(request.controller_id, len(request.listeners), len(request.features))
    controller = ControllerRegistration(
        id=request.controller_id,
        incarnation_id=bytes(request.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in request.features),
    )
    is_known = image.controllers.get(controller.id) == controller
    records = [] if is_known else [controller_record(controller)]
    return ControllerResult([*records], ControllerRegistrationResponse(error_message=None))
