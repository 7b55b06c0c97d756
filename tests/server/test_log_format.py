"""The log as text and as JSON: one object per line, whatever is logged; repetitions are limited."""

import io
import json
import logging
import os
import subprocess
import sys

import pytest

from runnel.server.log_format import (
    INTERVAL_S,
    REPEATS_MAX,
    JsonFormatter,
    RepetitionLimit,
    TextFormatter,
)


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    logger = logging.Logger("runnel.test")
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepetitionLimit())
    logger.addHandler(handler)
    return logger, output


def lines(output: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_message_is_one_line_of_json(log) -> None:
    logger, output = log
    logger.warning("closed %s: %s", "10.0.0.1", 'a "reason"\nwith \u2028 lines \x1b[31m')
    (line,) = lines(output)
    assert line["level"] == "warning"
    assert line["logger"] == "runnel.test"
    assert line["event"] == 'closed 10.0.0.1: a "reason"\nwith \u2028 lines \x1b[31m'
    assert line["time"].endswith("Z") and len(line["time"]) == len("2026-11-18T08:00:00.123Z")
    assert set(line) == {"time", "level", "logger", "event"}
    assert output.getvalue().isascii()


def test_fields_trace_and_exception(log) -> None:
    logger, output = log
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("failed", extra={"partition": ("orders", 0), "trace_id": "abc"})
    (line,) = lines(output)
    assert line["fields"] == {"partition": ["orders", 0]}
    assert line["trace_id"] == "abc"
    assert "ValueError: broken" in line["exception"]


def test_what_json_does_not_know_is_written_as_text(log) -> None:
    logger, output = log
    logger.warning("x", extra={"raw": b"\xff"})
    assert lines(output)[0]["fields"] == {"raw": "b'\\xff'"}


def repeat(logger: logging.Logger) -> None:
    """Log a message 150 times within an interval, another one, and the first one later."""
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "again %d", (1,), None)
    began = record.created
    for number in range(REPEATS_MAX + 50):
        repeated = logger.makeRecord(logger.name, logging.WARNING, "", 0, "again %d", (number,), None)
        repeated.created = began
        logger.handle(repeated)
    logger.warning("other")
    later = logger.makeRecord(logger.name, logging.WARNING, "", 0, "again %d", (0,), None)
    later.created = began + INTERVAL_S + 1
    logger.handle(later)


def test_repetitions_are_limited_and_counted(log) -> None:
    logger, output = log
    repeat(logger)
    found = lines(output)
    assert len(found) == REPEATS_MAX + 2
    assert found[-1]["fields"] == {"suppressed": 50}


def test_repetitions_are_limited_and_counted_in_text(log) -> None:
    logger, output = log
    logger.handlers[0].setFormatter(TextFormatter("%(message)s"))
    repeat(logger)
    found = output.getvalue().splitlines()
    assert len(found) == REPEATS_MAX + 2
    assert found[-2:] == ["other", "again 0 (50 more like this were left out)"]


def test_a_broker_logs_json_and_says_where_it_listens(tmp_path) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RUNNEL_")}
    command = [sys.executable, "-m", "runnel.server.cli", "serve", "--log-format", "json", "--admin", "off"]
    command += ["--http", "off", "--listen", "127.0.0.1:0", "--set", "num.io.threads=4"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("listening on ")
        process.terminate()
        errors = process.stderr.read()
    (line,) = [json.loads(each) for each in errors.splitlines()]
    assert line["level"] == "warning"
    assert "num.io.threads has no effect" in line["event"]
