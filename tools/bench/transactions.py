"""What real clients get out of a broker when they write in transactions."""

import os
import time

from confluent_kafka import Producer

from tools.bench.clients import java_produce
from tools.bench.measures import Bench, Numbers

TIMEOUT_S = 60
RECORDS_EACH = 1000
JAVA_TRANSACTION_MS = 100


def transactions(bench: Bench) -> Numbers:
    """Java's performance tool, and confluent-kafka with large transactions and with very small ones."""
    bench.create("transactions", 4)
    numbers: Numbers = {}
    timing = ("--transaction-duration-ms", JAVA_TRANSACTION_MS)
    records = int(1_000_000 * bench.scale)
    numbers["java_txn_mps"] = java_produce(bench, "transactions", records, 100, *timing)
    producer = Producer(
        {
            "bootstrap.servers": bench.bootstrap,
            "transactional.id": "bench",
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    _rate(producer, RECORDS_EACH, bench.seconds / 2)
    numbers["rdkafka_txn_mps"] = _rate(producer, RECORDS_EACH, bench.seconds) * RECORDS_EACH
    numbers["rdkafka_txn_small_tps"] = _rate(producer, 1, bench.seconds)
    bench.delete("transactions")
    return numbers


def _rate(producer: Producer, records_each: int, seconds: float) -> float:
    """Transactions in a second, one after the other."""
    value = os.urandom(100)
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        producer.begin_transaction()
        for _ in range(records_each):
            producer.produce("transactions", value)
        producer.commit_transaction(TIMEOUT_S)
        count += 1
    return count / (time.monotonic() - began)
