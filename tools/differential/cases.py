"""All cases, on one pair of brokers."""

import struct

from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.leave_group import LeaveGroupRequest
from runnel.model.errors import ErrorCode
from tools.differential.admin import check_cluster, check_settings, check_topics
from tools.differential.comparison import SETTLE_S, Broker, BrokerPair, Difference
from tools.differential.consumer_groups import check_consumer_groups
from tools.differential.data import check_fetch, check_offsets, check_produce, check_producers
from tools.differential.groups import check_groups
from tools.differential.offsets_in_transactions import check_offsets_in_transactions
from tools.differential.transactions import check_transactions

NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
}


def compare_brokers(ours: int, theirs: int, settle_s: float = SETTLE_S) -> dict[str, list[Difference]]:
    """The differences of the brokers on two ports, case by case. Both must be new."""
    pair = BrokerPair(Broker(ours), Broker(theirs), settle_s)
    try:
        wait_until_ready(pair)
        for ask in (
            check_topics,
            check_produce,
            check_fetch,
            check_offsets,
            check_producers,
            check_groups,
            check_settings,
        ):
            ask(pair)
        check_consumer_groups(pair)
        check_transactions(pair)
        check_offsets_in_transactions(pair)
        check_cluster(pair)
        _check_malformed(pair)
    finally:
        pair.close()
    return pair.cases


def wait_until_ready(pair: BrokerPair) -> None:
    """A new Kafka node cannot allocate producer ids or coordinate groups at once."""
    for request, version in (
        (InitProducerIdRequest(None, 1000), 4),
        (FindCoordinatorRequest("any"), 3),
        (LeaveGroupRequest("any", "unknown"), 2),
    ):
        while any(
            response.error_code in NOT_READY for response in pair.begin(request, version, "one").result()
        ):
            pair.settle()


def _check_malformed(pair: BrokerPair) -> None:
    def framed(key: int, version: int, body: bytes = b"") -> bytes:
        message = struct.pack(">hhih", key, version, 1, -1) + body
        return struct.pack(">i", len(message)) + message

    for case, frame in (
        ("an unknown API", framed(999, 0)),
        ("an unknown version", framed(3, 99)),
        ("a version that was removed", framed(0, 2, struct.pack(">hii", 1, 1000, 0))),
        ("a negative size", struct.pack(">i", -1)),
        ("a size of zero", struct.pack(">i", 0)),
        ("a truncated header", struct.pack(">i", 3) + b"\0\3\0"),
        ("a huge size", struct.pack(">i", 2**31 - 1) + b"x"),
        ("bytes after the message", framed(3, 1, struct.pack(">i", 0) + b"more")),
        ("an array that is longer than the message", framed(3, 1, struct.pack(">i", 5))),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n"),
    ):
        pair.send_frame(f"malformed: {case}", frame)
