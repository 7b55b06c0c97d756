"""Every rule has a transcript in which its alert fires and is resolved."""

from pathlib import Path

import pytest

from runnel.observe.alerts.rules import RULES
from runnel.observe.alerts.templates import fields_of
from tests.observe.alerts.world import World
from tests.scripts import Script, scripts

FOLDER = Path(__file__).parent / "rules"
SCRIPTS = scripts(FOLDER)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_rule(script: Script, request: pytest.FixtureRequest) -> None:
    script.check(World().play, rewrite=request.config.getoption("--rewrite"))


def test_every_rule_has_a_transcript_in_which_it_fires_and_is_resolved():
    for rule in RULES:
        texts = [script.path.read_text() for script in SCRIPTS if script.name.split("-")[0] == rule.name]
        assert any(" firing: " in text and " resolved: " in text for text in texts), rule.name


def test_names_and_texts_are_complete():
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.summary and rule.description.endswith(".")
        for text in (rule.summary, rule.description):
            assert "{{" not in text.replace("{{ $", ""), rule.name
            assert all(label.isidentifier() for label in fields_of(text))
