"""What real clients get out of a broker when they write in transactions."""

import os
import time
from functools import partial

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
    produce = partial(java_produce, bench, "transactions", records, 100, *timing)
    numbers["java_txn_mps"] = bench.steady("java_txn", produce, float)
    producer = Producer(
        {
            "bootstrap.servers": bench.bootstrap,
            "transactional.id": "bench",
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    large, small = (
        partial(_rate, producer, records_each, bench.load_s) for records_each in (RECORDS_EACH, 1)
    )
    numbers["rdkafka_txn_mps"] = bench.steady("rdkafka_txn", large, float) * RECORDS_EACH
    numbers["rdkafka_txn_small_tps"] = bench.steady("rdkafka_txn_small", small, float)
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
