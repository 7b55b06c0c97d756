"""Validation of the configs of topics, brokers, groups and client metrics subscriptions."""

from collections.abc import Iterable, Mapping

from runnel.controller.config_broker import (
    BROKER_CONFIGS,
    LISTENER_CONFIGS,
    broker_definition,
    unknown_setting,
)
from runnel.controller.config_types import BadConfig, ConfigDefinition, Scope
from runnel.controller.log_settings import topic_default
from runnel.controller.settings import Settings
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError, ErrorCode


def definitions_of(resource_type: int) -> Mapping[str, ConfigDefinition]:
    """The config definitions of a resource type."""
    if resource_type == ResourceType.TOPIC:
        from runnel.controller.config_topic import TOPIC_CONFIGS

        return TOPIC_CONFIGS
    if resource_type == ResourceType.BROKER:
        return BROKER_CONFIGS
    # Rarely used, so imported on demand.
    from runnel.controller.config_group import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS

    return GROUP_CONFIGS if resource_type == ResourceType.GROUP else CLIENT_METRICS_CONFIGS


def check_configs(settings: Settings, resource_type: int, configs: Mapping[str, str]) -> None:
    """Validate the configs of a resource, individually and in combination. Raises ApiError."""
    try:
        for name, value in configs.items():
            definition_of(resource_type, name).parse(value)
        if resource_type == ResourceType.TOPIC:
            _check_topic(settings, configs)
        elif resource_type == ResourceType.GROUP:
            _check_group(settings, configs)
    except BadConfig as error:
        raise ApiError(_BAD_CONFIG.get(resource_type, ErrorCode.INVALID_CONFIG), str(error)) from None


# The same error codes as Kafka, which tools distinguish.
_BAD_CONFIG: dict[int, ErrorCode] = {
    ResourceType.BROKER: ErrorCode.INVALID_REQUEST,
    ResourceType.CLIENT_METRICS: ErrorCode.INVALID_REQUEST,
}

_KINDS = {
    ResourceType.TOPIC: "topic config name",
    ResourceType.GROUP: "group config name",
    ResourceType.CLIENT_METRICS: "client metrics configuration",
}


def definition_of(resource_type: int, name: str) -> ConfigDefinition:
    """The definition of a config; BadConfig if resources of this type have no such config."""
    is_broker = resource_type == ResourceType.BROKER
    definition = broker_definition(name) if is_broker else definitions_of(resource_type).get(name)
    if definition is not None:
        return definition
    if is_broker:
        raise BadConfig(unknown_setting(name))
    raise BadConfig(f"Unknown {_KINDS[ResourceType(resource_type)]}: {name}")


def check_broker_scope(names: Iterable[str], *, is_default: bool) -> None:
    """Reject changes of broker configs that are read-only, or not for all brokers. Raises ApiError."""
    known = [definition for name in names if (definition := broker_definition(name)) is not None]
    fixed = [definition.name for definition in known if definition.scope is Scope.READ_ONLY]
    of_brokers = [definition.name for definition in known if definition.scope is Scope.PER_BROKER]
    if fixed:
        complaint = f"Cannot update these configs dynamically: {', '.join(fixed)}"
    elif of_brokers and is_default:
        complaint = (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{', '.join(of_brokers)}"
        )
    elif of_listeners := [name for name in of_brokers if name in LISTENER_CONFIGS]:
        complaint = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{', '.join(of_listeners)}"
        )
    else:
        return
    raise ApiError(ErrorCode.INVALID_REQUEST, complaint)


def _check_topic(settings: Settings, configs: Mapping[str, str]) -> None:
    if configs.get("remote.storage.enable", "").lower() == "true":
        raise BadConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    lags = [_number(settings, configs, f"{end}.compaction.lag.ms") for end in ("min", "max")]
    if lags[0] > lags[1]:
        raise BadConfig(
            f"conflict topic config setting min.compaction.lag.ms ({lags[0]}) > "
            f"max.compaction.lag.ms ({lags[1]})"
        )
    window_ms, retention_ms = (
        _number(settings, configs, name) for name in ("dedup.window.ms", "retention.ms")
    )
    if 0 <= retention_ms < window_ms:
        # A new leader reads the keys from the records.
        raise BadConfig(
            f"conflict topic config setting dedup.window.ms ({window_ms}) > retention.ms ({retention_ms})"
        )


def _number(settings: Settings, configs: Mapping[str, str], name: str) -> int:
    value = definition_of(ResourceType.TOPIC, name).parse(configs[name]) if name in configs else None
    value = topic_default(settings, name) if value is None else value
    assert isinstance(value, int)
    return value


_GROUP_BOUNDED = {
    f"{kind}.{name}": (f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind in ("consumer", "share", "streams")
    for name in ("session.timeout.ms", "heartbeat.interval.ms")
} | {
    f"share.{name}": (f"group.share.min.{name}", f"group.share.max.{name}")
    for name in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
}
"""Group configs that are bounded by broker configs."""


def _check_group(settings: Settings, configs: Mapping[str, str]) -> None:
    for name, text in configs.items():
        if name not in _GROUP_BOUNDED:
            continue
        lowest, highest = _GROUP_BOUNDED[name]
        value = int(text)
        if value < settings.int(lowest):
            raise BadConfig(f"{name} must be greater than or equal to {lowest}")
        if value > settings.int(highest):
            raise BadConfig(f"{name} must be less than or equal to {highest}")
    for kind in ("consumer", "share", "streams"):
        session = f"{kind}.session.timeout.ms"
        heartbeat = f"{kind}.heartbeat.interval.ms"
        if int(configs.get(session, settings[f"group.{session}"])) <= int(
            configs.get(heartbeat, settings[f"group.{heartbeat}"])
        ):
            raise BadConfig(f"{session} must be greater than {heartbeat}")
