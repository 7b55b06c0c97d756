"""The tree of `runnel pipeline …`: a job's command stands in a file of its own, hooked in by one line."""

import os
from typing import Any

import typer
from typer.core import TyperGroup

from runnel.server.cli.pipeline import archive, audit, dead_letters, file, init, insights, restore, validate

FILE = "file"
"""The command that runs a declared pipeline; `run orders.yaml` means `run file orders.yaml`."""


class JobOrFile(TyperGroup):
    """Jobs by their names; what is no job but a file is a declared pipeline."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse options before the name: whose they are is not known yet."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            ctx.fail(f"say what to run before its options: runnel pipeline run NAME|FILE {args[0]} …")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument means, and what is left for it."""
        if FILE in self.commands and args[0] not in self.commands and _is_file(args[0]):
            return FILE, self.commands[FILE], args
        return super().resolve_command(ctx, args)


def _is_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) or os.path.isfile(text)


app = typer.Typer(help="Run data pipelines on Spark.", no_args_is_help=True)
run = typer.Typer(
    cls=JobOrFile,
    help="Run a job by its name, or a pipeline that a file declares: "
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
    """What stands before every job."""


run.command(FILE)(file.file)
run.command("archive")(archive.archive)
run.command("restore")(restore.restore)
run.command("audit")(audit.audit)
run.command("insights")(insights.insights)
run.command("dead-letters")(dead_letters.dead_letters)
app.command("validate")(validate.validate)
app.command("init")(init.init)
