"""Fixtures for tests of the command line."""

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
    """The command line, with a broker shared by all tests."""
    return CommandLine(runnel_session.bootstrap_servers, capfd, tmp_path, monkeypatch)


@pytest.fixture
def name() -> str:
    """A unique topic or group name."""
    return f"cli-{next(_numbers)}"
