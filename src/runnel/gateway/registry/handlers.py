"""The operations of the registry: method, path, and what they do with the state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runnel.gateway.registry.limits import PAGE_BYTES_MAX
from runnel.registry import errors, lookup
from runnel.registry.checks import Verdicts
from runnel.registry.configuration import config, delete_config, delete_mode, mode, set_config, set_mode
from runnel.registry.decision import Decision
from runnel.registry.deletion import delete_context, delete_subject, delete_version, number_to_delete
from runnel.registry.formats import FORMATS
from runnel.registry.limits import ID_MAX
from runnel.registry.names import ALL_CONTEXTS, context_named, qualified
from runnel.registry.registration import check, look_up, register
from runnel.registry.state import RegistryState, Version


@dataclass(frozen=True, slots=True)
class Call:
    """A request: names of its path, its query, its body, and the context that its path begins with."""

    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    properties: tuple[tuple[str, str], ...] = ()
    """Pairs of the repeated parameters `key` and `value`."""
    body: Any = None
    context: str = ""

    @property
    def subject(self) -> str:
        return self.within(self.names["subject"])

    @property
    def optional_subject(self) -> str | None:
        """The subject of a setting; None for the global one."""
        if "subject" in self.names:
            return self.subject
        return f":{self.context}:" if self.context else None

    def within(self, name: str) -> str:
        """A subject in the context of the path."""
        return qualified(self.context, name) if self.context else name

    def flag(self, name: str) -> bool:
        """A parameter that is true or false, in any case: clients send Python's False."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        is_number = text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 11
        return int(text) if is_number else default

    @property
    def prefix(self) -> str:
        """The prefix of subjects to list."""
        default = f":{self.context}:" if self.context else ALL_CONTEXTS
        given = self.query.get("subjectPrefix")
        return default if given is None else self.within(given)

    @property
    def format_name(self) -> str:
        return self.query.get("format", "")

    @property
    def id(self) -> int:
        text = self.names["id"]
        if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > ID_MAX:
            raise errors.schema_not_found(f"Schema {text[:40]}")
        return int(text)

    @property
    def where(self) -> str:
        """The subject that tells the context of an id."""
        return self.within(self.query.get("subject", ""))


Read = Callable[[RegistryState, Verdicts, Call], Any]
Write = Callable[[RegistryState, Verdicts, Call], Decision[Any]]
Resolve = Callable[[RegistryState, Call], Call]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table."""

    method: str
    path: str
    read: Read | None = None
    write: Write | None = None
    resolve: Resolve | None = None
    """Makes a request that may be decided several times independent of the state that it is decided on."""
    is_text: bool = False
    """The response is a schema as it is, not a value of JSON."""


# Schemas.


def _types(state: RegistryState, verdicts: Verdicts, call: Call) -> list[str]:
    return sorted(FORMATS)


def _schemas(state: RegistryState, verdicts: Verdicts, call: Call) -> list[dict[str, Any]]:
    found = lookup.schemas(
        state,
        prefix=call.prefix,
        deleted=call.flag("deleted"),
        latest_only=call.flag("latestOnly"),
        offset=call.number("offset", 0),
        limit=call.number("limit", -1),
    )
    if sum(len(version.content.text) for version in found) > PAGE_BYTES_MAX:
        detail = f"these {len(found)} schemas have more than {PAGE_BYTES_MAX} bytes: ask for fewer, by limit"
        raise errors.RegistryError(413, detail)
    return [lookup.described(state, version) for version in found]


def _content(state: RegistryState, version: Version, call: Call) -> dict[str, Any]:
    """A schema without the place where it is registered."""
    shown = {**version.content.to_json(), "guid": version.content.guid}
    shown["schema"] = lookup.formatted(state, version, call.format_name)
    return shown


def _by_id(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    version = lookup.by_id(state, call.id, call.where)
    more = {"maxId": lookup.highest_id(state, call.where)} if call.flag("fetchMaxId") else {}
    place = {"subject": version.subject, "version": version.version} if call.query.get("subject") else {}
    return {**place, **_content(state, version, call), **more}


def _text_by_id(state: RegistryState, verdicts: Verdicts, call: Call) -> str:
    return lookup.formatted(state, lookup.by_id(state, call.id, call.where), call.format_name)


def _subjects_of_id(state: RegistryState, verdicts: Verdicts, call: Call) -> list[str]:
    found = lookup.uses_of_id(state, call.id, call.where, deleted=call.flag("deleted"))
    return _page(lookup.distinct(version.subject for version in found), call)


def _versions_of_id(state: RegistryState, verdicts: Verdicts, call: Call) -> list[dict[str, Any]]:
    found = lookup.uses_of_id(state, call.id, call.where, deleted=call.flag("deleted"))
    return _page([{"subject": one.subject, "version": one.version} for one in found], call)


def _by_guid(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    return _content(state, lookup.by_guid(state, call.names["guid"])[0], call)


def _ids_of_guid(state: RegistryState, verdicts: Verdicts, call: Call) -> list[dict[str, Any]]:
    return lookup.ids_of_guid(state, call.names["guid"])


def _page(found: list[Any], call: Call) -> list[Any]:
    return lookup.page(found, call.number("offset", 0), call.number("limit", -1))


# Subjects.


def _subjects(state: RegistryState, verdicts: Verdicts, call: Call) -> list[str]:
    return lookup.subjects(
        state,
        prefix=call.prefix,
        deleted=call.flag("deleted"),
        deleted_only=call.flag("deletedOnly"),
        offset=call.number("offset", 0),
        limit=call.number("limit", -1),
    )


def _look_up(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    return look_up(
        state,
        call.subject,
        call.body,
        normalize=call.flag("normalize"),
        deleted=call.flag("deleted"),
        format_name=call.format_name,
    )


def _with_metadata(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    found = lookup.latest_with_metadata(state, call.subject, call.properties, deleted=call.flag("deleted"))
    return lookup.described(state, found, call.format_name)


def _delete_subject(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[list[int]]:
    return delete_subject(state, call.subject, permanent=call.flag("permanent"))


def _versions(state: RegistryState, verdicts: Verdicts, call: Call) -> list[int]:
    return lookup.versions(
        state,
        call.subject,
        deleted=call.flag("deleted"),
        deleted_only=call.flag("deletedOnly"),
        deleted_as_negative=call.flag("deletedAsNegative"),
        offset=call.number("offset", 0),
        limit=call.number("limit", -1),
    )


def _register(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[dict[str, Any]]:
    return register(
        state,
        call.subject,
        call.body,
        normalize=call.flag("normalize"),
        force=call.flag("force"),
        format_name=call.format_name,
        verdicts=verdicts,
    )


def _found_version(state: RegistryState, call: Call) -> Version:
    return lookup.version(state, call.subject, call.names["version"], deleted=call.flag("deleted"))


def _version(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    return lookup.described(state, _found_version(state, call), call.format_name)


def _text_of_version(state: RegistryState, verdicts: Verdicts, call: Call) -> str:
    return lookup.formatted(state, _found_version(state, call), call.format_name)


def _referenced_by(state: RegistryState, verdicts: Verdicts, call: Call) -> list[int]:
    return lookup.referenced_by(state, call.subject, call.names["version"])


def _with_number(state: RegistryState, call: Call) -> Call:
    """The deletion of `latest` as the deletion of the version that this is now."""
    permanent = call.flag("permanent")
    number = number_to_delete(state, call.subject, call.names["version"], permanent=permanent)
    return replace(call, names={**call.names, "version": str(number)})


def _delete_version(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[int]:
    return delete_version(state, call.subject, call.names["version"], permanent=call.flag("permanent"))


def _check(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    return check(
        state,
        call.subject,
        call.body,
        version=call.names.get("version"),
        normalize=call.flag("normalize"),
        verbose=call.flag("verbose"),
        verdicts=verdicts,
    )


# Settings.


def _config(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, Any]:
    return config(state, call.optional_subject, default_to_global=call.flag("defaultToGlobal"))


def _set_config(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[dict[str, Any]]:
    return set_config(state, call.optional_subject, call.body)


def _delete_config(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[dict[str, Any]]:
    return delete_config(state, call.optional_subject)


def _mode(state: RegistryState, verdicts: Verdicts, call: Call) -> dict[str, str]:
    return mode(state, call.optional_subject, default_to_global=call.flag("defaultToGlobal"))


def _set_mode(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[dict[str, str]]:
    return set_mode(state, call.optional_subject, call.body, force=call.flag("force"))


def _delete_mode(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[dict[str, str]]:
    return delete_mode(state, call.optional_subject, recursive=call.flag("recursive"))


def _contexts(state: RegistryState, verdicts: Verdicts, call: Call) -> list[str]:
    return _page(lookup.contexts(state), call)


def _delete_context(state: RegistryState, verdicts: Verdicts, call: Call) -> Decision[None]:
    return delete_context(state, context_named(call.names["context"]))


OPERATIONS = (
    Operation("GET", "/schemas", _schemas),
    Operation("GET", "/schemas/types", _types),
    Operation("GET", "/schemas/ids/{id}", _by_id),
    Operation("GET", "/schemas/ids/{id}/schema", _text_by_id, is_text=True),
    Operation("GET", "/schemas/ids/{id}/subjects", _subjects_of_id),
    Operation("GET", "/schemas/ids/{id}/versions", _versions_of_id),
    Operation("GET", "/schemas/guids/{guid}", _by_guid),
    Operation("GET", "/schemas/guids/{guid}/ids", _ids_of_guid),
    Operation("GET", "/subjects", _subjects),
    Operation("POST", "/subjects/{subject}", _look_up),
    Operation("DELETE", "/subjects/{subject}", write=_delete_subject),
    Operation("GET", "/subjects/{subject}/metadata", _with_metadata),
    Operation("GET", "/subjects/{subject}/versions", _versions),
    Operation("POST", "/subjects/{subject}/versions", write=_register),
    Operation("GET", "/subjects/{subject}/versions/{version}", _version),
    Operation(
        "DELETE", "/subjects/{subject}/versions/{version}", write=_delete_version, resolve=_with_number
    ),
    Operation("GET", "/subjects/{subject}/versions/{version}/schema", _text_of_version, is_text=True),
    Operation("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    Operation("POST", "/compatibility/subjects/{subject}/versions", _check),
    Operation("POST", "/compatibility/subjects/{subject}/versions/{version}", _check),
    Operation("GET", "/config", _config),
    Operation("PUT", "/config", write=_set_config),
    Operation("DELETE", "/config", write=_delete_config),
    Operation("GET", "/config/{subject}", _config),
    Operation("PUT", "/config/{subject}", write=_set_config),
    Operation("DELETE", "/config/{subject}", write=_delete_config),
    Operation("GET", "/mode", _mode),
    Operation("PUT", "/mode", write=_set_mode),
    Operation("DELETE", "/mode", write=_delete_mode),
    Operation("GET", "/mode/{subject}", _mode),
    Operation("PUT", "/mode/{subject}", write=_set_mode),
    Operation("DELETE", "/mode/{subject}", write=_delete_mode),
    Operation("GET", "/contexts", _contexts),
    Operation("DELETE", "/contexts/{context}", write=_delete_context),
)
