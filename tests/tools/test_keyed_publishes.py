"""Publishes with idempotency keys while brokers and gateways are killed: each record is stored once."""

from pathlib import Path

import pytest

from tools.keyed_publishes import Answers, Everything, differences, run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    assert run(tmp_path, workers=12, records=150, seed=5) == []


def test_what_is_wrong_is_found() -> None:
    answers, received = Answers(), Everything()
    for number, value in enumerate(("a", "b", "c")):
        answers.add(value, {"partition": 0, "offset": number})
    received.add({"value": "a", "partition": 0, "offset": 0}, "")
    log = {"a": [(0, 0)], "b": [(0, 1)], "c": [(0, 2)]}
    assert differences(answers, received, log, 3) == []
    assert differences(answers, received, {**log, "a": [(0, 0), (0, 3)]}, 3) == [
        "stored twice: a at [(0, 0), (0, 3)]"
    ]
    assert differences(answers, received, {"a": [(0, 0)], "b": [(0, 1)]}, 3) == ["lost: c at (0, 2)"]
    assert differences(answers, received, {**log, "d": [(0, 3)]}, 3) == ["never answered: d"]
    assert differences(answers, received, {**log, "c": [(0, 7)]}, 3) == [
        "c is at (0, 7), and was answered at (0, 2)"
    ]
    assert differences(answers, received, log, 4) == ["3 records were answered instead of 4"]
    received.add({"value": "a", "partition": 0, "offset": 1}, "")
    answers.add("b", {"partition": 0, "offset": 5})
    assert differences(answers, received, log, 3) == [
        "b is at (0, 5), and was at (0, 1)",
        "received again: a at (0, 1), and at (0, 0)",
        "a was received at (0, 1), and answered at (0, 0)",
    ]
