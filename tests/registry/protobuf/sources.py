"""The cases of `cases/`: a line `== name`, then the case.

`valid.txt` has `.proto` texts, each for a part of the language, that protoc accepts; `invalid.txt` has
those that it refuses. `changes.txt` has an old text, a line `->` and a new one, then a line `= KIND path`
for each incompatibility of a reader with the new text. Without a `syntax`, these are of proto3; what
follows a line `---` is `other.proto`, which the text imports.
"""

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "cases"


class Change(NamedTuple):
    old: str
    new: str
    expected: list[str]


def _sections(file: str) -> dict[str, str]:
    sections = (FOLDER / file).read_text("utf-8").split("== ")[1:]
    named = [section.partition("\n") for section in sections]
    assert len({name for name, _, _ in named}) == len(named), f"a name is used twice in {file}"
    return {name: text.strip("\n") for name, _, text in named}


def _change(text: str) -> Change:
    old, new = text.split("\n->\n")
    lines = new.splitlines()
    expected = [line.removeprefix("= ") for line in lines if line.startswith("= ")]
    return Change(old, "\n".join(line for line in lines if not line.startswith("= ")), expected)


VALID = _sections("valid.txt")
INVALID = _sections("invalid.txt")
CHANGES = {name: _change(text) for name, text in _sections("changes.txt").items()}
