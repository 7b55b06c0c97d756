"""A command line and a broker for the tests of the server room."""

from itertools import count
from pathlib import Path

import pytest

from runnel.testing import Broker
from tests.server.cli import CommandLine

_numbers = count()


@pytest.fixture
def run(
    runnel_session: Broker, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line, pointed at a broker that all tests share."""
    return CommandLine(runnel_session.bootstrap_servers, capfd, tmp_path, monkeypatch)


@pytest.fixture
def name() -> str:
    """A topic or group name of this test alone."""
    return f"cli-{next(_numbers)}"
