"""The command tree of `runnel pipeline …`; each job's command has its own file."""

import os
from typing import Any

import typer
from typer.core import TyperGroup

from runnel.server.cli.pipeline import archive, audit, dead_letters, file, init, insights, restore, validate

FILE = "file"
"""The command that runs a declared pipeline; `run orders.yaml` means `run file orders.yaml`."""


class JobOrFile(TyperGroup):
    """Resolves a job by name, and any other argument that is a file as a declared pipeline."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject options before the name: they belong to a job that is not known yet."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            ctx.fail(f"options follow the job: runnel pipeline run NAME|FILE {args[0]} …")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first argument, and its arguments."""
        if FILE in self.commands and args[0] not in self.commands and _is_file(args[0]):
            return FILE, self.commands[FILE], args
        return super().resolve_command(ctx, args)


def _is_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) or os.path.isfile(text)


app = typer.Typer(help="Run data pipelines on Spark.", no_args_is_help=True)
run = typer.Typer(
    cls=JobOrFile,
    help="Run a job by name, or the pipeline declared in a file: "
    "[bold]runnel pipeline run orders.yaml[/bold].",
    no_args_is_help=True,
    subcommand_metavar="NAME|FILE [OPTIONS]...",
)
app.add_typer(run, name="run")


@app.callback()
def pipeline() -> None:
    """Run data pipelines on Spark."""


@run.callback()
def run_pipeline() -> None:
    """Options of `runnel pipeline run` itself."""


run.command(FILE)(file.file)
run.command("archive")(archive.archive)
run.command("restore")(restore.restore)
run.command("audit")(audit.audit)
run.command("insights")(insights.insights)
run.command("dead-letters")(dead_letters.dead_letters)
app.command("validate")(validate.validate)
app.command("init")(init.init)
