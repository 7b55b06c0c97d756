"""A broker's settings: four layers, the strongest first, resolved and typed once per change.

dynamic, of this broker  >  dynamic, of all brokers  >  static (file, environment, flags)  >  default
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from runnel.controller.config_broker import BROKER_CONFIGS, is_ignored, unknown_setting
from runnel.controller.config_security import unenforced_security
from runnel.controller.config_topic import DURATIONS_MS
from runnel.controller.config_types import BadConfig, ConfigValue
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
"""Which settings answer, in their order, when one was not made; other units are turned into milliseconds."""


class Layered(NamedTuple):
    """One layer's text for a setting."""

    name: str
    value: str
    source: ConfigSource


class Settings(Mapping[str, Any]):
    """Every broker setting by Kafka's name: `settings["num.partitions"]` is an int, the one in force now."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """BadConfig if the static layer has an unknown name, an impossible value, or asks for security."""
        unenforced = unenforced_security(static or {})
        if unenforced:
            raise BadConfig(unenforced)
        self._static = {name: value for name, value in (static or {}).items() if not is_ignored(name)}
        self.ignored = tuple(sorted(set(static or ()) - set(self._static)))
        """Names that Kafka knows and that have no effect here."""
        # Two names of one thing: whoever sets or asks for either means both.
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
        """A whole number."""
        value = self._values[name]
        assert isinstance(value, Integer), f"{name} is {value!r}"
        return value

    def bool(self, name: str) -> Flag:
        """A yes or no."""
        value = self._values[name]
        assert isinstance(value, Flag), f"{name} is {value!r}"
        return value

    def text(self, name: str) -> str | None:
        """A word, or None where it was not set."""
        value = self._values[name]
        assert value is None or isinstance(value, str), f"{name} is {value!r}"
        return value

    def words(self, name: str) -> list[str]:
        """A list of words, empty where it was not set."""
        value = self._values[name]
        assert value is None or isinstance(value, list), f"{name} is {value!r}"
        return value or []

    def layers(self, name: str) -> list[Layered]:
        """Where a setting was made, the strongest first; its default comes last unless that is nothing."""
        default = BROKER_CONFIGS[name].default
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

    def first_of(self, names: Iterable[str]) -> ConfigValue:
        """The value of the first of these settings that has one; hours and minutes become milliseconds."""
        return next((value for name in names if (value := self._own_value(name)) is not None), None)

    def derived(self, key: str, compute: Callable[["Settings"], Derived]) -> Derived:
        """Something worked out from the settings, kept until one of them changes."""
        if key not in self._derived:
            self._derived[key] = compute(self)
        result: Derived = self._derived[key]
        return result

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> None:
        """Be told the names of settings whose value changed while the broker runs."""
        self._subscribers.append(changed)

    def apply_dynamic(self, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]) -> None:
        """The metadata log says that these are the dynamic settings now."""
        self._dynamic_default = {name: v for name, v in of_all_brokers.items() if _is_usable(name, v)}
        self._dynamic = {name: v for name, v in of_this_broker.items() if _is_usable(name, v)}
        before = self._values
        self._resolve()
        changed = frozenset(name for name, value in self._values.items() if value != before[name])
        if changed:
            for subscriber in self._subscribers:
                subscriber(changed)

    def _resolve(self) -> None:
        self._values = {}
        self._derived = {}
        for name in BROKER_CONFIGS:
            self._values[name] = self.first_of((name, *FALLBACKS.get(name, ())))

    def _own_value(self, name: str) -> ConfigValue:
        layers = self.layers(name)
        value = BROKER_CONFIGS[name].parse(layers[0].value) if layers else None
        if name in DURATIONS_MS and isinstance(value, Integer):
            return -1 if value < 0 else value * DURATIONS_MS[name]
        return value


def check_broker_config(name: str, value: str) -> None:
    """BadConfig unless this is a broker setting and a value that it can have."""
    if name not in BROKER_CONFIGS:
        raise BadConfig(unknown_setting(name))
    BROKER_CONFIGS[name].parse(value)


def _is_usable(name: str, value: str) -> bool:
    # Values were checked when they were set. One that a later release no longer takes must not keep the node
    # from starting, so the layer below counts instead.
    try:
        check_broker_config(name, value)
    except BadConfig:
        return False
    return True
