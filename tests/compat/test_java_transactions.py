"""Apache Kafka's tools with transactions and with the consumer protocol."""

import json
import re

import pytest

from tests.compat.test_java_tools import TOOLS, tool

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.usefixtures("kafka_jars")]


def console(bootstrap: str, topic: str, *arguments: str) -> str:
    reading = ["--bootstrap-server", bootstrap, "--topic", topic, "--timeout-ms", "20000"]
    return tool(f"{TOOLS}.consumer.ConsoleConsumer", *reading, "--from-beginning", *arguments)


def test_a_transactional_copier_with_random_aborts_is_exactly_once(bootstrap, make_topic, group) -> None:
    source, target = make_topic(), make_topic()
    server = ["--bootstrap-server", bootstrap]
    lines = "".join(f"v{number}\n" for number in range(200))
    tool(f"{TOOLS}.ConsoleProducer", *server, "--topic", source, stdin=lines)
    copying = ["--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"]
    limits = ["--max-messages", "200", "--transaction-size", "20", "--enable-random-aborts"]
    identity = ["--consumer-group", group, "--transactional-id", f"x-{group}"]
    copied = tool(
        f"{TOOLS}.TransactionalMessageCopier", *copying, "--output-topic", target, *limits, *identity
    )
    ends = [json.loads(line) for line in copied.splitlines() if line.startswith("{")]
    assert ends[-1]["remaining"] == 0, copied

    committed = ["--isolation-level", "read_committed", "--max-messages", "200"]
    read = re.findall(r"^v\d+$", console(bootstrap, target, *committed), re.M)
    assert read == [f"v{number}" for number in range(200)]

    listed = tool(f"{TOOLS}.TransactionsCommand", *server, "list")
    assert re.search(rf"^x-{group}\s.*Complete(Commit|Abort)", listed, re.M), listed
    described = tool(f"{TOOLS}.TransactionsCommand", *server, "describe", "--transactional-id", f"x-{group}")
    assert re.search(rf"x-{group}\s+\d+\s+\d+\s+Complete", described), described
    producers = ["describe-producers", "--topic", target, "--partition", "0"]
    assert "None" in tool(f"{TOOLS}.TransactionsCommand", *server, *producers)
    hanging = tool(f"{TOOLS}.TransactionsCommand", *server, "find-hanging", "--broker-id", "1")
    assert "StartOffset" in hanging
    assert target not in hanging


def test_the_performance_producer_with_transactions(bootstrap, make_topic) -> None:
    topic = make_topic(partitions=2)
    load = ["--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1"]
    timing = ["--transaction-duration-ms", "50", "--bootstrap-server", bootstrap]
    assert "3000 records sent" in tool(f"{TOOLS}.ProducerPerformance", *load, *timing)
    read = console(bootstrap, topic, "--isolation-level", "read_committed", "--max-messages", "3000")
    assert "Processed a total of 3000" in read


def test_the_console_consumer_with_the_consumer_protocol(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=3)
    server = ["--bootstrap-server", bootstrap]
    lines = "".join(f"v{number}\n" for number in range(60))
    tool(f"{TOOLS}.ConsoleProducer", *server, "--topic", topic, stdin=lines)
    newer = ["--group", group, "--command-property", "group.protocol=consumer", "--max-messages", "60"]
    assert sorted(re.findall(r"^v\d+$", console(bootstrap, topic, *newer), re.M)) == sorted(lines.split())

    groups = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    described = tool(groups, *server, "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(group)]
    assert lags == ["0", "0", "0"], described
    assert "Empty" in tool(groups, *server, "--describe", "--group", group, "--state")
    kinds = tool(f"{TOOLS}.GroupsCommand", *server, "--list")
    assert re.search(rf"{group}\s+Consumer\s+consumer", kinds), kinds
    assert "successful" in tool(groups, *server, "--delete", "--group", group)
