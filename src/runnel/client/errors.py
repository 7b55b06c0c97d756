"""What can go wrong for a client, said so that a person knows what to do.

ClientError                 everything a caller may want to catch
├── NoBroker                nobody answers at any of the addresses we know
├── ConnectionLost          the broker went away while we waited for its answer
├── TimedOut                the answer, or the recovery from an error, took too long
├── BrokerGone              a broker that we were sent to is not part of the cluster right now
├── NotKafka                what came back is not an answer in Kafka's protocol
├── NotSpoken               the broker does not know an API, or no version of it that we know
└── BrokerRefused           the broker understood and said no (carries an ErrorCode)
"""

from runnel.model.errors import ErrorCode


class ClientError(Exception):
    """Anything that keeps a client from what it was asked to do."""

    retriable = False


class NoBrokerAvailable(ClientError):
    """Nobody answers at any of the addresses we know."""

    retriable = True

    def __init__(self, addresses: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"no broker answers at {addresses} ({reason}): is it running? start one with `runnel serve`"
        )


class ConnectionLost(ClientError):
    """The broker went away while we waited; whether it acted on the request is unknown."""

    retriable = True


class TimedOut(ClientError):
    """No answer, or no recovery, in the time that was given."""

    retriable = True


class BrokerNotAvailable(ClientError):
    """A broker that we were sent to is not part of the cluster right now; who sent us there may be stale."""

    retriable = True

    def __init__(self, node_id: int) -> None:
        super().__init__(f"broker {node_id} is not part of the cluster right now")


class InvalidResponse(ClientError):
    """What came back is not an answer in Kafka's protocol."""


class UnsupportedVersion(ClientError):
    """The broker does not speak an API in any version that we know."""


class BrokerError(ClientError):
    """The broker understood the request and said no."""

    def __init__(self, error: ErrorCode, about: str, message: str | None = None) -> None:
        self.error = error
        self.retriable = error.retriable
        detail = message or _SENTENCES.get(error) or error.name.lower().replace("_", " ")
        super().__init__(f"{about}: {detail} ({error.name})")


_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of this name exists already",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "not a valid topic name (at most 249 letters, digits, '.', '_', '-')",
    ErrorCode.LEADER_NOT_AVAILABLE: "no broker leads the partition right now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has moved to another broker",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is no longer, or not yet, in the log",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members; stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is consuming this topic; stop its consumers first",
    ErrorCode.INVALID_GROUP_ID: "not a valid group id",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member any more",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot write to its disk; see its log",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.CORRUPT_MESSAGE: "the records' checksum does not match",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "somebody else has taken over this transactional id",
    ErrorCode.PRODUCER_FENCED: "somebody else has taken over this transactional id",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not open, or it ended otherwise",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id belongs to another producer",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is not through yet",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "not a regular expression that the broker understands",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this version of the request",
}


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise BrokerRefused unless the code is zero."""
    if code:
        raise BrokerError(ErrorCode.from_code(code), about, message)
