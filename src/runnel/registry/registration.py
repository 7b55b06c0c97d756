"""Registering schemas, looking them up by content, and checking whether they could be registered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runnel.registry import errors
from runnel.registry.checks import Check, Side, Verdicts
from runnel.registry.content import LATEST, Content, Reference, merged_metadata, merged_rules, parse_content
from runnel.registry.decision import Decision
from runnel.registry.format import Incompatibility, InvalidSchema, ParsedSchema, ReferencedSchema
from runnel.registry.formats import FORMATS
from runnel.registry.limits import ID_MAX, SCHEMA_BYTES_MAX, SUBJECT_VERSIONS_MAX
from runnel.registry.lookup import aliased, described, parse_version
from runnel.registry.names import check_subject, context_of
from runnel.registry.records import SCHEMA, Key, Record, record
from runnel.registry.settings import (
    BACKWARD,
    FORWARD,
    FULL,
    IMPORT,
    LEVEL,
    NONE,
    READONLY,
    READONLY_OVERRIDE,
    READWRITE,
    TRANSITIVE,
    config_of,
    mode_of,
)
from runnel.registry.state import RegistryState, Version

NO_VERDICTS = Verdicts()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schema that may become a version of a subject."""

    subject: str
    content: Content
    parsed: ParsedSchema
    key: bytes
    references: tuple[ReferencedSchema, ...]

    @property
    def side(self) -> Side:
        return Side(self.content.type, self.content.text, self.references)


def register(
    state: RegistryState,
    subject: str,
    body: Any,
    *,
    normalize: bool = False,
    force: bool = False,
    format_name: str = "",
    verdicts: Verdicts = NO_VERDICTS,
) -> Decision[dict[str, Any]]:
    """Make a schema the newest version of a subject, unless it is one already."""
    subject = check_subject(subject)
    given_id, given_version = _number(body, "id"), _number(body, "version")
    mode = _check_mode(state, subject, given_id)
    config = config_of(state.configs, subject)
    candidate = _candidate(state, subject, body, normalize=normalize or config.get("normalize") is True)
    candidate = _with_inherited(state, candidate, config)
    same = _same_versions(state, candidate, LATEST if mode != IMPORT or given_version < 0 else given_version)
    live = next((version for version in reversed(same) if not version.is_deleted), None)
    if live is not None and given_id in (LATEST, live.id):
        return Decision(described(state, live, format_name))
    if mode != IMPORT and not force:
        findings = _findings(state, candidate, _compared(state, candidate, config), config[LEVEL], verdicts)
        if findings:
            raise errors.incompatible(subject, findings)
    version = Version(
        subject,
        _next_version(state, subject, given_version, mode),
        _id(state, candidate, given_id),
        candidate.content,
    )
    records = [schema_record(version)]
    # A deleted version with the same schema is replaced by the new one; when importing, one with its number.
    replaced = same if mode != IMPORT else _deleted_with_number(state, version)
    for old in replaced:
        if old.version != version.version:
            records += state.deleted(Key(SCHEMA, subject, old.version))
    if any(old.id != version.id for old in replaced):
        # Compaction removes what may be the only records with their ids: these must not be assigned again.
        records.append(state.highest_ids())
    return Decision(described(state, version, format_name, candidate.parsed), records)


def look_up(
    state: RegistryState,
    subject: str,
    body: Any,
    *,
    normalize: bool = False,
    deleted: bool = False,
    format_name: str = "",
) -> dict[str, Any]:
    """The version of a subject that has a schema."""
    subject = aliased(state, check_subject(subject))
    if not any(deleted or not version.is_deleted for version in state.subjects.get(subject, {}).values()):
        raise errors.subject_not_found(subject)
    normalize = normalize or config_of(state.configs, subject).get("normalize") is True
    candidate = _candidate(state, subject, body, normalize=normalize)
    found = _same_versions(state, candidate)
    if not found and candidate.content.metadata is None and candidate.content.rule_set is None:
        found = _same_texts(state, candidate)
    for version in reversed(found):
        if deleted or not version.is_deleted:
            return described(state, version, format_name)
    raise errors.schema_not_found()


def check(
    state: RegistryState,
    subject: str,
    body: Any,
    *,
    version: str | None = None,
    normalize: bool = False,
    verbose: bool = False,
    verdicts: Verdicts = NO_VERDICTS,
) -> dict[str, Any]:
    """Could a schema be registered, given one version or those that the level names?"""
    subject = check_subject(subject)
    config = config_of(state.configs, subject)
    candidate = _candidate(state, subject, body, normalize=normalize or config.get("normalize") is True)
    candidate = _with_inherited(state, candidate, config)
    if version is None:
        compared = _compared(state, candidate, config)
    else:
        compared = (
            [_version_to_check(state, subject, version)] if _has_version(state, subject, version) else []
        )
    findings = _findings(state, candidate, compared, config[LEVEL], verdicts)
    return {"is_compatible": not findings, **({"messages": findings} if verbose else {})}


def schema_record(version: Version) -> Record:
    """The record of a version."""
    value = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        **version.content.to_json(),
        "deleted": version.is_deleted,
    }
    return record(Key(SCHEMA, version.subject, version.version), value)


# Candidates.


def _candidate(state: RegistryState, subject: str, body: Any, *, normalize: bool) -> Candidate:
    content = parse_content(body)
    if len(content.text.encode(errors="replace")) > SCHEMA_BYTES_MAX:
        raise errors.too_large(f"The schema has more than {SCHEMA_BYTES_MAX} bytes.")
    schema_format = FORMATS.get(content.type)
    if schema_format is None:
        raise errors.invalid_schema(f"the type {content.type} is not supported")
    references = tuple(_resolved(state, subject, one) for one in content.references)
    if normalize:
        references = tuple(sorted(set(references)))
    try:
        # A reference to a version that is deleted is a mistake of a new schema, not of a stored one.
        referenced = tuple(state.referenced(subject, references))
        parsed = schema_format.parse(content.text, referenced)
        text = parsed.normalized() if normalize else parsed.text
    except InvalidSchema as error:
        raise errors.invalid_schema(str(error)) from None
    content = replace(content, text=text, references=references)
    return Candidate(subject, content, parsed, content.key_of(parsed.identity), referenced)


def _resolved(state: RegistryState, subject: str, reference: Reference) -> Reference:
    """A reference to the latest version becomes one to the version that this is now."""
    target, number = state.target_of(subject, reference)
    if number == LATEST:
        latest = state.latest(target)
        number = 0 if latest is None else latest.version
    found = state.subjects.get(target, {}).get(number)
    if found is None or found.is_deleted:
        raise errors.invalid_schema(
            f'No schema reference found for subject "{target}" and version {reference.version}'
        )
    return replace(reference, version=number)


def _with_inherited(state: RegistryState, candidate: Candidate, config: dict[str, Any]) -> Candidate:
    """Metadata and rules that are not given are those of the latest version; settings add theirs."""
    latest = state.latest(candidate.subject)
    before = None if latest is None else latest.content
    content = candidate.content
    metadata, rules = content.metadata, content.rule_set
    if before is not None and metadata is None:
        metadata = before.metadata
    if before is not None and rules is None:
        rules = before.rule_set
    content = replace(
        content,
        metadata=merged_metadata((config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))),
        rule_set=merged_rules((config.get("defaultRuleSet"), rules, config.get("overrideRuleSet"))),
    )
    return replace(candidate, content=content, key=content.key_of(candidate.parsed.identity))


def _same_versions(state: RegistryState, candidate: Candidate, number: int = LATEST) -> list[Version]:
    """The versions of the subject, or the one of a number, with the same schema."""
    versions = state.subjects.get(candidate.subject, {}).values()
    return [
        version
        for version in versions
        if number in (LATEST, version.version) and state.key_of(version) == candidate.key
    ]


def _same_texts(state: RegistryState, candidate: Candidate) -> list[Version]:
    """The versions of the subject that differ in metadata and rules only."""
    found = []
    for version in state.subjects.get(candidate.subject, {}).values():
        content = version.content
        if content.type == candidate.content.type and content.references == candidate.content.references:
            bare = replace(version, content=content.bare)
            if state.key_of(bare) == candidate.key:
                found.append(version)
    return found


# Ids and versions.


def _number(body: Any, name: str) -> int:
    given = body.get(name) if isinstance(body, dict) else None
    if given is None or given in (LATEST, 0):
        return LATEST
    if not isinstance(given, int) or isinstance(given, bool) or not 0 < given <= ID_MAX:
        raise errors.malformed(f"{name} is a number from 1 to {ID_MAX}")
    return given


def _check_mode(state: RegistryState, subject: str, given_id: int) -> str:
    mode = mode_of(state.modes, subject)
    check_writable(mode, subject)
    if given_id != LATEST and mode != IMPORT:
        raise errors.not_permitted(f"Subject '{subject}' is not in import mode")
    if given_id == LATEST and mode != READWRITE:
        raise errors.not_permitted(f"Subject '{subject}' is not in read-write mode")
    return mode


def check_writable(mode: str, subject: str) -> None:
    """Raises RegistryError if nothing may be changed."""
    if mode in (READONLY, READONLY_OVERRIDE):
        raise errors.not_permitted(f"Subject '{subject}' is in read-only mode")


def _next_version(state: RegistryState, subject: str, given: int, mode: str) -> int:
    versions = state.subjects.get(subject, {})
    following = max(0, *versions, state.unreadable.get(subject, 0)) + 1
    if len(versions) >= SUBJECT_VERSIONS_MAX:
        raise errors.too_large(f"Subject '{subject}' has {SUBJECT_VERSIONS_MAX} versions.")
    if given == LATEST or (given == following and mode != IMPORT):
        return following
    if mode != IMPORT:
        raise errors.invalid_schema(f"version {given} is not one more than the previous version")
    known = versions.get(given)
    if known is not None and not known.is_deleted:
        raise errors.not_permitted(f"Subject '{subject}' already has another schema as version {given}")
    return given


def _deleted_with_number(state: RegistryState, version: Version) -> list[Version]:
    known = state.subjects.get(version.subject, {}).get(version.version)
    return [] if known is None else [known]


def _id(state: RegistryState, candidate: Candidate, given: int) -> int:
    name = context_of(candidate.subject)
    context = state.contexts.get(name)
    if given != LATEST:
        others = () if context is None else context.by_id.get(given, {}).values()
        if any(state.key_of(version) != candidate.key for version in others):
            raise errors.id_conflict(given)
        return given
    shared = state.id_of(name, candidate.key)
    highest = 0 if context is None else context.highest_id
    if shared is None and highest >= ID_MAX:
        raise errors.too_large(f"All ids of context '{name}' are used.")
    return highest + 1 if shared is None else shared


# Compatibility.


def _compared(state: RegistryState, candidate: Candidate, config: dict[str, Any]) -> list[Version]:
    """The versions that a schema must be compatible with."""
    versions = state.live_versions(candidate.subject)
    group = config.get("compatibilityGroup")
    if group:
        mine = _property(candidate.content, group)
        versions = [version for version in versions if _property(version.content, group) == mine]
    return versions if config[LEVEL].endswith(TRANSITIVE) else versions[-1:]


def _property(content: Content, name: str) -> Any:
    properties = (content.metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def _has_version(state: RegistryState, subject: str, text: str) -> bool:
    """Is there something to compare with? A subject without versions has no latest one."""
    return parse_version(text) != LATEST or state.latest(subject) is not None


def _version_to_check(state: RegistryState, subject: str, text: str) -> Version:
    number = parse_version(text)
    if number == LATEST:
        latest = state.latest(subject)
        assert latest is not None
        return latest
    if not state.live_versions(subject):
        raise errors.subject_not_found(subject)
    found = state.subjects[subject].get(number)
    if found is None or found.is_deleted:
        raise errors.version_not_found(number)
    return found


def _findings(
    state: RegistryState, candidate: Candidate, versions: Sequence[Version], level: str, verdicts: Verdicts
) -> list[str]:
    """Why a schema is not compatible with versions; empty if it is."""
    kind = level.removesuffix(TRANSITIVE)
    if kind == NONE:
        return []
    new = candidate.side
    checks: list[tuple[Version, str, Check]] = []
    for version in reversed(versions):
        old = Side(version.content.type, version.content.text, _stored_references(state, version))
        if kind in (BACKWARD, FULL):
            checks.append((version, BACKWARD, Check(new, old)))
        if kind in (FORWARD, FULL):
            checks.append((version, FORWARD, Check(old, new)))
    found: list[str] = []
    results = verdicts.of(one for _, _, one in checks)
    for (version, direction, _), findings in zip(checks, results, strict=True):
        found += [_message(one, direction) for one in findings]
        if findings:
            found += [
                f"{{oldSchemaVersion: {version.version}}}",
                f"{{oldSchema: '{_short(version.content.text)}'}}",
            ]
            break
    return [*found, f"{{compatibility: '{level}'}}"] if found else []


def _stored_references(state: RegistryState, version: Version) -> tuple[ReferencedSchema, ...]:
    try:
        return tuple(state.referenced(version.subject, version.content.references))
    except InvalidSchema:
        # The check finds that the schema does not parse without them.
        return ()


def _message(finding: Incompatibility, direction: str) -> str:
    what = "reader: new, writer: old" if direction == BACKWARD else "reader: old, writer: new"
    return (
        f"{{errorType:'{finding.kind}', description:'{finding.message} (at {finding.path}; {what})', "
        f"additionalInfo:'{finding.path}'}}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 1000 else f"{text[:1000]}..."
