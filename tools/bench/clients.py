"""What real clients get out of a broker: Java's performance tools, and librdkafka."""

import os
import re
import statistics
import subprocess
import time
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tools.bench.measures import Bench, Numbers
from tools.kafka.commands import tool

TAKES = 3
"""The consumer reads everything within a second: the median of this many runs."""


def java(bench: Bench) -> Numbers:
    """The performance tools with their defaults, 100-byte and 1 KB records."""
    numbers: Numbers = {}
    for name, size, count in (("100b", 100, 2_000_000), ("1k", 1000, 500_000)):
        topic, records = f"java{name}", int(count * bench.scale)
        bench.create(topic, 4)
        produce = partial(_java_produce_metered, bench, topic, records, size)
        rate, cpu_s = bench.steady(f"java_produce_{name}", produce, lambda result: result[0])
        numbers[f"java_produce_{name}_mps"] = rate
        numbers[f"java_produce_{name}_cpu_s_per_gb"] = cpu_s / (records * size / 1e9)
        consume = partial(_java_consume, bench, topic, records)
        numbers[f"java_consume_{name}_mps"] = bench.steady(f"java_consume_{name}", consume, float)
        bench.delete(topic)
    return numbers


def _run_java(script: str, *arguments: object) -> str:
    command = tool(script, *arguments, flags=("-Xmx512m",))
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def _java_produce_metered(bench: Bench, topic: str, records: int, size: int) -> tuple[float, float]:
    """Records a second, and CPU seconds of the broker."""
    with bench.meter as meter:
        rate = java_produce(bench, topic, records, size)
    return rate, meter.spent_s


def java_produce(bench: Bench, topic: str, records: int, size: int, *more: object) -> float:
    load = ["--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1, *more]
    output = _run_java("kafka-producer-perf-test", *load, "--bootstrap-server", bench.bootstrap)
    rates = re.findall(rf"{records} records sent, ([\d.]+) records/sec", output)
    return float(rates[-1])


def _java_consume(bench: Bench, topic: str, records: int) -> float:
    takes = 1 if bench.warm_up or bench.scale < 1 else TAKES
    return statistics.median(_java_consume_once(bench, topic, records) for _ in range(takes))


def _java_consume_once(bench: Bench, topic: str, records: int) -> float:
    load = ["--topic", topic, "--num-records", records, "--timeout", 60_000, "--hide-header"]
    output = _run_java("kafka-consumer-perf-test", "--bootstrap-server", bench.bootstrap, *load)
    # Columns: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s.
    row = [line.split(", ") for line in output.splitlines() if line.count(", ") >= 9][-1]
    return float(row[9])


def librdkafka(bench: Bench) -> Numbers:
    """confluent-kafka, 100-byte records, from the first call to the last acknowledgement or record."""
    records = int(1_500_000 * bench.scale)
    bench.create("rdkafka", 4)
    produced = bench.steady("rdkafka_produce", partial(_produce, bench, "rdkafka", records), float)
    consumed = bench.steady("rdkafka_consume", partial(_consume, bench, "rdkafka", records), float)
    bench.delete("rdkafka")
    return {"rdkafka_produce_mps": produced, "rdkafka_consume_mps": consumed}


def _produce(bench: Bench, topic: str, records: int) -> float:
    settings = {
        "bootstrap.servers": bench.bootstrap,
        "queue.buffering.max.messages": 500_000,
        "linger.ms": 5,
    }
    producer = Producer(settings)
    value = os.urandom(100)
    began = time.monotonic()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(120) == 0
    return records / (time.monotonic() - began)


def _consume(bench: Bench, topic: str, records: int) -> float:
    settings = {
        "bootstrap.servers": bench.bootstrap,
        "group.id": "consume",
        "enable.auto.commit": False,
        # By default it pauses for a second after its queue was full.
        "fetch.queue.backoff.ms": 1,
        "queued.min.messages": 1_000_000,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(4)])
    count, began = 0, 0.0
    while count < records:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise RuntimeError(f"only {count} of {records} records arrived")
        began = began or time.monotonic()
        count += len(messages)
    seconds = time.monotonic() - began
    consumer.close()
    return count / seconds
