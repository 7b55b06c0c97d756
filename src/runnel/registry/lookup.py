"""Read requests: subjects, versions, schemas by id and guid."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from runnel.registry import errors
from runnel.registry.content import LATEST
from runnel.registry.format import InvalidSchema, ParsedSchema
from runnel.registry.limits import ID_MAX, PAGE_MAX
from runnel.registry.names import ALL_CONTEXTS, DEFAULT_CONTEXT, check_subject, context_of, normalized, split
from runnel.registry.state import RegistryState, Version

T = TypeVar("T")
SERIALIZED_SCHEMA = "schema"


def described(
    state: RegistryState, version: Version, format_name: str = "", parsed: ParsedSchema | None = None
) -> dict[str, Any]:
    """A version as responses show it."""
    shown = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        "guid": version.content.guid,
        **version.content.to_json(),
    }
    if format_name:
        shown[SERIALIZED_SCHEMA] = formatted(state, version, format_name, parsed)
    if version.is_deleted:
        shown["deleted"] = True
    return shown


def formatted(
    state: RegistryState, version: Version, format_name: str, parsed: ParsedSchema | None = None
) -> str:
    """The text of a version in a format."""
    if not format_name:
        return version.content.text
    try:
        return (parsed or state.parsed(version)).formatted(format_name)
    except InvalidSchema as error:
        raise errors.invalid_schema(str(error)) from None


def parse_version(text: str) -> int:
    """The number of a version, LATEST for the latest one. Raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not 0 < int(text) <= ID_MAX:
        raise errors.invalid_version(text)
    return int(text)


def aliased(state: RegistryState, subject: str) -> str:
    """The subject that a subject is an alias of, else itself."""
    alias = state.configs.get(subject, {}).get("alias")
    return normalized(alias) if isinstance(alias, str) and alias else subject


# Subjects.


def subjects(
    state: RegistryState,
    *,
    prefix: str = ALL_CONTEXTS,
    deleted: bool = False,
    deleted_only: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[str]:
    """Names of subjects that start with a prefix; `:*:` is all contexts."""
    found = [
        subject
        for subject, versions in state.subjects.items()
        if _matches(subject, prefix)
        and any(_is_shown(one, deleted=deleted, deleted_only=deleted_only) for one in versions.values())
        and not (deleted_only and state.latest(subject) is not None)
    ]
    return page(sorted(found), offset, limit)


def versions(
    state: RegistryState,
    subject: str,
    *,
    deleted: bool = False,
    deleted_only: bool = False,
    deleted_as_negative: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[int]:
    """The numbers of versions of a subject."""
    subject = aliased(state, check_subject(subject))
    deleted = deleted or deleted_as_negative
    found = [
        -one.version if deleted_as_negative and one.is_deleted else one.version
        for one in state.subjects.get(subject, {}).values()
        if _is_shown(one, deleted=deleted, deleted_only=deleted_only)
    ]
    if not found:
        raise errors.subject_not_found(subject)
    return page(found, offset, limit)


def version(state: RegistryState, subject: str, text: str, *, deleted: bool = False) -> Version:
    """A version of a subject."""
    number = parse_version(text)
    subject = aliased(state, check_subject(subject))
    known = state.subjects.get(subject, {})
    if not any(deleted or not one.is_deleted for one in known.values()):
        raise errors.subject_not_found(subject)
    if number == LATEST:
        newest = next(reversed(known.values())) if deleted else state.latest(subject)
        assert newest is not None
        return newest
    found = known.get(number)
    if found is None or (found.is_deleted and not deleted):
        raise errors.version_not_found(number)
    return found


def latest_with_metadata(
    state: RegistryState, subject: str, properties: Sequence[tuple[str, str]], *, deleted: bool = False
) -> Version:
    """The newest version whose metadata has these properties."""
    subject = aliased(state, check_subject(subject))
    known = [one for one in state.subjects.get(subject, {}).values() if deleted or not one.is_deleted]
    if not known:
        raise errors.subject_not_found(subject)
    for one in reversed(known):
        given = (one.content.metadata or {}).get("properties") or {}
        if isinstance(given, dict) and all(given.get(name) == value for name, value in properties):
            return one
    raise errors.schema_not_found()


def referenced_by(state: RegistryState, subject: str, text: str) -> list[int]:
    """The ids of schemas that refer to a version."""
    found = version(state, subject, text, deleted=True)
    referrers = state.referrers.get(found.place, {}).values()
    return sorted({one.id for one in referrers if not one.is_deleted})


# Schemas.


def schemas(
    state: RegistryState,
    *,
    prefix: str = ALL_CONTEXTS,
    deleted: bool = False,
    latest_only: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[Version]:
    """Versions of all subjects that start with a prefix."""
    found: list[Version] = []
    for subject in sorted(state.subjects):
        if _matches(subject, prefix):
            shown = [one for one in state.subjects[subject].values() if deleted or not one.is_deleted]
            found += shown[-1:] if latest_only else shown
    return page(found, offset, limit if 0 <= limit <= PAGE_MAX else PAGE_MAX)


def by_id(state: RegistryState, schema_id: int, subject: str = "") -> Version:
    """A version with an id, in the context of a subject; of the subject itself, if it has one."""
    found = _versions_with_id(state, schema_id, subject)
    if not found:
        raise errors.schema_not_found(f"Schema {schema_id}")
    own = [one for one in found if one.subject == normalized(subject)]
    return (own or found)[0]


def _versions_with_id(state: RegistryState, schema_id: int, subject: str) -> list[Version]:
    context, name = split(subject)
    known = state.contexts.get(context)
    found = [] if known is None else list(known.by_id.get(schema_id, {}).values())
    if not found and name and context == DEFAULT_CONTEXT:
        # A subject without context may be one of any context.
        others = (one.by_id.get(schema_id, {}).values() for one in state.contexts.values())
        found = [version for other in others for version in other if split(version.subject)[1] == name]
    return found


def uses_of_id(
    state: RegistryState, schema_id: int, subject: str = "", *, deleted: bool = False
) -> Iterator[Version]:
    """All versions with an id."""
    name = split(subject)[1]
    found = _versions_with_id(state, schema_id, subject)
    if not found:
        raise errors.schema_not_found(f"Schema {schema_id}")
    for one in sorted(found, key=lambda version: version.place):
        if (deleted or not one.is_deleted) and name in ("", split(one.subject)[1]):
            yield one


def by_guid(state: RegistryState, guid: str) -> list[Version]:
    """All versions with a guid."""
    found = state.by_guid.get(guid.lower())
    if not found:
        raise errors.schema_not_found(f"Schema {guid[:40]}")
    return sorted(found.values(), key=lambda version: version.place)


def ids_of_guid(state: RegistryState, guid: str) -> list[dict[str, Any]]:
    """The ids with a guid, by context."""
    found = sorted({(context_of(one.subject), one.id) for one in by_guid(state, guid)})
    return [{"context": context, "id": schema_id} for context, schema_id in found]


def highest_id(state: RegistryState, subject: str = "") -> int:
    """The highest id of a context."""
    context = state.contexts.get(context_of(subject))
    return 0 if context is None else context.highest_id


def contexts(state: RegistryState) -> list[str]:
    """The default context and all that have subjects."""
    return sorted({DEFAULT_CONTEXT, *(context_of(subject) for subject in state.subjects)})


# Parts.


def page(found: Sequence[T], offset: int, limit: int) -> list[T]:
    """A part of a list; a negative limit means no limit."""
    start = max(offset, 0)
    return list(found[start:] if limit < 0 else found[start : start + limit])


def _matches(subject: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        return split(subject)[1].startswith(prefix[len(ALL_CONTEXTS) :])
    context, name = split(prefix)
    own_context, own_name = split(subject)
    return context == own_context and own_name.startswith(name)


def _is_shown(one: Version, *, deleted: bool, deleted_only: bool) -> bool:
    return one.is_deleted if deleted_only else deleted or not one.is_deleted


def distinct(values: Iterable[T]) -> list[T]:
    """Without repetitions, in order."""
    return list(dict.fromkeys(values))
