"""Options by which the source and the sink use schemas of a registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.pipelines.errors import BadOption
from runnel.registry.format import AVRO, JSON, PROTOBUF

if TYPE_CHECKING:
    from runnel.pipelines.registered.schemas import RegisteredSchema

TYPES: Mapping[str, str] = {"avro": AVRO, "protobuf": PROTOBUF, "json-schema": JSON}
"""The registry's names of formats."""
URL = "schemaRegistry.url"
USER = "schemaRegistry.user"
REGISTRY_OPTIONS = ("valueSubject", "valueVersion", "valueMessage", URL, USER)


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The schema of values: a version of a subject."""

    type: str
    url: str
    user: str | None
    """NAME:PASSWORD, or a reference that each task resolves."""
    subject: str
    version: str
    """A number, or `latest`."""
    message: str | None
    """The name of a Protobuf message; None is the first one of the schema."""
    wait_s: float
    """How long a task waits for a registry that does not respond."""
    schema: "RegisteredSchema | None" = None
    """The schema, once it was looked up."""


def value_options(
    options: Mapping[str, str], value_format: str, topic: str | None, wait_s: float
) -> ValueOptions | None:
    """Parse options, whose names are in lower case; None without a registry. Raises BadOption.

    `topic` is the only topic, whose name is part of the default subject.
    """
    given = [name for name in REGISTRY_OPTIONS if options.get(name.lower())]
    if value_format not in TYPES:
        if given:
            raise BadOption(f"{given[0]} applies to valueFormat={', '.join(TYPES)}, not to {value_format}")
        return None
    if options.get("valueschema"):
        if given or value_format != "avro":
            wrong = given[0] if given else f"valueFormat={value_format}"
            raise BadOption(f"{wrong} takes the schema from a registry: remove valueSchema")
        return None
    if value_format == "avro" and not given:
        return None
    url = options.get(URL.lower())
    if not url:
        raise BadOption(f"the option {URL} is required, such as http://127.0.0.1:8080")
    subject = options.get("valuesubject") or (f"{topic}-value" if topic else None)
    if not subject:
        raise BadOption("the option valueSubject is required unless there is exactly one topic")
    return ValueOptions(
        TYPES[value_format],
        url,
        options.get(USER.lower()),
        subject,
        _version(options),
        options.get("valuemessage"),
        wait_s,
    )


def _version(options: Mapping[str, str]) -> str:
    version = (options.get("valueversion") or "latest").strip().lower()
    if version != "latest" and not (version.isdecimal() and int(version)):
        raise BadOption(f"valueVersion={version!r} is neither latest nor a number of at least 1")
    return version
