"""The broker configs, resolved from four sources in order of precedence, and parsed once per change.

dynamic broker config  >  dynamic default broker config  >  static (file, environment, flags)  >  default
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from runnel.controller.config_broker import (
    BROKER_CONFIGS,
    LISTENER_PREFIX,
    broker_definition,
    is_ignored,
    unknown_setting,
)
from runnel.controller.config_security import unenforced_security
from runnel.controller.config_topic import DURATIONS_MS
from runnel.controller.config_types import BadConfig, ConfigDefinition, ConfigValue
from runnel.model.configs import ConfigSource

Integer: TypeAlias = int
Flag: TypeAlias = bool
Derived = TypeVar("Derived")

FALLBACKS: dict[str, tuple[str, ...]] = {
    "log.dirs": ("log.dir",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
}
"""The configs that apply, in this order, if one is not set; other units are converted to milliseconds."""


class Layered(NamedTuple):
    """The value of a config from one source."""

    name: str
    value: str
    source: ConfigSource


class Settings(Mapping[str, Any]):
    """Every broker config by Kafka's name: `settings["num.partitions"]` is the current value, an int."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """BadConfig if a static config is unknown, invalid, or requires a security feature."""
        unenforced = unenforced_security(static or {})
        if unenforced:
            raise BadConfig(unenforced)
        self._static = {name: value for name, value in (static or {}).items() if not is_ignored(name)}
        self.ignored = tuple(sorted(set(static or ()) - set(self._static)))
        """Kafka configs that have no effect on this broker."""
        # Synonyms: setting one sets both.
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name not in self._static and other in self._static:
                self._static[name] = self._static[other]
        for name, value in self._static.items():
            check_broker_config(name, value)
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._values: dict[str, ConfigValue] = {}
        self._derived: dict[str, Any] = {}
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        self._resolve()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> Integer:
        return len(self._values)

    def int(self, name: str) -> Integer:
        """An integer config."""
        value = self._values[name]
        assert isinstance(value, Integer), f"{name} is {value!r}"
        return value

    def bool(self, name: str) -> Flag:
        """A boolean config."""
        value = self._values[name]
        assert isinstance(value, Flag), f"{name} is {value!r}"
        return value

    def text(self, name: str) -> str | None:
        """A string config, or None if it is not set."""
        value = self._values[name]
        assert value is None or isinstance(value, str), f"{name} is {value!r}"
        return value

    def words(self, name: str) -> list[str]:
        """A list config, empty if it is not set."""
        value = self._values[name]
        assert value is None or isinstance(value, list), f"{name} is {value!r}"
        return value or []

    def is_set(self, name: str) -> Flag:
        """Whether a config is set by any source."""
        return any(layer.source is not ConfigSource.DEFAULT for layer in self.layers(name))

    def layers(self, name: str) -> list[Layered]:
        """The values of a config in order of precedence; the default is last, if there is one."""
        default = _definition(name).default
        found = [
            Layered(name, layer[name], source)
            for source, layer in (
                (ConfigSource.DYNAMIC_BROKER, self._dynamic),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER, self._dynamic_default),
                (ConfigSource.STATIC_BROKER, self._static),
            )
            if name in layer
        ]
        return found if default is None else [*found, Layered(name, default, ConfigSource.DEFAULT)]

    def of_listeners(self) -> list[str]:
        """The configs that are set for one listener, by their whole names."""
        return sorted(
            name
            for name in {*self._dynamic, *self._dynamic_default, *self._static}
            if name.startswith(LISTENER_PREFIX)
        )

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> ConfigValue:
        """The value of a config for a listener, or for a SASL mechanism of it.

        That is, the first that is set of: for the mechanism, for the listener, without a prefix.
        """
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for own_name in (f"{prefix}{mechanism.lower()}.{name}" if mechanism else "", f"{prefix}{name}"):
            if own_name in self._values:
                return self._values[own_name]
        return self._values[name]

    def is_set_for(self, listener: str, name: str) -> Flag:
        """Whether a config is set for a listener, with its prefix."""
        return f"{LISTENER_PREFIX}{listener.lower()}.{name}" in self._values

    def changed(self, changes: Mapping[str, str | None]) -> "Settings":
        """These settings after changes of dynamic configs, of which those that are invalid are left out."""
        settings = Settings(self._static)
        dynamic = {name: value for name, value in self._dynamic.items() if name not in changes}
        dynamic |= {name: value for name, value in changes.items() if value is not None}
        settings.apply_dynamic(self._dynamic_default, dynamic)
        return settings

    def first_of(self, names: Iterable[str]) -> ConfigValue:
        """The value of the first of these configs that is set, in milliseconds if it is a duration."""
        return next((value for name in names if (value := self._own_value(name)) is not None), None)

    def derived(self, key: str, compute: Callable[["Settings"], Derived]) -> Derived:
        """A value computed from the configs, cached until one of them changes."""
        if key not in self._derived:
            self._derived[key] = compute(self)
        result: Derived = self._derived[key]
        return result

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> None:
        """Call `changed` with the names of configs whose values changed dynamically."""
        self._subscribers.append(changed)

    def apply_dynamic(self, default_configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
        """Apply the dynamic configs of the metadata image."""
        self._dynamic_default = {name: v for name, v in default_configs.items() if _is_usable(name, v)}
        self._dynamic = {name: v for name, v in broker_configs.items() if _is_usable(name, v)}
        before = self._values
        self._resolve()
        changed = frozenset(
            name for name in self._values.keys() | before.keys() if self._values.get(name) != before.get(name)
        )
        if changed:
            for subscriber in self._subscribers:
                subscriber(changed)

    def _resolve(self) -> None:
        self._values = {}
        self._derived = {}
        for name in (*BROKER_CONFIGS, *self.of_listeners()):
            self._values[name] = self.first_of((name, *FALLBACKS.get(name, ())))

    def _own_value(self, name: str) -> ConfigValue:
        layers = self.layers(name)
        value = _definition(name).parse(layers[0].value) if layers else None
        if name in DURATIONS_MS and isinstance(value, Integer):
            return -1 if value < 0 else value * DURATIONS_MS[name]
        return value


def check_broker_config(name: str, value: str) -> None:
    """BadConfig unless this is a broker config with a valid value."""
    _definition(name).parse(value)


def _definition(name: str) -> ConfigDefinition:
    definition = broker_definition(name)
    if definition is None:
        raise BadConfig(unknown_setting(name))
    return definition


def _is_usable(name: str, value: str) -> bool:
    # Values are validated when they are set. A value that a later release no longer accepts must not prevent
    # startup, so the next source applies instead.
    definition = broker_definition(name)
    if definition is None:
        return False
    try:
        definition.parse(value)
    except BadConfig:
        return False
    return True
