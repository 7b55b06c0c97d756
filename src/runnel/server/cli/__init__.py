"""The command line: `runnel serve` and everything one does to a running broker.

Each command is a thin layer over runnel.client; what it needs is imported when it runs, so that
`runnel --help` is quick.
"""

import sys
from collections.abc import Sequence
from typing import Any

OK = 0
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Ends with 0 if all went well, 1 if it failed, 2 if it was called wrongly."""
    from runnel.server.cli.output import stop_writing

    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does.
        stop_writing()
        code = OK
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command; what went wrong becomes one sentence and the code to end with."""
    import typer

    from runnel.server.cli.app import app
    from runnel.server.cli.output import complain

    given = None if arguments is None else list(arguments)
    try:
        code = app(args=given, prog_name="runnel", standalone_mode=False)
    except SystemExit as end:
        # Typer takes a reader that left for a failure.
        if isinstance(end.__context__, BrokenPipeError):
            raise BrokenPipeError from end
        raise
    except typer.Abort:
        complain("nothing was done")
        return FAILED
    except Exception as error:
        if hasattr(error, "format_message"):
            return _called_wrongly(error)
        if not _is_expected(error):
            raise
        complain(str(error))
        return FAILED
    return code if isinstance(code, int) else OK


def _called_wrongly(error: Any) -> int:
    """Say in a sentence what was wrong with the command; without one, its help was shown instead."""
    from runnel.server.cli.output import complain

    message = " ".join(error.format_message().split()).removeprefix("Invalid value: ").removesuffix(".")
    if message:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "runnel"
        complain(f"{message} (see `{command} --help`)")
    return int(error.exit_code)


def _is_expected(error: Exception) -> bool:
    """Is this something that the person can mend, and that says so itself?"""
    from runnel.client.errors import ClientError
    from runnel.controller.config_types import BadConfig
    from runnel.controller.image import BadMetadata
    from runnel.pipelines.errors import PipelineError
    from runnel.server.cli.output import CannotDo
    from runnel.server.layers import BadSettings

    return isinstance(error, (ClientError, CannotDo, PipelineError, BadSettings, BadConfig, BadMetadata))
