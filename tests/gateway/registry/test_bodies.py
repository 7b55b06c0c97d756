"""All bodies together have a limit."""

import asyncio
import json

import pytest
from starlette.requests import ClientDisconnect, Request

from runnel.gateway.http.problems import Problem
from runnel.gateway.registry.bodies import Bodies, Refused


def request(*messages: dict[str, object]) -> Request:
    pending = list(messages)

    async def receive():
        return pending.pop(0)

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def sent(body: bytes) -> Request:
    half = len(body) // 2
    return request(
        {"type": "http.request", "body": body[:half], "more_body": True},
        {"type": "http.request", "body": body[half:]},
    )


def test_bodies_in_use_count():
    async def run():
        bodies = Bodies(bytes_max=10)
        for _ in range(3):
            async with bodies.of(sent(b"[1234]")) as held, bodies.of(sent(b"[12]")):
                assert held == [1234]
                with pytest.raises(Problem) as refused:
                    async with bodies.of(sent(b"1")):
                        pass
                assert refused.value.status == 503
                assert "retry-after" in refused.value.headers

    asyncio.run(run())


def test_bodies_that_do_not_arrive_do_not_count():
    async def run():
        bodies = Bodies(bytes_max=10)
        for _ in range(3):
            part = {"type": "http.request", "body": b"[12345", "more_body": True}
            with pytest.raises(ClientDisconnect):
                async with bodies.of(request(part, {"type": "http.disconnect"})):
                    pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"schema": "a", "metadata": [' + b"[]," * 400_000 + b"[]]}", 413),
        (b'{"schema": [' + b"[]," * 400_000 + b"[]]}", 413),
        (b'{"schema": [' + b"[]," * 400_000 + b'[]], "schema": "a"}', 413),
        (b"[" + b"[]," * 400_000 + b"[]]", 400),
        (b"[" * 2_000_000, 400),
    ],
    ids=["metadata", "schema", "twice", "list", "nested"],
)
def test_large_bodies_are_texts_of_schemas(body, status):
    """Before they become millions of objects."""

    async def run():
        with pytest.raises(Refused) as refused:
            async with Bodies().of(sent(body)):
                pass
        assert refused.value.status == status

    asyncio.run(run())


def test_a_schema_of_the_largest_size_is_read():
    text = "\\" * 900_000

    async def run():
        async with Bodies().of(sent(json.dumps({"schema": text, "schemaType": "JSON"}).encode())) as held:
            assert held == {"schema": text, "schemaType": "JSON"}

    asyncio.run(run())
