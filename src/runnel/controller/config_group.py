"""Group configs and client metrics configs of Kafka 4.3."""

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
"""The client attributes that a client metrics subscription can match."""


_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
"""An ISO 8601 duration in days and smaller units."""


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
        "The time without heartbeats after which a member is removed from the consumer group.",
    ),
    _entry(
        "consumer.heartbeat.interval.ms", INT, 5000, at_least(1), "group.consumer.heartbeat.interval.ms",
        "The heartbeat interval of the consumer group's members.",
    ),
    _entry(
        "consumer.assignment.interval.ms", INT, 1000, at_least(0), "group.consumer.assignment.interval.ms",
        "The minimum time between two assignments of the consumer group.",
    ),
    _entry(
        "share.session.timeout.ms", INT, 45000, at_least(1), "group.share.session.timeout.ms",
        "The time without heartbeats after which a member is removed from the share group.",
    ),
    _entry(
        "share.heartbeat.interval.ms", INT, 5000, at_least(1), "group.share.heartbeat.interval.ms",
        "The heartbeat interval of the share group's members.",
    ),
    _entry(
        "share.record.lock.duration.ms", INT, 30000, at_least(1000), "group.share.record.lock.duration.ms",
        "How long a record is locked by the consumer that acquired it.",
    ),
    _entry(
        "share.delivery.count.limit", INT, 5, at_least(2), "group.share.delivery.count.limit",
        "The maximum number of delivery attempts of a record.",
    ),
    _entry(
        "share.partition.max.record.locks", INT, 2000, at_least(100),
        "group.share.partition.max.record.locks",
        "The maximum number of locked records per partition.",
    ),
    _entry(
        "share.auto.offset.reset", STRING, "latest", _offset_reset, "",
        "The initial offset of a share group in a partition: earliest, latest, or by_duration: with an ISO "
        "8601 duration.",
    ),
    _entry(
        "share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), "",
        "Whether the share group reads records of open and aborted transactions.",
    ),
    _entry(
        "share.renew.acknowledge.enable", BOOLEAN, "true", None, "",
        "Whether consumers of the share group may renew the lock of a record.",
    ),
    _entry(
        "share.assignment.interval.ms", INT, 1000, at_least(0), "group.share.assignment.interval.ms",
        "The minimum time between two assignments of the share group.",
    ),
    _entry(
        "streams.session.timeout.ms", INT, 45000, at_least(1), "group.streams.session.timeout.ms",
        "The time without heartbeats after which a member is removed from the streams group.",
    ),
    _entry(
        "streams.heartbeat.interval.ms", INT, 5000, at_least(1), "group.streams.heartbeat.interval.ms",
        "The heartbeat interval of the streams group's members.",
    ),
    _entry(
        "streams.num.standby.replicas", INT, 0, at_least(0), "group.streams.num.standby.replicas",
        "The number of standby replicas per task.",
    ),
    _entry(
        "streams.initial.rebalance.delay.ms", INT, 3000, at_least(0),
        "group.streams.initial.rebalance.delay.ms",
        "How long a new streams group waits for more members before its first assignment.",
    ),
    _entry(
        "streams.assignment.interval.ms", INT, 1000, at_least(0), "group.streams.assignment.interval.ms",
        "The minimum time between two assignments of the streams group.",
    ),
)  # fmt: skip

CLIENT_METRICS_CONFIGS = table(
    _entry(
        "metrics", LIST, "", None, "",
        "The prefixes of the metrics that matching clients push; * for all, empty for none.",
    ),
    _entry(
        "interval.ms", INT, 300000, between(100, 3600000), "",
        "How often matching clients push their metrics.",
    ),
    _entry(
        "match", LIST, "", _client_matches, "",
        "The clients that the subscription matches, as name=pattern pairs; empty for all clients.",
    ),
)  # fmt: skip
