"""Deleting versions, subjects and contexts: first softly, then permanently."""

from collections.abc import Iterable

from runnel.registry import errors
from runnel.registry.content import LATEST
from runnel.registry.decision import Decision
from runnel.registry.lookup import parse_version
from runnel.registry.names import DEFAULT_CONTEXT, check_subject, context_named, context_of
from runnel.registry.records import CONFIG, DELETE_SUBJECT, MODE, SCHEMA, Key, Record, record
from runnel.registry.registration import check_writable, schema_record
from runnel.registry.settings import mode_of
from runnel.registry.state import RegistryState, Version


def delete_subject(state: RegistryState, subject: str, *, permanent: bool = False) -> Decision[list[int]]:
    """Delete all versions of a subject; its response has their numbers."""
    subject = check_subject(subject)
    check_writable(mode_of(state.modes, subject), subject)
    versions = list(state.subjects.get(subject, {}).values())
    if not versions:
        raise errors.subject_not_found(subject)
    live = state.live_versions(subject)
    if permanent and live:
        raise errors.subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise errors.subject_soft_deleted(subject)
    for version in versions if permanent else live:
        _check_unreferenced(state, version, permanent=permanent)
    numbers = [version.version for version in (versions if permanent else live)]
    if permanent:
        return Decision(numbers, _removal(state, subject, versions))
    value = {"subject": subject, "version": max(numbers)}
    return Decision(numbers, [record(Key(DELETE_SUBJECT, subject), value)])


def delete_version(
    state: RegistryState, subject: str, text: str, *, permanent: bool = False
) -> Decision[int]:
    """Delete a version; its response has its number."""
    number = number_to_delete(state, subject, text, permanent=permanent)
    subject = check_subject(subject)
    check_writable(mode_of(state.modes, subject), subject)
    versions = state.subjects.get(subject, {})
    if not versions or (not permanent and not state.live_versions(subject)):
        raise errors.subject_not_found(subject)
    version = versions.get(number)
    if version is None:
        raise errors.version_not_found(number)
    if permanent and not version.is_deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    if not permanent and version.is_deleted:
        raise errors.version_soft_deleted(subject, version.version)
    _check_unreferenced(state, version, permanent=permanent)
    if permanent:
        return Decision(version.version, _removal(state, subject, [version]))
    deleted = Version(subject, version.version, version.id, version.content, is_deleted=True)
    return Decision(version.version, [schema_record(deleted)])


def number_to_delete(state: RegistryState, subject: str, text: str, *, permanent: bool = False) -> int:
    """The number of the version that a request means: LATEST only if the subject has no such version.

    A request that is decided again must still mean the same version, not the one before it.
    """
    number = parse_version(text)
    subject = check_subject(subject)
    if number != LATEST:
        return number
    versions = state.subjects.get(subject, {})
    latest = next(reversed(versions.values()), None) if permanent else state.latest(subject)
    return LATEST if latest is None else latest.version


def delete_context(state: RegistryState, text: str) -> Decision[None]:
    """Remove the settings of a context without subjects."""
    context = context_named(text)
    if any(context_of(subject) == context for subject in state.subjects):
        raise errors.context_not_empty(context)
    if context == DEFAULT_CONTEXT:
        raise errors.not_permitted("The default context cannot be deleted")
    subject = f":{context}:"
    return Decision(None, _settings_removal(state, subject))


def _check_unreferenced(state: RegistryState, version: Version, *, permanent: bool) -> None:
    """A version that others refer to stays, also if these are deleted softly: they can still be read."""
    referrers = state.referrers.get(version.place, {}).values()
    if any(permanent or not one.is_deleted for one in referrers):
        raise errors.reference_exists(version.subject, version.version)


def _removal(state: RegistryState, subject: str, versions: Iterable[Version]) -> list[Record]:
    """The records that remove versions permanently; with the last one, the subject's settings too."""
    removed = list(versions)
    records = [one for version in removed for one in state.deleted(Key(SCHEMA, subject, version.version))]
    if len(removed) == len(state.subjects[subject]):
        records += _settings_removal(state, subject)
    # Without it, the ids of removed schemas would be assigned again after a restart.
    return [*records, state.highest_ids()]


def _settings_removal(state: RegistryState, subject: str) -> list[Record]:
    records = state.deleted(Key(CONFIG, subject)) if subject in state.configs else []
    if subject in state.modes:
        records += state.deleted(Key(MODE, subject))
    return records
