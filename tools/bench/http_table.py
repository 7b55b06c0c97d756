"""The workloads over HTTP, and how they are shown: each beside the same records by the native protocol."""

import statistics
from dataclasses import dataclass

from tools.bench.table import Compared, Rounds, Row, compare

HTTP, NATIVE = "HTTP", "native"
RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one kind; each connection has one of them under way."""

    verb: str
    records: int
    """Records of each request or response."""
    connections: int

    @property
    def group(self) -> str:
        """The key of what applies to any number of connections."""
        return f"http_{self.verb}_{self.records}"

    @property
    def key(self) -> str:
        return f"{self.group}_{self.connections}"

    @property
    def what(self) -> str:
        return f"{self.verb} {self.records} record{'s' * (self.records > 1)}"

    @property
    def row(self) -> Row:
        """Its line; the ratio is HTTP / native, of requests and of records."""
        floor = 0.2 if self.records == 1 else 0.5
        connections = f"{self.connections} connection{'s' * (self.connections > 1)}"
        return Row(f"{self.key}_rps", f"{self.what}, {connections}", "req/s", True, floor, floor)


WORKLOADS = [
    Workload(verb, records, connections)
    for verb in ("publish", "subscribe")
    for records in (1, 100)
    for connections in (1, 64, 512)
]
FIGURES = ("rps", "p50_us", "p99_us", "cpu_us")

TEXT = """`runnel gateway` beside the protocol of the broker behind it, measured alternately: the same records
of 100 bytes over the same number of connections, each with one request under way. `publish` is `POST
/topics/{topic}/publish` with a record or a JSON array of 100, natively a Produce request with one batch and
acks=all. `subscribe` is `GET /topics/{topic}/subscribe?partition=P&offset=N` with `max=1` or `max=100`,
natively a Fetch request of one batch. Generator, gateway and broker share the processors. CPU is that of the
gateway's process; the share is of native requests per second, and so of records per second. Medians of
{rounds} rounds of {seconds:g} s.

Other REST proxies for Kafka are not compared: neither Karapace nor Confluent's kafka-rest nor Strimzi's
bridge is in PyPI or Maven Central."""

COLUMNS = "req/s | p50, µs | p99, µs | CPU, µs | native req/s | p50, µs | p99, µs | share | floor | reached"


def http_lines(rounds: Rounds) -> list[Compared]:
    """The medians of requests per second, by HTTP and natively."""
    return compare(rounds, HTTP, NATIVE, [workload.row for workload in WORKLOADS])


def http_table(rounds: Rounds) -> str:
    """One line for each workload that was measured."""
    lines = [f"| | {COLUMNS} |", "|---|" + "---:|" * 9 + "---|"]
    workloads = {workload.row.key: workload for workload in WORKLOADS}
    for line in http_lines(rounds):
        key = workloads[line.row.key].key
        ours = [_median(rounds[HTTP], f"{key}_{figure}") for figure in FIGURES]
        theirs = [_median(rounds[NATIVE], f"{key}_{figure}") for figure in FIGURES[:3]]
        floor = line.row.floor or 0.0
        reached = "yes" if line.reaches(floor) else line.verdict
        cells = " | ".join(f"{value:,.0f}" for value in ours + theirs)
        lines.append(f"| {line.row.label} | {cells} | {line.ratio:.2g}x | ≥ {floor:g}x | {reached} |")
    return "\n".join(lines)


def http_misses(rounds: Rounds, reasons: dict[str, str]) -> str:
    """The floors that are missed, by kind of request, with the reason."""
    lines = {line.row.key: line for line in http_lines(rounds)}
    missed: dict[str, tuple[str, list[str]]] = {}
    for workload in WORKLOADS:
        line = lines.get(workload.row.key)
        if line is not None and not line.reaches(line.row.floor):
            shares = missed.setdefault(workload.group, (workload.what, []))[1]
            shares.append(f"{line.ratio:.2g}x with {workload.connections}")
    return "\n".join(
        f"* **{what}** ({', '.join(shares)}): {reasons.get(group, 'not explained yet')}"
        for group, (what, shares) in missed.items()
    )


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(numbers[key] for numbers in rounds)
