"""`runnel topic` and `runnel config`."""


def test_topic_life_cycle(run, name):
    run.ok("topic", "create", name, "--partitions", "3", "--set", "retention.ms=100000")
    assert [name, "3", "1"] in [line.split() for line in run.ok("topic", "list").lines]
    run.ok("produce", name, "a", "b")
    [topic] = run.ok("topic", "describe", name, "--json").json
    assert topic["settings"] == {"retention.ms": "100000"}
    assert [part["partition"] for part in topic["partitions"]] == [0, 1, 2]
    assert sum(part["end_offset"] for part in topic["partitions"]) == 2
    run.ok(
        "topic",
        "alter",
        name,
        "--partitions",
        "4",
        "--set",
        "cleanup.policy=compact",
        "--unset",
        "retention.ms",
    )
    text = run.ok("topic", "describe", name).out
    assert "cleanup.policy=compact" in text and "retention.ms" not in text
    rows = run.ok("topic", "list", "--long", "--json").json
    [row] = [row for row in rows if row["topic"] == name]
    assert (row["partitions"], row["records"]) == (4, 2) and row["bytes"] > 0
    run.ok("topic", "delete", name, "--yes")
    assert name not in run.ok("topic", "list").out


def test_internal_topics_are_listed_on_request(run, name):
    run.ok("produce", name, "a")
    run.ok("consume", name, "--group", name)
    assert "__consumer_offsets" not in run.ok("topic", "list").out
    assert "__consumer_offsets" in run.ok("topic", "list", "--internal").out


def test_failures_are_one_line_and_status_1(run, name):
    run.ok("topic", "create", name)
    for arguments, expected in [
        (("topic", "create", name), "already exists"),
        (("topic", "create", "a b"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "describe", f"{name}-x"), "does not exist"),
        (("topic", "delete", f"{name}-x", "--yes"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topic", "alter", name, "--partitions", "1"), "INVALID_PARTITIONS"),
        (("config", "alter", "topic", name, "--set", "retention.ms=soon"), "INVALID_CONFIG"),
        (("config", "describe", "broker", "x"), "is not a broker id"),
    ]:
        outcome = run(*arguments)
        assert outcome.code == 1
        assert expected in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
        assert outcome.out == ""


def test_if_exists_and_if_not_exists(run, name):
    run.ok("topic", "create", name, name, "--if-not-exists")
    run.ok("topic", "delete", name, "--yes")
    run.ok("topic", "delete", name, "--yes", "--if-exists")


def test_usage_errors_are_status_2(run, name):
    for arguments, expected in [
        (("topic", "delete", name), "--yes"),
        (("topic", "alter", name), "nothing to change"),
        (("topic", "create", name, "--set", "x"), "key=value"),
        (("topic", "create"), "Missing argument"),
        (("config", "alter", "topic", name), "nothing to change"),
        (("config", "describe", "cupboard", name), "cupboard"),
        (("topic", "list", "-b", "x:y"), "invalid bootstrap server"),
    ]:
        outcome = run(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), arguments
        assert expected in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err
        assert f"runnel {arguments[0]} {arguments[1]} --help" in outcome.err


def test_unknown_command(run):
    outcome = run("tpoic")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: No such command 'tpoic'. Did you mean 'topic'? (see `runnel --help`)\n"


def test_command_group_alone_prints_its_help(run):
    outcome = run("topic")
    assert (outcome.code, outcome.err) == (2, "")
    assert "describe" in outcome.out


def test_no_broker_available(run):
    outcome = run("topic", "list", "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.out) == (1, "")
    assert "no broker available at 127.0.0.1:1 (connection refused)" in outcome.err
    assert "runnel serve" in outcome.err


def test_settings_and_their_sources(run, name):
    run.ok("topic", "create", name)
    (cluster_wide,) = run.ok("config", "describe", "topic", name, "--json").json
    # With eligible leader replicas, the cluster has this setting from the start, as in Kafka.
    assert (cluster_wide["name"], cluster_wide["source"]) == ("min.insync.replicas", "dynamic_default_broker")
    run.ok("config", "alter", "topic", name, "--set", "retention.ms=5000", "--check")
    assert run.ok("config", "describe", "topic", name, "--json").json == [cluster_wide]
    run.ok(
        "config", "alter", "topic", name, "--set", "retention.ms=5000", "--append", "cleanup.policy=compact"
    )
    settings = {row["name"]: row for row in run.ok("config", "describe", "topic", name, "--json").json}
    assert settings["retention.ms"]["value"] == "5000"
    assert settings["retention.ms"]["source"] == "topic"
    assert settings["cleanup.policy"]["value"] == "delete,compact"
    every = run.ok("config", "describe", "topic", name, "--all", "--docs", "--json").json
    assert len(every) > 20 and all(row["documentation"] for row in every)
    run.ok(
        "config", "alter", "topic", name, "--unset", "retention.ms", "--subtract", "cleanup.policy=compact"
    )
    table = run.ok("config", "describe", "topic", name)
    assert "retention.ms" not in table.out


def test_settings_of_brokers(run):
    table = run.ok("config", "describe", "broker", "1").out
    assert "group.initial.rebalance.delay.ms" in table and "static broker" in table
    run.ok("config", "alter", "broker", "default", "--set", "log.retention.ms=777777777")
    try:
        assert "777777777" in run.ok("config", "describe", "broker", "default").out
    finally:
        run.ok("config", "alter", "broker", "default", "--unset", "log.retention.ms")
