"""Which ids of schemas are registered under which subjects: what a broker needs of `_schemas` to validate.

    record ──change_of──▶ Change ──apply──▶ SubjectIds ──under──▶ the ids of a subject

A version that is deleted softly keeps its id, as messages with it can still be read; for good, it loses it.
Only the default context counts: messages of others cannot be told apart by their ids.
"""

from array import array
from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass

from runnel.registry.content import parse_registered
from runnel.registry.names import DEFAULT_CONTEXT, context_of, normalized
from runnel.registry.record_names import record_names
from runnel.registry.records import CLEAR_SUBJECT, SCHEMA, parse_record

TOPIC_NAME, RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy"
TOPIC_RECORD_NAME = "TopicRecordNameStrategy"

KEY, VALUE = "key", "value"
"""The parts of a message that have schemas."""

VERSIONS_MAX = 5_000_000
"""Versions that are kept. One of a subject that has others takes 12 bytes, the first one of a subject about
250 with its name: a million schemas take 15 to 300 MB."""

_FIELDS = 3
"""Version, id, and the length of the name of a record at the end of the subject."""


class TooManyVersions(Exception):
    """There are more versions than a broker keeps."""


@dataclass(frozen=True, slots=True)
class Change:
    """A version of a subject is registered, or gone for good."""

    subject: str
    version: int
    """0 stands for all versions."""
    schema_id: int = 0
    """0 if it is gone."""
    name_characters: int = 0
    """How much of the end of the subject is the name of a record of the schema."""


def change_of(key_data: bytes | None, value_data: bytes | None) -> Change | None:
    """What a record changes; None if that is nothing here."""
    found = parse_record(key_data, value_data)
    if found is None:
        return None
    key, value = found
    if key.subject is None or context_of(key.subject) != DEFAULT_CONTEXT:
        return None
    subject = normalized(key.subject)
    if key.type == CLEAR_SUBJECT and value is not None:
        return Change(subject, 0)
    if key.type != SCHEMA or key.version is None or key.version <= 0:
        return None
    if value is None:
        return Change(subject, key.version)
    registered = parse_registered(key.version, value)
    if registered is None:
        return None
    schema_id, content = registered
    names = (len(name) for name in record_names(content) if _is_named_after(subject, name))
    return Change(subject, key.version, schema_id, max(names, default=0))


class SubjectIds:
    """The ids of all subjects."""

    def __init__(self) -> None:
        self._subjects: dict[str, array[int]] = {}
        """Versions in order, each with its id and the length of its record's name."""
        self._records: dict[int, int] = {}
        """How many versions have an id, of subjects that are named after a record."""
        self._topic_records: dict[str, dict[int, int]] = {}
        """The same by topic, of subjects that are named after a topic and a record."""
        self._found: dict[str, frozenset[int]] = {}
        """Ids of the subjects that were asked for."""
        self.count = 0
        """The number of versions."""

    def apply(self, change: Change) -> None:
        """Raises TooManyVersions."""
        subject, version = change.subject, change.version
        self._found.pop(subject, None)
        versions = self._subjects.get(subject)
        if versions is None:
            if not change.schema_id:
                return
            versions = self._subjects[subject] = array("I")
        if not version:
            for start in range(0, len(versions), _FIELDS):
                self._count(subject, versions[start + 1], versions[start + 2], -1)
            del versions[:]
        else:
            self._replace(versions, change)
        if not versions:
            del self._subjects[subject]

    def _replace(self, versions: "array[int]", change: Change) -> None:
        places = range(0, len(versions), _FIELDS)
        start = bisect_left(places, change.version, key=lambda place: versions[place]) * _FIELDS
        if start < len(versions) and versions[start] == change.version:
            self._count(change.subject, versions[start + 1], versions[start + 2], -1)
            del versions[start : start + _FIELDS]
        if change.schema_id:
            if self.count >= VERSIONS_MAX:
                raise TooManyVersions(f"it has more than {VERSIONS_MAX} versions of schemas")
            entry = array("I", (change.version, change.schema_id, change.name_characters))
            versions[start:start] = entry
            self._count(change.subject, change.schema_id, change.name_characters, 1)

    def _count(self, subject: str, schema_id: int, name_characters: int, by: int) -> None:
        self.count += by
        if not name_characters:
            return
        if name_characters == len(subject):
            _add(self._records, schema_id, by)
            return
        topic = subject[: -name_characters - 1]
        ids = self._topic_records.setdefault(topic, {})
        _add(ids, schema_id, by)
        if not ids:
            del self._topic_records[topic]

    def under(self, strategy: str, topic: str, part: str) -> Container[int]:
        """The ids that keys or values (`part`) of a topic may have."""
        if strategy == RECORD_NAME:
            return self._records
        if strategy == TOPIC_RECORD_NAME:
            return self._topic_records.get(topic, ())
        subject = f"{topic}-{part}"
        found = self._found.get(subject)
        if found is None:
            found = frozenset(self._subjects.get(subject, ())[1::_FIELDS])
            if found:
                self._found[subject] = found
        return found


def subject_under(strategy: str, topic: str, part: str) -> str:
    """The subject of keys or values of a topic, for messages."""
    if strategy == RECORD_NAME:
        return "the name of its record"
    if strategy == TOPIC_RECORD_NAME:
        return f"{topic}-<the name of its record>"
    return f"{topic}-{part}"


def _is_named_after(subject: str, name: str) -> bool:
    return subject == name or subject.endswith(f"-{name}")


def _add(counts: dict[int, int], key: int, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]
