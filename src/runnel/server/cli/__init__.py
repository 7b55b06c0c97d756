"""The command line: `runnel serve` and everything one does to a running broker.

Each command is a thin layer over runnel.client; what it needs is imported when it runs, so that
`runnel --help` is quick.
"""

import sys
from collections.abc import Sequence

OK = 0
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Ends with 0 if all went well, 1 if it failed, 2 if it was called wrongly."""
    from runnel.server.cli.app import app
    from runnel.server.cli.output import complain, stop_writing

    try:
        app(args=None if arguments is None else list(arguments), prog_name="runnel")
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does.
        stop_writing()
        sys.exit(OK)
    except Exception as error:
        if not _is_expected(error):
            raise
        complain(str(error))
        sys.exit(FAILED)


def _is_expected(error: Exception) -> bool:
    """Is this something that the person can mend, and that says so itself?"""
    from runnel.client.errors import ClientError
    from runnel.controller.config_types import BadConfig
    from runnel.server.cli.output import CannotDo
    from runnel.server.layers import BadSettings

    return isinstance(error, (ClientError, CannotDo, BadSettings, BadConfig))
