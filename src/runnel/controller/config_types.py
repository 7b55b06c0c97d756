"""Config definitions: name, type, default, validator, importance and update scope."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from ipaddress import ip_address
from typing import TypeAlias

ConfigValue: TypeAlias = bool | int | float | str | list[str] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PORT_MAX = 65535


class ConfigType(IntEnum):
    """Config types, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """The importance of a config, as in Kafka's documentation."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """Whether a config can be updated dynamically."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    """For one broker, and one of its listeners: not as a default of the cluster."""
    CLUSTER_WIDE = "cluster-wide"


class BadConfig(ValueError):
    """A config with an unknown name or an invalid value."""


Validator: TypeAlias = Callable[[ConfigValue], str | None]
"""Returns the error message for a parsed value, or None if it is valid."""


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """The definition of one config."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.READ_ONLY
    synonyms: tuple[str, ...] = ()
    """Broker configs that provide the default, in order of precedence."""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """Parse and validate a value; BadConfig if it is invalid."""
        value = None if text is None else _parse(self.name, self.type, text)
        complaint = self.validator(value) if self.validator and value is not None else None
        if complaint:
            shown = "[hidden]" if self.is_sensitive else text
            raise BadConfig(f"Invalid value {shown} for configuration {self.name}: {complaint}")
        return value


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def _parse(name: str, type_: ConfigType, text: str) -> ConfigValue:
    text = text.strip()
    if type_ in _INTEGER_BITS:
        return _integer(name, type_, text)
    if type_ is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _not_a(name, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if type_ is ConfigType.DOUBLE:
        return _double(name, text)
    if type_ is ConfigType.LIST:
        return [item.strip() for item in text.split(",")] if text else []
    return text


def _integer(name: str, type_: ConfigType, text: str) -> int:
    bound = 1 << (_INTEGER_BITS[type_] - 1)
    try:
        # int() also accepts "1_000" and full-width digits, which Kafka's tools cannot parse.
        value = int(text) if text.isascii() and "_" not in text else bound
    except ValueError:
        value = bound
    if not -bound <= value < bound:
        raise _not_a(name, text, f"Not a number of type {type_.name}")
    return value


def _double(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise _not_a(name, text, "Not a number of type DOUBLE")
    return value


def _not_a(name: str, text: str, complaint: str) -> BadConfig:
    return BadConfig(f"Invalid value {text} for configuration {name}: {complaint}")


def at_least(minimum: float) -> Validator:
    """Numbers of at least `minimum`."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, (int, float))
        return None if value >= minimum else f"Value must be at least {minimum}"

    return check


def between(minimum: float, maximum: float) -> Validator:
    """Numbers from `minimum` to `maximum`, inclusive."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, (int, float))
        if value < minimum:
            return f"Value must be at least {minimum}"
        return None if value <= maximum else f"Value must be no more than {maximum}"

    return check


def between_or(minimum: int, maximum: int, other: int) -> Validator:
    """Numbers in a range, or one value outside of it."""
    in_range = between(minimum, maximum)

    def check(value: ConfigValue) -> str | None:
        if value == other or not in_range(value):
            return None
        return f"Value must be {other} or {minimum} to {maximum}"

    return check


def not_zero(value: ConfigValue) -> str | None:
    """Any number except 0; -1 means no limit."""
    return "Value must not be 0" if value == 0 else None


def one_of(*choices: str) -> Validator:
    """One of these strings."""

    def check(value: ConfigValue) -> str | None:
        return None if value in choices else f"String must be one of: {', '.join(choices)}"

    return check


def one_of_any_case(*choices: str) -> Validator:
    """One of these strings, ignoring case."""

    def check(value: ConfigValue) -> str | None:
        fits = isinstance(value, str) and value.upper() in choices
        return None if fits else f"String must be one of (case insensitive): {', '.join(choices)}"

    return check


def some_of(*choices: str) -> Validator:
    """A list without duplicates of these strings."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, list)
        for item in value:
            if item not in choices:
                return f"String must be one of: {', '.join(choices)}"
        return "List must not contain duplicates" if len(set(value)) < len(value) else None

    return check


def throttled_replicas(value: ConfigValue) -> str | None:
    """`*`, or a list of partition:broker pairs."""
    assert isinstance(value, list)
    if value == ["*"]:
        return None
    for item in value:
        partition, _, broker = item.partition(":")
        if not (partition.isdecimal() and broker.isdecimal()):
            return "Must be the literal '*' or a list of replicas in the form [partitionId]:[brokerId]"
    return None


def parse_address_counts(text: str) -> dict[str, int]:
    """Counts by address, from `192.0.2.1:5,2001:db8::1:7`; ValueError if it is malformed."""
    counts = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        address, _, count = item.rpartition(":")
        if not (count.isascii() and count.isdecimal()):
            raise ValueError(f"{item} does not end in a colon and a number")
        counts[str(ip_address(address.strip("[]")))] = int(count)
    return counts


def address_counts(value: ConfigValue) -> str | None:
    """A list of address:count pairs."""
    assert isinstance(value, str)
    try:
        parse_address_counts(value)
    except ValueError as error:
        return f"Must be a list of address:count pairs ({error})"
    return None


def parse_host_port(text: str) -> tuple[str, int]:
    """(host, port) of an address such as 127.0.0.1:9644 or [::1]:9644; ValueError if it is malformed."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal()
    if not colon or not is_number or int(port) > PORT_MAX or "/" in host:
        raise ValueError(f"{text!r} is not of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def addresses_or(other: str) -> Validator:
    """A list of host:port pairs, or one word instead."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, list)
        if value == [other]:
            return None
        try:
            for item in value:
                parse_host_port(item)
        except ValueError as error:
            return f"Must be {other}, or a list of addresses ({error})"
        return None

    return check


def some_principals(value: ConfigValue) -> str | None:
    """Principals such as User:alice, separated by semicolons."""
    assert isinstance(value, str)
    for name in filter(None, (name.strip() for name in value.split(";"))):
        if ":" not in name:
            return f"{name} is not a principal such as User:{name}"
    return None


def table(*definitions: ConfigDefinition) -> dict[str, ConfigDefinition]:
    """Definitions by name."""
    by_name = {definition.name: definition for definition in definitions}
    assert len(by_name) == len(definitions), "duplicate config definition"
    return by_name


def broker_config(
    name: str,
    type_: ConfigType,
    default: object,
    validator: Validator | None,
    importance: Importance,
    scope: Scope,
    documentation: str,
) -> ConfigDefinition:
    """The definition of a broker config."""
    return ConfigDefinition(
        name=name,
        type=type_,
        default=None if default is None else str(default),
        documentation=documentation,
        validator=validator,
        importance=importance,
        scope=scope,
    )


def inherited_config(
    name: str,
    type_: ConfigType,
    default: object,
    validator: Validator | None,
    synonyms: str,
    documentation: str,
) -> ConfigDefinition:
    """The definition of a topic or group config, whose default may be inherited from broker configs."""
    return ConfigDefinition(
        name=name,
        type=type_,
        default=str(default),
        documentation=documentation,
        validator=validator,
        scope=Scope.CLUSTER_WIDE,
        synonyms=tuple(synonyms.split()),
    )
