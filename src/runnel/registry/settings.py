"""Compatibility levels, modes, and the settings that apply to a subject.

A setting is looked up at the subject, its context, the global context, and globally.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from runnel.registry.names import DEFAULT_CONTEXT, GLOBAL_SUBJECT, split

NONE, BACKWARD, FORWARD, FULL = "NONE", "BACKWARD", "FORWARD", "FULL"
TRANSITIVE = "_TRANSITIVE"
LEVELS = (
    NONE,
    BACKWARD,
    BACKWARD + TRANSITIVE,
    FORWARD,
    FORWARD + TRANSITIVE,
    FULL,
    FULL + TRANSITIVE,
)
DEFAULT_LEVEL = BACKWARD

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
FORWARD_MODE = "FORWARD"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD_MODE)
DEFAULT_MODE = READWRITE

LEVEL = "compatibilityLevel"
CONFIG_FIELDS = (
    "alias",
    "normalize",
    "validateFields",
    "validateNames",
    "validateRules",
    "compatibilityGroup",
    "compatibilityPolicy",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Settings beside the level, stored as they are given."""

POLICIES = ("STRICT", "LENIENT")


def scopes(subject: str | None) -> Iterator[str | None]:
    """Where a setting of a subject is looked up, nearest first; None is global."""
    if subject is not None:
        context, name = split(subject)
        if name:
            yield subject
        if context != DEFAULT_CONTEXT:
            yield f":{context}:"
        yield GLOBAL_SUBJECT
    yield None


def config_of(configs: Mapping[str | None, Mapping[str, Any]], subject: str | None) -> dict[str, Any]:
    """The settings that apply to a subject, with the level."""
    found: dict[str, Any] = {LEVEL: DEFAULT_LEVEL}
    for scope in reversed(list(scopes(subject))):
        found |= {name: value for name, value in configs.get(scope, {}).items() if value is not None}
    return found


def mode_of(modes: Mapping[str | None, str], subject: str | None) -> str:
    """The mode that applies to a subject."""
    if modes.get(None) == READONLY_OVERRIDE:
        return READONLY_OVERRIDE
    return next((modes[scope] for scope in scopes(subject) if scope in modes), DEFAULT_MODE)
