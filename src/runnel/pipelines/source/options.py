"""The options of the source, by the names that Spark's Kafka connector uses."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runnel.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from runnel.client.properties import ClientProperties
from runnel.model.ids import TopicPartition
from runnel.pipelines.client_options import is_client_option, read_client_properties
from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.options import REGISTRY_OPTIONS, ValueOptions, value_options
from runnel.pipelines.source.admission import (
    BYTES_PER_TRIGGER,
    OFFSETS_PER_TRIGGER,
    TRIGGER_DELAY_MS,
    Admission,
)

T = TypeVar("T")

READ_OPTIONS = (
    "kafka.bootstrap.servers",
    "bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "valueFormat",
    "valueSchema",
    *REGISTRY_OPTIONS,
    "fetchTimeoutMs",
    "kafka.isolation.level",
    "kafka.group.id",
    "kafka.client.id",
    "kafka.properties.file",
    "kafka.security.protocol",
    "kafka.max.partition.fetch.bytes",
)
FOREIGN_OPTIONS = frozenset(
    (
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafka.fetch.max.bytes",
        "kafka.fetch.min.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.client.rack",
        "kafka.client.dns.lookup",
        "path",
        "paths",
        "topic",
    )
)
"""Options of Kafka's consumer, of its connector and of Spark that resemble options of this source."""
CLOSE = 0.84
"""Similarity from which an unknown name is considered a misspelling."""
VALUE_FORMATS = ("bytes", "string", "json", "avro", "protobuf", "json-schema")
FETCH_BYTES = 8 * 1024 * 1024
FETCH_BYTES_MAX = 256 * 1024 * 1024
FETCH_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A start or end: a timestamp for all partitions, or timestamps and offsets by partition.

    Timestamps are in ms, or EARLIEST or LATEST.
    """

    moment: int | None = None
    moments: Mapping[TopicPartition, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_for_all(self) -> bool:
        return self.moment is not None

    @property
    def partitions(self) -> set[TopicPartition]:
        return self.moments.keys() | self.offsets.keys()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: of named topics, of topics that match a pattern, or assigned ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def only_topic(self) -> str | None:
        """The topic, if exactly one is named."""
        names = self._names
        return names[0] if len(names) == 1 else None

    @property
    def _names(self) -> tuple[str, ...]:
        return self.topics or tuple(dict.fromkeys(partition.topic for partition in self.assigned))

    def __str__(self) -> str:
        return self.pattern if self.pattern is not None else ",".join(self._names)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The validated options of the source."""

    bootstrap_servers: str
    subscription: Subscription
    starting: Bound | None
    ending: Bound | None
    without_match: str
    """What to do if no record is as late as the starting timestamp: `error` or `latest`."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    admission: Admission
    include_headers: bool
    value_format: str
    value_schema: str | None
    values: ValueOptions | None
    """The schema of values that were written with schemas of a registry."""
    isolation: int
    group_id: str
    client_id: str
    fetch_timeout_ms: int
    fetch_bytes: int
    properties: ClientProperties


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options; BadOption if one is invalid."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(options, READ_OPTIONS)
    subscription = _subscription(options)
    value_format = _one_of(options, "valueFormat", VALUE_FORMATS)
    fetch_timeout_ms = _positive(options, "fetchTimeoutMs") or FETCH_TIMEOUT_MS
    return SourceOptions(
        bootstrap_servers=_bootstrap_servers(options),
        subscription=subscription,
        starting=_bound(options, "starting"),
        ending=_bound(options, "ending"),
        without_match=_one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest")),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        admission=_admission(options),
        include_headers=_boolean(options, "includeHeaders", True),
        value_format=value_format,
        value_schema=_value_schema(options),
        values=value_options(options, value_format, subscription.only_topic, fetch_timeout_ms / 1000),
        isolation=_isolation(options),
        group_id=options.get("kafka.group.id") or f"spark-{subscription}",
        client_id=options.get("kafka.client.id") or "runnel-spark",
        fetch_timeout_ms=fetch_timeout_ms,
        fetch_bytes=min(
            _positive(options, "kafka.max.partition.fetch.bytes") or FETCH_BYTES, FETCH_BYTES_MAX
        ),
        properties=read_client_properties(options),
    )


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """BadOption for a name that resembles a known one; other unknown names are ignored."""
    names = {name.lower(): name for name in known}
    for name in given:
        lowered = name.lower()
        if lowered in names or lowered in FOREIGN_OPTIONS or is_client_option(lowered):
            continue
        close = difflib.get_close_matches(lowered, names, n=1, cutoff=CLOSE)
        if close:
            raise BadOption(f"unknown option {name!r}; did you mean {names[close[0]]!r}?")


def _bootstrap_servers(options: Mapping[str, str]) -> str:
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise BadOption("the option kafka.bootstrap.servers is required, such as 127.0.0.1:9092")
    return servers


def _subscription(options: Mapping[str, str]) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name.lower())]
    if len(chosen) != 1:
        given = " and ".join(chosen) if chosen else "none"
        raise BadOption(
            f"exactly one of the options subscribe, subscribePattern and assign is required, found {given}"
        )
    text = options[chosen[0].lower()]
    match chosen[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
            if not topics:
                raise BadOption(f"subscribe={text!r} contains no topic")
            return Subscription(topics=topics)
        case "subscribePattern":
            return Subscription(pattern=text.strip())
        case _:
            return Subscription(assigned=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}'
    table = _json(text, "assign", example)
    partitions: list[TopicPartition] = []
    for topic, numbers in table.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise BadOption(f"assign must look like {example}: {topic!r} has {numbers!r}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise BadOption(f"assign contains no partition; example: {example}")
    return tuple(dict.fromkeys(partitions))


# Starting and ending offsets.


def _bound(options: Mapping[str, str], side: str) -> Bound | None:
    """The first of three options that is set, in the precedence of Spark's Kafka connector."""
    timestamp = options.get(f"{side}timestamp")
    if timestamp is not None:
        return Bound(moment=_number(timestamp, f"{side}Timestamp"))
    by_timestamp = options.get(f"{side}offsetsbytimestamp")
    if by_timestamp is not None:
        name = f"{side}OffsetsByTimestamp"
        return Bound(moments=_by_partition(by_timestamp, name, '{"orders": {"0": 1700000000000}}', 0))
    offsets = options.get(f"{side}offsets")
    return None if offsets is None else _offsets_bound(offsets, f"{side}Offsets")


def _offsets_bound(text: str, name: str) -> Bound:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(moment=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise BadOption(f"{name}={text!r} is neither earliest, latest nor JSON")
    offsets = _by_partition(text, name, '{"orders": {"0": 23, "1": -2}}', EARLIEST)
    return Bound(
        moments={partition: offset for partition, offset in offsets.items() if offset < 0},
        offsets={partition: offset for partition, offset in offsets.items() if offset >= 0},
    )


def _by_partition(text: str, name: str, example: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(text, name, example).items():
        if not isinstance(numbers, dict):
            raise BadOption(f"{name} must look like {example}: {topic!r} has {numbers!r}")
        for number, offset in numbers.items():
            if not number.isdecimal() or type(offset) is not int or offset < least:
                raise BadOption(f"{name} must look like {example}: {topic!r} has {number!r}: {offset!r}")
            found[TopicPartition(topic, int(number))] = offset
    return found


# Single options.


def _admission(options: Mapping[str, str]) -> Admission:
    offsets_min = _positive(options, "minOffsetsPerTrigger")
    offsets_max = _positive(options, "maxOffsetsPerTrigger") or max(OFFSETS_PER_TRIGGER, offsets_min or 0)
    if offsets_min is not None and offsets_min > offsets_max:
        raise BadOption(f"minOffsetsPerTrigger={offsets_min} exceeds maxOffsetsPerTrigger={offsets_max}")
    if offsets_min is None and "maxtriggerdelay" in options:
        raise BadOption("maxTriggerDelay requires minOffsetsPerTrigger")
    return Admission(
        offsets_max,
        _positive(options, "maxBytesPerTrigger") or BYTES_PER_TRIGGER,
        offsets_min,
        _delay_ms(options.get("maxtriggerdelay")),
    )


def _delay_ms(text: str | None) -> int:
    """A duration in Spark's notation: 30s, 15m, 1 hour."""
    if text is None:
        return TRIGGER_DELAY_MS
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or not int(found["count"]):
        raise BadOption(f"maxTriggerDelay={text!r} is not a duration, such as 30s, 15m or 1h")
    return int(found["count"]) * _UNITS_MS[found["unit"][:2] if found["unit"] == "ms" else found["unit"][0]]


_SPAN = re.compile(r"(?P<count>[0-9]{1,9})\s*(?P<unit>ms|s|m|h|d|(?:second|minute|min|hour|day)s?)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _json(text: str, name: str, example: str) -> dict[str, object]:
    try:
        table = json.loads(text)
    except ValueError as error:
        raise BadOption(f"{name} is not JSON ({error}); example: {example}") from None
    if not isinstance(table, dict):
        raise BadOption(f"{name} must look like {example}, not {text!r}")
    return table


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _number(text: str, name: str) -> int:
    return _parsed(text, name, int, lambda number: number >= 0, "an integer of at least 0")


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    return _parsed(text, name, int, lambda number: number > 0, "an integer of at least 1")


def _parsed(text: str, name: str, parse: Callable[[str], T], is_right: Callable[[T], bool], what: str) -> T:
    try:
        value = parse(text.strip())
    except ValueError:
        value = None
    if value is None or not is_right(value):
        raise BadOption(f"{name}={text!r} is not {what}")
    return value


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise BadOption(f"{name}={text!r} is neither true nor false")
    return text.strip().lower() == "true"


def _one_of(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of these values; the first is the default."""
    text = options.get(name.lower(), words[0]).strip().lower()
    if text not in words:
        raise BadOption(f"{name}={text!r} is not one of {', '.join(words)}")
    return text


def _value_schema(options: Mapping[str, str]) -> str | None:
    """The text of the schema; a file is read here because tasks may run on other machines."""
    text = options.get("valueschema")
    if text is None or not _FILE_NAME.fullmatch(text.strip()):
        return text
    try:
        return Path(text.strip()).read_text()
    except OSError as error:
        raise BadOption(f"valueSchema={text!r} cannot be read: {error.strerror}") from None


_FILE_NAME = re.compile(r"[^{<(\n]*\.(json|avsc|ddl|sql|txt)")


def _isolation(options: Mapping[str, str]) -> int:
    levels = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
    return levels[_one_of(options, "kafka.isolation.level", tuple(levels))]
