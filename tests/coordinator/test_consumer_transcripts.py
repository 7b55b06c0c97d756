"""Consumer groups, told as transcripts."""

from pathlib import Path

import pytest

from tests.coordinator.consumer_talk import ConsumerTalk
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "consumer_transcripts"), ids=lambda script: script.name
)
def test_consumer_groups(script: Script, rewrite: bool) -> None:
    script.check(ConsumerTalk().play, rewrite=rewrite)
