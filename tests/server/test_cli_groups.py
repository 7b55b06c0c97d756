"""`runnel group`."""

import json
import time

import pytest
from confluent_kafka import Consumer


@pytest.fixture
def group(run, name):
    """A group that has consumed all ten records of a topic of the same name."""
    now_ms = int(time.time() * 1000)
    run.ok("topic", "create", name, "--partitions", "2")
    records = [
        {"value": str(number), "partition": number % 2, "timestamp_ms": now_ms - (10 - number) * 60_000}
        for number in range(10)
    ]
    run.ok("produce", name, "--json", stdin="\n".join(map(json.dumps, records)))
    run.ok("consume", name, "--group", name)
    return name


def offsets(run, group):
    view = run.ok("group", "describe", group, "--json").json
    return [row["committed"] for row in view["partitions"]]


def test_describe_shows_the_lag(run, group):
    run.ok("produce", group, "late", "-p", "1")
    view = run.ok("group", "describe", group, "--json").json
    assert (view["state"], view["lag"], view["members"]) == ("Empty", 1, [])
    assert [row["lag"] for row in view["partitions"]] == [0, 1]
    text = run.ok("group", "describe", group).out
    assert "Empty" in text and group in text
    assert group in run.ok("group", "list").out
    [row] = [row for row in run.ok("group", "list", "--json").json if row["group"] == group]
    assert {key: row[key] for key in ("group", "state", "type", "lag")} == {
        "group": group,
        "state": "Empty",
        "type": "classic",
        "lag": 1,
    }
    assert row["lag_seconds"] >= 0


@pytest.mark.parametrize(
    "target, expected",
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [5, 5]),
        (("--to-offset", "3"), [3, 3]),
        (("--to-offset", "99"), [5, 5]),
        (("--shift-by", "-2"), [3, 3]),
        (("--shift-by", "-99"), [0, 0]),
        (("--by-duration", "150s"), [4, 4]),
        (("--to-datetime", "2200-01-01"), [5, 5]),
    ],
)
def test_reset_offsets(run, group, target, expected):
    dry = run.ok("group", "reset-offsets", group, "--topic", group, *target, "--json").json
    assert [move["to"] for move in dry] == expected
    assert offsets(run, group) == [5, 5]
    run.ok("group", "reset-offsets", group, "--all-topics", *target, "--execute")
    assert offsets(run, group) == expected


def test_reset_offsets_of_some_partitions(run, group):
    run.ok("group", "reset-offsets", group, "--topic", f"{group}:1", "--to-earliest", "--execute")
    assert offsets(run, group) == [5, 0]


def test_reset_offsets_of_a_new_group(run, group):
    run.ok("group", "reset-offsets", f"{group}-new", "--topic", group, "--to-offset", "4", "--execute")
    assert sorted(run.ok("consume", group, "--group", f"{group}-new").lines) == ["8", "9"]


def test_delete_offsets_and_group(run, group):
    run.ok("group", "delete-offsets", group, "--topic", f"{group}:0", "--yes")
    assert offsets(run, group) == [5]
    run.ok("group", "delete", group, "--yes")
    assert group not in run.ok("group", "list").out


def test_errors(run, group):
    for arguments, code, expected in [
        (("group", "describe", f"{group}-x"), 1, "GROUP_ID_NOT_FOUND"),
        (("group", "delete", f"{group}-x", "--yes"), 1, "GROUP_ID_NOT_FOUND"),
        (("group", "delete", group), 2, "--yes"),
        (("group", "delete-offsets", group), 2, "--topic"),
        (("group", "reset-offsets", group, "--all-topics"), 2, "specify exactly one of"),
        (("group", "reset-offsets", group, "--all-topics", "--to-latest", "--to-earliest"), 2, "exactly one"),
        (("group", "reset-offsets", group, "--to-latest"), 2, "specify either --topic or --all-topics"),
        (("group", "reset-offsets", group, "--topic", f"{group}:9", "--to-latest"), 1, "has no partition 9"),
        (
            ("group", "reset-offsets", f"{group}-x", "--topic", group, "--shift-by", "1"),
            1,
            "no committed offset",
        ),
        (("group", "reset-offsets", f"{group}-x", "--all-topics", "--to-latest"), 1, "no committed offsets"),
    ]:
        outcome = run(*arguments)
        assert outcome.code == code, arguments
        assert expected in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err


def test_groups_of_both_protocols_are_shown_alike(run, name):
    run.ok("topic", "create", name, "--partitions", "3")
    run.ok("produce", name, "-K", ":", stdin="".join(f"{number}:x\n" for number in range(9)))
    groups = {protocol: f"{name}-{protocol}" for protocol in ("classic", "consumer")}
    for protocol, group in groups.items():
        consumer = Consumer(
            {
                "bootstrap.servers": run.address,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([name])
        while consumer.poll(0.1) is None:
            pass
        consumer.commit(asynchronous=False)
        view = run.ok("group", "describe", group, "--json").json
        text = run.ok("group", "describe", group).out
        consumer.close()
        partitions = [{"topic": name, "partition": number} for number in range(3)]
        [member] = view["members"]
        assert (view["type"], view["state"], member["type"]) == (protocol, "Stable", protocol)
        assert (member["partitions"], member["target_partitions"]) == (partitions, partitions)
        assert (member["client"], member["host"]) == ("reader", "127.0.0.1")
        assert view["lag"] == sum(row["lag"] or 0 for row in view["partitions"])
        assert {row["member"] for row in view["partitions"]} == {member["member"]}
        assert f"{name}:0,1,2" in text
        has_epochs = protocol == "consumer"
        assert all((view[key] is not None) is has_epochs for key in ("epoch", "target_epoch"))
        assert member["epoch"] == view["epoch"] == view["target_epoch"]
        assert ("target epoch" in text) is has_epochs
    listed = {row["group"]: row["type"] for row in run.ok("group", "list", "--json").json}
    assert {protocol: listed[group] for protocol, group in groups.items()} == {
        "classic": "classic",
        "consumer": "consumer",
    }
