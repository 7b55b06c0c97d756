"""Permissions that are revoked while a request waits: its answer has nothing that came later."""

import asyncio
from typing import Any

import pytest

from runnel.messages.fetch import FetchRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.security.acl import Operation, ResourceType
from tests.broker.authorized import SETTINGS, Acls, Caller, prepare
from tests.broker.group_calls import join_request
from tests.broker.requests import batch, fetch_from, produce_to

WAIT_MS = 60_000
TOPIC_DENIED, GROUP_DENIED = 29, 30


@pytest.fixture
def secure(tell):
    """Run a scenario against a broker with the topic `orders`, which has one record."""

    def run(scenario: Any, **settings: str) -> None:
        async def prepared(world: Any) -> None:
            acls = prepare(world)
            await world.create("orders")
            root = Caller(world, "root")
            await root.ask(produce_to("orders", (0, batch(b"a"))), 9)
            await root.ask(FindCoordinatorRequest(key="g"), 1)
            await scenario(world, acls, root)

        named = {name.replace("_", "."): value for name, value in settings.items()}
        tell(prepared, {**SETTINGS, "offsets.topic.num.partitions": "1", **named})

    return run


def records(response: Any) -> list[bytes]:
    found = (bytes(part.records or b"") for topic in response.responses for part in topic.partitions)
    return [each for each in found if each]


def errors(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partitions]


async def waiting(world: Any, caller: Caller, request: FetchRequest) -> "asyncio.Task[Any]":
    task = asyncio.create_task(caller.ask(request, 12))
    async with asyncio.timeout(20):
        while caller.session not in world.broker.waiting.polls:
            await asyncio.sleep(0.001)
    return task


def fetch_at(offset: int, wait_ms: int = WAIT_MS, **session: Any) -> FetchRequest:
    return fetch_from("orders", (0, offset), wait_ms=wait_ms, **session)


@pytest.mark.parametrize("is_repeated", [False, True], ids=["decoded", "repeated"])
@pytest.mark.parametrize("has_session", [False, True], ids=["sessionless", "session"])
def test_a_fetch_that_waits_returns_no_record_after_a_revocation(secure, is_repeated, has_session):
    async def scenario(world: Any, acls: Acls, root: Caller) -> None:
        alice = Caller(world, "alice")
        ids = await acls.add("orders", Operation.READ)
        session: dict[str, int] = {}
        if has_session:
            opened = await alice.ask(fetch_at(0, session_epoch=0), 12)
            session = {"session_id": opened.session_id, "session_epoch": 1}
        if is_repeated:
            assert len(records(await alice.ask(fetch_at(0, **session), 12))) == 1
            assert alice.session.template is not None
            session = {**session, "session_epoch": 2} if has_session else {}
        fetch = await waiting(world, alice, fetch_at(1, **session))
        await acls.remove(ids)
        await root.ask(produce_to("orders", (0, batch(b"secret"))), 9)
        response = await fetch
        assert (response.error_code, records(response)) == (0, [])
        assert errors(await alice.ask(fetch_at(1, 0), 12)) == [TOPIC_DENIED]
        if has_session:
            session["session_epoch"] += 1
            assert errors(await alice.ask(fetch_at(1, 0, **session), 12)) == [TOPIC_DENIED]
            session["session_epoch"] += 1
        # What was held back is neither lost nor repeated once the permission is there again.
        await acls.add("orders", Operation.READ)
        response = await alice.ask(fetch_at(1, **session), 12)
        assert (response.error_code, len(records(response))) == (0, 1)

    secure(scenario)


def test_a_change_of_other_acls_costs_a_fetch_that_waits_one_round_trip(secure):
    async def scenario(world: Any, acls: Acls, root: Caller) -> None:
        alice = Caller(world, "alice")
        await acls.add("orders", Operation.READ)
        fetch = await waiting(world, alice, fetch_at(1))
        await acls.add("others", Operation.READ)
        await root.ask(produce_to("orders", (0, batch(b"b"))), 9)
        assert records(await fetch) == []
        assert len(records(await alice.ask(fetch_at(1), 12))) == 1

    secure(scenario)


def test_a_fetch_without_a_change_of_acls_returns_what_it_waited_for(secure):
    async def scenario(world: Any, acls: Acls, root: Caller) -> None:
        alice = Caller(world, "alice")
        await acls.add("orders", Operation.READ)
        fetch = await waiting(world, alice, fetch_at(1))
        await root.ask(produce_to("orders", (0, batch(b"b"))), 9)
        assert len(records(await fetch)) == 1

    secure(scenario)


def test_a_waiting_member_receives_no_members_after_a_revocation(secure):
    async def scenario(world: Any, acls: Acls, root: Caller) -> None:
        alice = Caller(world, "alice")
        ids = await acls.add("g", Operation.READ, resource_type=ResourceType.GROUP)
        join = asyncio.create_task(alice.ask(join_request(), 3))
        await asyncio.sleep(0.01)
        assert not join.done()
        await acls.remove(ids)
        response = await join
        assert (response.error_code, response.members) == (GROUP_DENIED, [])

    secure(scenario, group_initial_rebalance_delay_ms="300")
