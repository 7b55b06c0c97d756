"""References to values that are kept elsewhere, as Kafka's config providers name them.

    ${env:NAME}          an environment variable
    ${file:/path}        the content of a file, without the line end
    ${file:/path:name}   a property of a properties file
    ${dir:/path:name}    the content of a file in a directory

Any other `${…}` is not a reference, and is left as it is.
"""

import os
import re
from pathlib import Path

from runnel.client.errors import InvalidProperty
from runnel.model.properties import BadProperties, parse_properties

FILE_BYTES_MAX = 1024 * 1024

_REFERENCE = re.compile(r"\$\{(env|file|dir):([^}:]+)(?::([^}]*))?\}")


def is_reference(text: str) -> bool:
    """Is the whole text one reference?"""
    return _REFERENCE.fullmatch(text) is not None


def resolved(text: str, name: str) -> str:
    """The text with the values of its references; InvalidProperty that names property `name` on failure."""
    if "${" not in text:
        return text
    return _REFERENCE.sub(lambda found: _value(found[1], found[2], found[3], name), text)


def read_text(path: str, name: str, encoding: str = "utf-8") -> str:
    """The content of a file that property `name` refers to."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise InvalidProperty(f"{name}: {path} is larger than {FILE_BYTES_MAX} bytes")
        return data.decode(encoding)
    except OSError as error:
        raise InvalidProperty(f"{name}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidProperty(f"{name}: {path} is not text in UTF-8") from None


def _value(kind: str, place: str, key: str | None, name: str) -> str:
    if kind == "env":
        value = os.environ.get(place)
        if value is None:
            raise InvalidProperty(f"{name}: the environment variable {place} is not set")
        return value
    if kind == "dir" and key:
        return read_text(os.path.join(place, key), name).rstrip("\r\n")
    if kind == "file" and key:
        return _property(place, key, name)
    return read_text(place, name).rstrip("\r\n")


def _property(path: str, key: str, name: str) -> str:
    try:
        found = parse_properties(read_text(path, name)).get(key)
    except BadProperties as error:
        raise InvalidProperty(f"{name}: {path} is not a valid properties file: {error}") from None
    if found is None:
        raise InvalidProperty(f"{name}: {path} has no property {key}")
    return found
