"""Which numbers are compared, which direction is better, the goal and the floor of each."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; goal and floor are ratios Runnel / Kafka."""

    key: str
    label: str
    unit: str
    more_is_better: bool
    goal: float | None = None
    floor: float | None = None


CLUSTER_PARTITIONS = (10, 1000)


def cluster_rows(partitions: int) -> list[Row]:
    """The lines of three nodes with this many partitions."""
    key, label = f"{partitions}", f"three nodes, {partitions:,} partitions, acks=all"
    load = "12 connections x 8 in flight of 10 x 100 B"
    return [
        Row(f"cluster_single_{key}_p50_us", f"{label}, one in flight, p50", "µs", False, 0.5, 1.0),
        Row(f"cluster_many_{key}_mps", f"{label}, {load}", "msg/s", True, 1.2, 1.0),
        Row(f"cluster_many_{key}_cpu_us", f"{label}, CPU of all nodes per record", "µs", False, 0.5),
    ]


TIMES = "times"
"""The unit of what is a ratio itself, which is compared with 1."""
ACL_COUNTS = (10, 100_000)
ACL_CHANGES_PER_S = 10


def security_rows() -> list[Row]:
    """The lines of TLS, SASL and ACLs."""
    fewest, *_, most = ACL_COUNTS
    return [
        Row("tls_produce_1m_mbps", "TLS: produce 1 MB batches", "MB/s", True, 1.2, 1.0),
        Row(
            "tls_produce_1m_cpu_s_per_gb", "TLS: broker CPU per GB in, 1 MB batches", "s", False, 1 / 1.2, 1.0
        ),
        Row("tls_fetch_1m_mbps", "TLS: fetch 1 MB chunks", "MB/s", True, 1.2, 1.0),
        Row("tls_fetch_1m_cpu_s_per_gb", "TLS: broker CPU per GB out, 1 MB chunks", "s", False, 1 / 1.2, 1.0),
        Row(
            "tls_produce_small_rps",
            "TLS: produce 100 B, 16 connections x 8 in flight",
            "req/s",
            True,
            1.2,
            1.0,
        ),
        Row("tls_produce_small_cpu_us", "TLS: broker CPU per small produce", "µs", False),
        Row("tls_fetch_small_rps", "TLS: fetch 100 B, 16 connections x 8 in flight", "req/s", True, 1.2, 1.0),
        Row("tls_fetch_small_cpu_us", "TLS: broker CPU per small fetch", "µs", False),
        Row("tls_produce_single_p50_us", "TLS: one produce in flight, p50", "µs", False),
        Row("sasl_ssl_connections_per_s", "SASL_SSL connections, SCRAM-SHA-512", "conn/s", True, 1.2, 1.0),
        Row("sasl_ssl_connection_cpu_us", "broker CPU per SASL_SSL connection", "µs", False),
        Row("acls_none_produce_rps", "produce 100 B as a user, no authorizer", "req/s", True),
        Row("acls_none_produce_cpu_us", "broker CPU of that", "µs", False),
        *(row for count in ACL_COUNTS for row in _acl_rows(f"acls_{count}", f"{count:,} ACLs")),
        Row("acls_cpu_ratio", f"broker CPU of that with {most:,} ACLs / with {fewest:,}", TIMES, False),
        *_acl_rows("acls_changing", f"{most:,} ACLs, {ACL_CHANGES_PER_S} changes per second"),
    ]


def _acl_rows(key: str, label: str) -> list[Row]:
    return [
        Row(f"{key}_produce_rps", f"produce 100 B as a user, {label}", "req/s", True, 1.2, 1.0),
        Row(f"{key}_produce_cpu_us", "broker CPU of that", "µs", False),
    ]


ROWS = [
    Row("produce_small_rps", "produce 100 B, acks=1, 16 connections x 8 in flight", "req/s", True, 4, 2.5),
    Row("fetch_small_rps", "fetch 100 B, 16 connections x 8 in flight", "req/s", True, 6, 4),
    Row("produce_small_cpu_us", "broker CPU per small produce", "µs", False, 1 / 5, 1 / 4),
    Row("fetch_small_cpu_us", "broker CPU per small fetch", "µs", False, 1 / 5, 1 / 4),
    Row("produce_single_p50_us", "one produce in flight, p50", "µs", False, 0.7, 1.0),
    Row("produce_single_cpu_us", "broker CPU per produce, one in flight", "µs", False),
    Row("produce_10k_mbps", "produce 10 KB batches", "MB/s", True),
    Row("produce_1m_mbps", "produce 1 MB batches", "MB/s", True, 1.2, 1.0),
    Row("produce_1m_cpu_s_per_gb", "broker CPU per GB in, 1 MB batches", "s", False),
    Row("fetch_1m_mbps", "fetch 1 MB chunks", "MB/s", True, 1.0, 0.85),
    Row("fetch_1m_cpu_s_per_gb", "broker CPU per GB out, 1 MB chunks", "s", False),
    Row("java_produce_100b_mps", "Java producer, 100 B", "msg/s", True, 1.2, 1.0),
    Row("java_produce_1k_mps", "Java producer, 1 KB", "msg/s", True, 1.2, 1.0),
    Row("java_produce_1k_cpu_s_per_gb", "broker CPU per GB, Java producer 1 KB", "s", False),
    Row("java_consume_100b_mps", "Java consumer, 100 B", "msg/s", True, 1.2, 1.0),
    Row("java_consume_1k_mps", "Java consumer, 1 KB", "msg/s", True, 1.2, 1.0),
    Row("rdkafka_produce_mps", "librdkafka producer, 100 B", "msg/s", True, 1.2, 1.0),
    Row("rdkafka_consume_mps", "librdkafka consumer, 100 B", "msg/s", True, 1.2, 1.0),
    Row("java_txn_mps", "Java producer in transactions of 100 ms, 100 B", "msg/s", True, 2.0, 1.0),
    Row("rdkafka_txn_mps", "librdkafka in transactions of 1000, 100 B", "msg/s", True, 2.0, 1.0),
    Row("rdkafka_txn_small_tps", "librdkafka in transactions of one record", "txn/s", True, 2.0, 1.0),
    Row("death_consumer_s", "KIP-848: kill -9 to last partition moved, 6 s session", "s", False),
    Row("death_classic_s", "classic group: the same", "s", False),
    Row("join_consumer_s", "KIP-848: a fourth member joins, until all is moved", "s", False),
    Row("join_classic_s", "classic group: the same", "s", False),
    Row("end_to_end_500_p50_us", "end to end at 500 records/s, p50", "µs", False, 0.6, 1.0),
    Row("end_to_end_500_p99_us", "end to end at 500 records/s, p99", "µs", False, 0.6, 1.0),
    Row("latency_500_cpu_us", "broker CPU per record at 500 records/s", "µs", False),
    Row("produce_durable_rps", "produce 100 B, acknowledged from the disk", "req/s", True),
    Row("produce_durable_p50_us", "the same, p50", "µs", False),
    Row("memory_idle_mb", "memory after start", "MB", False, 1 / 15, 1 / 8),
    Row("memory_peak_mb", "memory at most, whole run", "MB", False, 1 / 15, 1 / 8),
    Row("start_s", "start to first response", "s", False, 1 / 8, 1 / 4),
    *(row for partitions in CLUSTER_PARTITIONS for row in cluster_rows(partitions)),
    *security_rows(),
]

LATENCY_RATES = (500, 5_000, 50_000)
"""Records per second of the latency measurements."""
LATENCY_ROWS = [
    Row(f"{name}_{rate}_{key}_us", f"{label}, {rate:,} records/s, {share}", "µs", False)
    for name, label in (("produce", "produce"), ("end_to_end", "end to end"))
    for rate in LATENCY_RATES
    for key, share in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
]


@dataclass(frozen=True, slots=True)
class Compared:
    """A row with its medians."""

    row: Row
    ours: float | None
    theirs: float | None

    @property
    def ratio(self) -> float | None:
        if self.ours is None or not self.theirs or self.row.unit == TIMES:
            return None
        return self.ours / self.theirs

    @property
    def advantage(self) -> float | None:
        """How many times better Runnel is; below 1 it is worse."""
        if self.ratio is None:
            return None
        return self.ratio if self.row.more_is_better else 1 / self.ratio

    def reaches(self, target: float | None) -> bool:
        if target is None or self.ratio is None:
            return True
        return self.ratio >= target if self.row.more_is_better else self.ratio <= target

    @property
    def verdict(self) -> str:
        if self.ratio is None or self.row.goal is None:
            return ""
        if self.reaches(self.row.goal):
            return "goal"
        return "floor" if self.reaches(self.row.floor) else "**below the floor**"


Rounds = dict[str, list[dict[str, float]]]


def compare(rounds: Rounds, ours: str, theirs: str, rows: Sequence[Row] = ROWS) -> list[Compared]:
    """Medians over the rounds, side by side; rows without a measurement are left out."""
    compared = [
        Compared(row, _median(rounds.get(ours, []), row.key), _median(rounds.get(theirs, []), row.key))
        for row in rows
    ]
    return [line for line in compared if line.ours is not None or line.theirs is not None]


def _median(rounds: list[dict[str, float]], key: str) -> float | None:
    values = [numbers[key] for numbers in rounds if key in numbers]
    return statistics.median(values) if values else None
