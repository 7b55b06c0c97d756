"""A YAML document as a tree with positions."""

import re
import warnings
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from runnel.pipelines.declared.findings import START, Findings, Position, did_you_mean
from runnel.pipelines.declared.syntax import syntax_error

_KINDS = {"str": "text", "int": "a number", "float": "a number", "bool": "a boolean", "null": "nothing"}
_VARIABLE = re.compile(r"\$(\$)?\{([^}]*)\}")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar after substitution of variables."""

    text: str
    position: Position
    kind: str = "text"
    is_quoted: bool = False
    line_positions: tuple[Position, ...] = ()
    """The position of each line of the text, if known."""

    def position_of(self, index: int) -> Position:
        """The position in the file of the character at this index."""
        before = self.text[: max(0, index)]
        line = before.count("\n")
        if line >= len(self.line_positions):
            return self.position
        start = self.line_positions[line]
        return Position(start.line, start.column + len(before) - (before.rfind("\n") + 1))


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value."""

    key: Scalar
    value: "Node"


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping with unique keys, in the order of the file."""

    entries: dict[str, Entry]
    position: Position


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of values."""

    items: "tuple[Node, ...]"
    position: Position


Node: TypeAlias = Scalar | Mapping | Sequence


def described(node: Node) -> str:
    """The value, for a message that expected something else."""
    match node:
        case Mapping():
            return "a mapping"
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
    """Is this the value of an undefined variable, which has been reported already?"""
    return isinstance(node, Scalar) and node.kind == MISSING


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def parse(text: str, environment: Dictionary[str, str], findings: Findings) -> Node | None:
    """Parse a document; None with an error in the findings if it is invalid or empty."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = YAML(typ="safe", pure=True).compose(text)
    except (MarkedYAMLError, YAMLStreamError, YAMLError) as error:
        position, message = syntax_error(error, text)
        findings.error(position, message)
        return None
    if root is None:
        findings.error(START, "the file is empty; `runnel pipeline init` creates an example")
        return None
    return _TreeBuilder(text.splitlines(), environment, findings).node(root)


class _TreeBuilder:
    """Converts the nodes of the parser, each once even if aliases repeat it."""

    def __init__(self, lines: list[str], environment: Dictionary[str, str], findings: Findings) -> None:
        self._lines = lines
        self._environment = environment
        self._findings = findings
        self._done: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, node: Any) -> Node:
        key = id(node)
        position = _position(node)
        if key in self._open:
            self._findings.error(position, "an alias refers to a mapping or list that contains it")
            return Scalar("", position, "nothing")
        if key not in self._done:
            self._open.add(key)
            self._done[key] = self._converted(node, position)
            self._open.discard(key)
        return self._done[key]

    def _converted(self, node: Any, position: Position) -> Node:
        match node:
            case MappingNode():
                return self._mapping(node, position)
            case SequenceNode():
                return Sequence(tuple(self.node(item) for item in node.value), position)
            case _:
                return self._scalar(node, position)

    def _mapping(self, node: MappingNode, position: Position) -> Mapping:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._findings.error(_position(key_node), "a key must be a scalar, not a list or a mapping")
                continue
            key = Scalar(key_node.value, _position(key_node))
            if key.text == "<<":
                self._findings.error(key.position, "merge keys (<<) are not supported: repeat the keys")
            elif key.text in entries:
                first = entries[key.text].key.position.line
                self._findings.error(
                    key.position, f"duplicate key {key.text!r}, first defined at line {first}"
                )
            else:
                value = self.node(value_node)
                if isinstance(value, Scalar) and value.kind == "nothing" and not value.text:
                    # The parser reports the position of the next token.
                    value = Scalar("", key.position, "nothing")
                entries[key.text] = Entry(key, value)
        return Mapping(entries, position)

    def _scalar(self, node: ScalarNode, position: Position) -> Scalar:
        is_quoted = node.style is not None
        kind = "text" if is_quoted else _KINDS.get(str(node.tag).rpartition(":")[2], "text")
        text, has_variables = self._replaced(node.value, position)
        if text is None:
            return Scalar("", position, MISSING)
        if has_variables:
            kind = "text"
        return Scalar(text, position, kind, is_quoted or has_variables, self._line_positions(node, position))

    def _line_positions(self, node: ScalarNode, position: Position) -> tuple[Position, ...]:
        texts = str(node.value).split("\n")
        if node.style == "|":
            below = self._lines[position.line :]
            return tuple(
                Position(position.line + 1 + index, max(0, len(raw) - len(text)) + 1)
                for index, (raw, text) in enumerate(zip(below, texts, strict=False))
            )
        if len(texts) == 1 and node.end_mark.line == node.start_mark.line:
            return (Position(position.line, position.column + (1 if node.style else 0)),)
        return ()

    def _replaced(self, text: str, position: Position) -> tuple[str | None, bool]:
        """The text with ${NAME} and ${NAME:-default} replaced; $${ is a literal ${."""
        is_whole = True

        def value(match: re.Match[str]) -> str:
            nonlocal is_whole
            if match[1]:
                return f"${{{match[2]}}}"
            named = _NAMED.fullmatch(match[2])
            if named is None:
                self._findings.error(
                    position,
                    f"{match[0]!r} is not a variable: write ${{NAME}} or ${{NAME:-default}}, or $${{ for ${{",
                )
                is_whole = False
                return ""
            name, default = named[1], named[2]
            found = self._environment.get(name) or default
            if found is None:
                close = did_you_mean(name, self._environment) or "; set it, or write ${NAME:-default}"
                self._findings.error(position, f"environment variable {name} is not set{close}")
                is_whole = False
                return ""
            return found

        replaced = _VARIABLE.sub(value, text)
        return (replaced if is_whole else None), replaced != text


def _position(node: Any) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
