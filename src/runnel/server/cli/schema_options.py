"""Options of `runnel produce` and `runnel consume` for schemas of a registry."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, cast

import typer

REGISTRY_DEFAULT = "http://127.0.0.1:8080"
_PANEL = "Schemas"


class Format(StrEnum):
    """Formats of keys and values, as options name them."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """How keys, or values, are encoded or decoded."""

    name: str
    """`key` or `value`."""
    format: Format | None = None
    schema: Path | None = None
    subject: str | None = None
    version: str | None = None
    message: str | None = None

    @property
    def names_schema(self) -> bool:
        """True if options say which schema to encode with."""
        return (self.schema, self.subject, self.version) != (None, None, None)

    def problems(self, *, as_json: bool) -> Iterator[str]:
        """Contradictions between the options of a producer."""
        option = f"--{self.name}-"
        given = {
            "schema": self.schema,
            "subject": self.subject,
            "version": self.version,
            "message": self.message,
        }
        if self.format in (None, Format.AUTO):
            for part in (part for part, value in given.items() if value is not None):
                yield f"{option}{part} requires {option}format avro, protobuf or json-schema"
        if self.format is Format.AUTO and not as_json:
            yield f"{option}format auto requires --json, as printed by `runnel consume --json`"
        if self.schema is not None and self.version is not None:
            yield f"{option}schema and {option}version are mutually exclusive"
        if str(self.schema) == "-":
            yield f"{option}schema must be a file: standard input has the records"
        if self.message is not None and self.format is not Format.PROTOBUF:
            yield f"{option}message requires {option}format protobuf"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What the options of a command say about schemas."""

    key: FieldOptions
    value: FieldOptions
    registry: str
    user: str | None
    registers: bool

    @classmethod
    def collected(cls, given: Mapping[str, Any]) -> "FormatOptions":
        """From the parameters of a command."""
        parts = ("format", "schema", "subject", "version", "message")
        key, value = (
            FieldOptions(name, **{part: given.get(f"{name}_{part}") for part in parts})
            for name in ("key", "value")
        )
        return cls(key, value, given["registry"], given["registry_user"], not given.get("no_register"))

    def check_producing(self, *, as_json: bool) -> None:
        """Raise a usage error if the options contradict each other."""
        for field in (self.key, self.value):
            for problem in field.problems(as_json=as_json):
                raise typer.BadParameter(problem)


def registry_option(**more: Any) -> Any:
    """The address of the registry."""
    return typer.Option(
        "--registry",
        "-r",
        envvar="RUNNEL_REGISTRY",
        metavar="URL",
        help="The registry: a gateway, or another one with Confluent's REST API.",
        **more,
    )


def user_option(**more: Any) -> Any:
    """The credentials of the registry."""
    return typer.Option(
        "--registry-user",
        envvar="RUNNEL_REGISTRY_USER",
        metavar="NAME:PASSWORD",
        help="Credentials, if the registry requires them.",
        **more,
    )


def _option(name: str, help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=help_text, rich_help_panel=_PANEL)


def _parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )


_CONNECTION = (
    _parameter("registry", str, registry_option(rich_help_panel=_PANEL), REGISTRY_DEFAULT),
    _parameter("registry_user", str | None, user_option(rich_help_panel=_PANEL)),
)


def _formats(what: str) -> list[inspect.Parameter]:
    return [
        _parameter(f"{name}_format", Format | None, _option(f"--{name}-format", f"{name.title()}s {what}"))
        for name in ("value", "key")
    ]


def _schema_choice(name: str) -> list[inspect.Parameter]:
    schema = f"Encode {name}s with the schema in this file, after registering it."
    subject = f"Encode {name}s with a schema of this subject. Default: TOPIC-{name}."
    version = "The version of the subject: a number, or latest, the default."
    message = f"The Protobuf message type of {name}s. Default: the first one of the schema."
    return [
        _parameter(f"{name}_schema", Path | None, _option(f"--{name}-schema", schema, "FILE")),
        _parameter(f"{name}_subject", str | None, _option(f"--{name}-subject", subject, "SUBJECT")),
        _parameter(f"{name}_version", str | None, _option(f"--{name}-version", version, "VERSION")),
        _parameter(f"{name}_message", str | None, _option(f"--{name}-message", message, "NAME")),
    ]


CONSUMING = (
    *_formats("are framed with the id of a schema: print them as JSON. auto: those that can be decoded."),
    *_CONNECTION,
)
PRODUCING = (
    *_formats("are JSON: encode them with a schema. auto: with the schema whose id a line of --json has."),
    *_schema_choice("value"),
    *_schema_choice("key"),
    _parameter(
        "no_register", bool, _option("--no-register", "A schema in a file must be registered already."), False
    ),
    *_CONNECTION,
)


def with_schema_options(options: tuple[inspect.Parameter, ...]) -> Callable[..., Callable[..., Any]]:
    """Add the options to a command, which has them as its parameter `formats`."""

    def extended(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_formats(**given: Any) -> Any:
            collected = FormatOptions.collected({one.name: given.pop(one.name) for one in options})
            return command(**given, formats=collected)

        signature = inspect.signature(command, eval_str=True)
        own = [one for name, one in signature.parameters.items() if name != "formats"]
        described = cast(Any, with_formats)
        described.__signature__ = signature.replace(parameters=[*own, *options])
        described.__annotations__ = {one.name: one.annotation for one in (*own, *options)}
        return with_formats

    return extended
