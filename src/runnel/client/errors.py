"""Client errors.

ClientError                 base class
├── NoBrokerAvailable       no connection to any known address
├── ConnectionLost          the connection was closed while requests were in flight
├── TimedOut                a request, or an operation with its retries, timed out
│   └── OutcomeUnknown      ... and a record may or may not have been written
├── BufferFull              the producer has too many records that are not acknowledged
├── BrokerNotAvailable      a leader or coordinator is not in the cluster metadata
├── InvalidResponse         the response is not valid in Kafka's protocol
├── UnsupportedVersion      the broker and the client support no common version of an API
├── InvalidProperty         a client property, such as ssl.truststore.location, is unknown or unusable
├── TlsFailed               no TLS connection: certificates, versions, or one side does not speak TLS
├── AuthenticationFailed    the broker did not accept the credentials, or the client not the broker
└── BrokerError             an error code in a response
"""

from runnel.model.errors import ErrorCode


class ClientError(Exception):
    """The base class of client errors."""

    retriable = False


class NoBrokerAvailable(ClientError):
    """No connection to any known address."""

    retriable = True

    def __init__(self, addresses: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"no broker available at {addresses} ({reason}); start one with `runnel serve`")


class ConnectionLost(ClientError):
    """The connection was closed; whether the broker handled the in-flight requests is unknown."""

    retriable = True


class TimedOut(ClientError):
    """A request, or an operation with its retries, timed out."""

    retriable = True


class OutcomeUnknown(TimedOut):
    """A record was sent and not acknowledged: it may have been written."""

    has_key = False
    """Has it an idempotency key, by which it is known if it is sent again?"""


class BufferFull(ClientError):
    """The producer has too many records that are not acknowledged; it was not given this one."""

    retriable = True


class BrokerNotAvailable(ClientError):
    """A leader or coordinator is not in the cluster metadata, which may be stale."""

    retriable = True

    def __init__(self, node_id: int) -> None:
        super().__init__(f"broker {node_id} is not available")


class InvalidResponse(ClientError):
    """The response is not valid in Kafka's protocol."""


class UnsupportedVersion(ClientError):
    """The broker and the client support no common version of an API."""


class InvalidProperty(ClientError):
    """A client property is unknown or unusable. The message names it and does not contain its value."""


class TlsFailed(ClientError):
    """A TLS connection could not be established, and another attempt would not change that."""


class AuthenticationFailed(ClientError):
    """The broker did not accept the credentials, or did not prove that it knows them."""


class BrokerError(ClientError):
    """The response has an error code."""

    def __init__(self, error: ErrorCode, about: str, message: str | None = None) -> None:
        self.error = error
        self.retriable = error.retriable
        detail = message or _DESCRIPTIONS.get(error) or error.name.lower().replace("_", " ")
        super().__init__(f"{about}: {detail} ({error.name})")


_DESCRIPTIONS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name already exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "invalid topic name (at most 249 letters, digits, '.', '_', '-')",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker is not the leader of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside of the log",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members; stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to this topic; stop its consumers first",
    ErrorCode.INVALID_GROUP_ID: "invalid group id",
    ErrorCode.UNKNOWN_MEMBER_ID: "the member is not in the group",
    ErrorCode.KAFKA_STORAGE_ERROR: "storage error on the broker; see its log",
    ErrorCode.NOT_ENOUGH_REPLICAS: "there are fewer in-sync replicas than min.insync.replicas",
    ErrorCode.CORRUPT_MESSAGE: "the record batch is corrupt",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer was fenced by a newer one with the same transactional id",
    ErrorCode.PRODUCER_FENCED: "the producer was fenced by a newer one with the same transactional id",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not open, or has ended with the other result",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id is mapped to another producer id",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is not complete yet",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "invalid or unsupported regular expression",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this version of the request",
}


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise BrokerError unless the code is zero."""
    if code:
        raise BrokerError(ErrorCode.from_code(code), about, message)
