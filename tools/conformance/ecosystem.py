"""What is built on Kafka, unchanged: Kafka Streams, Kafka Connect and MirrorMaker 2."""

import contextlib
import json
import re
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import free_port
from tools.conformance import acls
from tools.conformance.result import SuiteResult
from tools.conformance.target import Target
from tools.kafka.commands import VERSION, java
from tools.settings import write_properties

CLIENT_FLAGS = ("-Xmx512m",)
TIMEOUT_S = 300.0
FURTHER_S = 3.0
LINES = 100
MIRRORED = 200


def run(target: Target, folder: Path, only: str = "") -> SuiteResult:
    description = (
        f"Kafka Streams with exactly_once_v2, Kafka Connect with an exactly-once source, and MirrorMaker 2,"
        f" all of Apache Kafka {VERSION}"
    )
    result = SuiteResult("The ecosystem", description)
    if target.security is not None:
        result.description += ", over SASL_SSL with the ACLs that SECURITY.md lists for them"
        acls.apply(target.security.environment())
    for name, check in CHECKS.items():
        if re.search(only, name):
            place = folder / name.split()[0]
            place.mkdir(parents=True, exist_ok=True)
            result.record(name, check(target, place))
    if target.security is not None and not only:
        unused = acls.unused(target.security.audit_log, acls.permissions())
        result.record("acls: every permission is needed", not unused)
        print(*(f"    not needed: {permission}" for permission in unused), sep="\n", flush=True)
    return result


def streams(target: Target, folder: Path) -> bool:
    """The word count example counts each word once, within transactions."""
    _create(target, "streams-plaintext-input", "streams-wordcount-output")
    word = f"alpha{secrets.token_hex(3)}"
    settings = {
        "bootstrap.servers": target.bootstrap,
        "application.id": f"wordcount-{word}",
        "replication.factor": str(target.replication_factor),
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": "200",
        "repartition.purge.interval.ms": "200",
        "state.dir": str(folder / "state"),
        "statestore.cache.max.bytes": "0",
        **target.properties("wordcount"),
    }
    main_class = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with _running(main_class, settings, folder):
        _produce(target, "streams-plaintext-input", [f"{word} beta {word}", word])
        return _counts(target, "streams-wordcount-output", word, 3) == [1, 2, 3]


def connect(target: Target, folder: Path) -> bool:
    """A file is read into a topic exactly once and written to another file."""
    run, port = secrets.token_hex(3), free_port()
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": target.bootstrap,
        "group.id": f"connect-{run}",
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.partitions": "3",
        "status.storage.partitions": "1",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "SERVICE_LOAD",
    }
    for client in ("", "producer.", "consumer.", "admin."):
        settings |= target.properties("connect", client)
    for kind in ("offset", "config", "status"):
        settings[f"{kind}.storage.topic"] = f"connect-{kind}-{run}"
        settings[f"{kind}.storage.replication.factor"] = str(target.replication_factor)
    source, copy, topic = folder / "in.txt", folder / "out.txt", f"lines-{run}"
    source.write_text("".join(f"{number}\n" for number in range(LINES)))
    _create(target, topic)
    with _running("org.apache.kafka.connect.cli.ConnectDistributed", settings, folder):
        url = f"http://127.0.0.1:{port}/connectors"
        if not _wait(lambda: _responds(url)):
            return False
        _add_connector(url, "FileStreamSource", {"file": str(source), "topic": topic})
        _add_connector(url, "FileStreamSink", {"file": str(copy), "topics": topic})
        return _wait(lambda: copy.exists() and copy.read_text() == source.read_text())


def mirror_maker(target: Target, folder: Path) -> bool:
    """A topic is mirrored, to the same cluster under a prefix, and an offset of a group translated."""
    topic = f"mirrored-{secrets.token_hex(3)}"
    _create(target, topic, partitions=2)
    _produce(target, topic, [str(number) for number in range(MIRRORED)])
    _commit(target, topic)
    settings = {
        "clusters": "a,b",
        "a.bootstrap.servers": target.bootstrap,
        "b.bootstrap.servers": target.bootstrap,
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "b->a.emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "a->b.topics": topic,
        "a->b.groups": topic,
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "5",
        "replication.factor": str(target.replication_factor),
        **target.properties("mirror-source", "a."),
        **target.properties("mirror-target", "b."),
    }
    for kind in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"):
        settings[f"{kind}.replication.factor"] = str(target.replication_factor)
    for kind in ("offset", "status", "config"):
        settings[f"{kind}.storage.replication.factor"] = str(target.replication_factor)
    with _running("org.apache.kafka.connect.mirror.MirrorMaker", settings, folder):
        is_mirrored = _wait(lambda: _end_offsets(target, f"a.{topic}", 2) == MIRRORED)
        return is_mirrored and _wait(lambda: _end_offsets(target, "a.checkpoints.internal", 1) > 0)


CHECKS: dict[str, Callable[[Target, Path], bool]] = {
    "streams: word count, exactly once": streams,
    "connect: file to file, exactly once": connect,
    "mirror maker: a topic is mirrored": mirror_maker,
}


@contextlib.contextmanager
def _running(main_class: str, settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """A Java program with a properties file, as long as the block lasts."""
    properties = write_properties(folder / "program.properties", settings)
    with (folder / "program.log").open("wb") as log:
        process = subprocess.Popen(java(main_class, properties, flags=CLIENT_FLAGS), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _create(target: Target, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient(target.librdkafka())
    existing = admin.list_topics(timeout=30).topics
    replicas = target.replication_factor
    missing = [NewTopic(topic, partitions, replicas) for topic in topics if topic not in existing]
    for created in admin.create_topics(missing).values() if missing else ():
        created.result(30)


def _produce(target: Target, topic: str, values: list[str]) -> None:
    producer = Producer(target.librdkafka())
    for value in values:
        producer.produce(topic, value)
    if producer.flush(30):
        raise RuntimeError(f"{topic} does not accept records")


def _commit(target: Target, topic: str) -> None:
    """Commit an offset of a group with the name of the topic."""
    consumer = Consumer({**target.librdkafka(), "group.id": topic})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    finally:
        consumer.close()


def _end_offsets(target: Target, topic: str, partitions: int) -> int:
    """The records of a topic; 0 while it does not exist."""
    consumer = Consumer({**target.librdkafka(), "group.id": "ecosystem", "log_level": 0})
    try:
        if topic not in consumer.list_topics(timeout=30).topics:
            return 0
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(int(consumer.get_watermark_offsets(place, timeout=30)[1]) for place in places)
    finally:
        consumer.close()


def _counts(target: Target, topic: str, word: str, expected: int) -> list[int]:
    """The committed counts of a word: those that are expected, and what follows them at once."""
    settings = {"group.id": f"counts-{word}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**target.librdkafka(), **settings, "isolation.level": "read_committed"})
    counts: list[int] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(FURTHER_S)
            if message is None and len(counts) >= expected:
                break
            if message is not None and message.error() is None and message.key() == word.encode():
                counts.append(int.from_bytes(message.value() or b""))
    finally:
        consumer.close()
    return counts


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return False


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _add_connector(url: str, kind: str, config: Mapping[str, str]) -> None:
    connector = f"org.apache.kafka.connect.file.{kind}Connector"
    body = {"name": kind, "config": {"connector.class": connector, "tasks.max": "1", **config}}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60):
        pass
