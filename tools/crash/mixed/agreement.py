"""What the tools of Apache Kafka and of Runnel show of one cluster, asked at nodes of both: the same."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.cluster.nodes import ClusterNode
from tools.cluster.view import Partition
from tools.crash.cluster.clients import PARTITIONS, TOPICS
from tools.crash.mixed.world import MixedWorld, kind_of
from tools.kafka.commands import tool

TIMEOUT_S = 60.0
RUNNEL = Path(sys.executable).with_name("runnel")

Quorum = dict[str, Any]
Replicas = dict[Partition, tuple[int, list[int], list[int]]]
"""Partition → leader, replicas and ISR."""


def kafka(script: str, node: ClusterNode, *arguments: str) -> str:
    """The output of a tool of Kafka, asked at a node."""
    return _run(tool(script, "--bootstrap-server", node.bootstrap, *arguments))


def runnel(node: ClusterNode, *arguments: str) -> Any:
    """What a command of Runnel prints as JSON, asked at a node."""
    return json.loads(_run([str(RUNNEL), *arguments, "--json", "--bootstrap-server", node.bootstrap]))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[-6:])} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout


def quorum_of_kafka(node: ClusterNode) -> Quorum:
    """The quorum as kafka-metadata-quorum.sh shows it."""
    lines = kafka("kafka-metadata-quorum", node, "describe", "--replication").splitlines()
    rows = [line.split() for line in lines[1:] if line.strip()]
    observers = {int(row[0]): row[1] for row in rows if row[-1] == "Observer"}
    voters = {int(row[0]): row[1] for row in rows if row[-1] != "Observer"}
    leaders = [int(row[0]) for row in rows if row[-1] == "Leader"]
    return {"leader": leaders, "voters": voters, "observers": observers}


def quorum_of_runnel(node: ClusterNode) -> Quorum:
    """The quorum as `runnel cluster status` shows it."""
    quorum = runnel(node, "cluster", "status")["quorum"]
    return {
        "leader": [quorum["leader"]],
        **{
            kind: {each["id"]: each["directory_id"] for each in quorum[kind]}
            for kind in ("voters", "observers")
        },
    }


def replicas_of_kafka(node: ClusterNode) -> Replicas:
    """Partitions as kafka-topics.sh shows them."""
    found: Replicas = {}
    for line in kafka("kafka-topics", node, "--describe").splitlines():
        fields = dict(part.strip().partition(": ")[::2] for part in line.split("\t") if ": " in part)
        if "Partition" in fields and fields["Topic"] in TOPICS:
            replicas, in_sync = (
                [int(each) for each in fields[name].split(",")] for name in ("Replicas", "Isr")
            )
            place = (fields["Topic"], int(fields["Partition"]))
            found[place] = (int(fields["Leader"]), replicas, sorted(in_sync))
    return found


def replicas_of_runnel(node: ClusterNode) -> Replicas:
    """Partitions as `runnel topic describe` shows them."""
    return {
        (topic["topic"], part["partition"]): (part["leader"], part["replicas"], sorted(part["in_sync"]))
        for topic in runnel(node, "topic", "describe", *TOPICS)
        for part in topic["partitions"]
    }


def directories_of_kafka(node: ClusterNode) -> dict[int, dict[str, tuple[int, int]]]:
    """Broker → replica → size and lag, as kafka-log-dirs.sh shows them."""
    printed = kafka("kafka-log-dirs", node, "--describe", "--topic-list", ",".join(TOPICS))
    return {
        broker["broker"]: {
            part["partition"]: (part["size"], part["offsetLag"])
            for directory in broker["logDirs"]
            for part in directory["partitions"]
        }
        for broker in json.loads(printed.splitlines()[-1])["brokers"]
    }


def differences(world: MixedWorld) -> Iterator[str]:
    """Every answer that differs from the others. No client may be running."""
    asked = [world.broker_of(kind) for kind in _kinds(world)]
    views = {
        f"{name} at {kind_of(node)}": (look(node), replicas(node))
        for node in asked
        for name, look, replicas in (
            ("Kafka's tools", quorum_of_kafka, replicas_of_kafka),
            ("Runnel's", quorum_of_runnel, replicas_of_runnel),
        )
    }
    (first, expected), *others = views.items()
    if set(expected[0]["voters"]) != set(world.blueprint.voters):
        yield f"{first} show the voters {expected[0]['voters']}"
    if len(expected[1]) != len(TOPICS) * PARTITIONS:
        yield f"{first} show {len(expected[1])} partitions"
    for name, shown in others:
        for part, mine, theirs in zip(("quorum", "replicas"), expected, shown, strict=True):
            if mine != theirs:
                yield f"{first} and {name} differ in the {part}: {mine} and {theirs}"
    for node in asked:
        yield from _different_sizes(world, node)


def _different_sizes(world: MixedWorld, node: ClusterNode) -> Iterator[str]:
    for broker, replicas in directories_of_kafka(node).items():
        data = world.cluster.nodes[broker].place.data
        for name, (size, lag) in replicas.items():
            stored = sum(path.stat().st_size for path in (data / name).glob("*.log"))
            if lag:
                yield f"{kind_of(node)}: {name} of broker {broker} is {lag} behind"
            # Runnel allocates space ahead of the last segment's records.
            if size > stored or (size == 0) != (stored == 0):
                yield f"{kind_of(node)}: {name} of broker {broker} has {size} bytes, its files {stored}"
        if len(replicas) != len(TOPICS) * PARTITIONS:
            yield f"{kind_of(node)}: broker {broker} has {len(replicas)} replicas"


def operate(world: MixedWorld) -> Iterator[str]:
    """Kafka's tools reassign a partition and elect its preferred leader, through nodes of both kinds."""
    for partition, kind in enumerate(_kinds(world)):
        node, place = world.broker_of(kind), (next(iter(TOPICS)), partition)
        _, replicas, _ = replicas_of_runnel(node)[place]
        wanted = [*replicas[1:], replicas[0]]
        plan = {"version": 1, "partitions": [{"topic": place[0], "partition": partition, "replicas": wanted}]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(plan))
            file.flush()
            options = ("--reassignment-json-file", file.name)
            kafka("kafka-reassign-partitions", node, "--execute", *options)
            deadline = time.monotonic() + TIMEOUT_S
            while "is completed" not in kafka("kafka-reassign-partitions", node, "--verify", *options):
                if time.monotonic() > deadline:
                    yield f"{kind}: the reassignment of {place} does not end"
                    return
        selected = ("--topic", place[0], "--partition", str(partition))
        kafka("kafka-leader-election", node, "--election-type", "preferred", *selected)
        for shown in (replicas_of_kafka(node), replicas_of_runnel(node)):
            if shown[place][:2] != (wanted[0], wanted):
                yield f"{kind}: {place} has {shown[place]}, expected {wanted}"


def _kinds(world: MixedWorld) -> list[str]:
    return sorted({kind_of(node) for node in world.cluster.running if node.is_broker})
