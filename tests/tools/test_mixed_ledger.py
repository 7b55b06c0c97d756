"""The ledger of a mixed group sees who owned, read or committed what it should not have."""

from typing import Any

import pytest

from runnel.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from runnel.model.ids import NO_ID
from tools.mixed.ledger import Ledger
from tools.mixed.monitor import GroupHistory

Line = tuple[str, str, int, Any]
"""Who, what, when, and with which partitions or offsets."""


def ledger_of(*lines: Line) -> Ledger:
    ledger = Ledger()
    for member, name, at_ms, detail in lines:
        event: dict[str, Any] = {"name": name, "timestamp": at_ms}
        if name == "records_consumed":
            partition, first, last = detail
            event["partitions"] = [{"partition": partition, "minOffset": first, "maxOffset": last}]
        elif name == "offsets_committed":
            partition, offset, is_done = detail
            event |= {"offsets": [{"partition": partition, "offset": offset}], "success": is_done}
        else:
            event["partitions"] = [{"partition": partition} for partition in detail]
        ledger.add(member, event)
    return ledger


FIRST: list[Line] = [
    ("a", "partitions_assigned", 10, [0]),
    ("a", "records_consumed", 11, (0, 0, 9)),
    ("a", "offsets_committed", 12, (0, 6, True)),
]


def successor(begin_ms: int, first: int) -> list[Line]:
    return [
        ("b", "partitions_assigned", begin_ms, [0]),
        ("b", "records_consumed", begin_ms, (0, first, 20)),
    ]


def test_a_handover_without_a_fault() -> None:
    ledger = ledger_of(*FIRST, ("a", "partitions_revoked", 20, [0]), *successor(20, 10))
    found = ledger.findings()
    assert (found.faults, found.records, found.read_again, found.moves) == ([], 21, 0, 1)
    assert ledger.owned() == {"a": [], "b": [0]}
    assert ledger.read_until() == {0: 21}


def test_after_a_death_what_was_not_committed_is_read_again() -> None:
    found = ledger_of(*FIRST, ("a", "killed", 20, []), *successor(99, 6)).findings()
    assert (found.faults, found.read_again) == ([], 4)


@pytest.mark.parametrize(
    ("end", "begin_ms", "first", "fault"),
    [
        ("partitions_revoked", 19, 10, "owned twice"),
        ("killed", 19, 10, "owned twice"),
        ("partitions_revoked", 20, 9, "read from 9; 10 would have followed"),
        ("partitions_revoked", 20, 11, "read from 11; 10 would have followed"),
        ("killed", 20, 5, "read from 5; 10 would have followed, 6 is committed"),
        ("killed", 20, 11, "read from 11; 10 would have followed"),
    ],
)
def test_a_handover_with_a_fault(end: str, begin_ms: int, first: int, fault: str) -> None:
    (found,) = ledger_of(*FIRST, ("a", end, 20, [0]), *successor(begin_ms, first)).findings().faults
    assert fault in found


def test_reading_back_and_reading_what_is_not_owned_are_faults() -> None:
    (back,) = ledger_of(*FIRST, ("a", "records_consumed", 13, (0, 9, 12))).findings().faults
    assert "read from 9" in back
    (unknown,) = ledger_of(("a", "records_consumed", 13, (3, 0, 1))).findings().faults
    assert "does not own it" in unknown


def described(epoch: int, *members: tuple[str, int, list[int]]) -> DescribedGroup:
    listed = [
        Member(name, member_epoch=at, assignment=Assignment([TopicPartitions(NO_ID, "t", partitions)]))
        for name, at, partitions in members
    ]
    return DescribedGroup(group_epoch=epoch, assignment_epoch=epoch, members=listed)


def test_the_watch_sees_two_owners_and_epochs_that_go_back() -> None:
    history = GroupHistory()
    history.observe(described(4, ("a", 4, [0, 1]), ("b", 3, [2])))
    history.observe(described(5, ("a", 5, [0]), ("b", 5, [1, 2])))
    assert history.faults == []
    history.observe(described(4, ("a", 4, [0, 1]), ("b", 5, [1, 2])))
    assert [
        word for word in ("assigned to", "epoch of a", "ahead", "group's") if word in str(history.faults)
    ] == [
        "assigned to",
        "epoch of a",
        "ahead",
        "group's",
    ]


def test_the_watch_sees_commits_that_go_back_or_away() -> None:
    history = GroupHistory()
    history.compare({0: 5})
    history.compare({0: 5, 1: 7})
    assert history.faults == []
    history.compare({0: 4})
    assert len(history.faults) == 2


def test_the_last_move_is_known() -> None:
    ledger = ledger_of(
        *FIRST, ("a", "killed", 20, []), *successor(99, 6), ("b", "partitions_assigned", 120, [])
    )
    assert (ledger.last_ms("partitions_assigned"), ledger.last_ms("never")) == (99, 0)
