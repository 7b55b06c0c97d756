"""Transactions, told as transcripts."""

from pathlib import Path

import pytest

from tests.coordinator.txn.talk import Talk
from tests.scripts import Script, scripts


@pytest.mark.parametrize(
    "script", scripts(Path(__file__).parent / "transcripts"), ids=lambda script: script.name
)
def test_transactions(script: Script, rewrite: bool) -> None:
    script.check(Talk().play, rewrite=rewrite)
