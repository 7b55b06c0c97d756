"""Bodies of requests, in parts of any size."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from runnel.gateway.http.bodies import Bodies, Body, Share
from runnel.gateway.http.operations import JSON, Operation
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.requests import Call, Endpoint

LONGEST = 8
PLENTY = 10**9


def request_of(parts: list[bytes], *, is_complete: bool = True, pause_s: float = 0.0) -> Request:
    """A request whose body arrives in parts; one that is not complete has no end."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if is_complete:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        if not waiting:
            await asyncio.sleep(3600)
        await asyncio.sleep(pause_s)
        return waiting.pop(0)

    return Request({"type": "http", "headers": []}, receive)


def lines_from(parts: list[bytes]) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        with Body(request_of(parts), Bodies(PLENTY)) as body:
            return [line async for line in body.lines()]

    return asyncio.run(read())


def lines_of_whole(body: bytes) -> list[bytes | None]:
    """The twin: all at once."""
    found = [None if len(line) > LONGEST else line.strip() for line in body.split(b"\n")]
    return [line for line in found if line is None or line]


@given(
    st.lists(st.binary(max_size=12).map(lambda data: bytes(b"\n a"[each % 3] for each in data)), max_size=12)
)
def test_lines_do_not_depend_on_parts(parts: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.gateway.http.bodies.LINE_BYTES_MAX", LONGEST)
        assert lines_from(parts) == lines_of_whole(b"".join(parts))


def test_a_line_in_parts_of_a_byte_is_read_once() -> None:
    """Bytes that are searched are counted: searching the whole line for each part, they would be millions."""
    searched = 0

    class Part(bytes):
        def split(self, *given: Any) -> list[bytes]:
            nonlocal searched
            searched += len(self)
            return super().split(*given)

    line = b"x" * 5_000
    assert lines_from([Part(line[at : at + 1]) for at in range(len(line))]) == [line]
    assert searched == len(line)


def test_bodies_have_a_budget_until_they_were_used() -> None:
    async def play() -> None:
        bodies = Bodies(10)
        for _ in range(3):
            with Body(request_of([b"1234", b"56"]), bodies) as held:
                assert await held.whole(100) == b"123456" and bodies.held_bytes == 6
                with Body(request_of([b"1", b"2345", b"6" * 50]), bodies) as refused:
                    with pytest.raises(Problem) as problem:
                        await refused.whole(100)
                    # What was received of it is dropped at once.
                    assert bodies.held_bytes == 6
                assert problem.value.status == 503 and int(problem.value.headers["retry-after"]) >= 1
            assert bodies.held_bytes == 0

    asyncio.run(play())


def test_lines_that_are_begun_have_a_budget_until_they_were_used() -> None:
    async def play() -> None:
        bodies = Bodies(10)
        parts = [b"1234", b"5\n6\n7", b"8", b"9\n", b"1234567890"]
        with Body(request_of(parts), bodies) as held:
            seen = [(line, bodies.held_bytes) async for line in held.lines()]
        # The last one is not terminated.
        assert seen == [(b"12345", 9), (b"6", 9), (b"789", 4), (b"1234567890", 10)]
        assert bodies.held_bytes == 0
        with Body(request_of([b"1" * 8, b"1" * 8]), bodies) as refused:
            with pytest.raises(Problem) as problem:
                _ = [line async for line in refused.lines()]
            assert problem.value.status == 503
        assert bodies.held_bytes == 0

    asyncio.run(play())


def test_an_upload_that_has_begun_is_not_refused_for_small_lines() -> None:
    async def play() -> list[bytes | None]:
        bodies = Bodies(10)
        with Body(request_of([b"1\n2", b"3" * 20 + b"\n", b"4\n5"]), bodies) as body:
            lines = body.lines()
            seen = [await anext(lines)]
            bodies.count(10, None)
            seen += [line async for line in lines]
        assert bodies.held_bytes == 10
        return seen

    assert asyncio.run(play()) == [b"1", b"2" + b"3" * 20, b"4", b"5"]


@pytest.mark.parametrize("is_freed", [True, False], ids=["freed", "full"])
def test_an_upload_that_has_begun_waits_for_room(is_freed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.MESSAGE_PART_BYTES", 5)
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_ROOM_S", 20.0 if is_freed else 0.05)

    async def play() -> None:
        bodies = Bodies(10)
        # The time of a line does not pass while it waits.
        monkeypatch.setattr("runnel.gateway.http.bodies.BODY_S", 0.1)
        with Body(request_of([b"1\n", b"234567", b"8\n9", b"0\n"]), bodies) as body:
            lines = body.lines()
            seen = [await anext(lines)]
            bodies.count(10, None)
            waiting = asyncio.ensure_future(anext(lines))
            await asyncio.sleep(0.2)
            if is_freed:
                assert not waiting.done()
                bodies.count(-10, None)
                seen += [await waiting, *[line async for line in lines]]
                assert seen == [b"1", b"2345678", b"90"]
                return
            with pytest.raises(Problem) as problem:
                await waiting
            assert problem.value.status == 503 and bodies.held_bytes == 10
            # All of it was read, so that the sender reads the response.
            assert body._request._stream_consumed

    asyncio.run(play())


def test_a_principal_has_a_share_of_the_budget() -> None:
    async def play() -> None:
        bodies = Bodies(10, 5)
        with Body(request_of([b"1234"]), bodies, "anna") as first:
            await first.whole(100)
            with Body(request_of([b"12"]), bodies, "anna") as second, pytest.raises(Problem) as problem:
                await second.whole(100)
            assert problem.value.status == 429 and "5 bytes" in problem.value.detail
            with pytest.raises(Problem) as problem, bodies.held(2, "anna"):
                pass
            assert problem.value.status == 429
            with Body(request_of([b"12345"]), bodies, "carl") as other:
                assert await other.whole(100) == b"12345"
                with Body(request_of([b"12"]), bodies, "dora") as third, pytest.raises(Problem) as problem:
                    await third.whole(100)
                assert problem.value.status == 503
        assert bodies.held_bytes == 0 and not bodies._by_principal

    asyncio.run(play())


def test_a_share_counts_for_its_principal_once_that_is_known() -> None:
    bodies = Bodies(100, 50)
    share = Share(bodies)
    assert share.resize(40) is None
    other = Share(bodies)
    refusal = other.resize(20)
    assert refusal is not None and refusal.status == 429
    share.belongs_to("anna")
    assert other.resize(20) is None
    refusal = share.resize(51)
    assert refusal is not None and refusal.status == 429 and share.size_bytes == 40
    share.count(0)
    other.count(0)
    assert bodies.held_bytes == 0 and not bodies._by_principal


@pytest.mark.parametrize("is_upload", [False, True], ids=["body", "lines"])
def test_a_body_counts_until_its_handler_has_returned(is_upload: bool) -> None:
    """Lines are read while the response is sent, others are of no more use then."""
    bodies = Bodies(100)
    seen: list[int] = []

    class Slow(Response):
        async def __call__(self, *given: Any) -> None:
            seen.append(bodies.held_bytes)

    async def handler(call: Call) -> Response:
        if is_upload:
            await anext(call.lines())
        else:
            await call.body()
        seen.append(bodies.held_bytes)
        return Slow()

    class Principals:
        async def begin(self, authorization: str | None) -> object:
            return object()

        def end(self, principal: object) -> None:
            pass

    class Api:
        principals = Principals()

        def check_may_serve(self, operation: Operation) -> None:
            pass

    async def play() -> None:
        api: Any = Api()
        api.bodies = bodies
        operation = Operation("POST", "/", "test", "A test", handler, {}, body={JSON: dict})
        request = request_of([b"1\n2345"])
        scope = {**request.scope, "method": "POST", "path": "/"}

        async def unused(message: Any) -> None:
            raise AssertionError(message)

        await Endpoint(api, {"POST": operation})(scope, request.receive, unused)

    asyncio.run(play())
    assert seen == [6, 6 if is_upload else 0] and bodies.held_bytes == 0


def test_a_body_that_is_announced_is_refused_before_it_is_sent() -> None:
    async def play() -> None:
        request = request_of([])
        request.scope["headers"] = [(b"content-length", b"20"), (b"expect", b"100-continue")]
        with Body(request, Bodies(10)) as body, pytest.raises(Problem) as problem:
            await body.whole(100)
        assert problem.value.status == 503

    asyncio.run(play())


@pytest.mark.parametrize("is_upload", [False, True], ids=["body", "line"])
def test_what_is_begun_has_a_deadline(is_upload: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never pauses for long."""
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_READ_S", 0.5)
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_S", 0.2)

    async def play() -> None:
        with Body(request_of([b"x"] * 1000, pause_s=0.01), Bodies(PLENTY)) as body:
            with pytest.raises(Problem) as problem:
                _ = [line async for line in body.lines()] if is_upload else await body.whole(5000)
            assert problem.value.status == 408 and "0.2 s" in problem.value.detail
            assert problem.value.headers["connection"] == "close"

    asyncio.run(play())


def test_an_upload_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_S", 1.0)

    async def play() -> int:
        with Body(request_of([b"x", b"y\n"] * 20, pause_s=0.03), Bodies(PLENTY)) as body:
            return len([line async for line in body.lines()])

    assert asyncio.run(play()) == 20
