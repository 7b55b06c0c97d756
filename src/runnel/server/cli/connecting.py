"""Client properties on the command line: `--command-config FILE` as of Kafka's tools, and `-X NAME=VALUE`.

Every command with a bootstrap server has both; `with_cluster` and the jobs of pipelines use the properties of
the command that runs.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from runnel.client.properties import ClientProperties

_PANEL = "Connection"

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="RUNNEL_COMMAND_CONFIG",
        metavar="FILE",
        help="Client properties, such as security.protocol, in the format of Kafka's tools.",
        rich_help_panel=_PANEL,
    ),
]
CommandProperties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--command-property",
        metavar="NAME=VALUE",
        help="A client property; a secret as ${env:NAME} or ${file:/path}. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
_OPTIONS = {"command_config": CommandConfig, "command_properties": CommandProperties}
_BOOTSTRAP = "bootstrap"

_of_command: "ContextVar[ClientProperties | None]" = ContextVar("client properties", default=None)


def client_properties() -> "ClientProperties":
    """The client properties of the command that runs."""
    from runnel.client.properties import ClientProperties

    return _of_command.get() or ClientProperties()


def add_client_options(app: typer.Typer) -> None:
    """Add the options to all commands of the tree that connect to a cluster."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_client_options(group.typer_instance)
    for command in app.registered_commands:
        if command.callback is not None and _BOOTSTRAP in inspect.signature(command.callback).parameters:
            command.callback = _with_client_options(command.callback)


def _with_client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def with_properties(**given: Any) -> Any:
        config, assignments = (given.pop(name) for name in _OPTIONS)
        token = _of_command.set(_read(config, assignments))
        try:
            return command(**given)
        finally:
            _of_command.reset(token)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
        for name, annotation in _OPTIONS.items()
    ]
    described = cast(Any, with_properties)
    parameters = [*signature.parameters.values(), *added]
    described.__signature__ = signature.replace(parameters=parameters)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_properties


def _read(config: Path | None, assignments: list[str] | None) -> "ClientProperties | None":
    if config is None and not assignments:
        return None
    from runnel.client.properties import ClientProperties

    properties = ClientProperties() if config is None else ClientProperties.from_file(config)
    return properties.with_more(ClientProperties.from_assignments(assignments or ()))
