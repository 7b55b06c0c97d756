"""Confirmation of destructive commands."""

import sys

import typer


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation on a terminal; scripts confirm with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Standard input is not a terminal: confirm with --yes")
    typer.confirm(question, abort=True)
