"""Options for quotas, shared by `runnel quota` and `runnel tenant`."""

from typing import Annotated

import typer

from runnel.server.cli.options import parse_rate

ProducerRate = Annotated[
    str | None,
    typer.Option("--producer-byte-rate", metavar="RATE", help="Bytes/s produced: 500K, 50M or 1G."),
]
ConsumerRate = Annotated[
    str | None, typer.Option("--consumer-byte-rate", metavar="RATE", help="Bytes/s fetched: 500K, 50M or 1G.")
]
RequestPercentage = Annotated[
    float | None,
    typer.Option("--request-percentage", metavar="N", help="Time of each broker's event loop, in percent."),
]
MutationRate = Annotated[
    float | None,
    typer.Option(
        "--controller-mutation-rate", metavar="N", help="Partitions created and deleted per second."
    ),
]


def client_quotas(
    producer: str | None, consumer: str | None, percentage: float | None, mutations: float | None
) -> dict[str, float]:
    """The given quotas by Kafka's names."""
    quotas: dict[str, float] = {}
    if producer is not None:
        quotas["producer_byte_rate"] = parse_rate(producer, "--producer-byte-rate")
    if consumer is not None:
        quotas["consumer_byte_rate"] = parse_rate(consumer, "--consumer-byte-rate")
    if percentage is not None:
        quotas["request_percentage"] = percentage
    if mutations is not None:
        quotas["controller_mutation_rate"] = mutations
    return quotas


def quota_text(value: float) -> str:
    """The value of a quota as it is shown."""
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
