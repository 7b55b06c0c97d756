"""Settings of single groups and of client metrics subscriptions, as Kafka 4.3 names them."""

import re

from runnel.controller.config_types import (
    ConfigType,
    ConfigValue,
    at_least,
    between,
    one_of,
    table,
)
from runnel.controller.config_types import inherited_config as _entry

INT, STRING, LIST, BOOLEAN = ConfigType.INT, ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN

CLIENT_MATCHES = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address",
    "client_source_port",
)  # fmt: skip
"""What a client metrics subscription can tell clients apart by."""


_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
"""An ISO 8601 length of time, in days and smaller."""


def _offset_reset(value: ConfigValue) -> str | None:
    text = str(value)
    if text in ("latest", "earliest") or _DURATION.fullmatch(text):
        return None
    return "Value must be latest, earliest, or by_duration:PnDTnHnMn.nS"


def _client_matches(value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    for item in value:
        name, equals, pattern = item.partition("=")
        if not equals or not pattern.strip() or name.strip() not in CLIENT_MATCHES:
            names = ", ".join(CLIENT_MATCHES)
            return f"Illegal client matching pattern: {item}. Use name=pattern with {names}"
    return None


GROUP_CONFIGS = table(
    _entry(
        "consumer.session.timeout.ms", INT, 45000, at_least(1), "group.consumer.session.timeout.ms",
        "How long a member of this consumer group may be silent before it is taken for dead.",
    ),
    _entry(
        "consumer.heartbeat.interval.ms", INT, 5000, at_least(1), "group.consumer.heartbeat.interval.ms",
        "How often members of this consumer group are told to report.",
    ),
    _entry(
        "consumer.assignment.interval.ms", INT, 1000, at_least(0), "group.consumer.assignment.interval.ms",
        "The shortest time between two assignments of this consumer group.",
    ),
    _entry(
        "share.session.timeout.ms", INT, 45000, at_least(1), "group.share.session.timeout.ms",
        "How long a member of this share group may be silent before it is taken for dead.",
    ),
    _entry(
        "share.heartbeat.interval.ms", INT, 5000, at_least(1), "group.share.heartbeat.interval.ms",
        "How often members of this share group are told to report.",
    ),
    _entry(
        "share.record.lock.duration.ms", INT, 30000, at_least(1000), "group.share.record.lock.duration.ms",
        "How long a record is held for the consumer that took it before others may have it.",
    ),
    _entry(
        "share.delivery.count.limit", INT, 5, at_least(2), "group.share.delivery.count.limit",
        "How often a record is handed out before the group gives up on it.",
    ),
    _entry(
        "share.partition.max.record.locks", INT, 2000, at_least(100),
        "group.share.partition.max.record.locks",
        "How many records of one partition the group may hold at a time.",
    ),
    _entry(
        "share.auto.offset.reset", STRING, "latest", _offset_reset, "",
        "Where a share group begins in a partition it has not read yet: earliest, latest, or "
        "by_duration: and how "
        "long ago.",
    ),
    _entry(
        "share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), "",
        "Whether the share group sees records of transactions that are open or were aborted.",
    ),
    _entry(
        "share.renew.acknowledge.enable", BOOLEAN, "true", None, "",
        "Whether consumers of the share group may ask for more time with a record.",
    ),
    _entry(
        "share.assignment.interval.ms", INT, 1000, at_least(0), "group.share.assignment.interval.ms",
        "The shortest time between two assignments of this share group.",
    ),
    _entry(
        "streams.session.timeout.ms", INT, 45000, at_least(1), "group.streams.session.timeout.ms",
        "How long a member of this streams group may be silent before it is taken for dead.",
    ),
    _entry(
        "streams.heartbeat.interval.ms", INT, 5000, at_least(1), "group.streams.heartbeat.interval.ms",
        "How often members of this streams group are told to report.",
    ),
    _entry(
        "streams.num.standby.replicas", INT, 0, at_least(0), "group.streams.num.standby.replicas",
        "How many spare copies of each task's state the streams group keeps.",
    ),
    _entry(
        "streams.initial.rebalance.delay.ms", INT, 3000, at_least(0),
        "group.streams.initial.rebalance.delay.ms",
        "How long a new streams group waits for more members before its first assignment.",
    ),
    _entry(
        "streams.assignment.interval.ms", INT, 1000, at_least(0), "group.streams.assignment.interval.ms",
        "The shortest time between two assignments of this streams group.",
    ),
)  # fmt: skip

CLIENT_METRICS_CONFIGS = table(
    _entry(
        "metrics", LIST, "", None, "",
        "Prefixes of the metrics that matching clients push; * asks for all, nothing asks for none.",
    ),
    _entry(
        "interval.ms", INT, 300000, between(100, 3600000), "",
        "How often matching clients push their metrics.",
    ),
    _entry(
        "match", LIST, "", _client_matches, "",
        "Which clients the subscription is for, as name=pattern pairs; none means all clients.",
    ),
)  # fmt: skip
