"""The leader of a partition as transcripts."""

from pathlib import Path

import pytest

from tests.replica.commands import Commands
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "transcripts"), ids=lambda script: script.name
)
def test_replica_transcripts(script: Script, rewrite: bool) -> None:
    script.check(Commands().play, rewrite=rewrite)
