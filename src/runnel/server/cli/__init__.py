"""The command line: `runnel serve` and the clients of a running broker.

Each command is a thin layer over runnel.client. Commands import what they need when they run, to keep
`runnel --help` fast.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

OK = 0
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Exit status: 0 on success, 1 on failure, 2 on a usage error."""
    from runnel.server.cli.output import discard_output

    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does.
        discard_output()
        code = OK
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command; an expected error becomes one line on standard error and an exit status."""
    import typer

    from runnel.server.cli.output import print_error

    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _command_tree(given)(args=given, prog_name="runnel", standalone_mode=False)
    except SystemExit as end:
        # Typer converts a broken pipe into a failure exit.
        if isinstance(end.__context__, BrokenPipeError):
            raise BrokenPipeError from end
        raise
    except typer.Abort:
        print_error("aborted, nothing was changed")
        return FAILED
    except Exception as error:
        if hasattr(error, "format_message"):
            return _usage_error(error)
        if not _is_expected(error):
            raise
        print_error(str(error))
        return FAILED
    return code if isinstance(code, int) else OK


def _command_tree(arguments: list[str]) -> Callable[..., Any]:
    """All commands, or only `serve` where that is the one to be run: a start imports what it needs."""
    if arguments[:1] == ["serve"]:
        from runnel.server.cli.root import new_app

        return new_app()
    from runnel.server.cli.app import app

    return app


def _usage_error(error: Any) -> int:
    """Print a usage error on one line. An empty message means that the help was printed instead."""
    from runnel.server.cli.output import print_error

    message = " ".join(error.format_message().split()).removeprefix("Invalid value: ").removesuffix(".")
    if message:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "runnel"
        print_error(f"{message} (see `{command} --help`)")
    return int(error.exit_code)


def _is_expected(error: Exception) -> bool:
    """True for errors that the user can correct and whose message is sufficient without a traceback."""
    from runnel.client.errors import ClientError
    from runnel.controller.config_types import BadConfig
    from runnel.controller.image import BadMetadata
    from runnel.pipelines.errors import PipelineError
    from runnel.ports.disk import BadDirectory
    from runnel.server.cli.output import CommandError
    from runnel.server.layers import BadSettings

    expected = (
        ClientError, CommandError, PipelineError, BadSettings, BadConfig, BadMetadata, BadDirectory,
    )  # fmt: skip
    return isinstance(error, expected)
