"""Threads of the registry: what one request does there never disturbs another one."""

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.gateway.http.principals import Principal, Principals
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry.limits import CHECK_WORKERS, REPLAY_RECORDS, WORKERS
from runnel.gateway.registry.routes import RegistryApp
from runnel.gateway.registry.store import SETTINGS, Store, Workers
from runnel.registry import lookup
from runnel.registry.checks import Check, Side, Unchecked
from runnel.registry.format import Incompatibility
from runnel.registry.state import RegistryState
from runnel.testing import Broker

END_S = 30.0
"""Against a test that waits for ever."""


@asynccontextmanager
async def new_store(bootstrap: str) -> AsyncIterator[tuple[Store, Workers]]:
    workers = Workers()
    try:
        async with Cluster(bootstrap) as cluster, asyncio.timeout(END_S):
            yield Store(cluster, workers), workers
    finally:
        workers.close()


@dataclass(frozen=True)
class SlowCheck(Check):
    """A check that ends when the test says so."""

    wait: Callable[[], object]

    def run(self) -> list[Incompatibility]:
        self.wait()
        return []


def test_the_state_is_not_shared_with_the_thread_of_a_request_that_was_cancelled(plain_broker):
    entered, may_end, ends = threading.Event(), threading.Event(), []

    def slow(state, verdicts):
        entered.set()
        may_end.wait(END_S)
        ends.append("cancelled")

    async def run():
        async with new_store(plain_broker.bootstrap_servers) as (store, _):
            first = asyncio.create_task(store.read(slow))
            try:
                await asyncio.to_thread(entered.wait, END_S)
                first.cancel()
                await asyncio.wait([first])
                second = asyncio.create_task(store.read(lambda state, verdicts: ends.append("next")))
                await asyncio.wait([second], timeout=0.1)
            finally:
                may_end.set()
            await second

    asyncio.run(run())
    assert ends == ["cancelled", "next"]


def test_lookups_do_not_wait_for_checks(plain_broker):
    may_end = threading.Event()
    count = 2 * (CHECK_WORKERS + WORKERS)
    side = Side("AVRO", "1")

    async def run():
        async with new_store(plain_broker.bootstrap_servers) as (store, workers):
            slow = SlowCheck(side, side, lambda: may_end.wait(END_S))
            checks = [asyncio.create_task(workers.check(Unchecked([slow]))) for _ in range(count)]
            try:
                await asyncio.sleep(0)
                await store.read(lambda state, verdicts: lookup.subjects(state))
                assert not any(task.done() for task in checks)
            finally:
                may_end.set()
            await asyncio.gather(*checks)

    asyncio.run(run())


def test_a_replay_gives_other_requests_their_turn(monkeypatch):
    turn, replayed = 0, Counter[int]()
    replay = RegistryState.replay

    def counted(state, key, value):
        replayed[turn] += 1
        replay(state, key, value)

    async def count_turns():
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def run(bootstrap):
        async with new_store(bootstrap) as (store, _):
            counting = asyncio.create_task(count_turns())
            await store.read(lambda state, verdicts: None)
            counting.cancel()

    monkeypatch.setattr(RegistryState, "replay", counted)
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("_schemas", partitions=1, settings=dict(SETTINGS))
            for number in range(4 * REPLAY_RECORDS):
                client.send("_schemas", b"{}", key=b"%d" % number)
        asyncio.run(run(broker.bootstrap_servers))
    assert sum(replayed.values()) == 4 * REPLAY_RECORDS
    assert max(replayed.values()) <= REPLAY_RECORDS


def test_what_a_principal_has_read_goes_with_it():
    """Every new token of a client is another principal, which would leave all schemas behind."""
    options = GatewayOptions("127.0.0.1:1")

    async def run():
        registry = RegistryApp(options, Principals(options))
        principal = Principal(options, {})
        store = weakref.ref(registry.store_of(principal))
        assert registry.store_of(principal) is store()
        await principal.close()
        del principal
        gc.collect()
        assert store() is None
        registry.close()

    asyncio.run(run())
