"""Ways to break a frame. All of them are made from one seed, so that a run can be repeated."""

import random
import struct
from collections.abc import Callable

SIZE_BYTES = 4
WRONG_SIZE_SHARE = 0.02
HEADER_BYTES = 17
BODY_SHARE = 0.9
EDGES = [
    struct.pack(layout, value)
    for layout, values in (
        (">b", (-1, 0, 127, -128)),
        (">h", (-1, -2, 32767, -32768)),
        (">i", (-1, -2, 2**31 - 1, -(2**31), 2**24)),
        (">q", (-1, -2, 2**63 - 1, -(2**63))),
    )
    for value in values
] + [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"]

Change = Callable[[bytearray, random.Random, list[bytes]], None]


def _spot(body: bytearray, chance: random.Random) -> int:
    """Where to strike: mostly behind the header, as a broken header hides all that follows."""
    first = HEADER_BYTES if len(body) > HEADER_BYTES and chance.random() < BODY_SHARE else 0
    return chance.randrange(first, len(body))


def _flip(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    for _number in range(chance.choice((1, 1, 1, 2, 8))):
        body[_spot(body, chance)] ^= 1 << chance.randrange(8)


def _edge(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    value = chance.choice(EDGES)
    at = _spot(body, chance)
    body[at : at + len(value)] = value


def _cut(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    del body[_spot(body, chance) :]


def _remove(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _spot(body, chance)
    del body[at : at + chance.randint(1, 16)]


def _insert(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _spot(body, chance)
    body[at:at] = chance.randbytes(chance.randint(1, 16))


def _repeat(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _spot(body, chance)
    body[at:at] = body[at : at + chance.randint(1, 64)] * chance.randint(1, 20)


def _splice(body: bytearray, chance: random.Random, pool: list[bytes]) -> None:
    other = chance.choice(pool)[SIZE_BYTES:]
    body[_spot(body, chance) :] = other[chance.randrange(len(other)) :]


def _readdress(body: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Another API or version for the same bytes."""
    if chance.random() < 0.5:
        body[0:2] = struct.pack(">h", chance.choice((*range(93), -1, 32767)))
    else:
        body[2:4] = struct.pack(">h", chance.choice((*range(20), -1, 32767)))


CHANGES: list[Change] = [*[_flip] * 6, *[_edge] * 4, _cut, _remove, _insert, _repeat, _splice, _readdress]


def mutated(chance: random.Random, pool: list[bytes]) -> bytes:
    """A broken frame; its size is right except now and then, so that the body gets its turn."""
    body = bytearray(chance.choice(pool)[SIZE_BYTES:])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if len(body) < 4:
            break
        chance.choice(CHANGES)(body, chance, pool)
    size = len(body)
    if chance.random() < WRONG_SIZE_SHARE:
        size = chance.choice((-1, 0, 1, size - 1, size + 1, 2**31 - 1, -(2**31), 104_857_601))
    return struct.pack(">i", size) + body
