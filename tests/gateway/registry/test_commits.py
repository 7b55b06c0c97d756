"""Commits that fail, or seem to: a change is made once, however often it is decided."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from runnel.client.errors import ConnectionLost
from runnel.client.transactions import Transactions
from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving
from tests.gateway.registry.calls import call, register

Commit = Callable[[], Awaitable[object]]
OnCommit = Callable[[Callable[[Commit], Awaitable[object]]], None]
SCHEMAS = ('"int"', '"long"', '"float"')
"""Each reads what the one before it wrote, and so does a double."""


@pytest.fixture(scope="module")
def other(plain_broker: Broker) -> Iterator[Visitor]:
    """Another gateway of the same cluster."""
    with serving(GatewayOptions(plain_broker.bootstrap_servers)) as found:
        yield found


@pytest.fixture
def on_commit(monkeypatch: pytest.MonkeyPatch) -> OnCommit:
    """Says what happens instead of the next commit, which is given to it."""
    real = Transactions.commit

    def install(happens: Callable[[Commit], Awaitable[object]]) -> None:
        async def once(self: Transactions, *arguments: object) -> object:
            monkeypatch.setattr(Transactions, "commit", real)
            return await happens(lambda: real(self, *arguments))  # type: ignore[arg-type]

        monkeypatch.setattr(Transactions, "commit", once)

    return install


def three_versions(visitor: Visitor, subject: str) -> None:
    for schema in SCHEMAS:
        register(visitor, subject, schema)


def versions(visitor: Visitor, subject: str) -> Any:
    status, found = call(visitor, "GET", f"/subjects/{subject}/versions")
    assert status == 200
    return found


def test_latest_is_deleted_once_if_the_response_was_lost_and_another_gateway_fenced(
    registry, other, on_commit
):
    three_versions(registry, "lost")

    async def lost(commit: Commit) -> object:
        await commit()
        await asyncio.to_thread(register, other, "elsewhere", '"int"')
        # The client asks again, and the coordinator knows a newer producer.
        return await commit()

    on_commit(lost)
    assert call(registry, "DELETE", "/subjects/lost/versions/latest") == (200, 3)
    assert versions(registry, "lost") == versions(other, "lost") == [1, 2]


def test_a_subject_is_deleted_once_if_the_response_was_lost(registry, other, on_commit):
    three_versions(registry, "whole")

    async def lost(commit: Commit) -> object:
        await commit()
        raise ConnectionLost("the broker closed the connection")

    on_commit(lost)
    assert call(registry, "DELETE", "/subjects/whole") == (200, [1, 2, 3])
    on_commit(lost)
    assert call(registry, "DELETE", "/subjects/whole?permanent=true") == (200, [1, 2, 3])
    assert call(other, "GET", "/subjects/whole/versions?deleted=true")[0] == 404


def test_a_commit_that_was_not_carried_out_is_repeated(registry, other, on_commit):
    three_versions(registry, "unsent")

    async def unsent(commit: Commit) -> object:
        raise ConnectionLost("the broker closed the connection")

    on_commit(unsent)
    assert call(registry, "DELETE", "/subjects/unsent/versions/latest") == (200, 3)
    assert versions(registry, "unsent") == versions(other, "unsent") == [1, 2]


def test_latest_is_what_it_was_when_the_request_came(registry, other, on_commit):
    three_versions(registry, "raced")

    async def fenced(commit: Commit) -> object:
        await asyncio.to_thread(register, other, "raced", '"double"')
        return await commit()

    on_commit(fenced)
    assert call(registry, "DELETE", "/subjects/raced/versions/latest") == (200, 3)
    assert versions(registry, "raced") == versions(other, "raced") == [1, 2, 4]


def test_a_version_that_another_gateway_has_deleted_meanwhile_is_not_deleted_twice(
    registry, other, on_commit
):
    three_versions(registry, "both")

    async def fenced(commit: Commit) -> object:
        found = await asyncio.to_thread(call, other, "DELETE", "/subjects/both/versions/latest")
        assert found == (200, 3)
        return await commit()

    on_commit(fenced)
    status, found = call(registry, "DELETE", "/subjects/both/versions/latest")
    assert (status, found["error_code"]) == (404, 40406)
    assert versions(registry, "both") == [1, 2]
