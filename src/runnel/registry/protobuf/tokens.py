"""The tokens of `.proto` source, with their positions."""

import re
from typing import NoReturn

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf.literals import shortened

_TOKEN = re.compile(
    r"""
      (?P<blank>(?:[ \t\r\n\f\v]+ | //[^\n]* | /\*.*?\*/)+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<integer>0[xX][0-9a-fA-F]+|[0-9]+)
    | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    | (?P<symbol>[={}\[\]();,.<>:+\-]|/(?!\*))
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBERS = ("float", "integer")
_NUMBER_CHARACTERS_MAX = 1_000
_ESCAPE = re.compile(
    rb"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{4})"
    rb"|U(?P<u8>[0-9a-fA-F]{8})|(?P<letter>[abfnrtv\\?'\"])|(?P<other>.|$))",
    re.DOTALL,
)
_LETTERS = dict(zip(b"abfnrtv\\?'\"", b"\a\b\f\n\r\t\v\\?'\"", strict=True))

Token = tuple[str, str, int]
"""Its kind (a group of the pattern above, or `end`), its text and its offset."""


class Tokens:
    """The tokens of a text and the position of the next one; mistakes are reported with their line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read(text)
        self._next = 0
        self.kind, self.text, self._offset = self._tokens[0]

    def _read(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        position = 1 if text.startswith("\ufeff") else 0
        previous: str | None = None
        for found in _TOKEN.finditer(text, position):
            start, end = found.span()
            kind = found.lastgroup
            if start != position:
                break
            if kind is not None and kind != "blank":
                if kind == "name" and previous in _NUMBERS:
                    self.fail_at(position, "a blank is missing between a number and a name")
                tokens.append((kind, found[0], position))
            previous = kind
            position = end
        if position < len(text):
            self.fail_at(position, _lexical_mistake(text, position))
        tokens.append(("end", "", position))
        return tokens

    def fail(self, message: str) -> NoReturn:
        """Report a mistake at the next token."""
        self.fail_at(self._offset, message)

    def fail_at(self, offset: int, message: str) -> NoReturn:
        line = self._text.count("\n", 0, offset) + 1
        raise InvalidSchema(f"line {line}: {message}")

    def expected(self, what: str) -> NoReturn:
        found = f'"{shortened(self.text)}"' if self.kind != "end" else "the end of the text"
        self.fail(f"expected {what}, found {found}")

    def advance(self) -> str:
        """The text of the next token, which is consumed."""
        text = self.text
        self._next += 1
        self.kind, self.text, self._offset = self._tokens[self._next]
        return text

    def looking_at(self, text: str) -> bool:
        return self.text == text and self.kind != "string"

    def follows(self, text: str) -> bool:
        """Whether `text` comes after the next token."""
        return self.kind != "end" and self._tokens[self._next + 1][1] == text

    def accept(self, text: str) -> bool:
        if not self.looking_at(text):
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(f'"{text}"')

    def name(self, what: str = "a name") -> str:
        if self.kind != "name":
            self.expected(what)
        return self.advance()

    def integer(self, limit: int, what: str = "an integer") -> int:
        """A decimal, octal or hexadecimal integer without a sign."""
        if self.kind != "integer":
            self.expected(what)
        value = self._integer_value()
        if value > limit:
            self.fail(f"{shortened(self.text)} is out of range")
        self.advance()
        return value

    def signed_integer(self, limit: int, what: str = "an integer") -> int:
        """An integer from -`limit` - 1 to `limit`."""
        if self.accept("-"):
            return -self.integer(limit + 1, what)
        return self.integer(limit, what)

    def number(self) -> float:
        """A floating-point number without a sign."""
        is_decimal = self.kind == "integer" and (self.text == "0" or not self.text.startswith("0"))
        if self.kind == "float" or is_decimal or self.text in ("inf", "nan"):
            if len(self.text) > _NUMBER_CHARACTERS_MAX:
                self.fail(f"the number {shortened(self.text)} is too long")
            return float(self.advance())
        return float(self.integer(2**64 - 1, "a number"))

    def string(self, what: str = "a string") -> bytes:
        """One or more string literals in a row, as the bytes that they stand for."""
        if self.kind != "string":
            self.expected(what)
        parts = []
        while self.kind == "string":
            parts.append(self._unescaped(self.text[1:-1].encode("utf-8", "surrogatepass")))
            self.advance()
        return b"".join(parts)

    def utf8(self, what: str = "a string") -> str:
        """A string that is text."""
        offset = self._offset
        try:
            return self.string(what).decode("utf-8")
        except UnicodeDecodeError:
            self.fail_at(offset, "the string is not valid UTF-8")

    def _integer_value(self) -> int:
        digits = self.text
        # 64 bits have 22 octal digits; Python would take quadratic time over a million of them.
        if len(digits.lstrip("0")) > 24:
            self.fail(f"{shortened(digits)} is out of range")
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        if digits.startswith("0") and len(digits) > 1:
            if digits.strip("01234567"):
                self.fail(f"{digits} begins with 0 and is not octal")
            return int(digits, 8)
        return int(digits)

    def _unescaped(self, literal: bytes) -> bytes:
        if b"\\" not in literal:
            return literal
        return _ESCAPE.sub(self._escape_value, literal)

    def _escape_value(self, found: re.Match[bytes]) -> bytes:
        if found["letter"]:
            return bytes([_LETTERS[found["letter"][0]]])
        if found["octal"]:
            return bytes([int(found["octal"], 8) & 0xFF])
        if found["hex"]:
            return bytes([int(found["hex"], 16)])
        if digits := found["u4"] or found["u8"]:
            if (point := int(digits, 16)) > 0x10FFFF:
                self.fail(f"there is no code point {digits.decode()}")
            return chr(point).encode("utf-8", "surrogatepass")
        self.fail(f"unknown escape sequence {found[0].decode('utf-8', 'replace')}")


def _lexical_mistake(text: str, position: int) -> str:
    if text.startswith("/*", position):
        return "the comment is not closed"
    if text[position] in "\"'":
        return "the string is not closed"
    return f"unexpected character {text[position]!r}"
