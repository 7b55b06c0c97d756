"""Sources of a broker's static settings: a file, the environment, flags; later ones take precedence.

All three use Kafka's names:

    server.properties               log.retention.hours=24        (as Kafka reads it)
    runnel.toml                     log.retention.hours = 24      (or [log.retention] with hours = 24)
    environment                     RUNNEL_SET_LOG_RETENTION_HOURS=24
    flag                            --set log.retention.hours=24
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from runnel.model.properties import BadProperties, parse_properties

ENVIRONMENT_PREFIX = "RUNNEL_SET_"


class BadSettings(ValueError):
    """Invalid static settings; the message names the setting and the remedy."""


def static_settings(
    config_file: Path | None, environment: Mapping[str, str], assignments: Iterable[str]
) -> dict[str, str]:
    """All three sources merged into one map of Kafka names to values."""
    settings = _from_file(config_file) if config_file else {}
    settings.update(_from_environment(environment))
    settings.update(_from_assignments(assignments))
    return settings


def _from_file(path: Path) -> dict[str, str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {path}: {error.strerror}") from error
    if path.suffix == ".toml":
        return _from_toml(path, data)
    if path.suffix != ".properties":
        # Any other name: few files are valid in both formats, and those mean the same in both.
        try:
            return _from_toml(path, data)
        except BadSettings:
            pass
    try:
        # Java reads the format as Latin-1; other characters are written as escapes.
        properties = parse_properties(data.decode("latin-1"))
    except BadProperties as error:
        raise BadSettings(f"{path} is not a valid properties file: {error}") from error
    return {name: value.strip() for name, value in properties.items()}


def _from_toml(path: Path, data: bytes) -> dict[str, str]:
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not valid TOML: {error}") from error
    return dict(_flatten(document, ""))


def _flatten(table: Mapping[str, object], prefix: str) -> Iterable[tuple[str, str]]:
    # TOML parses `log.retention.hours = 24` as nested tables; the path is the Kafka name.
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(ENVIRONMENT_PREFIX) :].lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _from_assignments(assignments: Iterable[str]) -> dict[str, str]:
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise BadSettings(f"{assignment!r} is not of the form key=value")
        settings[name.strip()] = value.strip()
    return settings
