"""Apache Kafka's console tools and Java clients."""

import re
import subprocess

import pytest

from tools.kafka.commands import java

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("kafka_jars")]

TOOLS = "org.apache.kafka.tools"


def tool(name: str, *arguments: str, stdin: str = "", exit_code: int = 0) -> str:
    """The output of one tool, including errors."""
    done = subprocess.run(java(name, *arguments), input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_topics_are_created_described_altered_and_deleted(bootstrap, group) -> None:
    server = ["--bootstrap-server", bootstrap, "--topic", f"java-{group}"]
    created = tool(
        f"{TOOLS}.TopicCommand", *server, "--create", "--partitions", "2", "--config", "retention.ms=99000"
    )
    assert "Created topic" in created
    tool(f"{TOOLS}.TopicCommand", *server, "--alter", "--partitions", "3")
    described = tool(f"{TOOLS}.TopicCommand", *server, "--describe")
    assert re.search(r"PartitionCount: 3.*retention\.ms=99000", described)
    tool(f"{TOOLS}.TopicCommand", *server, "--delete")
    assert "does not exist" in tool(f"{TOOLS}.TopicCommand", *server, "--describe", exit_code=1)


def test_configs_are_altered_and_described(bootstrap, topic) -> None:
    entity = ["--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", topic]
    altered = tool("kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", "max.message.bytes=77000")
    assert "Completed updating" in altered
    assert "max.message.bytes=77000" in tool("kafka.admin.ConfigCommand", *entity, "--describe")


@pytest.mark.long
def test_console_producer_and_consumer_with_an_offset_reset(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=2)
    server = ["--bootstrap-server", bootstrap]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = "".join(f"k{number}:v{number}\n" for number in range(50))
    tool(f"{TOOLS}.ConsoleProducer", *server, "--topic", topic, *keyed, stdin=lines)

    reading = ["--topic", topic, "--group", group, "--max-messages", "50", "--timeout-ms", "30000"]
    consumed = tool(f"{TOOLS}.consumer.ConsoleConsumer", *server, *reading, "--from-beginning")
    assert sorted(re.findall(r"^v\d+$", consumed, re.M)) == sorted(f"v{number}" for number in range(50))

    groups = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    described = tool(groups, *server, "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(group)]
    assert lags == ["0", "0"], described
    tool(groups, *server, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    again = tool(f"{TOOLS}.consumer.ConsoleConsumer", *server, *reading)
    assert "Processed a total of 50" in again
    assert "successful" in tool(groups, *server, "--delete", "--group", group)


def test_producer_and_consumer_performance_tools(bootstrap, make_topic) -> None:
    topic = make_topic(partitions=3)
    load = ["--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
    properties = ["--command-property", "acks=all", "compression.type=lz4"]
    sent = tool(f"{TOOLS}.ProducerPerformance", *load, "--bootstrap-server", bootstrap, *properties)
    assert "20000 records sent" in sent
    ends = tool(f"{TOOLS}.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split() if line.startswith(topic)) == 20000


def test_broker_api_versions_tool(bootstrap) -> None:
    listed = tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert "Produce(0)" in listed
    assert "UNSUPPORTED" not in listed.split("Produce(0)")[1].split(",")[0]


@pytest.mark.long
def test_quotas_of_users_clients_and_addresses(bootstrap, group) -> None:
    """As kafka-configs sets, shows and removes them."""
    command = ["kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap]
    pair = ["--entity-type", "users", "--entity-name", group, "--entity-type", "clients", "--entity-default"]
    address = ["--entity-type", "ips", "--entity-name", "192.0.2.7"]
    rates = "producer_byte_rate=1000000,request_percentage=25.5,controller_mutation_rate=5"
    assert "Completed updating" in tool(*command, "--alter", *pair, "--add-config", rates)
    assert "Completed" in tool(*command, "--alter", *address, "--add-config", "connection_creation_rate=10")
    assert "connection_creation_rate=10.0" in tool(*command, "--describe", *address)
    removed = tool(*command, "--alter", *pair, "--delete-config", "request_percentage")
    assert "Completed updating" in removed
    described = tool(*command, "--describe", *pair)
    assert "controller_mutation_rate=5.0" in described and "producer_byte_rate=1000000.0" in described
    assert "request_percentage" not in described
