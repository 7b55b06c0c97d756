"""Records of the topic `_schemas`, as Confluent's registry and Karapace write them.

Compaction compares keys byte for byte, so the order of a key's fields matters: it is Confluent's. A key that
another registry wrote in another order is remembered, and deleted in its own form.
"""

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

TOPIC = "_schemas"

SCHEMA, CONFIG, MODE, NOOP = "SCHEMA", "CONFIG", "MODE", "NOOP"
DELETE_SUBJECT, CLEAR_SUBJECT = "DELETE_SUBJECT", "CLEAR_SUBJECT"


@dataclass(frozen=True, slots=True)
class Key:
    """A key; `subject` is None where the setting is global."""

    type: str
    subject: str | None = None
    version: int | None = None

    def encode(self) -> bytes:
        """The bytes of Confluent's registry."""
        fields: dict[str, Any] = {"keytype": self.type}
        if self.subject is not None:
            fields["subject"] = self.subject
        if self.version is not None:
            fields["version"] = self.version
        fields["magic"] = 1 if self.type == SCHEMA else 0
        return _dumped(fields)


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write; without value, it deletes its key."""

    key: bytes
    value: bytes | None


Value: TypeAlias = dict[str, Any]


def record(key: Key, value: Value | None) -> Record:
    """A record of a key and a value."""
    return Record(key.encode(), None if value is None else _dumped(value))


def parse_record(key_data: bytes | None, value_data: bytes | None) -> tuple[Key, Value | None] | None:
    """The key of a record, and its value, None if it deletes the key; None if it is of no known form."""
    key = parse_key(key_data)
    if key is None:
        return None
    value = parse_value(value_data)
    if value is None and value_data not in (None, b"null"):
        return None
    return key, value


def parse_key(data: bytes | None) -> Key | None:
    """The key of a record; None if it is of no known kind."""
    found = parse_value(data)
    if found is None:
        return None
    kind, subject, version = found.get("keytype"), found.get("subject"), found.get("version")
    if not isinstance(subject, str | None):
        return None
    match kind:
        case "SCHEMA":
            is_known = subject is not None and isinstance(version, int) and not isinstance(version, bool)
            return Key(SCHEMA, subject, version) if is_known else None
        case "CONFIG" | "MODE":
            return Key(kind, subject)
        case "DELETE_SUBJECT" | "CLEAR_SUBJECT":
            return Key(kind, subject) if subject is not None else None
        case "NOOP":
            return Key(NOOP)
    return None


def parse_value(data: bytes | None) -> Value | None:
    """The JSON object of a record; None if it is none."""
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _dumped(value: Value) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Halves of surrogate pairs exist as escapes only.
        return json.dumps(value, separators=(",", ":")).encode()
