"""Controller operations as transcripts."""

from pathlib import Path

import pytest

from tests.controller.cluster_commands import ClusterCommands
from tests.controller.commands import Commands
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "transcripts"), ids=lambda script: script.name
)
def test_controller_transcripts(script: Script, rewrite: bool) -> None:
    script.check(Commands().play, rewrite=rewrite)


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "transcripts" / "clusters"), ids=lambda script: script.name
)
def test_cluster_transcripts(script: Script, rewrite: bool) -> None:
    script.check(ClusterCommands().play, rewrite=rewrite)
