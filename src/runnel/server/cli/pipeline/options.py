"""Options shared by all jobs, added to a command by `@job`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast

import typer

from runnel.server.cli.connecting import client_properties
from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Json, parse_settings

if TYPE_CHECKING:
    from runnel.client.properties import ClientProperties

LOCAL = "local[*]"
CHECKPOINTS = Path(".runnel") / "checkpoints"

_RUNNING = "Execution"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="RUNNEL_BOOTSTRAP",
        help="Bootstrap servers: HOST:PORT, separated by commas.",
        metavar="ADDRESS",
        show_default=BOOTSTRAP_DEFAULT,
        rich_help_panel=_RUNNING,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="RUNNEL_SPARK_MASTER",
        metavar="URL",
        help="Spark master: local[*] for this machine, spark://HOST:PORT for a cluster.",
        rich_help_panel=_RUNNING,
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Spark setting, such as spark.driver.memory=4g. Repeatable.",
        rich_help_panel=_RUNNING,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Write metrics to this file in Prometheus text format, for the node exporter.",
        rich_help_panel=_RUNNING,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.", rich_help_panel=_RUNNING)]
Once = Annotated[
    bool | None,
    typer.Option(
        "--once/--continuous",
        help="Process the available records and exit, or run until stopped. Default: depends on the job.",
        show_default=False,
        rich_help_panel=_RUNNING,
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help=f"Checkpoint directory. Default: {CHECKPOINTS}/NAME.",
        show_default=False,
        rich_help_panel=_RUNNING,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Values of the shared options."""

    bootstrap_given: str | None
    bootstrap_flag: str | None
    """The same, but only if given on the command line, not by the environment."""
    properties: "ClientProperties"
    properties_flag: "ClientProperties | None"
    """The same, but only if given on the command line, not by the environment."""
    master: str
    settings: dict[str, str]
    once: bool | None
    """Process available records and exit (True), run until stopped (False), or the job's default (None)."""
    checkpoint_given: str | None
    as_json: bool
    metrics: str | None
    is_quiet: bool

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers."""
        return self.bootstrap_given or BOOTSTRAP_DEFAULT

    def checkpoint(self, name: str) -> str:
        """Checkpoint directory of the pipeline with this name."""
        return self.checkpoint_given or str(CHECKPOINTS / name)


_COMMON: dict[str, tuple[object, object]] = {
    "bootstrap": (Bootstrap, None),
    "master": (Master, LOCAL),
    "settings": (SparkSettings, None),
    "metrics": (Metrics, None),
    "quiet": (Quiet, False),
    "as_json": (Json, False),
}
_STREAMING: dict[str, tuple[object, object]] = {"once": (Once, None), "checkpoint": (Checkpoint, None)}

_CONTEXT = "command_context"
"""The parameter with the context, which knows the source of each option."""

P = ParamSpec("P")


def job(*, streams: bool) -> Callable[[Callable[Concatenate[JobOptions, P], None]], Callable[..., None]]:
    """A command whose first parameter is JobOptions; streaming options only if it `streams`."""
    common = {**(_STREAMING if streams else {}), **_COMMON}

    def decorate(command: Callable[Concatenate[JobOptions, P], None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(**given: Any) -> None:
            context: typer.Context = given.pop(_CONTEXT)
            values = {name: given.pop(name, None) for name in (*_COMMON, *_STREAMING)}
            cast(Any, command)(_job_options(values, context), **given)

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())[1:]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in common.items()
        ]
        added.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
        described = cast(Any, with_options)
        described.__signature__ = signature.replace(parameters=[*own, *added])
        described.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
        return with_options

    return decorate


def _job_options(values: dict[str, Any], context: typer.Context) -> JobOptions:
    properties = client_properties()
    has_properties = any(_is_named(context, name) for name in ("command_config", "command_properties"))
    return JobOptions(
        bootstrap_given=values["bootstrap"],
        bootstrap_flag=values["bootstrap"] if _is_named(context, "bootstrap") else None,
        properties=properties,
        properties_flag=properties if has_properties else None,
        master=values["master"],
        settings=parse_settings(values["settings"]),
        once=values["once"],
        checkpoint_given=values["checkpoint"],
        as_json=values["as_json"],
        metrics=values["metrics"],
        is_quiet=values["quiet"],
    )


def _is_named(context: typer.Context, name: str) -> bool:
    """Was the option given on the command line?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
