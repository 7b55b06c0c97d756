"""Only tests that talk to a broker count, and one that never ended is a failure."""

from pathlib import Path

import pytest

from tools.conformance.franz_go import last_actions, needs_broker

CONNECTS = "exec 3<>/dev/tcp/${KGO_SEEDS%:*}/${KGO_SEEDS#*:}; sleep 60"
SKIPPED = "echo '--- SKIP: TestOne (0.00s)'"
UNIT = "echo '--- PASS: TestOne (0.00s)'"


@pytest.mark.parametrize(("script", "is_for_broker"), [(CONNECTS, True), (SKIPPED, True), (UNIT, False)])
def test_a_test_that_connects_or_is_skipped_needs_a_broker(
    tmp_path: Path, script: str, is_for_broker: bool
) -> None:
    program = tmp_path / "kgo.test"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    assert needs_broker(program, tmp_path, "TestOne") == is_for_broker


def test_the_last_action_of_a_test_counts() -> None:
    lines = [
        '{"Action":"run","Test":"TestA"}',
        '{"Action":"output","Test":"TestA","Output":"x"}',
        '{"Action":"pass","Test":"TestA"}',
        '{"Action":"run","Test":"TestHangs"}',
        '{"Action":"fail"}',
        "not an event",
    ]
    assert last_actions(lines) == {"TestA": "pass", "TestHangs": "run"}
