"""AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Callable, Iterable
from typing import Any

from runnel.controller.config_rules import check_broker_scope, check_configs, definition_of
from runnel.controller.config_types import BadConfig, ConfigType
from runnel.controller.image import MetadataImage
from runnel.controller.log_settings import topic_default
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.controller.settings import Settings
from runnel.controller.topic_policies import MIN_ISR
from runnel.controller.values import ConfigResource
from runnel.messages import alter_configs, incremental_alter_configs
from runnel.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from runnel.model.configs import AlterOperation, ResourceType
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import ClearElrRecord, ConfigRecord, MetadataRecord

ID_DIGITS_MAX = 10
"""Digits of the largest node id."""


def decide_incremental_alter_configs(
    image: MetadataImage, settings: Settings, request: IncrementalAlterConfigsRequest
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Change individual configs of each resource; all changes of a resource are applied or none."""

    def change(resource: ConfigResource, configs: list[AlterableConfig]) -> dict[str, str]:
        new = image.configs.get(resource, {}).copy()
        for config in configs:
            _alter(new, settings, resource, config)
        return new

    records, results = _decide_each(image, settings, request, change)
    responses = [incremental_alter_configs.AlterConfigsResourceResponse(*result) for result in results]
    return ControllerResult(records, IncrementalAlterConfigsResponse(responses=responses))


def decide_alter_configs(
    image: MetadataImage, settings: Settings, request: AlterConfigsRequest
) -> ControllerResult[AlterConfigsResponse]:
    """Replace all configs of each resource by the given ones."""

    def change(_: ConfigResource, configs: list[alter_configs.AlterableConfig]) -> dict[str, str]:
        return {config.name: _not_null(config.name, config.value) for config in configs}

    records, results = _decide_each(image, settings, request, change)
    responses = [alter_configs.AlterConfigsResourceResponse(*result) for result in results]
    return ControllerResult(records, AlterConfigsResponse(responses=responses))


def _decide_each(
    image: MetadataImage,
    settings: Settings,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    change: Callable[[ConfigResource, list[Any]], dict[str, str]],
) -> tuple[list[MetadataRecord], list[tuple[int, str | None, int, str]]]:
    """The records of all valid changes, and (code, message, type, name) for each resource."""
    duplicates = duplicates_in(
        (requested.resource_type, requested.resource_name) for requested in request.resources
    )
    records: list[MetadataRecord] = []
    results: list[tuple[int, str | None, int, str]] = []
    for requested in request.resources:
        resource = ConfigResource(requested.resource_type, requested.resource_name)
        try:
            if resource in duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_resource(image, resource)
            _check_keys(config.name for config in requested.configs)
            difference = _difference(image, settings, resource, change(resource, requested.configs))
        except ApiError as error:
            results.append((error.code, str(error), *resource))
        else:
            records += [] if request.validate_only else difference
            results.append((0, None, *resource))
    return records, results


def _alter(
    new: dict[str, str], settings: Settings, resource: ConfigResource, config: AlterableConfig
) -> None:
    name = config.name
    match config.config_operation:
        case AlterOperation.SET:
            new[name] = _not_null(name, config.value)
        case AlterOperation.DELETE:
            new.pop(name, None)
        case AlterOperation.APPEND | AlterOperation.SUBTRACT as operation:
            change = _list_items(_not_null(name, config.value))
            present = _list_before(new, settings, resource, name, AlterOperation(operation).name)
            if operation == AlterOperation.APPEND:
                items = [*present, *(item for item in change if item not in present)]
            else:
                items = [item for item in present if item not in change]
            new[name] = ",".join(items)
        case other:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown config operation: {other}")


def _list_before(
    new: dict[str, str], settings: Settings, resource: ConfigResource, name: str, verb: str
) -> list[str]:
    try:
        definition = definition_of(resource.type, name)
    except BadConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if definition.type is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {name} because its type is not LIST.")
    if name in new:
        return _list_items(new[name])
    if resource.type == ResourceType.TOPIC:
        inherited = topic_default(settings, name)
        assert isinstance(inherited, list)
        return inherited
    return _list_items(definition.default or "")


def _list_items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    return value


def _check_resource(image: MetadataImage, resource: ConfigResource) -> None:
    match resource.type:
        case ResourceType.TOPIC:
            if resource.name not in image.topics:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."
                )
        case ResourceType.BROKER:
            _check_broker(image, resource.name)
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            if not resource.name:
                kind = "group" if resource.type == ResourceType.GROUP else "client metrics"
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Default {kind} resources are not allowed.")
        case ResourceType.BROKER_LOGGER:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Log levels cannot be changed while the broker is running."
            )
        case other:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")


def _check_broker(image: MetadataImage, name: str) -> None:
    if not name:
        return
    if not name.isascii() or not name.isdecimal():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    # With leading zeros there would be many names of one broker.
    if len(name) > ID_DIGITS_MAX or name != str(int(name)) or int(name) not in image.brokers:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {known}, but received {name}"
        )


def _check_keys(names: Iterable[str]) -> None:
    if duplicates_in(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _difference(
    image: MetadataImage, settings: Settings, resource: ConfigResource, new: dict[str, str]
) -> list[MetadataRecord]:
    """Validate the new configs of a resource, and return the records that change the old ones into them."""
    old = image.configs.get(resource, {})
    set_ = {name: value for name, value in new.items() if old.get(name) != value}
    removed = [name for name in old if name not in new]
    if resource.type == ResourceType.BROKER:
        check_broker_scope([*set_, *removed], is_default=not resource.name)
        check_configs(settings, resource.type, set_)
    else:
        check_configs(settings, resource.type, new)
    records: list[MetadataRecord] = [
        *(ConfigRecord(resource.type, resource.name, name, value) for name, value in set_.items()),
        *(ConfigRecord(resource.type, resource.name, name, None) for name in removed),
    ]
    if image.has_eligible_replicas and (MIN_ISR in set_ or MIN_ISR in removed):
        records += _clear_eligible(resource, is_removed=MIN_ISR in removed)
    return records


def _clear_eligible(resource: ConfigResource, *, is_removed: bool) -> list[MetadataRecord]:
    """Who was eligible under another min.insync.replicas may lack records that count as committed now."""
    if resource.type == ResourceType.TOPIC:
        return [ClearElrRecord(resource.name)]
    if resource.type != ResourceType.BROKER:
        return []
    if resource.name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        )
    if is_removed:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        )
    return [ClearElrRecord()]
