"""The options that every job takes: a command names the ones of its own, `@job` adds these."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, cast

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Json, parse_settings

LOCAL = "local[*]"
CHECKPOINTS = Path(".runnel") / "checkpoints"

_RUNNING = "How it runs"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="RUNNEL_BOOTSTRAP",
        help="Where the broker listens: HOST:PORT, several with commas.",
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
        help="Where Spark runs: local[*] is this machine, spark://HOST:PORT a cluster.",
        rich_help_panel=_RUNNING,
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of Spark, as spark.driver.memory=4g. May be repeated.",
        rich_help_panel=_RUNNING,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Keep figures in this file, in Prometheus' text format, for its node exporter to pick up.",
        rich_help_panel=_RUNNING,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing of how it goes.", rich_help_panel=_RUNNING)
]
Once = Annotated[
    bool | None,
    typer.Option(
        "--once/--continuous",
        help="Take what is there now and end, or go on until stopped. Left out: as is usual for the job.",
        show_default=False,
        rich_help_panel=_RUNNING,
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help=f"Where it keeps how far it has come, to go on from there. Left out: {CHECKPOINTS}/NAME.",
        show_default=False,
        rich_help_panel=_RUNNING,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What was asked of a job, apart from its own options."""

    bootstrap_given: str | None
    bootstrap_named: str | None
    """The same if this very command named it; what the environment says does not count."""
    master: str
    settings: dict[str, str]
    once: bool | None
    """Take what is there and end (True), go on (False), or as the job sees fit (None)."""
    checkpoint_given: str | None
    as_json: bool
    metrics: str | None
    is_quiet: bool

    @property
    def bootstrap(self) -> str:
        """Where the broker listens."""
        return self.bootstrap_given or BOOTSTRAP_DEFAULT

    def checkpoint(self, name: str) -> str:
        """The folder for the progress of the pipeline of this name."""
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
"""The parameter by which a command learns who gave its options."""

P = ParamSpec("P")


def job(*, streams: bool) -> Callable[[Callable[Concatenate[JobOptions, P], None]], Callable[..., None]]:
    """A command whose first parameter is the JobOptions; those of streaming only where it `streams`."""
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
    source = context.get_parameter_source("bootstrap")
    is_named = source is not None and source.name == "COMMANDLINE"
    return JobOptions(
        bootstrap_given=values["bootstrap"],
        bootstrap_named=values["bootstrap"] if is_named else None,
        master=values["master"],
        settings=parse_settings(values["settings"]),
        once=values["once"],
        checkpoint_given=values["checkpoint"],
        as_json=values["as_json"],
        metrics=values["metrics"],
        is_quiet=values["quiet"],
    )
