"""The options of the sink, named as in Spark's Kafka connector where it has them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runnel.batch.compression import Compression
from runnel.client.properties import ClientProperties
from runnel.pipelines.client_options import read_client_properties
from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.options import REGISTRY_OPTIONS, TYPES, URL, ValueOptions, value_options
from runnel.pipelines.source.options import check_names

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
FAIL = "fail"
WRITE = "write"
SKIP = "skip"
AS_IS = "bytes"
"""The default of valueFormat: values are strings or binary, written as they are."""
WRITE_OPTIONS = (
    "kafka.bootstrap.servers",
    "bootstrap.servers",
    "topic",
    "delivery",
    "inDoubt",
    "transactionTimeoutMs",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "txnFirstVersion",
    "valueFormat",
    *REGISTRY_OPTIONS,
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.delivery.timeout.ms",
    "kafka.client.id",
    "kafka.properties.file",
    "kafka.security.protocol",
)
TRANSACTION_TIMEOUT_MS = 900_000
"""The broker default of transaction.max.timeout.ms: a batch must be committed within it."""
TRANSACTION_TIMEOUT_MIN_MS = 10_000
BATCH_BYTES = 512 * 1024
"""Well below the broker default of max.message.bytes, and large enough to amortize the cost per batch."""
DELIVERY_TIMEOUT_MS = 120_000
PREFIX = "runnel-spark-"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed and validated options of the sink."""

    bootstrap_servers: str
    topic: str | None
    is_exactly_once: bool
    in_doubt: str
    """What to do with a batch whose outcome is unknown: `fail`, `write` or `skip`."""
    transaction_timeout_ms: int | None
    """Time limit of a batch; None is TRANSACTION_TIMEOUT_MS, capped at what the broker allows."""
    prefix: str
    application: str | None
    """The application id (txnAppId) of numbered batch writes."""
    version: int
    first_version: int | None
    """The first txnVersion of the application, if declared: later versions then require a commit marker."""
    compression: Compression
    batch_bytes: int
    delivery_timeout_s: float
    client_id: str
    properties: ClientProperties
    values: ValueOptions | None = None
    """The schema with which values are encoded; None writes them as they are."""


def write_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options; BadOption, with the accepted values, if one is invalid."""
    options = {name.lower(): value.strip() for name, value in given.items()}
    check_names(options, WRITE_OPTIONS)
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise BadOption("the option kafka.bootstrap.servers is missing; it looks like 127.0.0.1:9092")
    application, version, first_version = _numbering(options)
    timeout_ms = _number(options, "kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS, least=1)
    return SinkOptions(
        bootstrap_servers=servers,
        topic=options.get("topic") or None,
        is_exactly_once=_one_of(options, "delivery", (EXACTLY_ONCE, AT_LEAST_ONCE)) == EXACTLY_ONCE,
        in_doubt=_one_of(options, "inDoubt", (FAIL, WRITE, SKIP)),
        transaction_timeout_ms=_timeout(options),
        prefix=_name(options, "transactionalIdPrefix", PREFIX) or PREFIX,
        application=application,
        version=version,
        first_version=first_version,
        compression=_compression(options),
        batch_bytes=_number(options, "kafka.batch.size", BATCH_BYTES, least=1),
        delivery_timeout_s=timeout_ms / 1000,
        client_id=options.get("kafka.client.id") or "runnel-spark",
        properties=read_client_properties(options),
        values=_values(options, timeout_ms / 1000),
    )


def _values(options: Mapping[str, str], wait_s: float) -> ValueOptions | None:
    value_format = _one_of(options, "valueFormat", (AS_IS, *TYPES))
    found = value_options(options, value_format, options.get("topic"), wait_s)
    if found is None and value_format != AS_IS:
        raise BadOption(
            f"valueFormat={value_format} requires the option {URL}, such as http://127.0.0.1:8080"
        )
    return found


def _timeout(options: Mapping[str, str]) -> int | None:
    if "transactiontimeoutms" not in options:
        return None
    return _number(options, "transactionTimeoutMs", 0, least=TRANSACTION_TIMEOUT_MIN_MS)


def _numbering(options: Mapping[str, str]) -> tuple[str | None, int, int | None]:
    """The application id, the version of this write, and the first version."""
    application = _name(options, "txnAppId", None)
    if (application is None) != ("txnversion" not in options):
        raise BadOption(
            "txnAppId and txnVersion must be set together: a name and a version that increases per write"
        )
    version = _number(options, "txnVersion", 0, least=0)
    if "txnfirstversion" not in options:
        return application, version, None
    first_version = _number(options, "txnFirstVersion", 0, least=0)
    if application is None or version < first_version:
        raise BadOption(
            f"txnFirstVersion={first_version} is the first txnVersion of an application; this is "
            + ("a write without a txnVersion" if application is None else f"the earlier {version}")
        )
    return application, version, first_version


def _compression(options: Mapping[str, str]) -> Compression:
    names = tuple(codec.name.lower() for codec in Compression)
    return Compression.from_name(_one_of(options, "kafka.compression.type", names))


def _one_of(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of these words; the first is the default."""
    text = options.get(name.lower(), words[0]).lower()
    if text not in words:
        raise BadOption(f"{name}={text!r} is not one of {', '.join(words)}")
    return text


def _number(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or not least <= int(text) < 2**31:
        raise BadOption(f"{name}={text!r} is not an integer of at least {least}")
    return int(text)


def _name(options: Mapping[str, str], name: str, default: str | None) -> str | None:
    text = options.get(name.lower())
    if text is None:
        return default
    if not _NAME.fullmatch(text):
        raise BadOption(f"{name}={text!r} is not a name of up to 200 letters, digits, '.', '_' and '-'")
    return text
