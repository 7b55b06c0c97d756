"""`runnel pipeline init`: a pipeline to start from."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT = Path("pipeline.yaml")


def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="Where to write it.", dir_okay=False)
    ] = DEFAULT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write an example that runs: orders joined with payments, and the revenue per minute.

    Example: runnel pipeline init shop.yaml
    """
    from runnel.pipelines.declared.example import example_text
    from runnel.server.cli.output import CannotDo, note

    text = example_text().replace(str(DEFAULT), file.name)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise CannotDo(f"{file} is there already; --force overwrites it") from None
    except OSError as error:
        raise CannotDo(f"{file} cannot be written: {error.strerror}") from error
    note(f"wrote {file}; next: runnel pipeline validate {file}")
