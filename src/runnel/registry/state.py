"""The state of the registry: what the records of `_schemas` contain. Only `replay` changes it."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from runnel.registry.content import Content, Reference, parse_metadata, parse_registered, parse_rule_set
from runnel.registry.errors import RegistryError
from runnel.registry.format import InvalidSchema, ParsedSchema, ReferencedSchema
from runnel.registry.formats import STORED_FORMATS
from runnel.registry.limits import ID_MAX, REFERENCES_MAX
from runnel.registry.names import DEFAULT_CONTEXT, context_of, normalized, qualified
from runnel.registry.records import (
    NOOP,
    SCHEMA,
    Key,
    Record,
    Value,
    parse_key,
    parse_record,
    record,
)
from runnel.registry.settings import CONFIG_FIELDS, LEVEL, LEVELS, MODES

PARSED_MAX = 200
"""Parsed schemas that are kept; parsing takes a millisecond, keeping takes memory."""

HIGHEST_IDS = "highestIds"
"""The field of NOOP's value with the highest id that each context ever had."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    is_deleted: bool = False

    @property
    def place(self) -> tuple[str, int]:
        return self.subject, self.version


@dataclass(slots=True)
class Context:
    """Ids of a context."""

    highest_id: int = 0
    by_id: dict[int, dict[tuple[str, int], Version]] = field(default_factory=dict)
    """All versions with an id, deleted ones too."""
    ids: dict[bytes, int] = field(default_factory=dict)
    """Ids by the keys of contents."""
    unindexed: dict[tuple[str, int], Version] = field(default_factory=dict)
    """Versions whose keys are not computed yet, as that takes parsing."""


class RegistryState:
    """Subjects, versions, ids and settings."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Versions of subjects in order, deleted ones too."""
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}
        """Versions that refer to a version."""
        self.by_guid: dict[str, dict[tuple[str, int], Version]] = {}
        self.unreadable: dict[str, int] = {}
        """The highest number that a record of a subject has which is not understood."""
        self._other_keys: dict[Key, set[bytes]] = {}
        """Keys that another registry wrote in another form."""
        self._parsed: OrderedDict[tuple[str, Content], ParsedSchema] = OrderedDict()
        self._keys: dict[Content, bytes] = {}

    # Replay.

    def replay(self, key_data: bytes | None, value_data: bytes | None) -> None:
        """Apply a record; one that is of no known form is skipped."""
        found = parse_record(key_data, value_data)
        if found is None or key_data is None:
            if (key := parse_key(key_data)) is not None:
                self._reserve(key, {})
            return
        key, value = found
        self._remember_key(key, key_data, is_deleted=value is None)
        match key.type:
            case "SCHEMA":
                self._replay_schema(key, value)
            case "CONFIG":
                self._replay_config(key, value)
            case "MODE":
                self._replay_mode(key, value)
            case "DELETE_SUBJECT" if value is not None:
                self._replay_delete(key, value)
            case "CLEAR_SUBJECT" if value is not None:
                assert key.subject is not None
                for version in list(self.subjects.get(normalized(key.subject), {}).values()):
                    self._remove(version)
            case "NOOP" if value is not None:
                self._replay_highest_ids(value)

    def _remember_key(self, key: Key, data: bytes, *, is_deleted: bool) -> None:
        if key.subject is not None:
            # What is written is in the normal form; a tombstone of that is none for another one.
            key = replace(key, subject=normalized(key.subject))
        if data == key.encode():
            return
        if is_deleted:
            self._other_keys.get(key, set()).discard(data)
        else:
            self._other_keys.setdefault(key, set()).add(data)

    def _replay_schema(self, key: Key, value: Value | None) -> None:
        assert key.subject is not None and key.version is not None
        subject = normalized(key.subject)
        known = self.subjects.get(subject, {}).get(key.version)
        version = None if value is None else _version(subject, key.version, value)
        if value is not None and version is None:
            self._reserve(key, value)
            return
        if known is not None:
            self._remove(known)
        if version is not None:
            self._add(version)

    def _reserve(self, key: Key, value: Value) -> None:
        """A record that is not understood: another schema gets neither its id nor its place in the topic."""
        if key.type != SCHEMA or key.subject is None or key.version is None or key.version > ID_MAX:
            return
        subject, schema_id = normalized(key.subject), value.get("id")
        self.unreadable[subject] = max(self.unreadable.get(subject, 0), key.version)
        if isinstance(schema_id, int) and schema_id <= ID_MAX:
            context = self.contexts.setdefault(context_of(subject), Context())
            context.highest_id = max(context.highest_id, schema_id)

    def _add(self, version: Version) -> None:
        versions = self.subjects.setdefault(version.subject, {})
        is_last = not versions or version.version > next(reversed(versions))
        versions[version.version] = version
        if not is_last:
            self.subjects[version.subject] = dict(sorted(versions.items()))
        name = context_of(version.subject)
        context = self.contexts.setdefault(name, Context())
        context.highest_id = max(context.highest_id, version.id)
        context.by_id.setdefault(version.id, {})[version.place] = version
        context.unindexed[version.place] = version
        self.by_guid.setdefault(version.content.guid, {})[version.place] = version
        for reference in version.content.references:
            target = self.target_of(version.subject, reference)
            self.referrers.setdefault(target, {})[version.place] = version

    def _remove(self, version: Version) -> None:
        versions = self.subjects[version.subject]
        del versions[version.version]
        context = self.contexts[context_of(version.subject)]
        context.unindexed.pop(version.place, None)
        for content in (version.content, version.content.bare):
            self._keys.pop(content, None)
        # Others may refer to it.
        self._parsed.clear()
        _drop(context.by_id, version.id, version.place)
        _drop(self.by_guid, version.content.guid, version.place)
        for reference in version.content.references:
            _drop(self.referrers, self.target_of(version.subject, reference), version.place)
        if not versions:
            del self.subjects[version.subject]

    def _replay_delete(self, key: Key, value: Value) -> None:
        assert key.subject is not None
        subject, upto = normalized(key.subject), value.get("version")
        if not isinstance(upto, int):
            return
        for version in list(self.subjects.get(subject, {}).values()):
            if version.version <= upto and not version.is_deleted:
                self._mark_deleted(version)

    def _mark_deleted(self, version: Version) -> None:
        """Mark a version as deleted."""
        deleted = Version(version.subject, version.version, version.id, version.content, is_deleted=True)
        self.subjects[version.subject][version.version] = deleted
        context = self.contexts[context_of(version.subject)]
        context.by_id[version.id][version.place] = deleted
        self.by_guid[version.content.guid][version.place] = deleted
        for reference in version.content.references:
            self.referrers[self.target_of(version.subject, reference)][version.place] = deleted

    def _replay_config(self, key: Key, value: Value | None) -> None:
        subject = None if key.subject is None else normalized(key.subject)
        level = None if value is None else value.get(LEVEL)
        if value is None or (level is not None and level not in LEVELS):
            self.configs.pop(subject, None)
            return
        shown = (LEVEL, *CONFIG_FIELDS)
        self.configs[subject] = {name: value[name] for name in shown if _is_usable(name, value.get(name))}

    def _replay_mode(self, key: Key, value: Value | None) -> None:
        subject = None if key.subject is None else normalized(key.subject)
        mode = None if value is None else value.get("mode")
        if mode in MODES:
            self.modes[subject] = mode
        else:
            self.modes.pop(subject, None)

    def _replay_highest_ids(self, value: Value) -> None:
        ids = value.get(HIGHEST_IDS)
        for name, highest in ids.items() if isinstance(ids, dict) else ():
            if isinstance(highest, int) and 0 < highest <= ID_MAX:
                context = self.contexts.setdefault(name, Context())
                context.highest_id = max(context.highest_id, highest)

    # Records that change it.

    def deleted(self, key: Key) -> list[Record]:
        """The records that delete a key in all its forms."""
        others = sorted(self._other_keys.get(key, ()))
        return [record(key, None), *(Record(data, None) for data in others)]

    def highest_ids(self) -> Record:
        """The record with the highest ids, which outlasts the records of versions that had them."""
        ids = {name: one.highest_id for name, one in sorted(self.contexts.items()) if one.highest_id}
        return record(Key(NOOP), {HIGHEST_IDS: ids})

    # Lookup.

    def live_versions(self, subject: str) -> list[Version]:
        """Versions that are not deleted, in order."""
        return [version for version in self.subjects.get(subject, {}).values() if not version.is_deleted]

    def latest(self, subject: str) -> Version | None:
        """The newest version that is not deleted."""
        versions = self.subjects.get(subject, {})
        return next((one for one in reversed(versions.values()) if not one.is_deleted), None)

    def target_of(self, subject: str, reference: Reference) -> tuple[str, int]:
        """The version that a reference of a subject means; unqualified subjects are of the same context."""
        return normalized(qualified(context_of(subject), reference.subject)), reference.version

    def id_of(self, context_name: str, key: bytes) -> int | None:
        """The id of a content in a context."""
        context = self.contexts.get(context_name)
        if context is None:
            return None
        self._index(context)
        found = context.ids.get(key)
        # The last version with the id may be deleted, or another registry may have used the id twice.
        versions = {} if found is None else context.by_id.get(found, {})
        return found if any(self.key_of(version) == key for version in versions.values()) else None

    def _index(self, context: Context) -> None:
        for place, version in list(context.unindexed.items()):
            try:
                key = self.key_of(version)
            except Exception:  # noqa: BLE001 - left for the next call: most likely, memory was short
                # One schema that a parser fails at must not keep all others from being registered.
                continue
            if context.ids.get(key) not in context.by_id:
                context.ids[key] = version.id
            del context.unindexed[place]

    def key_of(self, version: Version) -> bytes:
        """The key of a stored content; a text that does not parse is the same as itself only."""
        content = version.content
        if content not in self._keys:
            try:
                identity = self.parsed(version).identity
            except InvalidSchema:
                identity = content.text
            self._keys[content] = content.key_of(identity)
        return self._keys[content]

    # Parsing.

    def parsed(self, version: Version) -> ParsedSchema:
        """A stored schema, parsed. Raises InvalidSchema."""
        # Unqualified references depend on the context.
        place = context_of(version.subject), version.content
        found = self._parsed.pop(place, None)
        if found is None:
            stored_format = STORED_FORMATS.get(version.content.type)
            if stored_format is None:
                raise InvalidSchema(f"the type {version.content.type} is not supported")
            references = list(self.referenced(version.subject, version.content.references))
            found = stored_format.parse(version.content.text, references)
        self._parsed[place] = found
        if len(self._parsed) > PARSED_MAX:
            self._parsed.popitem(last=False)
        return found

    def referenced(self, subject: str, references: tuple[Reference, ...]) -> Iterator[ReferencedSchema]:
        """All that a schema refers to, transitively, dependencies first. Raises InvalidSchema."""
        found: dict[tuple[str, int], ReferencedSchema] = {}
        self._collect(subject, references, found, set())
        yield from found.values()

    def _collect(
        self,
        subject: str,
        references: tuple[Reference, ...],
        found: dict[tuple[str, int], ReferencedSchema],
        entered: set[tuple[str, int]],
    ) -> None:
        for reference in references:
            target = self.target_of(subject, reference)
            if target in entered:
                continue
            entered.add(target)
            version = self.subjects.get(target[0], {}).get(target[1])
            if version is None:
                raise InvalidSchema(f"no schema found for the reference to {target[0]} version {target[1]}")
            if len(entered) > REFERENCES_MAX:
                raise InvalidSchema(f"it has more than {REFERENCES_MAX} references")
            self._collect(version.subject, version.content.references, found, entered)
            found[target] = ReferencedSchema(reference.name, version.content.text)


def _version(subject: str, number: int, value: Value) -> Version | None:
    """The version of a record; None if it is malformed."""
    found = parse_registered(number, value)
    if found is None:
        return None
    schema_id, content = found
    return Version(subject, number, schema_id, content, is_deleted=value.get("deleted") is True)


def _is_usable(name: str, value: Any) -> bool:
    """Is a setting of the type that it should have?"""
    if not name.endswith(("Metadata", "RuleSet")):
        return isinstance(value, str | bool)
    parse = parse_metadata if name.endswith("Metadata") else parse_rule_set
    try:
        return parse(value) is not None
    except RegistryError:
        return False


def _drop(index: Any, key: Any, place: tuple[str, int]) -> None:
    found = index.get(key, {})
    found.pop(place, None)
    if not found:
        index.pop(key, None)
