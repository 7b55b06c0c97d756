"""YAML as a tree that knows its places. What it means is read elsewhere."""

import re
import warnings
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from runnel.pipelines.declared.findings import START, Findings, Place, did_you_mean
from runnel.pipelines.declared.syntax import in_plain_words

_KINDS = {"str": "text", "int": "a number", "float": "a number", "bool": "a truth value", "null": "nothing"}
_VARIABLE = re.compile(r"\$(\$)?\{([^}]*)\}")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value as it is written, variables replaced."""

    text: str
    place: Place
    kind: str = "text"
    is_quoted: bool = False
    line_places: tuple[Place, ...] = ()
    """Where each line of the text begins, if that can be said."""

    def place_of(self, index: int) -> Place:
        """The place in the file of the character at this index."""
        before = self.text[: max(0, index)]
        line = before.count("\n")
        if line >= len(self.line_places):
            return self.place
        start = self.line_places[line]
        return Place(start.line, start.column + len(before) - (before.rfind("\n") + 1))


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value."""

    key: Scalar
    value: "Node"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with values, each key once, in the order of the file."""

    entries: dict[str, Entry]
    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of values."""

    items: "tuple[Node, ...]"
    place: Place


Node: TypeAlias = Scalar | Mapping | Sequence


def described(node: Node) -> str:
    """The value, for a message that expected something else."""
    match node:
        case Mapping():
            return "keys and values"
        case Sequence():
            return "a list"
        case Scalar(kind="nothing"):
            return "nothing"
        case Scalar(kind="text"):
            return repr(_shortened(node.text))
        case _:
            return f"{_shortened(node.text)} ({node.kind})"


MISSING = "missing"


def is_missing(node: Node) -> bool:
    """Did its variable have no value? Then that has been said, and nothing more can be."""
    return isinstance(node, Scalar) and node.kind == MISSING


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def parse(text: str, environment: Dictionary[str, str], findings: Findings) -> Node | None:
    """The tree of a document; None where it is no YAML or empty, which is then among the findings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = YAML(typ="safe", pure=True).compose(text)
    except (MarkedYAMLError, YAMLStreamError, YAMLError) as error:
        place, message = in_plain_words(error, text)
        findings.error(place, message)
        return None
    if root is None:
        findings.error(START, "the file is empty; `runnel pipeline init` writes one to start from")
        return None
    return _Planting(text.splitlines(), environment, findings).node(root)


class _Planting:
    """Turns the parser's nodes into ours, each once however often an alias repeats it."""

    def __init__(self, lines: list[str], environment: Dictionary[str, str], findings: Findings) -> None:
        self._lines = lines
        self._environment = environment
        self._findings = findings
        self._done: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, node: Any) -> Node:
        key = id(node)
        place = _place(node)
        if key in self._open:
            self._findings.error(place, "this contains itself")
            return Scalar("", place, "nothing")
        if key not in self._done:
            self._open.add(key)
            self._done[key] = self._planted(node, place)
            self._open.discard(key)
        return self._done[key]

    def _planted(self, node: Any, place: Place) -> Node:
        match node:
            case MappingNode():
                return self._mapping(node, place)
            case SequenceNode():
                return Sequence(tuple(self.node(item) for item in node.value), place)
            case _:
                return self._scalar(node, place)

    def _mapping(self, node: MappingNode, place: Place) -> Mapping:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._findings.error(_place(key_node), "a key is a word, not a list or a mapping")
                continue
            key = Scalar(key_node.value, _place(key_node))
            if key.text == "<<":
                self._findings.error(key.place, "merge keys (<<) are not read here: repeat the keys")
            elif key.text in entries:
                first = entries[key.text].key.place.line
                self._findings.error(
                    key.place, f"the key {key.text!r} is here twice, first at line {first}: keep one"
                )
            else:
                value = self.node(value_node)
                if isinstance(value, Scalar) and value.kind == "nothing" and not value.text:
                    # The parser only notices at whatever comes next.
                    value = Scalar("", key.place, "nothing")
                entries[key.text] = Entry(key, value)
        return Mapping(entries, place)

    def _scalar(self, node: ScalarNode, place: Place) -> Scalar:
        is_quoted = node.style is not None
        kind = "text" if is_quoted else _KINDS.get(str(node.tag).rpartition(":")[2], "text")
        text, has_variables = self._replaced(node.value, place)
        if text is None:
            return Scalar("", place, MISSING)
        if has_variables:
            kind = "text"
        return Scalar(text, place, kind, is_quoted or has_variables, self._line_places(node, place))

    def _line_places(self, node: ScalarNode, place: Place) -> tuple[Place, ...]:
        texts = str(node.value).split("\n")
        if node.style == "|":
            below = self._lines[place.line :]
            return tuple(
                Place(place.line + 1 + index, max(0, len(raw) - len(text)) + 1)
                for index, (raw, text) in enumerate(zip(below, texts, strict=False))
            )
        if len(texts) == 1 and node.end_mark.line == node.start_mark.line:
            return (Place(place.line, place.column + (1 if node.style else 0)),)
        return ()

    def _replaced(self, text: str, place: Place) -> tuple[str | None, bool]:
        """The text with ${NAME} and ${NAME:-default} replaced; $${ is a literal ${."""
        is_whole = True

        def value(match: re.Match[str]) -> str:
            nonlocal is_whole
            if match[1]:
                return f"${{{match[2]}}}"
            named = _NAMED.fullmatch(match[2])
            if named is None:
                self._findings.error(
                    place,
                    f"{match[0]!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, or $${{ for ${{",
                )
                is_whole = False
                return ""
            name, default = named[1], named[2]
            found = self._environment.get(name) or default
            if found is None:
                close = did_you_mean(name, self._environment) or "; set it, or write ${NAME:-default}"
                self._findings.error(place, f"the environment has no variable {name}{close}")
                is_whole = False
                return ""
            return found

        replaced = _VARIABLE.sub(value, text)
        return (replaced if is_whole else None), replaced != text


def _place(node: Any) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
