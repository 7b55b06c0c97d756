"""Transcripts of transactions: unstable offsets, aborts, and verification."""

import pytest

from runnel.log.producers import Guard
from runnel.model.errors import ApiError
from tests.log.test_producers import World, talk


class TransactionWorld(World):
    """The same partition, asked about transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.guards: dict[int, Guard] = {}

    def aborted(self, _) -> str:
        entries = self.producers.take_aborted()
        shown = (f"{e.producer_id}:{e.first_offset}-{e.last_offset}<{e.last_stable_offset}" for e in entries)
        return " ".join(shown) or "none"

    def ask(self, _, id=1, epoch=0, seq=0, guard=0, now=0) -> None:
        self.guards[guard] = self.producers.guard(id, epoch, seq, now)

    def check(self, flags, seq=0, guard=0) -> str:
        try:
            self.producers.check_guard(self.guards[guard], seq, needs_start="v2" in flags)
        except ApiError as error:
            return f"refused {error.error.name}"
        return "admitted"

    def marker(self, _, id=1, epoch=0, version=2) -> str:
        try:
            self.producers.check_marker(id, epoch, version)
        except ApiError as error:
            return f"refused {error.error.name}"
        return "admitted"


SCRIPTS = {
    "a transaction is unstable until its end is committed": """
        write txn n=2
        = at 0
        write id=2 txn
        = at 2
        kept
        end commit
        = at 3
        kept
        stable below=3
        = 0
        # The second one is open still.
        stable below=4
        = 2
        end id=2
        = at 4
        stable below=4
        = 2
        failed
        stable below=4
        = 2
        end id=2
        = at 4
        kept
        stable below=5
        = None
    """,
    "an aborted transaction is reported once it is written": """
        write txn
        = at 0
        write id=2 txn
        = at 1
        end
        = at 2
        end id=2
        = at 3
        aborted
        = 1:0-2<1 2:1-3<4
        # An end without a transaction aborts nothing.
        end
        = at 4
        aborted
        = none
        write txn seq=1
        = at 5
        kept
        end
        = at 6
        failed
        aborted
        = none
        stable
        = 5
    """,
    "a marker of transaction version 2 has a newer epoch, or is the same one again": """
        write txn epoch=3
        = at 0
        marker epoch=3
        = refused INVALID_PRODUCER_EPOCH
        marker epoch=3 version=1
        = admitted
        marker epoch=4
        = admitted
        end epoch=4 commit
        = at 1
        marker epoch=4
        = admitted
        marker epoch=3
        = refused INVALID_PRODUCER_EPOCH
        marker id=9 epoch=0
        = admitted
        write txn epoch=4
        = at 2
        marker epoch=4
        = refused INVALID_PRODUCER_EPOCH
    """,
    "a guard is set until a transaction begins or ends": """
        ask guard=1
        check guard=1
        = admitted
        end commit
        = at 0
        check guard=1
        = refused INVALID_TXN_STATE
        ask guard=2
        check guard=1
        = refused INVALID_TXN_STATE
        check guard=2
        = admitted
        write txn
        = at 1
        check guard=2
        = refused INVALID_TXN_STATE
    """,
    "the first batch that was asked about is written first": """
        ask seq=1
        ask seq=0
        check seq=1
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        check seq=0
        = admitted
        ask epoch=1 seq=4
        check seq=4
        = admitted
        check v2 seq=4
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
    """,
    "an unused guard expires": """
        ask
        expire now=99
        = 0 expired
        check
        = admitted
        expire now=100
        = 0 expired
        check
        = refused INVALID_TXN_STATE
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_conversation(name):
    talk(SCRIPTS[name], TransactionWorld())
