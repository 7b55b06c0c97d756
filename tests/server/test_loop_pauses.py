"""The histogram of event loop pauses: what it counts, and how it is read."""

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.model.configs import ResourceType
from runnel.model.pauses import BUCKETS, FIRST_BOUND_US, SHOWN_AS, LoopPauses
from runnel.server.bench.pauses import pauses_between
from runnel.server.loop_probe import LoopProbe
from runnel.testing import Broker

PAUSES_US = st.lists(st.integers(0, 20_000_000), min_size=1)


def histogram(pauses_us: list[int]) -> LoopPauses:
    pauses = LoopPauses()
    for pause_us in pauses_us:
        # Half a microsecond more, because it is a whole number of them only by chance.
        pauses.add((pause_us + 0.5) / 1_000_000)
    return pauses


@given(PAUSES_US, st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_a_percentile_is_within_its_bucket(pauses_us: list[int], share: float) -> None:
    ordered = sorted(pauses_us)
    exact = ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
    shown = histogram(pauses_us).percentile_us(share)
    assert exact <= max(shown, FIRST_BOUND_US << (BUCKETS - 1))
    if exact < FIRST_BOUND_US << (BUCKETS - 2):
        assert exact <= shown <= max(2 * exact, FIRST_BOUND_US)


@given(PAUSES_US, PAUSES_US)
def test_the_difference_of_two_states_is_what_came_between(first: list[int], second: list[int]) -> None:
    before, after = histogram(first), histogram(first + second)
    difference = LoopPauses.from_text(after.to_text()).since(before)
    assert difference.counts == histogram(second).counts
    assert difference.longest_us >= max(second) or max(second) >= FIRST_BOUND_US << (BUCKETS - 2)


def test_brokers_without_a_histogram_have_no_report() -> None:
    assert pauses_between({}, {1: LoopPauses()}) is None
    report = pauses_between({1: LoopPauses()}, {1: histogram([70, 900])})
    assert report is not None
    assert (report.p50_ms, report.p99_ms, report.max_ms) == (0.1, 0.9, 0.9)


def test_a_pause_is_seen() -> None:
    async def pause() -> LoopPauses:
        pauses = LoopPauses()
        probe = LoopProbe(pauses)
        await asyncio.sleep(0.05)
        time.sleep(0.3)
        await asyncio.sleep(0.05)
        probe.close()
        return pauses

    pauses = asyncio.run(pause())
    # The timer was due within twenty milliseconds of its beginning.
    assert pauses.longest_us >= 250_000
    assert pauses.total >= 2


def test_a_broker_shows_its_pauses_only_by_name() -> None:
    async def ask(bootstrap: str) -> tuple[list[str], list[str]]:
        async with Cluster(bootstrap) as cluster:
            admin = Admin(cluster)
            every = await admin.settings(ResourceType.BROKER, "1")
            await asyncio.sleep(0.1)
            named = await admin.settings(ResourceType.BROKER, "1", keys=[SHOWN_AS])
        assert LoopPauses.from_text(named[0].value or "").total > 0
        return [setting.name for setting in every], [setting.name for setting in named]

    with Broker() as broker:
        every, named = asyncio.run(ask(broker.bootstrap_servers))
    assert SHOWN_AS not in every
    assert named == [SHOWN_AS]
