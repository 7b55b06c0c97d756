"""What tests of restoring share: rows of files and of brokers, states, and transactions left open."""

from pathlib import Path

from runnel.batch.records import Headers, iterate_records
from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.client.transactions import Transactions
from runnel.pipelines.restore.segments import Scan, valid_batches
from runnel.testing import Broker

Row = tuple[int, int, bytes | None, bytes | None]


def restore_headers(
    topic: str, partition: int, offset: int, timestamp_ms: int, until: str | None = None
) -> Headers:
    """What a restored record carries behind its own headers."""
    return [
        ("runnel.restore.topic", topic.encode()),
        ("runnel.restore.partition", b"%d" % partition),
        *([] if until is None else [("runnel.restore.until", until.encode())]),
        ("runnel.restore.offset", b"%d" % offset),
        ("runnel.restore.timestamp", b"%d" % timestamp_ms),
    ]


async def leave_open(cluster: Cluster, topic: str, transactional_id: str = "foreign") -> None:
    """A process writes in a transaction, and is gone."""
    producer = TransactionalProducer(cluster, transactional_id)
    await producer.begin()
    await producer.send(topic, b"never", partition=0)
    await producer.flush()
    await super(TransactionalProducer, producer).close()


async def end_it(cluster: Cluster, transactional_id: str = "foreign") -> None:
    """Fence the producer, which aborts its open transaction."""
    await Transactions(cluster).init_producer_id(transactional_id, timeout_ms=60_000)


def rows_in(found: Scan) -> list[Row]:
    """The rows restored from the files of a partition."""
    rows: list[Row] = []
    for range_ in found.ranges:
        with open(range_.path, "rb") as file:
            for _, header, batch in valid_batches(file.fileno(), range_.start, range_.end):
                if header.base_offset >= range_.offset_min and found.is_visible(header):
                    rows += [(r.offset, r.timestamp, r.key, r.value) for r in iterate_records(batch)]
    return [row for row in rows if row[0] >= found.log_start_offset]


def rows_of_broker(broker: Broker, partition: int = 0) -> list[Row]:
    """What a reader of committed records gets."""
    with broker.client() as client:
        messages = client.read("orders", partitions=[partition], committed_only=True)
    return [(m.offset, m.timestamp_ms, m.key, m.value) for m in messages]


def log_of(broker: Broker) -> Path:
    return Path(str(broker.data_dir), "orders-0")
