"""All questions, to one pair of brokers."""

import struct

from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.leave_group import LeaveGroupRequest
from runnel.model.errors import ErrorCode
from tools.twin.admin import ask_cluster, ask_settings, ask_topics
from tools.twin.comparison import SETTLE_S, Difference, Twin, Twins
from tools.twin.consumer_groups import ask_consumer_groups
from tools.twin.data import ask_fetch, ask_offsets, ask_produce, ask_producers
from tools.twin.groups import ask_groups
from tools.twin.offsets_in_transactions import ask_offsets_in_transactions
from tools.twin.transactions import ask_transactions

NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
}


def interview(ours: int, theirs: int, settle_s: float = SETTLE_S) -> dict[str, list[Difference]]:
    """Where the brokers on two ports differ, question by question. Both must be fresh."""
    twins = Twins(Twin(ours), Twin(theirs), settle_s)
    try:
        _wait_until_ready(twins)
        for ask in (ask_topics, ask_produce, ask_fetch, ask_offsets, ask_producers, ask_groups, ask_settings):
            ask(twins)
        ask_consumer_groups(twins)
        ask_transactions(twins)
        ask_offsets_in_transactions(twins)
        ask_cluster(twins)
        _ask_nonsense(twins)
    finally:
        twins.close()
    return twins.questions


def _wait_until_ready(twins: Twins) -> None:
    """A fresh Kafka cannot give producer ids or keep groups at once."""
    for request, version in (
        (InitProducerIdRequest(None, 1000), 4),
        (FindCoordinatorRequest("any"), 3),
        (LeaveGroupRequest("any", "nobody"), 2),
    ):
        while any(answer.error_code in NOT_READY for answer in twins.begin(request, version, "one").result()):
            twins.settle()


def _ask_nonsense(twins: Twins) -> None:
    def framed(key: int, version: int, body: bytes = b"") -> bytes:
        message = struct.pack(">hhih", key, version, 1, -1) + body
        return struct.pack(">i", len(message)) + message

    for question, frame in (
        ("an unknown API", framed(999, 0)),
        ("an unknown version", framed(3, 99)),
        ("a version that exists no more", framed(0, 2, struct.pack(">hii", 1, 1000, 0))),
        ("a negative size", struct.pack(">i", -1)),
        ("a size of zero", struct.pack(">i", 0)),
        ("a header that is cut off", struct.pack(">i", 3) + b"\0\3\0"),
        ("a huge size", struct.pack(">i", 2**31 - 1) + b"x"),
        ("bytes behind the message", framed(3, 1, struct.pack(">i", 0) + b"more")),
        ("an array that is longer than the message", framed(3, 1, struct.pack(">i", 5))),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n"),
    ):
        twins.send(f"nonsense: {question}", frame)
