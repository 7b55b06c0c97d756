"""`runnel produce` and `runnel consume`."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from runnel.server.cli.lines import lines_of_input
from runnel.server.cli.output import CommandError, time_text


def test_arguments_and_lines(run, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, "one", "two")
    run.ok("produce", name, stdin="three\r\n\nfive")
    assert run.ok("consume", name).lines == ["one", "two", "three", "", "five"]


def test_keys_headers_partitions_and_offsets(run, name):
    run.ok("topic", "create", name, "--partitions", "2")
    shown = run.ok(
        "produce",
        name,
        "-K",
        ":",
        "-H",
        "a=1",
        "-H",
        "b",
        "-p",
        "1",
        "--show-offsets",
        stdin="k1:v1\nk2:v:2\n",
    )
    assert shown.lines == [f"{name}\t1\t0", f"{name}\t1\t1"]
    assert run.ok("consume", name, "-k", "-H", "-o").lines == [
        f"{name}-1\t0\tk1\ta=1,b=\tv1",
        f"{name}-1\t1\tk2\ta=1,b=\tv:2",
    ]
    run.ok("produce", name, "v3", "--key", "k3", "-p", "0")
    assert run.ok("consume", name, "--keys", "--partition", "0").lines == ["k3\tv3"]
    assert run.ok("consume", name, "--partition", "1", "--from", "1").lines == ["v:2"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_many_lines(run, name, compression, acks):
    lines = [f"line {number}" for number in range(3000)]
    run.ok("topic", "create", name)
    run.ok("produce", name, "-z", compression, "--acks", acks, stdin="\n".join(lines))
    assert run.ok("consume", name).lines == lines


def test_json_round_trip(run, name):
    record = {
        "key": "k",
        "value": {"a": [1, "ü"]},
        "headers": {"h": "1"},
        "partition": 0,
        "timestamp_ms": int(time.time() * 1000) - 5000,
    }
    binary = {"value_base64": "//79", "key": None, "headers": [{"name": "x", "value": None}]}
    run.ok("topic", "create", name, f"{name}-copy")
    run.ok("produce", name, "--json", stdin=f"{json.dumps(record)}\n{json.dumps(binary)}\n")
    printed = run.ok("consume", name, "--json")
    first, second = map(json.loads, printed.lines)
    assert (first["key"], first["value"], first["offset"]) == ("k", '{"a":[1,"ü"]}', 0)
    assert first["timestamp_ms"] == record["timestamp_ms"]
    assert first["headers"] == [{"name": "h", "value": "1"}]
    assert (second["value_base64"], second["key"]) == ("//79", None)
    assert second["headers"] == [{"name": "x", "value": None}]
    run.ok("produce", f"{name}-copy", "--json", stdin=printed.out)
    again = [json.loads(line) for line in run.ok("consume", f"{name}-copy", "--json").lines]
    assert [{**line, "topic": name} for line in again] == [first, second]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("nonsense", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"value_base64": "!"}', "not base64"),
        ('{"value": "a", "headers": 5}', "headers must be"),
        ('{"value": "a", "partition": "x"}', "partition must be a non-negative integer"),
        ('{"key": "a", "vlaue": "b"}', "unknown field 'vlaue'"),
        ('{"key": "a"}', "missing field 'value'"),
    ],
)
def test_invalid_json(run, name, line, expected):
    run.ok("topic", "create", name)
    outcome = run("produce", name, "--json", stdin=line)
    assert outcome.code == 1 and expected in outcome.err
    assert outcome.err.count("\n") == 1, outcome.err
    assert run.ok("consume", name).out == ""


def test_input_that_cannot_be_read(tmp_path, monkeypatch):
    with (tmp_path / "write-only").open("w") as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        with pytest.raises(CommandError) as refused:
            asyncio.run(_drain(lines_of_input()))
    assert str(refused.value) == "standard input cannot be read: Bad file descriptor"


async def _drain(lines: AsyncIterator[bytes]) -> None:
    async for _ in lines:
        pass


def test_copied_records_are_partitioned_by_key(run, name):
    run.ok("topic", "create", name, "--partitions", "8")
    run.ok("topic", "create", f"{name}-copy", "--partitions", "2")
    run.ok("produce", name, "-K", ":", stdin="".join(f"{key}:{key}\n" for key in "abcdefgh"))
    run.ok("produce", f"{name}-copy", "--json", stdin=run.ok("consume", name, "--json").out)
    assert sorted(run.ok("consume", f"{name}-copy").lines) == list("abcdefgh")


def test_start_positions(run, name):
    now_ms = int(time.time() * 1000)
    run.ok("topic", "create", name)
    records = [{"value": str(age), "timestamp_ms": now_ms - age * 60_000} for age in (50, 40, 30, 20, 10)]
    run.ok("produce", name, "--json", stdin="\n".join(map(json.dumps, records)))
    for place, expected in [
        ("earliest", ["50", "40", "30", "20", "10"]),
        ("latest", []),
        ("3", ["20", "10"]),
        ("99", []),
        ("-2", ["20", "10"]),
        ("35m", ["30", "20", "10"]),
        (f"@{now_ms - 20 * 60_000}", ["20", "10"]),
        (time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now_ms / 1000 - 15 * 60)), ["10"]),
        ("2200-01-01", []),
    ]:
        assert run.ok("consume", name, "--from", place).lines == expected, place
    assert run.ok("consume", name, "--max", "2").lines == ["50", "40"]
    assert run.ok("consume", name, "--times", "-n", "1").out.startswith(time.strftime("20"))


def test_follow_stops_after_max_records(run, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, "a", "b")
    assert run.ok("consume", name, "--follow", "--max", "2").lines == ["a", "b"]


def test_group_resumes_at_its_committed_offsets(run, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, *"abcdef")
    assert run.ok("consume", name, "--group", name, "--max", "2").lines == ["a", "b"]
    assert run.ok("consume", name, "--group", name, "--max", "1").lines == ["c"]
    assert run.ok("consume", name, "--group", name).lines == ["d", "e", "f"]
    assert run.ok("consume", name, "--group", name).lines == []


def test_a_group_does_not_commit_what_could_not_be_printed(run, runnel_session, name):
    run.ok("topic", "create", name)
    run.ok("produce", name, "a", "b", "c")
    command = [sys.executable, "-m", "runnel.server.cli", "consume", name, "--group", name]
    with open("/dev/full", "wb") as full:
        outcome = subprocess.run(
            [*command, "-b", runnel_session.bootstrap_servers],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    # Python ends with 120 if it cannot flush the rest at its end.
    assert outcome.returncode in (1, 120)
    assert b"No space left on device" in outcome.stderr
    assert run.ok("consume", name, "--group", name).lines == ["a", "b", "c"]


def test_several_topics(run, name):
    for number in (1, 2):
        run.ok("topic", "create", f"{name}-{number}")
        run.ok("produce", f"{name}-{number}", str(number))
    assert sorted(run.ok("consume", f"{name}-1", f"{name}-2").lines) == ["1", "2"]


def test_errors(run, name):
    run.ok("topic", "create", name, "--set", "max.message.bytes=1000")
    for arguments, code, expected in [
        (("consume", f"{name}-x"), 1, "does not exist"),
        (("consume", name, "-p", "7"), 1, "has no partition 7"),
        (("consume", name, "-p", "0-99"), 1, "has no partition 1:"),
        (("consume", name, "--from", "whenever"), 2, "is not a time"),
        (("consume", name, "-g", "g", "-p", "0"), 2, "--group and --partition are mutually exclusive"),
        (("consume", name, "-g", "g", "--from", "5"), 2, "reset-offsets"),
        (("produce", name, "x", "-p", "7"), 1, "numbered from 0"),
        (("produce", name, "x" * 2000), 1, "MESSAGE_TOO_LARGE"),
        (("produce", name, "no separator", "-K", ":"), 1, "no key separator ':' in line"),
    ]:
        outcome = run(*arguments)
        assert outcome.code == code, arguments
        assert expected in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, None),
        # Microseconds in a field for milliseconds.
        (1_700_000_000_123_000, None),
    ],
)
def test_timestamp_out_of_range_has_no_text(timestamp_ms, text):
    assert time_text(timestamp_ms) == text
