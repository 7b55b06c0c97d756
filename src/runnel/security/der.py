"""Reading ASN.1 in its distinguished encoding (DER), as certificates use it."""

from collections.abc import Iterator
from typing import NamedTuple

BIT_STRING, OCTET_STRING, NULL, OBJECT_ID = 0x03, 0x04, 0x05, 0x06
SEQUENCE, SET = 0x30, 0x31
LENGTH_BYTES_MAX = 4


class BadEncoding(ValueError):
    """The bytes are not DER."""


class Element(NamedTuple):
    """One value with its tag."""

    tag: int
    content: bytes
    encoded: bytes
    """With tag and length."""


def read_element(data: bytes, position: int = 0) -> tuple[Element, int]:
    """The element at a position, and the position after it. Raises BadEncoding."""
    start = position
    if len(data) - position < 2:
        raise BadEncoding("an element is cut off")
    tag, length = data[position], data[position + 1]
    if tag & 0x1F == 0x1F:
        raise BadEncoding("tags of several bytes are not supported")
    position += 2
    if length & 0x80:
        size = length & 0x7F
        if not 0 < size <= LENGTH_BYTES_MAX:
            raise BadEncoding("a length is not definite")
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    end = position + length
    if end > len(data):
        raise BadEncoding("an element is cut off")
    return Element(tag, data[position:end], data[start:end]), end


def elements(content: bytes) -> Iterator[Element]:
    """The elements of a sequence or set, of which this is the content. Raises BadEncoding."""
    position = 0
    while position < len(content):
        element, position = read_element(content, position)
        yield element


def object_id_text(content: bytes) -> str:
    """An object id in dotted form. Raises BadEncoding."""
    if not content or content[-1] & 0x80:
        raise BadEncoding("an object id is cut off")
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
