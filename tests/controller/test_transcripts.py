"""The controller's decisions, told as transcripts."""

from pathlib import Path

import pytest

from tests.controller.talk import Talk
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "transcripts"), ids=lambda script: script.name
)
def test_decisions(script: Script, rewrite: bool) -> None:
    script.check(Talk().play, rewrite=rewrite)
