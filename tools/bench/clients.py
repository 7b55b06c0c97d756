"""What real clients get out of a broker: Java's performance tools, librdkafka, and end-to-end latency."""

import os
import re
import statistics
import subprocess
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tools.bench.measures import Bench, Numbers
from tools.kafka import commands

LIGHT_LOAD_PER_S = 500
TAKES = 3
"""This client is through within a second: the median of so many runs."""


def java(bench: Bench) -> Numbers:
    """ProducerPerformance and ConsumerPerformance with their defaults, 100-byte and 1 KB records."""
    numbers: Numbers = {}
    for name, size, count in (("100b", 100, 2_000_000), ("1k", 1000, 500_000)):
        topic, records = f"java{name}", int(count * bench.scale)
        bench.create(topic, 4)
        with bench.meter as producing:
            numbers[f"java_produce_{name}_mps"] = java_produce(bench, topic, records, size)
        numbers[f"java_produce_{name}_cpu_s_per_gb"] = producing.spent_s / (records * size / 1e9)
        takes = [_java_consume(bench, topic, records) for _ in range(TAKES)]
        numbers[f"java_consume_{name}_mps"] = statistics.median(takes)
        bench.delete(topic)
    return numbers


def _run_java(tool: str, *arguments: object) -> str:
    command = commands.tool(tool, *arguments, flags=("-Xmx512m",))
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def java_produce(bench: Bench, topic: str, records: int, size: int, *more: object) -> float:
    load = ["--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1, *more]
    output = _run_java("kafka-producer-perf-test", *load, "--bootstrap-server", bench.bootstrap)
    rates = re.findall(rf"{records} records sent, ([\d.]+) records/sec", output)
    return float(rates[-1])


def _java_consume(bench: Bench, topic: str, records: int) -> float:
    load = ["--topic", topic, "--num-records", records, "--timeout", 60_000, "--hide-header"]
    output = _run_java("kafka-consumer-perf-test", "--bootstrap-server", bench.bootstrap, *load)
    # Columns: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s.
    row = [line.split(", ") for line in output.splitlines() if line.count(", ") >= 9][-1]
    return float(row[9])


def librdkafka(bench: Bench) -> Numbers:
    """confluent-kafka, 100-byte records, from the first call to the last acknowledgement or record."""
    records = int(1_500_000 * bench.scale)
    bench.create("rdkafka", 4)
    produced = _fill(bench, "rdkafka", records)
    consumed = _drain(bench, "rdkafka", records)
    bench.delete("rdkafka")
    return {"rdkafka_produce_mps": produced, "rdkafka_consume_mps": consumed}


def _fill(bench: Bench, topic: str, records: int) -> float:
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


def _drain(bench: Bench, topic: str, records: int) -> float:
    settings = {
        "bootstrap.servers": bench.bootstrap,
        "group.id": "drain",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
        "queued.min.messages": 1_000_000,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(4)])
    count, began = 0, 0.0
    while count < records:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise RuntimeError(f"only {count} of {records} records came")
        began = began or time.monotonic()
        count += len(messages)
    seconds = time.monotonic() - began
    consumer.close()
    return count / seconds


def end_to_end(bench: Bench) -> Numbers:
    """From produce() to poll() at a light, even load, acks=all."""
    bench.create("latency", 1)
    place = {"bootstrap.servers": bench.bootstrap, "log_level": 0}
    producer = Producer({**place, "linger.ms": 0, "acks": "all"})
    consumer = Consumer({**place, "group.id": "latency", "enable.auto.commit": False})
    consumer.assign([TopicPartition("latency", 0, OFFSET_BEGINNING)])
    latencies_us: list[float] = []
    step = 1 / LIGHT_LOAD_PER_S
    due = time.monotonic()
    with bench.meter as serving:
        for number in range(int(bench.seconds * LIGHT_LOAD_PER_S)):
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + step, time.monotonic())
            sent = time.monotonic_ns()
            producer.produce("latency", number.to_bytes(8, "big"))
            producer.poll(0)
            _receive(consumer, number)
            latencies_us.append((time.monotonic_ns() - sent) / 1000)
    producer.flush(10)
    consumer.close()
    bench.delete("latency")
    # The first ones met clients that were still finding their way.
    settled = sorted(latencies_us[len(latencies_us) // 10 :])
    return {
        "end_to_end_p50_us": statistics.median(settled),
        "end_to_end_p99_us": settled[int(len(settled) * 0.99)],
        "end_to_end_cpu_us_per_record": serving.spent_s / len(latencies_us) * 1e6,
    }


def _receive(consumer: Consumer, number: int) -> None:
    """Poll until this record comes; an error on the way is only a topic that is not ready."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(5.0)
        if message is not None and message.error() is None:
            assert int.from_bytes(message.value(), "big") == number
            return
    raise RuntimeError(f"record {number} did not come")
