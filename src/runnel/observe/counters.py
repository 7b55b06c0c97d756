"""The counters of a broker: plain numbers, added to once per batch, run of requests, or rare event."""

from collections.abc import Callable, Iterator

from runnel.observe.metrics import Distribution, LatencyCounts

BATCH_BUCKETS = 16
"""Buckets of the records of a batch: 1, 2, up to 4, up to 8 and so on; the last has no end."""

DELIVERY_MS_MAX = 600_000
"""Older records say nothing about how long it took to deliver them."""

_MAX_TIMESTAMP = slice(35, 43)
"""Its position in the header of a batch."""
_BATCH_COUNTERS = 33
"""The records of a batch are counted by the bit length of its last offset delta, an int32."""


class TopicTraffic:
    """What clients wrote to the partitions of one topic on this node, and read from them.

    All partitions of a topic share one object.
    """

    __slots__ = (
        "batches",
        "bytes_in",
        "bytes_out",
        "duplicates",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "records_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.batches = [0] * _BATCH_COUNTERS
        """Batches by the bit length of their last offset delta, which is one less than their records."""
        self.duplicates = 0
        """Batches of idempotent producers that were stored before."""
        self.failed_produces = 0
        """Partitions of produce requests that were answered with an error."""
        self.bytes_out = 0
        self.fetches = 0
        """Partitions in the responses to consumers, without errors."""
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    @property
    def produces(self) -> int:
        """Partitions of produce requests, those with errors included."""
        return sum(self.batches) + self.duplicates + self.failed_produces

    @property
    def all_fetches(self) -> int:
        """Partitions in the responses to consumers, those with errors included."""
        return self.fetches + self.failed_fetches

    def batch_records(self) -> Distribution:
        """A histogram of the records of batches."""
        shown = [*self.batches[: BATCH_BUCKETS - 1], sum(self.batches[BATCH_BUCKETS - 1 :])]
        return Distribution([1 << bits for bits in range(BATCH_BUCKETS - 1)], shown, self.records_in)

    def add(self, other: "TopicTraffic") -> None:
        """Add the counts of another topic."""
        for name in self.__slots__:
            if name != "batches":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.batches = [own + others for own, others in zip(self.batches, other.batches, strict=True)]


class Traffic:
    """The traffic of all topics that this node has, or had."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._removed = TopicTraffic()
        """The sum over topics that were deleted: totals never decrease."""

    def of(self, topic: str) -> TopicTraffic:
        """The counts of a topic, which exists."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        counts = self._topics.pop(topic, None)
        if counts is not None:
            self._removed.add(counts)

    def unknown(self) -> TopicTraffic:
        """Counts of requests for partitions that are not on this node: part of the totals only."""
        return self._removed

    def __len__(self) -> int:
        return len(self._topics)

    def topics(self) -> list[tuple[str, TopicTraffic]]:
        """All topics, by name."""
        return sorted(self._topics.items())

    def total(self) -> Iterator[TopicTraffic | None]:
        """The sum over all topics comes last; None before, where the work can be interrupted."""
        total = TopicTraffic()
        total.add(self._removed)
        for number, counts in enumerate(list(self._topics.values())):
            total.add(counts)
            if number % 50 == 0:
                yield None
        yield total


class RequestCounts:
    """The requests of each API: how long they took, and their errors."""

    __slots__ = ("_now", "by_api", "errors")

    def __init__(self, api_keys: "list[int]", now: Callable[[], float]) -> None:
        """`now` is the monotonic clock, in seconds. Requests of other APIs are counted as one, -1."""
        self._now = now
        self.by_api = {key: LatencyCounts() for key in (*api_keys, -1)}
        self.errors: dict[tuple[int, int], int] = {}
        """By API key and error code."""

    def account(
        self,
        session: object,
        api_key: int,
        api_version: int,
        request_count: int,
        request_bytes: int,
        response_bytes: int,
        began: float,
    ) -> None:
        """Implements `ports.gates.Accounting`."""
        try:
            row = self.by_api[api_key]
        except KeyError:
            row = self.by_api[-1]
        # As LatencyCounts.add, without the cost of a call.
        elapsed = self._now() - began
        row.counts[int(elapsed * 1_000_000).bit_length()] += request_count
        row.seconds += elapsed * request_count

    def failed(self, api_key: int, code: int, count: int = 1) -> None:
        """Requests, or partitions of them, were answered with an error."""
        key = api_key, code
        self.errors[key] = self.errors.get(key, 0) + count


class EventCounts:
    """Rare events of a node."""

    __slots__ = (
        "commits",
        "controller_elections",
        "end_to_end",
        "failovers",
        "isr_expands",
        "isr_shrinks",
        "leader_elections",
        "rebalances",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.leader_elections = 0
        """Leaders of partitions that this node elected as the active controller."""
        self.unclean_elections = 0
        """Those that may lack committed records."""
        self.failovers = LatencyCounts()
        """From the last contact of a broker that failed to the commit of new leaders, at the controller."""
        self.controller_elections = LatencyCounts()
        """How long this node knew no leader of the quorum."""
        self.rebalances = {"classic": 0, "consumer": 0}
        self.commits = 0
        """Offsets that were committed, by partition."""
        self.end_to_end = LatencyCounts()
        """From a record's timestamp to the response to a consumer that waited for it."""

    def isr_changed(self, old: frozenset[int], new: frozenset[int]) -> None:
        """The ISR of a partition that this node leads is another one."""
        self.isr_expands += not new <= old
        self.isr_shrinks += not old <= new

    def delivered(self, records: bytes, now_ms: int) -> None:
        """A consumer that waited gets these batches; the largest timestamp of the first one counts.

        Older ones are those of records that were copied from elsewhere, or of a clock that is wrong.
        """
        age_ms = now_ms - int.from_bytes(records[_MAX_TIMESTAMP], "big", signed=True)
        if 0 <= age_ms <= DELIVERY_MS_MAX:
            self.end_to_end.add(age_ms / 1000)
