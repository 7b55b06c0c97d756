"""Asking before something is lost."""

import sys

import typer


def confirm(question: str, yes: bool) -> None:
    """Go on only if the person agrees; a script has to say so with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Nobody is here to answer: add --yes if you mean it")
    typer.confirm(question, abort=True)
