"""What requests about settings speak of; the numbers are Kafka's."""

from enum import IntEnum


class ResourceType(IntEnum):
    """What a setting can belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Who said that a setting has the value it has."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class AlterOperation(IntEnum):
    """What can be done to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
