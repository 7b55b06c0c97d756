"""What requests and responses contain. Field names are those of the API; docstrings are part of its docs."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from runnel.gateway.http.limits import POLL_MESSAGES_MAX, SOCKET_CREDIT, SOCKET_CREDIT_MAX, WAIT_MS_MAX
from runnel.gateway.http.message_ids import ID_CHARACTERS_MAX, PARTITION_MAX
from runnel.gateway.http.problems import ProblemDetails
from runnel.gateway.http.topic_names import NAME_PATTERN

TIMESTAMP_MAX = 253_402_300_799_999
"""The end of the year 9999."""

OFFSET = (
    r"^(earliest|latest|-?[0-9]{1,19}|@[0-9]{1,15}|-?([0-9]{1,9}(ms|s|m|h|d|w))+"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{2,15}(Z|[+ -][0-9:]{2,8})?)?)$"
)
CURSOR = r"^v1\.[A-Za-z0-9_-]{22}(\.[0-9]{1,9}-[0-9]{1,18})*$"
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
Timestamp = Annotated[int, Meta(ge=0, le=TIMESTAMP_MAX, description="Milliseconds since 1970.")]
TopicName = Annotated[str, Meta(pattern=f"^{NAME_PATTERN}$")]
GroupId = Annotated[
    str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}$", description="A consumer group; letters of any kind.")
]
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="For topics with `dedup.window.ms`: if the record was written with this key before, it "
        "is not written again, and the response is that of the first time.",
    ),
]
MessageIdText = Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX)]


RENAMED = {"headers_list": "headersList", "idempotency_key": "idempotencyKey"}


class Header(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A header of a record. Names may repeat; a value may be null, or bytes."""

    name: str
    value: str | UnsetType | None = UNSET
    value_base64: Base64 | UnsetType = UNSET


class PublishRecord(Struct, forbid_unknown_fields=True, rename=RENAMED):
    """A record. Text is stored as its UTF-8, without quotes; other JSON as its text; null as a tombstone."""

    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    headers: dict[str, str | None] | UnsetType = UNSET
    headers_list: list[Header] | UnsetType = UNSET
    key_base64: Base64 | UnsetType = UNSET
    value_base64: Base64 | UnsetType = UNSET
    partition: Partition | None = None
    timestamp: Timestamp | None = None
    idempotency_key: IdempotencyKey | None = None


class Published(Struct, rename="camel"):
    """Where a record was written."""

    message_id: str | None
    partition: int
    offset: int


class PublishOutcome(Struct, omit_defaults=True, rename="camel"):
    """Where a record of a batch was written, or why it was not."""

    message_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: ProblemDetails | None = None


class PublishOutcomes(Struct):
    """The outcome of each record, in the order of the request."""

    results: list[PublishOutcome]


class FailedLine(Struct):
    """A line of an upload that was not written, counted from 1."""

    line: int
    error: ProblemDetails


class UploadSummary(Struct, omit_defaults=True, rename="camel"):
    """The outcome of an upload; the first failed lines are listed.

    With `error`, it ended early: the first `published` + `failed` lines were read, not counting empty ones.
    """

    published: int
    failed: int
    errors: list[FailedLine]
    error: ProblemDetails | None = None


class PublishQuery(Struct, forbid_unknown_fields=True):
    """Parameters of a publish."""

    create: Annotated[
        bool, Meta(description="Create the topic, with default settings, if it is missing.")
    ] = False


class Isolation(StrEnum):
    """What is read of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(StrEnum):
    """How values are shown."""

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"
    CLOUDEVENTS = "cloudevents"


class SubscribeQuery(Struct, forbid_unknown_fields=True):
    """Parameters of a subscription."""

    group: Annotated[
        GroupId | None,
        Meta(description="Read from the position of this group; an ack moves it."),
    ] = None
    offset: Annotated[
        Annotated[str, Meta(pattern=OFFSET)] | None,
        Meta(
            description="Where to begin: earliest, latest, an offset, -N (the last N of each partition), "
            "or a time: 2026-10-01T12:30, @EPOCH_MS, 15m. With a group: a replay, which does not move it.",
        ),
    ] = None
    cursor: Annotated[
        Annotated[str, Meta(pattern=CURSOR)] | None,
        Meta(description="Where to resume: `next` of a response. Takes precedence over `offset`."),
    ] = None
    partition: Annotated[
        Partition | None, Meta(description="Read this partition only; default: all of them.")
    ] = None
    max: Annotated[
        Annotated[int, Meta(ge=1, le=POLL_MESSAGES_MAX)] | None,
        Meta(description="Messages at most; default: 1 for a group, else 100."),
    ] = None
    wait: Annotated[
        int,
        Meta(ge=0, le=WAIT_MS_MAX, description="How many milliseconds to wait if there is no message."),
    ] = 0
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    format: Annotated[
        Format,
        Meta(
            description="How values are shown. json: objects and arrays as such, other values as text; text: "
            "all as text; base64: all as `key_base64` and `value_base64`. Bytes that are not text are base64."
        ),
    ] = Format.JSON
    credit: Annotated[
        int,
        Meta(ge=0, le=SOCKET_CREDIT_MAX, description="WebSocket: messages sent before more are granted."),
    ] = SOCKET_CREDIT


class Message(Struct, omit_defaults=True, rename={"message_id": "messageId", "headers_list": "headersList"}):
    """A message. `headers` has the last text of each name; `headersList` has all, if that is more."""

    message_id: str
    partition: int
    offset: int
    timestamp: int
    headers: dict[str, str | None]
    key: str | UnsetType | None = UNSET
    value: Raw | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    headers_list: list[Header] | UnsetType = UNSET


class Gap(Struct, rename={"from_offset": "from", "to_offset": "to"}):
    """Offsets that were deleted before they were read: by retention, or with the records before them.

    `to` is less than `from` if a stream was moved back, because the log has ended before its position.
    """

    partition: int
    from_offset: int
    to_offset: int


class Messages(Struct, omit_defaults=True):
    """Messages in the order of each partition. `next` resumes after the last."""

    messages: list[Message]
    next: str
    gaps: list[Gap] = []


class AckAction(StrEnum):
    """What is done with messages. Queues add release, reject and extend."""

    ACCEPT = "accept"


class AckRequest(
    Struct,
    forbid_unknown_fields=True,
    rename={"message_id": "messageId", "message_ids": "messageIds"},
):
    """The messages that were processed: one, or several."""

    message_id: MessageIdText | UnsetType = UNSET
    message_ids: (
        Annotated[list[MessageIdText], Meta(min_length=1, max_length=POLL_MESSAGES_MAX)] | UnsetType
    ) = UNSET
    action: AckAction = AckAction.ACCEPT


class CommittedOffset(Struct):
    """The position of the group in a partition."""

    partition: int
    offset: int


class Acknowledged(Struct):
    """The positions of the group after this; none for messages of a replay, which does not move it."""

    committed: list[CommittedOffset]


class RetentionLimits(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How long, and how much of a partition, is kept: `7d`, `10GiB` or a number of bytes."""

    time: Annotated[str, Meta(min_length=1, max_length=32)] | None = None
    size: (
        Annotated[str, Meta(min_length=1, max_length=32)] | Annotated[int, Meta(ge=1, le=2**63 - 1)] | None
    ) = None


RetentionPolicy = Annotated[str, Meta(min_length=1, max_length=32)] | RetentionLimits


class NewTopic(
    Struct,
    forbid_unknown_fields=True,
    rename={"retention_policy": "retentionPolicy", "replication_factor": "replicationFactor"},
):
    """A topic to create. `retentionPolicy`: `7d`, {time, size}, `compact`, `forever`."""

    name: TopicName
    partitions: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    retention_policy: RetentionPolicy | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    settings: dict[str, str] = {}


class Topic(Struct, rename="camel"):
    """A topic and its settings in force."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    retention_policy: str | RetentionLimits
    is_internal: bool
    settings: dict[str, str | None]


def any_json(value: Any) -> Raw:
    """A value that is encoded as it is."""
    return Raw(msgspec.json.encode(value))
