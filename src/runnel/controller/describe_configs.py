"""DescribeConfigs: configs with value, source, type and documentation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runnel.controller.config_broker import BROKER_CONFIGS, broker_definition
from runnel.controller.config_rules import definitions_of
from runnel.controller.config_topic import DURATIONS_MS, TOPIC_CONFIGS
from runnel.controller.config_types import ConfigDefinition, Scope
from runnel.controller.image import MetadataImage
from runnel.controller.settings import FALLBACKS, Layered, Settings
from runnel.controller.topic_names import check_topic_name
from runnel.controller.values import ConfigResource
from runnel.messages.create_topics import CreatableTopicConfigs
from runnel.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from runnel.model.configs import ConfigSource, ResourceType
from runnel.model.errors import ApiError, ErrorCode

Entry = DescribeConfigsResourceResult


@dataclass(frozen=True, slots=True)
class Depth:
    """What the client requested for each config."""

    synonyms: bool = False
    documentation: bool = False


def describe_configs(
    image: MetadataImage, settings: Settings, node_id: int, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """The configs of each requested resource."""
    depth = Depth(request.include_synonyms, request.include_documentation)
    return DescribeConfigsResponse(
        results=[_describe(image, settings, node_id, resource, depth) for resource in request.resources]
    )


def topic_config_reply(settings: Settings, configs: dict[str, str]) -> list[CreatableTopicConfigs]:
    """The configs of a new topic as CreateTopics returns them."""
    return [
        CreatableTopicConfigs(
            entry.name, entry.value, entry.read_only, entry.config_source, entry.is_sensitive
        )
        for entry in _topic_entries(settings, configs, Depth())
    ]


def _describe(
    image: MetadataImage, settings: Settings, node_id: int, requested: DescribeConfigsResource, depth: Depth
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=requested.resource_type, resource_name=requested.resource_name
    )
    try:
        entries = _entries(image, settings, node_id, requested, depth)
    except ApiError as error:
        result.error_code, result.error_message = error.code, str(error)
        return result
    # As in Kafka, a null list and an empty one both mean all configs.
    wanted = set(requested.configuration_keys or ())
    result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(
    image: MetadataImage, settings: Settings, node_id: int, requested: DescribeConfigsResource, depth: Depth
) -> Iterable[Entry]:
    name = requested.resource_name
    match requested.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return _topic_entries(settings, image.topic_configs(name), depth)
        case ResourceType.BROKER:
            return _broker_entries(image, settings, node_id, name, depth)
        case ResourceType.BROKER_LOGGER:
            _check_broker_name(name, node_id)
            return []
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            if not name:
                kind = (
                    "Group name"
                    if requested.resource_type == ResourceType.GROUP
                    else "Client metrics subscription name"
                )
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{kind} must not be empty")
            return _overridable_entries(image, settings, requested.resource_type, name, depth)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {requested.resource_type}")


def _topic_entries(settings: Settings, configs: Mapping[str, str], depth: Depth) -> list[Entry]:
    # Most topics have few overrides, so inherited entries are shared between responses.
    defaults = settings.derived(
        f"topic.entries.{depth}", lambda now: {name: _topic_entry(now, name, depth) for name in TOPIC_CONFIGS}
    )
    if not configs:
        return list(defaults.values())
    return [
        _topic_entry(settings, name, depth, configs[name]) if name in configs else entry
        for name, entry in defaults.items()
    ]


def _topic_entry(settings: Settings, name: str, depth: Depth, own: str | None = None) -> Entry:
    definition = TOPIC_CONFIGS[name]
    layers = [] if own is None else [Layered(name, own, ConfigSource.TOPIC)]
    layers += _inherited(settings, definition)
    return _entry(definition, layers, depth)


def _inherited(settings: Settings, definition: ConfigDefinition) -> list[Layered]:
    """The inherited values of a topic or group config, in order of precedence."""
    if not definition.synonyms:
        default = definition.default or ""
        return [Layered(definition.name, default, ConfigSource.DEFAULT)]
    return [layer for synonym in definition.synonyms for layer in settings.layers(synonym)]


def _overridable_entries(
    image: MetadataImage, settings: Settings, resource_type: int, name: str, depth: Depth
) -> list[Entry]:
    configs = image.configs.get(ConfigResource(resource_type, name), {})
    is_group = resource_type == ResourceType.GROUP
    source = ConfigSource.GROUP if is_group else ConfigSource.CLIENT_METRICS
    entries = []
    for definition in definitions_of(resource_type).values():
        own = configs.get(definition.name)
        layers = [] if own is None else [Layered(definition.name, own, source)]
        entries.append(_entry(definition, layers + _inherited(settings, definition), depth))
    return entries


def _broker_entries(
    image: MetadataImage, settings: Settings, node_id: int, name: str, depth: Depth
) -> list[Entry]:
    if name:
        _check_broker_name(name, node_id)
        of_listeners = (broker_definition(prefixed) for prefixed in settings.of_listeners())
        definitions = [*BROKER_CONFIGS.values(), *filter(None, of_listeners)]
        return [_broker_entry(definition, settings, depth) for definition in definitions]
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _entry(BROKER_CONFIGS[key], [Layered(key, value, source)], depth)
        for key, value in image.broker_configs(None).items()
        if key in BROKER_CONFIGS
    ]


def _broker_entry(definition: ConfigDefinition, settings: Settings, depth: Depth) -> Entry:
    layers = settings.layers(definition.name)
    if layers:
        # The value that would apply if this config were removed.
        for weaker in FALLBACKS.get(definition.name, ()):
            layers += settings.layers(weaker)
    entry = _entry(definition, layers, depth)
    entry.read_only = definition.scope is Scope.READ_ONLY
    return entry


def _check_broker_name(name: str, node_id: int) -> None:
    if not name.isascii() or not name.isdecimal():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
        )


def _entry(definition: ConfigDefinition, layers: list[Layered], depth: Depth) -> Entry:
    value: str | None = None
    source = ConfigSource.DEFAULT
    if layers:
        value, source = _in_units_of(definition, layers[0]), layers[0].source
    return Entry(
        name=definition.name,
        value=None if definition.is_sensitive else value,
        read_only=False,
        config_source=source,
        is_sensitive=definition.is_sensitive,
        synonyms=[_synonym(definition, layer) for layer in layers] if depth.synonyms else [],
        config_type=definition.type,
        documentation=definition.documentation if depth.documentation else None,
    )


def _synonym(definition: ConfigDefinition, layer: Layered) -> DescribeConfigsSynonym:
    value = None if definition.is_sensitive else layer.value
    return DescribeConfigsSynonym(layer.name, value, layer.source)


def _in_units_of(definition: ConfigDefinition, layer: Layered) -> str:
    """retention.ms may be inherited from log.retention.hours, but is returned in milliseconds."""
    if layer.name == definition.name or layer.name not in DURATIONS_MS:
        return layer.value
    units = int(layer.value)
    return "-1" if units < 0 else str(units * DURATIONS_MS[layer.name])
