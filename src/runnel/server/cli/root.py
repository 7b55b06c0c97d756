"""The root of the command tree with `runnel serve`, which should not pay for the import of all the others."""

from typing import Annotated

import typer

from runnel.server.cli import serve

BROKER = "Broker"


def new_app() -> typer.Typer:
    """The root with its first command."""
    app = typer.Typer(
        name="runnel",
        help="A message broker that speaks Kafka's protocol. Start one with [bold]runnel serve[/bold], "
        "see it work with [bold]runnel demo[/bold].",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(runnel)
    app.command("serve", rich_help_panel=BROKER)(serve.serve)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from runnel.server.cli import version

        version.version()
        raise typer.Exit()


def runnel(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of `runnel` itself."""
