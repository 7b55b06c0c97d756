"""`runnel bench`: measure throughput and latency of a broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Settings, parse_settings
from runnel.server.cli.produce import Acks, Compression

if TYPE_CHECKING:
    from runnel.server.bench.measure import Report


Records = Annotated[
    int, typer.Option("--records", "-n", min=1, help="Number of records to produce and consume.")
]
RecordBytes = Annotated[
    int, typer.Option("--record-bytes", "-s", min=1, help="Size of a record value in bytes.")
]
BatchBytes = Annotated[int, typer.Option(min=1, help="Approximate size of a batch in bytes.")]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="Partitions of the benchmark topic.")
]
Connections = Annotated[
    int, typer.Option("--connections", "-c", min=1, help="Number of concurrent connections.")
]
InFlight = Annotated[int, typer.Option(min=1, help="Maximum requests in flight per connection.")]
AcksOption = Annotated[
    Acks, typer.Option(help="Required acknowledgements: all in-sync replicas, the leader, or none.")
]
CompressionOption = Annotated[Compression, typer.Option("--compression", "-z", help="Compression type.")]
LatencySeconds = Annotated[
    float,
    typer.Option("--latency-seconds", min=0, help="Duration of the latency measurement; 0 skips it."),
]
LatencyRate = Annotated[int, typer.Option(min=1, help="Records per second during the latency measurement.")]
Topic = Annotated[
    str | None,
    typer.Option(help="Use this topic and keep it. Default: a temporary topic, deleted at the end."),
]


def bench(
    records: Records = 1_000_000,
    record_bytes: RecordBytes = 100,
    batch_bytes: BatchBytes = 16_384,
    partitions: Partitions = 1,
    connections: Connections = 1,
    in_flight: InFlight = 5,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    latency_s: LatencySeconds = 3.0,
    latency_rate: LatencyRate = 200,
    topic: Topic = None,
    settings: Settings = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Measure produce and consume throughput, and latencies, of a running broker.

    Batches are built in advance: the result measures the broker and the network, not the client.

    Example: runnel bench --records 2000000 --partitions 4 --connections 2

    Example: runnel bench --set flush.policy=commit --acks all --json
    """
    from runnel.server.bench.measure import Plan, measure
    from runnel.server.cli.output import print_json
    from runnel.server.cli.progress import progress
    from runnel.server.cli.session import with_cluster

    plan = Plan(
        records=records,
        record_bytes=record_bytes,
        batch_bytes=batch_bytes,
        partitions=partitions,
        connections=connections,
        in_flight=in_flight,
        acks=acks.value,
        compression=compression.value,
        latency_s=latency_s,
        latency_rate=latency_rate,
        topic=topic,
        settings=parse_settings(settings),
    )
    with progress() as report_progress:
        report = with_cluster(
            bootstrap, lambda cluster: measure(cluster, plan, report_progress), timeout_s=60
        )
    print_json(report.as_json()) if as_json else _print(report)


def _print(report: "Report") -> None:
    from runnel.server.cli.output import print_table

    print_table(
        ["", "records/s", "MB/s", "seconds"],
        [
            (name, f"{flow.records_per_s:,.0f}", f"{flow.megabytes_per_s:,.1f}", f"{flow.seconds:.2f}")
            for name, flow in (("produce", report.produce), ("consume", report.consume))
        ],
    )
    if report.latency is not None:
        print()
        print_table(
            ["latency", "p50 ms", "p90 ms", "p99 ms", "max ms"],
            [
                (name, *(f"{value:.2f}" for value in (view.p50_ms, view.p90_ms, view.p99_ms, view.max_ms)))
                for name, view in (
                    ("produce", report.latency.produce),
                    ("end to end", report.latency.end_to_end),
                )
            ],
        )
    if report.pauses is not None:
        print()
        pauses = (report.pauses.p50_ms, report.pauses.p99_ms, report.pauses.max_ms)
        print_table(
            ["event loop", "p50 ms", "p99 ms", "max ms"], [("pauses", *(f"{value:.2f}" for value in pauses))]
        )
