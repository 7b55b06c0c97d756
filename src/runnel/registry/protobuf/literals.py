"""Numbers and strings as protoc prints them."""

import math
import re
import struct

_ESCAPES = {ord(char): f"\\{letter}" for char, letter in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


def float_literal(value: float, *, is_double: bool) -> str:
    """The shortest of two precisions that reads back as the same number."""
    if not is_double:
        value = _as_float32(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    short, long = (15, 17) if is_double else (6, 9)
    text = f"{value:.{short}g}"
    if (float(text) if is_double else _as_float32(float(text))) != value:
        text = f"{value:.{long}g}"
    return text


def bytes_literal(value: bytes) -> str:
    """Bytes with everything that is not printable ASCII escaped, without quotes."""
    return "".join(
        _ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value
    )


def string_literal(value: str) -> str:
    """A text in quotes. Letters beyond ASCII stay as they are."""
    escaped = (
        _ESCAPES.get(ord(char)) or (char if ord(char) >= 32 else f"\\{ord(char):03o}") for char in value
    )
    return '"' + "".join(escaped) + '"'


def bytes_value(literal: str) -> bytes:
    """The value of an escaped literal without quotes."""
    if "\\" not in literal:
        return literal.encode("utf-8")
    value = bytearray()
    position = 0
    for found in _ESCAPED.finditer(literal):
        value += literal[position : found.start()].encode("utf-8")
        if found[1]:
            value.append(int(found[1], 8) & 0xFF)
        elif found[2]:
            value.append(int(found[2], 16))
        elif found[3] in _LETTERS:
            value.append(_LETTERS[found[3]])
        else:
            value += found[3].encode("utf-8")
        position = found.end()
    return bytes(value + literal[position:].encode("utf-8"))


def shortened(text: str) -> str:
    """A text as part of a message, which must not become long by it."""
    return text if len(text) <= 60 else text[:57] + "..."


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
