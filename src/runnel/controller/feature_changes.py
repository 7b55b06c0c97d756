"""UpdateFeatures: changing the finalized level of features.

Every registered broker and controller must support the new level, and every voter must be registered.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from runnel.controller.features import (
    CONTROLLERS_LEVEL,
    ELIGIBLE_REPLICAS_LEVEL,
    ELIGIBLE_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    is_way_down,
)
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.controller.settings import Settings
from runnel.controller.topic_policies import MIN_ISR
from runnel.controller.values import FeatureRange
from runnel.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import ConfigRecord, FeatureLevelRecord, MetadataRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Quorum:
    """The state of the quorum, as the deciding controller knows it."""

    node_id: int = -1
    voters: Collection[int] = ()
    kraft_version: int = 0


def decide_update_features(
    image: MetadataImage,
    settings: Settings,
    request: UpdateFeaturesRequest,
    api_version: int,
    quorum: Quorum | None = None,
) -> ControllerResult[UpdateFeaturesResponse]:
    """Change feature levels, all or none: one invalid update fails the request.

    An update of kraft.version is only validated: it is a control record of the quorum (`new_kraft_version`).
    """
    if duplicates_in(update.feature for update in request.feature_updates):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A feature can be updated only once in a request.")
    after = image.features | {u.feature: u.max_version_level for u in request.feature_updates}
    records: list[MetadataRecord] = []
    # metadata.version is first: it determines which records may follow.
    for update in sorted(request.feature_updates, key=lambda update: update.feature != METADATA_VERSION):
        records += _update(image, update, api_version, quorum or Quorum(), after)
    if after.get(ELIGIBLE_REPLICAS_VERSION) and not image.has_eligible_replicas:
        records += min_isr_for_eligible_replicas(image, settings)
    results = [
        UpdatableFeatureResult(update.feature, error_message=None) for update in request.feature_updates
    ]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    return ControllerResult([] if request.validate_only else records, response)


def new_kraft_version(request: UpdateFeaturesRequest, quorum: Quorum) -> int | None:
    """The level of kraft.version that a valid request changes it to, or None if it does not."""
    levels = {update.feature: update.max_version_level for update in request.feature_updates}
    level = levels.get(KRAFT_VERSION)
    return None if request.validate_only or level == quorum.kraft_version else level


def min_isr_for_eligible_replicas(image: MetadataImage, settings: Settings) -> Iterator[ConfigRecord]:
    """With the ELR, min.insync.replicas is a setting of topics and of the cluster, not of single brokers."""
    if MIN_ISR not in image.broker_configs(None):
        yield ConfigRecord(ResourceType.BROKER, "", MIN_ISR, str(settings.int(MIN_ISR)))
    for resource, configs in image.configs.items():
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in configs:
            yield ConfigRecord(ResourceType.BROKER, resource.name, MIN_ISR, None)


def _update(
    image: MetadataImage,
    update: FeatureUpdateKey,
    api_version: int,
    quorum: Quorum,
    after: dict[str, int],
) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _bad(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _bad(name, level, "A feature version cannot be less than 0.")
    for complaint in _complaints(image, name, level, quorum):
        raise _bad(name, level, complaint)
    present = quorum.kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if level == present:
        return []
    may_go_down = update.allow_downgrade if api_version == 0 else update.upgrade_type != UPGRADE
    if level < present and not may_go_down:
        raise _bad(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if level > present and api_version > 0 and update.upgrade_type != UPGRADE:
        raise _bad(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_version(present, update)
    _check_dependencies(name, level, after)
    return [] if name == KRAFT_VERSION else [FeatureLevelRecord(name, level)]


def _check_metadata_version(present: int, update: FeatureUpdateKey) -> None:
    level = update.max_version_level
    if level >= present or is_way_down(present, level):
        return
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        complaint = "Unsafe metadata downgrade is not supported in this version."
    else:
        complaint = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
        )
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {level}. {complaint}")


def _check_dependencies(name: str, level: int, after: dict[str, int]) -> None:
    if not after.get(ELIGIBLE_REPLICAS_VERSION) or name not in (ELIGIBLE_REPLICAS_VERSION, METADATA_VERSION):
        return
    if after.get(METADATA_VERSION, 0) < ELIGIBLE_REPLICAS_LEVEL:
        raise _bad(
            name,
            level,
            f"{ELIGIBLE_REPLICAS_VERSION} could not be set to {after[ELIGIBLE_REPLICAS_VERSION]} because it "
            f"depends on {METADATA_VERSION} level {ELIGIBLE_REPLICAS_LEVEL}",
        )


def _complaints(image: MetadataImage, name: str, level: int, quorum: Quorum) -> Iterator[str]:
    """Why nodes do not support the level of a feature."""
    local = [(feature, *levels) for feature, levels in SUPPORTED_FEATURES.items()]
    yield from _unsupported(f"Local controller {quorum.node_id}", local, name, level)
    for broker in image.brokers.values():
        yield from _unsupported(f"Broker {broker.id}", broker.features, name, level)
    if image.metadata_level < CONTROLLERS_LEVEL:
        return
    for controller in image.controllers.values():
        if controller.id != quorum.node_id:
            yield from _unsupported(f"Controller {controller.id}", controller.features, name, level)
    for voter in quorum.voters:
        if voter != quorum.node_id and voter not in image.controllers:
            yield f"controller {voter} has not registered, and may not support this feature"


def _unsupported(who: str, features: Iterable[FeatureRange], name: str, level: int) -> Iterator[str]:
    lowest, highest = next(((first, last) for known, first, last in features if known == name), (0, 0))
    if not lowest <= level <= highest:
        if highest == 0:
            yield f"{who} does not support this feature."
        else:
            yield f"{who} only supports versions {lowest}-{highest}"


def _bad(name: str, level: int, complaint: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {name}. {complaint}",
    )
