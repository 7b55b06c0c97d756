"""Resolving the LogConfig of a topic."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from runnel.controller.config_topic import TOPIC_CONFIGS
from runnel.controller.config_types import BadConfig, ConfigValue
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig, TimestampType

FLUSH_INTERVAL_MS = 1000
"""The flush interval of `flush.policy=interval` if flush.ms is not set."""

_FIELDS = {field.name: field.name.replace("_", ".") for field in fields(LogConfig) if field.init}
_PLAIN_FIELDS = {name: config for name, config in _FIELDS.items() if config in TOPIC_CONFIGS}
_FIELD_OF_CONFIG = {config: name for name, config in _PLAIN_FIELDS.items()}


def resolve_log_config(image: MetadataImage, settings: Settings, topic: str) -> LogConfig:
    """The log config of a topic: its overrides, then broker configs, then defaults."""
    return log_config(settings, image.topic_configs(topic))


def log_config(settings: Settings, configs: Mapping[str, str]) -> LogConfig:
    """The log config for these topic overrides. Topics without overrides share one object."""
    default = settings.derived("log.config", _default_log_config)
    if not configs:
        return default
    changes: dict[str, Any] = {}
    for name, text in configs.items():
        definition = TOPIC_CONFIGS.get(name)
        if definition is None:
            continue
        try:
            changes.update(_field_values(name, definition.parse(text)))
        except BadConfig:
            # Validated when it was set; if it is invalid in a later release, the broker's value applies.
            continue
    return _with_flush_interval(replace(default, **changes)) if changes else default


def topic_default(settings: Settings, name: str) -> ConfigValue:
    """The value of a topic config without an override."""
    definition = TOPIC_CONFIGS[name]
    value = settings.first_of(definition.synonyms)
    return definition.parse(definition.default) if value is None else value


def _default_log_config(settings: Settings) -> LogConfig:
    values: dict[str, Any] = {"producer_id_expiration_ms": settings["producer.id.expiration.ms"]}
    for name in TOPIC_CONFIGS:
        values.update(_field_values(name, topic_default(settings, name)))
    return _with_flush_interval(LogConfig(**values))


def _field_values(name: str, value: ConfigValue) -> dict[str, Any]:
    if name == "cleanup.policy":
        assert isinstance(value, list)
        return {"cleanup_delete": "delete" in value, "cleanup_compact": "compact" in value}
    if name == "flush.policy":
        return {"flush_policy": FlushPolicy(value)}
    if name == "message.timestamp.type":
        return {"message_timestamp_type": TimestampType(value)}
    field = _FIELD_OF_CONFIG.get(name)
    return {field: value} if field else {}


def _with_flush_interval(config: LogConfig) -> LogConfig:
    if config.flush_policy is FlushPolicy.INTERVAL and config.flush_ms == FOREVER:
        return replace(config, flush_ms=FLUSH_INTERVAL_MS)
    return config
