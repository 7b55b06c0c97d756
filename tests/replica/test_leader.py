"""The core of a leader: what counts as committed, and who is in sync, compared with plain definitions."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.errors import ApiError, ErrorCode
from runnel.replica.leader import NEVER_MS, FetchTime, LeaderReplica

LAG_MS = 100


def leader(replicas: int = 1, in_sync: int = 1, isr_min: int = 1) -> LeaderReplica:
    members = frozenset(range(1, replicas + 1))
    return LeaderReplica(1, 5, members, frozenset(range(1, in_sync + 1)), isr_min=isr_min)


@given(st.lists(st.integers(0, 1000)))
def test_the_high_watermark_of_a_sole_replica_is_the_most_that_was_ever_stored(stored):
    core = leader()
    for index, offset in enumerate(stored):
        moved = core.stored(offset)
        assert core.high_watermark == max(stored[: index + 1])
        assert moved == (offset > max([0, *stored[:index]]))


@dataclass
class Twin:
    """The definitions: every fetch is noted, also those that a session leaves out, and nothing is derived."""

    isr: frozenset[int] = frozenset({1, 2})
    proposed: frozenset[int] | None = None
    end_offset: int = 0
    high_watermark: int = 0
    now_ms: int = 0
    active: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0, 3: 0, 4: 0})
    offsets: dict[int, int] = field(default_factory=dict)
    fetches: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: {2: [], 3: [], 4: []})
    """Time, offset and end of the leader's log at each fetch of a follower."""
    granted_ms: dict[int, int] = field(default_factory=lambda: {2: 0})

    def has_caught_up(self, node: int) -> bool:
        """Did it fetch lately, at a time from which it has all by now?"""
        return self._is_recent(
            node, [ms for ms, _, end_offset in self.fetches[node] if self.offsets[node] >= end_offset]
        )

    def keeps_up(self, node: int) -> bool:
        """Kafka's rule: did it lately have all of now, or at its next fetch all of the previous one?"""
        times = [ms for ms, offset, end_offset in self.fetches[node] if offset >= end_offset]
        for (ms, _, end_offset), (_, offset, _) in pairwise(self.fetches[node]):
            if offset >= end_offset:
                times.append(ms)
        return self._is_recent(node, times)

    def _is_recent(self, node: int, times: list[int]) -> bool:
        return self.now_ms - max([NEVER_MS, self.granted_ms.get(node, NEVER_MS), *times]) <= LAG_MS

    def must_have(self) -> set[int]:
        return {node for node in self.isr | (self.proposed or set()) if node != 1}

    def may_be_waited_for(self) -> set[int]:
        return {node for node in (2, 3, 4) if node in self.active and self.has_caught_up(node)}


NODES = st.sampled_from([2, 3, 4])
ISRS = st.frozensets(st.sampled_from([1, 2, 3, 4])).map(lambda nodes: nodes | {1})
EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), NODES, st.integers(0, 8)),
    st.tuples(st.just("quiet"), NODES),
    st.tuples(st.just("pass"), st.integers(1, 60)),
    st.tuples(st.just("propose")),
    st.tuples(st.just("answer"), st.sampled_from(["accept", "refuse"])),
    st.tuples(
        st.just("metadata"), st.frozensets(st.sampled_from([1, 2, 3, 4])).map(lambda nodes: nodes | {1})
    ),
    st.tuples(st.just("fence"), NODES),
    st.tuples(st.just("unfence"), NODES),
)


class Pair:
    """A core and its twin, which see the same events."""

    def __init__(self, isr_min: int) -> None:
        self.twin = Twin()
        self.isr_min = isr_min
        members = frozenset({1, 2, 3, 4})
        self.core = LeaderReplica(
            1,
            5,
            members,
            self.twin.isr,
            isr_min=isr_min,
            lag_max_ms=LAG_MS,
            silence_max_ms=10**9,
            active=self.twin.active,
        )
        self.sessions = {node: FetchTime() for node in (2, 3, 4)}

    def play(self, event: tuple) -> bool:
        core, twin = self.core, self.twin
        match event:
            case ("append", count):
                twin.end_offset += count
                return core.stored(twin.end_offset)
            case ("fetch", node, behind):
                offset = max(twin.end_offset - behind, twin.offsets.get(node, 0))
                twin.offsets[node] = offset
                twin.fetches[node].append((twin.now_ms, offset, twin.end_offset))
                self.sessions[node].ms = twin.now_ms
                return core.fetched(node, offset, twin.now_ms, broker_epoch=0, fetch_time=self.sessions[node])
            case ("quiet", node):
                if node in twin.offsets:
                    twin.fetches[node].append((twin.now_ms, twin.offsets[node], twin.end_offset))
                    self.sessions[node].ms = twin.now_ms
            case ("pass", ms):
                twin.now_ms += ms
                return core.ticked(twin.now_ms)
            case ("propose",):
                proposal = core.propose(twin.now_ms)
                if proposal is not None:
                    twin.proposed = proposal.nodes
            case _:
                return self.decide(event)
        return False

    def decide(self, event: tuple) -> bool:
        """What the controller does."""
        core, twin = self.core, self.twin
        match event:
            case ("answer", answer):
                return self.answer(answer)
            case ("metadata", isr):
                self.settle(isr)
                return core.changed(core.replicas, isr, core.partition_epoch + 1)
            case ("fence", node):
                twin.active.pop(node, None)
            case ("unfence", node):
                twin.active[node] = 0
        return False

    def answer(self, answer: str) -> bool:
        core, twin = self.core, self.twin
        if core.proposed is None:
            return False
        if answer == "refuse":
            twin.proposed = None
            return core.refused(core.proposed, twin.now_ms)
        isr = core.proposed.nodes
        self.settle(isr)
        return core.accepted(core.proposed, isr, core.partition_epoch + 1)

    def settle(self, isr: frozenset[int]) -> None:
        for node in isr - self.twin.isr:
            self.twin.granted_ms[node] = self.twin.now_ms
        self.twin.isr, self.twin.proposed = isr, None


@given(st.lists(EVENTS, max_size=60), st.integers(1, 3))
def test_what_is_committed_is_on_all_that_may_be_elected(events, isr_min):
    pair = Pair(isr_min)
    core, twin = pair.core, pair.twin
    for event in events:
        before, is_stuck = core.high_watermark, len(twin.isr) < isr_min
        moved = pair.play(event)
        assert moved == (core.high_watermark > before)
        assert core.high_watermark >= before
        # Rule 1: a record that was committed just now is on every member of the maximal ISR.
        needed = [twin.end_offset, *(twin.offsets.get(node, -1) for node in twin.must_have())]
        if moved:
            assert core.high_watermark <= min(needed)
            assert len(twin.isr) >= isr_min
        # Progress: nothing else is waited for but replicas that are about to join.
        waited = [twin.offsets.get(node, -1) for node in twin.may_be_waited_for()]
        is_settled = event[0] in ("append", "fetch", "pass")
        if is_settled and len(twin.isr) >= isr_min and not is_stuck:
            assert core.high_watermark >= min(needed + waited)


@given(st.lists(EVENTS, max_size=60))
def test_only_live_followers_that_have_everything_committed_are_proposed(events):
    pair = Pair(1)
    core, twin = pair.core, pair.twin
    for event in events:
        had = core.proposed
        pair.play(event)
        if core.proposed is None or core.proposed is had:
            continue
        for node in core.proposed.nodes - twin.isr:
            assert node in twin.active
            assert twin.offsets[node] >= core.high_watermark
            assert twin.has_caught_up(node)
        for node in twin.isr - core.proposed.nodes:
            assert not twin.keeps_up(node)


def test_only_replicas_are_followers():
    with pytest.raises(ApiError) as refused:
        leader().fetched(9, 3, 0)
    assert refused.value.error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_session_that_lost_the_partition_proves_nothing():
    core = leader(replicas=2, in_sync=2)
    session = FetchTime(0)
    core.fetched(2, 0, 0, fetch_time=session)
    session.ms = 29_000
    core.session_ended(2, session)
    session.ms = 58_000
    assert core.propose(58_000) is None
    assert core.propose(59_001) is not None


def test_the_end_of_an_earlier_session_does_not_end_the_present_one():
    # After a partition of the network the follower is back before the leader's end of the old connection is
    # closed; and a partition that moves to another fetcher is mentioned there before the first forgets it.
    core = leader(replicas=2, in_sync=2)
    earlier, present = FetchTime(0), FetchTime(1000)
    core.fetched(2, 0, 0, fetch_time=earlier)
    core.fetched(2, 0, 1000, fetch_time=present)
    core.session_ended(2, earlier)
    present.ms = 60_000
    assert core.propose(60_000) is None


@pytest.mark.parametrize(
    ("replicas", "in_sync", "needed", "is_refused"),
    [(1, 1, 1, False), (1, 1, 2, False), (3, 2, 2, False), (3, 1, 2, True), (3, 2, 5, True)],
)
def test_too_few_replicas_in_sync_reject_writes(replicas, in_sync, needed, is_refused):
    core = leader(replicas=replicas, in_sync=in_sync, isr_min=needed)
    if is_refused:
        with pytest.raises(ApiError) as refused:
            core.check_in_sync()
        assert refused.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        core.check_in_sync()


def test_the_low_watermark_is_the_smallest_log_start_of_live_replicas():
    core = leader(replicas=3, in_sync=3)
    core.active = {1: 0, 2: 0, 3: 0}
    core.fetched(2, 9, 0, log_start_offset=4)
    assert core.low_watermark(6) == -1, "node 3 is not known yet"
    core.fetched(3, 9, 0, log_start_offset=5)
    assert core.low_watermark(6) == 4
    core.active = {1: 0, 3: 0}
    assert core.low_watermark(6) == 5


def test_lost_records_are_not_committed():
    core = leader()
    core.stored(10)
    core.truncated(4)
    assert (core.end_offset, core.high_watermark) == (4, 4)


SILENCE_MS = 1000


@pytest.mark.parametrize(
    ("fetched_ms", "is_cut_off"),
    [
        ({2: 9_900, 3: 9_900}, False),
        ({2: 9_000, 3: 9_900}, False),
        ({2: 9_000, 3: 9_000}, True),
        ({2: 7_000, 3: 9_900}, True),
        ({2: 9_900, 3: 9_900, 4: 0}, False),
    ],
    ids=["all fetch", "one is silent", "all are silent", "one is silent for long", "not in the ISR"],
)
def test_a_leader_is_cut_off_when_followers_in_the_isr_are_silent(fetched_ms, is_cut_off):
    nodes = frozenset({1, *fetched_ms})
    core = LeaderReplica(1, 5, nodes, frozenset({1, 2, 3}), silence_max_ms=SILENCE_MS)
    for node, moment_ms in fetched_ms.items():
        core.fetched(node, 0, moment_ms, fetch_time=FetchTime(moment_ms, is_open=True))
    assert core.is_cut_off(10_000) == is_cut_off


def test_a_leader_whose_followers_have_all_ended_their_sessions_is_cut_off():
    core = LeaderReplica(1, 5, frozenset({1, 2}), frozenset({1, 2}), silence_max_ms=SILENCE_MS)
    open_session = FetchTime(9_999, is_open=True)
    core.fetched(2, 0, 9_999, fetch_time=open_session)
    assert not core.is_cut_off(10_000)
    core.session_ended(2, open_session)
    assert not core.is_cut_off(10_000), "it may be connecting again"
    assert core.is_cut_off(10_300)


def test_a_leader_without_followers_in_the_isr_is_never_cut_off():
    core = LeaderReplica(1, 5, frozenset({1, 2}), frozenset({1}), silence_max_ms=SILENCE_MS)
    assert not core.is_cut_off(10_000)
