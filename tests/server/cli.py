"""Calling the command line from a test, in this process."""

import asyncio
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnel.server.cli import main


@dataclass(slots=True)
class Outcome:
    """Exit status and output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """`runnel …` against one broker."""

    def __init__(
        self,
        address: str | None,
        capture: pytest.CaptureFixture[str],
        tmp_path: Path,
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.address = address
        self._capture = capture
        self._tmp_path = tmp_path
        self._patch = patch
        # uvloop only logs what the alarm of pytest-timeout raises: a test would never end.
        patch.setattr("runnel.server.cli.session.fastest_loop", asyncio.new_event_loop)
        if address is not None:
            patch.setenv("RUNNEL_BOOTSTRAP", address)

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Outcome:
        """Run a command to completion."""
        source = self._tmp_path / "stdin"
        source.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        self._capture.readouterr()
        with source.open() as opened:
            self._patch.setattr(sys, "stdin", opened)
            code = _exit_code(arguments)
        said = self._capture.readouterr()
        return Outcome(code, said.out, said.err)

    def ok(self, *arguments: str, stdin: str | bytes = "") -> Outcome:
        """Run a command that must succeed."""
        outcome = self(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome.err or outcome.out
        return outcome

    def fails(self, *arguments: str) -> Outcome:
        """Run a command that must fail with an error message."""
        outcome = self(*arguments)
        assert (outcome.code, outcome.err.startswith("error: ")) == (1, True), outcome
        return outcome


def _exit_code(arguments: tuple[str, ...]) -> int:
    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        if isinstance(sys.stdout, io.TextIOBase):
            sys.stdout.flush()
    return 0
