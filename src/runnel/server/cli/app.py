"""The tree of commands."""

from typing import Annotated

import typer

from runnel.server.cli import bench, config, consume, demo, group, log, produce, serve, topic, txn, version
from runnel.server.cli.pipeline import app as pipeline

app = typer.Typer(
    name="runnel",
    help="A message broker that speaks Kafka's protocol. Start one with [bold]runnel serve[/bold], "
    "see it work with [bold]runnel demo[/bold].",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit()


@app.callback()
def runnel(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of `runnel` itself."""


BROKER, RECORDS, ADMINISTRATION = "Broker", "Records", "Administration"

app.command("serve", rich_help_panel=BROKER)(serve.serve)
app.command("demo", rich_help_panel=BROKER)(demo.demo)
app.command("produce", rich_help_panel=RECORDS)(produce.produce)
app.command("consume", rich_help_panel=RECORDS)(consume.consume)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=RECORDS)
app.add_typer(topic.app, name="topic", rich_help_panel=ADMINISTRATION)
app.add_typer(group.app, name="group", rich_help_panel=ADMINISTRATION)
app.add_typer(txn.app, name="txn", rich_help_panel=ADMINISTRATION)
app.add_typer(config.app, name="config", rich_help_panel=ADMINISTRATION)
app.add_typer(log.app, name="log", rich_help_panel=ADMINISTRATION)
app.command("bench", rich_help_panel=ADMINISTRATION)(bench.bench)
app.command("version", rich_help_panel=ADMINISTRATION)(version.version)
