"""Requests about levels of compatibility and modes."""

from typing import Any

from runnel.registry import errors
from runnel.registry.content import parse_metadata, parse_rule_set
from runnel.registry.decision import Decision
from runnel.registry.names import GLOBAL_SUBJECT, check_subject, context_of, split
from runnel.registry.records import CONFIG, MODE, Key, Record, record
from runnel.registry.settings import (
    CONFIG_FIELDS,
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    IMPORT,
    LEVEL,
    LEVELS,
    MODES,
    POLICIES,
    config_of,
    mode_of,
)
from runnel.registry.state import RegistryState

_TEXTS = ("alias", "compatibilityGroup", "compatibilityPolicy")
_FLAGS = ("normalize", "validateFields", "validateNames", "validateRules")


def config(
    state: RegistryState, subject: str | None = None, *, default_to_global: bool = False
) -> dict[str, Any]:
    """The settings of a subject, or globally."""
    subject = _scope(subject)
    own = state.configs.get(subject)
    if subject is None or default_to_global:
        return config_of(state.configs, subject)
    if own is None:
        raise errors.no_own_level(subject)
    return own


def set_config(state: RegistryState, subject: str | None, body: Any) -> Decision[dict[str, Any]]:
    """Change settings; omitted ones stay as they are."""
    subject = _scope(subject)
    given = _given_config(body)
    value = {**state.configs.get(subject, {}), **given}
    if LEVEL not in value and subject is None:
        value[LEVEL] = DEFAULT_LEVEL
    shown = {("compatibility" if name == LEVEL else name): setting for name, setting in given.items()}
    return Decision(shown, [_record(CONFIG, subject, value)])


def delete_config(state: RegistryState, subject: str | None) -> Decision[dict[str, Any]]:
    """Remove the settings of a subject; responds with what they were."""
    subject = _scope(subject)
    own = state.configs.get(subject)
    if own is None and subject is not None:
        raise errors.no_own_level(subject)
    shown = own if own is not None else {LEVEL: DEFAULT_LEVEL}
    return Decision(shown, state.deleted(Key(CONFIG, subject)) if own is not None else ())


def mode(
    state: RegistryState, subject: str | None = None, *, default_to_global: bool = False
) -> dict[str, str]:
    """The mode of a subject, or globally."""
    subject = _scope(subject)
    if subject is None or default_to_global:
        return {"mode": mode_of(state.modes, subject)}
    if subject not in state.modes:
        raise errors.no_own_mode(subject)
    return {"mode": state.modes[subject]}


def set_mode(
    state: RegistryState, subject: str | None, body: Any, *, force: bool = False
) -> Decision[dict[str, str]]:
    """Change a mode; importing begins with an empty subject, context or registry."""
    subject = _scope(subject)
    given = body.get("mode") if isinstance(body, dict) else None
    wanted = given.upper() if isinstance(given, str) else given
    if wanted not in MODES:
        raise errors.invalid_mode(given)
    is_import = wanted == IMPORT and mode_of(state.modes, subject) != IMPORT
    if is_import and not force and _has_subjects(state, subject):
        raise errors.not_permitted("Cannot import since found existing subjects")
    return Decision({"mode": wanted}, [_record(MODE, subject, {"mode": wanted})])


def delete_mode(
    state: RegistryState, subject: str | None, *, recursive: bool = False
) -> Decision[dict[str, str]]:
    """Remove the mode of a subject; of a context recursively, those of its subjects too."""
    subject = _scope(subject)
    if subject is not None and subject not in state.modes and not recursive:
        raise errors.no_own_mode(subject)
    removed: list[str | None] = [subject] if subject in state.modes else []
    if recursive:
        removed += [
            one for one in state.modes if one is not None and one != subject and _is_within(one, subject)
        ]
    records = [entry for one in removed for entry in state.deleted(Key(MODE, one))]
    return Decision({"mode": state.modes.get(subject, DEFAULT_MODE)}, records)


def _scope(subject: str | None) -> str | None:
    """The subject of a setting; None globally."""
    return None if subject is None else check_subject(subject, may_be_context=True)


def _record(kind: str, subject: str | None, value: dict[str, Any]) -> Record:
    named = {} if subject is None else {"subject": subject}
    return record(Key(kind, subject), {**named, **value})


def _given_config(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise errors.malformed("settings must be an object")
    given: dict[str, Any] = {}
    level = body.get("compatibility", body.get(LEVEL))
    if level is not None:
        wanted = level.upper() if isinstance(level, str) else level
        if wanted not in LEVELS:
            raise errors.invalid_level(level)
        given[LEVEL] = wanted
    for name in CONFIG_FIELDS:
        value = body.get(name)
        if value is not None:
            _check_setting(name, value)
            given[name] = value
    if not given:
        raise errors.invalid_level(level)
    return given


def _check_setting(name: str, value: Any) -> None:
    wanted = str if name in _TEXTS else bool if name in _FLAGS else dict
    if not isinstance(value, wanted):
        raise errors.malformed(f"{name} is not of type {wanted.__name__}")
    if name.endswith("RuleSet"):
        parse_rule_set(value)
    if name.endswith("Metadata"):
        parse_metadata(value)
    if name == "compatibilityPolicy" and value not in POLICIES:
        raise errors.malformed(f"{name} must be one of {', '.join(POLICIES)}")


def _has_subjects(state: RegistryState, subject: str | None) -> bool:
    return any(_is_within(one, subject) for one in state.subjects)


def _is_within(one: str, scope: str | None) -> bool:
    """Is a subject the one, or in the context, that a setting is for?"""
    if scope is None or scope == GLOBAL_SUBJECT:
        return True
    context, name = split(scope)
    return one == scope if name else context_of(one) == context
