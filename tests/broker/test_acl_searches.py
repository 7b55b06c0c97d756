"""InitProducerId of a client whose ACLs all have to be examined: other connections are served meanwhile."""

import asyncio
from typing import Any

import pytest

from runnel.broker.runtime.gates import Unaudited
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.ports.gates import Permission
from runnel.ports.service import Session
from runnel.security import acl_index
from runnel.security.acl import CLUSTER_NAME, Operation, ResourceType
from runnel.security.acl_index import AclIndex
from tests.broker.authorized import DENY, PREFIXED, Acls, Caller, acl_record

O = Operation  # noqa: E741 - shorter lines
CLUSTER_DENIED = 31
PATTERNS, LOOKUPS = 200, 50
IDEMPOTENT = InitProducerIdRequest(transactional_id=None)


@pytest.fixture
def steps(monkeypatch) -> list[bool | None]:
    """All steps of searches, which are small."""
    monkeypatch.setattr(acl_index, "FIRST_SEARCH_STEP", LOOKUPS)
    monkeypatch.setattr(acl_index, "SEARCH_STEP", LOOKUPS)
    taken: list[bool | None] = []
    search = AclIndex._search

    def noted(*arguments: Any) -> Any:
        for step in search(*arguments):
            taken.append(step)
            yield step

    monkeypatch.setattr(AclIndex, "_search", noted)
    return taken


class Decisions(Unaudited):
    """An audit log of what was decided."""

    is_enabled = True

    def __init__(self) -> None:
        self.found: list[tuple[Permission, bool]] = []

    def decided(
        self,
        session: Session,
        client_id: str | None,
        api_key: int,
        permission: Permission,
        *,
        is_allowed: bool,
    ) -> None:
        self.found.append((permission, is_allowed))


async def deny_all(acls: Acls) -> list[bytes]:
    """Allow very many topics to alice, all of which are denied; the ids of the denial."""
    for number in range(PATTERNS):
        await acls.add(f"open-{number}", O.WRITE)
    return await acls.add("open", O.WRITE, pattern=PREFIXED, permission=DENY)


def test_other_connections_are_served_between_the_steps_of_a_search(secure, steps):
    async def scenario(world: Any, acls: Acls) -> None:
        await deny_all(acls)
        alice, root = Caller(world, "alice"), Caller(world, "root")
        asked = asyncio.create_task(alice.ask(IDEMPOTENT, 4))
        served = 0
        while len(steps) < PATTERNS * acl_index.LOOKUPS_PER_PATTERN // LOOKUPS:
            await asyncio.sleep(0)
            before = len(steps)
            # Is answered at once.
            assert (await root.ask(DescribeClusterRequest(), 0)).error_code == 0
            assert len(steps) == before
            served += 1
        assert not asked.done()
        assert served > PATTERNS * acl_index.LOOKUPS_PER_PATTERN // LOOKUPS // 2
        assert (await asked).error_code == CLUSTER_DENIED

    secure(scenario)


def test_clients_of_a_principal_share_a_search(secure, steps):
    async def scenario(world: Any, acls: Acls) -> None:
        denial = await deny_all(acls)
        world.broker.gates.audit = audit = Decisions()
        callers = [Caller(world, "alice", host=f"192.0.2.{number}") for number in range(10)]
        answers = await asyncio.gather(*(caller.ask(IDEMPOTENT, 4) for caller in callers))
        assert {answer.error_code for answer in answers} == {CLUSTER_DENIED}
        # Each client tries a first step; one of them searches.
        assert steps.count(False) == 1
        assert [is_allowed for _, is_allowed in audit.found] == [False] * len(callers)
        taken = len(steps)
        assert (await callers[0].ask(IDEMPOTENT, 4)).error_code == CLUSTER_DENIED
        await acls.add("open-1", O.WRITE, to="User:bob")
        assert (await callers[0].ask(IDEMPOTENT, 4)).error_code == CLUSTER_DENIED
        assert len(steps) == taken
        await acls.remove(denial)
        assert (await callers[0].ask(IDEMPOTENT, 4)).error_code == 0

    secure(scenario)


def test_a_producer_that_needs_no_search_begins_none(secure, steps):
    async def scenario(world: Any, acls: Acls) -> None:
        await deny_all(acls)
        await acls.add(CLUSTER_NAME, O.IDEMPOTENT_WRITE, resource_type=ResourceType.CLUSTER)
        alice = Caller(world, "alice")
        assert (await alice.ask(IDEMPOTENT, 4)).error_code == 0
        assert (await alice.ask(InitProducerIdRequest("x", 60_000), 4)).error_code != 0
        assert (await Caller(world, "root").ask(IDEMPOTENT, 4)).error_code == 0
        assert steps == []

    secure(scenario)


def test_a_connection_that_is_closed_during_its_search_keeps_no_other_waiting(secure, steps):
    async def scenario(world: Any, acls: Acls) -> None:
        await deny_all(acls)
        alice, other = Caller(world, "alice"), Caller(world, "alice")
        asked = asyncio.create_task(alice.ask(IDEMPOTENT, 4))
        await asyncio.sleep(0)
        assert steps == [None] and len(alice.session.pending) == 1
        world.pipeline.closed(alice.session)
        assert (await other.ask(IDEMPOTENT, 4)).error_code == CLUSTER_DENIED
        assert steps.count(False) == 1
        await asked

    secure(scenario)


def test_a_permission_that_is_granted_during_a_search_counts(secure, steps):
    async def scenario(world: Any, acls: Acls) -> None:
        await deny_all(acls)
        asked = asyncio.create_task(Caller(world, "alice").ask(IDEMPOTENT, 4))
        while len(steps) < 3:
            await asyncio.sleep(0)
        # As the metadata log does when records are committed.
        record = acl_record(99_999, "elsewhere", O.WRITE)
        world.broker.gates.authorizer.replayed([record])
        assert (await asked).error_code == 0
        assert steps[-1] is True and False in steps

    secure(scenario)
