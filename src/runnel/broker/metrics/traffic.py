"""Metrics of requests and of the records in them."""

from collections.abc import Callable, Iterator

from runnel.broker.metrics.series import TOPIC_SERIES_MAX
from runnel.broker.runtime.broker import Broker
from runnel.messages.registry import API_NAMES
from runnel.model.errors import ErrorCode
from runnel.observe.counters import TopicTraffic
from runnel.observe.metrics import Family, Labels, Sample, one

_TOPIC = "kafka_server_brokertopicmetrics_"
_UNKNOWN_API = "unknown"

Read = Callable[[TopicTraffic], int]

_BY_TOPIC: tuple[tuple[str, str, Read], ...] = (
    ("messagesin", "Records that were appended on this node as the leader.", lambda each: each.records_in),
    (
        "bytesin",
        "Bytes of these records, as they are stored.",
        lambda each: each.bytes_in,
    ),
    ("bytesout", "Bytes of batches that were sent to consumers.", lambda each: each.bytes_out),
    ("totalproducerequests", "Partitions of produce requests.", lambda each: each.produces),
    ("totalfetchrequests", "Partitions in the responses to consumers.", lambda each: each.all_fetches),
    (
        "failedproducerequests",
        "Partitions of produce requests that were answered with an error.",
        lambda each: each.failed_produces,
    ),
    (
        "failedfetchrequests",
        "Partitions in the responses to consumers that have an error.",
        lambda each: each.failed_fetches,
    ),
)
_SUMS: tuple[tuple[str, str, Read], ...] = (
    (
        "replicationbytesin",
        "Bytes of batches that were copied from leaders.",
        lambda each: each.replication_bytes_in,
    ),
    (
        "replicationbytesout",
        "Bytes of batches that were sent to followers.",
        lambda each: each.replication_bytes_out,
    ),
)


class TrafficMetrics:
    """What was written, read and requested."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self) -> Iterator[Family | None]:
        traffic = self._broker.traffic
        total = TopicTraffic()
        for step in traffic.total():
            if step is not None:
                total = step
            yield None
        topics = traffic.topics() if len(traffic) <= TOPIC_SERIES_MAX else []
        for name, help_text, read in _BY_TOPIC:
            yield Family(f"{_TOPIC}{name}_total", "counter", help_text, _samples(total, topics, read))
        for name, help_text, read in _SUMS:
            yield one(f"{_TOPIC}{name}_total", "counter", help_text, read(total))
        yield one(
            "runnel_produce_batch_records",
            "histogram",
            "Records of the batches that were appended.",
            total.batch_records(),
        )
        yield from self._requests()

    def _requests(self) -> Iterator[Family]:
        requests = self._broker.requests
        yield Family(
            "runnel_request_seconds",
            "histogram",
            "Time from receiving a request to its response; fetches wait for records.",
            [
                (_api(key), counts.distribution())
                for key, counts in sorted(requests.by_api.items())
                if counts.total
            ],
        )
        yield Family(
            "runnel_request_errors_total",
            "counter",
            "Requests that failed, and partitions of Produce and Fetch with an error.",
            [
                ((*_api(key), ("error", ErrorCode.from_code(code).name)), count)
                for (key, code), count in sorted(requests.errors.items())
            ],
        )
        yield one(
            "runnel_end_to_end_seconds",
            "histogram",
            "Time from the timestamp of a record to the response to a consumer that waited for it.",
            self._broker.events.end_to_end.distribution(),
        )


def _samples(total: TopicTraffic, topics: list[tuple[str, TopicTraffic]], read: Read) -> Iterator[Sample]:
    yield (), read(total)
    for topic, counts in topics:
        yield (("topic", topic),), read(counts)


def _api(key: int) -> Labels:
    return (("api", API_NAMES.get(key, _UNKNOWN_API)),)
