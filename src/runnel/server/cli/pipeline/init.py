"""`runnel pipeline init`: write an example pipeline."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT = Path("pipeline.yaml")


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="File to write.", dir_okay=False)] = DEFAULT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a runnable example: orders joined with payments, and the revenue per minute.

    Example: runnel pipeline init shop.yaml
    """
    from runnel.pipelines.declared.example import example_text
    from runnel.server.cli.output import CommandError, print_info

    text = example_text().replace(str(DEFAULT), file.name)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise CommandError(f"{file} already exists; use --force to overwrite it") from None
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from error
    print_info(f"wrote {file}; next: runnel pipeline validate {file}")
