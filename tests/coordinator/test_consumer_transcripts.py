"""Consumer groups as transcripts."""

from pathlib import Path

import pytest

from tests.coordinator.consumer_commands import ConsumerCommands
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "consumer_transcripts"), ids=lambda script: script.name
)
def test_consumer_group_transcripts(script: Script, rewrite: bool) -> None:
    script.check(ConsumerCommands().play, rewrite=rewrite)
