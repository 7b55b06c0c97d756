"""Bodies of requests, in parts of any size."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from runnel.gateway.http.requests import lines_of

LONGEST = 8


def lines_from(parts: list[bytes]) -> list[bytes | None]:
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return waiting.pop(0)

    async def read() -> list[bytes | None]:
        return [line async for line in lines_of(Request({"type": "http", "headers": []}, receive))]

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
        patch.setattr("runnel.gateway.http.requests.LINE_BYTES_MAX", LONGEST)
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
