r"""Java's properties format, in which the settings of Kafka's brokers and clients are written.

    # a comment, as is a line that begins with !
    listeners=PLAINTEXT://:9092,\
              CONTROLLER://:9093
    broker.rack : r\u00e4ck 1

A name ends at the first `=`, `:` or white space that has no backslash before it.
"""

import re

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_NAME_END = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class BadProperties(ValueError):
    """The text is not in the properties format."""


def parse_properties(text: str) -> dict[str, str]:
    """The values by name; of a name that is repeated, the last one."""
    properties = {}
    for line in _logical_lines(text):
        end = _NAME_END.match(line).end()  # type: ignore[union-attr]
        value_start = _SEPARATOR.match(line, end).end()  # type: ignore[union-attr]
        properties[_unescaped(line[:end])] = _unescaped(line[value_start:])
    return properties


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blank ones; a backslash at the end continues a line with the next."""
    lines: list[str] = []
    is_continued = False
    for natural in re.split(r"\r\n|\n|\r", text):
        piece = natural.lstrip(_SPACE)
        if not is_continued and (not piece or piece[0] in "#!"):
            continue
        backslashes = len(piece) - len(piece.rstrip("\\"))
        ends_here = backslashes % 2 == 0
        piece = piece if ends_here else piece[:-1]
        if is_continued:
            lines[-1] += piece
        else:
            lines.append(piece)
        is_continued = not ends_here
    return [line for line in lines if line]


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if code == "u":
        # The text is not repeated: it may be a password.
        raise BadProperties("malformed escape: \\u needs four hexadecimal digits")
    return _ESCAPES.get(code, code)
