"""Names of the records that a schema describes, by which RecordNameStrategy names subjects.

Only what names a record is read: a stored schema was parsed when it was registered.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from runnel.registry.content import Content
from runnel.registry.format import AVRO, JSON, PROTOBUF

_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*\Z) | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'? | [\w.]+ | [{};]""",
    re.DOTALL | re.VERBOSE,
)
"""What separates declarations of a `.proto` file; comments and strings that do not end are one token, too."""


def record_names(content: Content) -> Iterator[str]:
    """The names that a message with this schema may have; of Protobuf those of all messages."""
    if content.type == PROTOBUF:
        yield from _message_names(content.text)
        return
    try:
        schema = json.loads(content.text)
    except (ValueError, RecursionError):
        return
    name = None
    if content.type == AVRO:
        name = _avro_name(schema)
    elif content.type == JSON and isinstance(schema, dict):
        name = schema.get("title")
    if isinstance(name, str) and name:
        yield name


def _avro_name(schema: Any) -> Any:
    """The full name of a named type, or the name of a primitive one."""
    if not isinstance(schema, dict):
        return schema
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return schema.get("type")
    is_qualified = "." in name or not isinstance(namespace, str) or not namespace
    return name if is_qualified else f"{namespace}.{name}"


def _message_names(text: str) -> Iterator[str]:
    tokens = [token for token in _TOKEN.findall(text) if token[0] not in "/\"'"]
    package = ""
    scopes: list[str] = []
    """The messages that the next one is in; what else has braces is an empty name."""
    for index, token in enumerate(tokens):
        match token:
            case "{":
                is_message = index >= 2 and tokens[index - 2] == "message"
                scopes.append(tokens[index - 1] if is_message else "")
                if is_message:
                    yield ".".join(filter(None, (package, *scopes)))
            case "}" if scopes:
                scopes.pop()
            case "package" if not scopes and tokens[index + 2 : index + 3] == [";"]:
                package = tokens[index + 1]
