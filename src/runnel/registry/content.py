"""What a schema consists of, apart from where it is registered."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from runnel.registry.errors import RegistryError, invalid_rules, invalid_schema, malformed
from runnel.registry.format import AVRO
from runnel.registry.limits import ID_MAX, NESTING_MAX

Json = Mapping[str, Any]
LATEST = -1
_RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A schema that another one uses, and the name by which it does."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class Content:
    """Type, text, references, metadata and rules: equal contents of a context share an id."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None

    def __hash__(self) -> int:
        # Metadata and rules are dictionaries; many contents may differ in them only.
        return hash((self.type, self.guid))

    @property
    def bare(self) -> "Content":
        """Without metadata and rules."""
        return replace(self, metadata=None, rule_set=None)

    def to_json(self) -> dict[str, Any]:
        """As requests and records have it; AVRO is not named."""
        return {
            **({} if self.type == AVRO else {"schemaType": self.type}),
            **({"references": [one.to_json() for one in self.references]} if self.references else {}),
            **({} if self.metadata is None else {"metadata": self.metadata}),
            **({} if self.rule_set is None else {"ruleSet": self.rule_set}),
            "schema": self.text,
        }

    @cached_property
    def guid(self) -> str:
        """A UUID made from everything that the content consists of."""
        references = "".join(f"{one.name}{one.subject}{one.version}" for one in self.references)
        # Escapes of JSON may be halves of surrogate pairs.
        text = (self.text + references).encode(errors="surrogatepass")
        digest = hashlib.md5(text, usedforsecurity=False)
        for part in (self.metadata, self.rule_set):
            if part is not None:
                digest.update(canonical(part).encode())
        found = digest.hexdigest()
        return "-".join((found[:8], found[8:12], found[12:16], found[16:20], found[20:]))

    def key_of(self, identity: str) -> bytes:
        """A digest that is equal for contents that are the same, given the identity of the text."""
        parts = (
            self.type,
            identity,
            [one.to_json() for one in self.references],
            self.metadata,
            self.rule_set,
        )
        return hashlib.sha256(canonical(parts).encode()).digest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and without blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def parse_content(given: Any) -> Content:
    """The content of a request or a record. Raises RegistryError."""
    if not isinstance(given, dict):
        raise malformed("a schema is an object with the field schema")
    text = given.get("schema")
    if not isinstance(text, str) or not text:
        raise invalid_schema("it is empty")
    kind = given.get("schemaType") or AVRO
    if not isinstance(kind, str):
        raise malformed("schemaType is a text")
    return Content(
        kind.upper(),
        text,
        _references(given.get("references")),
        parse_metadata(given.get("metadata")),
        parse_rule_set(given.get("ruleSet")),
    )


def parse_registered(number: int, value: Json) -> tuple[int, Content] | None:
    """The id and the content of a stored version with this number; None if its record is malformed."""
    schema_id = value.get("id")
    if not isinstance(schema_id, int) or not 0 < schema_id <= ID_MAX or not 0 < number <= ID_MAX:
        return None
    try:
        return schema_id, parse_content(value)
    except RegistryError:
        return None


def _references(given: Any) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise malformed("references is a list")
    return tuple(_reference(one) for one in given)


def _reference(given: Any) -> Reference:
    match given:
        case {"name": str(name), "subject": str(subject)}:
            version = given.get("version", LATEST)
            if isinstance(version, int) and not isinstance(version, bool):
                return Reference(name, subject, version)
    raise malformed("a reference has name, subject and version")


def parse_metadata(given: Any) -> Json | None:
    """The metadata of a schema or of settings. Raises RegistryError."""
    if given is not None and not isinstance(given, dict):
        raise malformed("metadata is an object")
    if _is_too_nested(given):
        raise malformed(f"metadata has more than {NESTING_MAX} levels")
    return given


def parse_rule_set(given: Any) -> Json | None:
    """The rules of a schema or of settings. Raises RegistryError."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid_rules("it is not an object")
    if _is_too_nested(given):
        raise invalid_rules(f"it has more than {NESTING_MAX} levels")
    for name, rules in given.items():
        if isinstance(rules, list):
            _check_rules(name[:100], rules)
        elif name in _RULE_LISTS and rules is not None:
            raise invalid_rules(f"{name} is not a list")
    return given


def _check_rules(list_name: str, rules: list[Any]) -> None:
    names = [rule.get("name") if isinstance(rule, dict) else None for rule in rules]
    if not all(isinstance(one, str) and one for one in names):
        raise invalid_rules(f"each of {list_name} has a name")
    if len(set(names)) < len(names):
        raise invalid_rules(f"two of {list_name} have the same name")


def _is_too_nested(value: Any) -> bool:
    """Has a value of JSON more levels than can always be encoded?"""
    # Level by level, as that needs no stack.
    level = [value]
    for _ in range(NESTING_MAX + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


# Defaults and overrides of a subject's settings.


def merged_metadata(parts: Sequence[Json | None]) -> Json | None:
    """Metadata of several sources; later ones override."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    found: dict[str, Any] = {}
    for part in present:
        for name, value in part.items():
            before = found.get(name)
            if isinstance(before, dict) and isinstance(value, dict):
                found[name] = {**before, **value}
            elif isinstance(before, list) and isinstance(value, list):
                known = {canonical(one) for one in before}
                found[name] = [*before, *(one for one in value if canonical(one) not in known)]
            elif value is not None:
                found[name] = value
    return found


def merged_rules(parts: Sequence[Json | None]) -> Json | None:
    """Rules of several sources; later ones replace those of the same name."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    found: dict[str, Any] = {}
    for part in present:
        for name, rules in part.items():
            before = found.get(name)
            if isinstance(before, list) and isinstance(rules, list):
                found[name] = list({rule["name"]: rule for rule in (*before, *rules)}.values())
            elif rules is not None:
                found[name] = rules
    return found
