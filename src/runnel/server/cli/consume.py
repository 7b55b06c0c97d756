"""`runnel consume`: read records up to the end of the log, or follow it."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap
from runnel.server.cli.schema_options import CONSUMING, FormatOptions, with_schema_options

if TYPE_CHECKING:
    from runnel.server.cli.formats import FieldDecoder
    from runnel.server.cli.reading import LineWriter, ReadOptions


class Isolation(StrEnum):
    """Kafka's isolation levels."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.", show_default=False)]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="earliest, latest, an OFFSET, -N (the last N of each partition), or a time: "
        "2026-10-01T12:30, @EPOCH_MS, 15m (ago). Default: earliest; a group resumes at its commits.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records at the end.")]
CountMax = Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")]
Partitions = Annotated[
    str | None,
    typer.Option("--partition", "-p", metavar="PARTITIONS", help="Partitions to read: 3, 0,2 or 0-3."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Read as a member of this consumer group and commit offsets."),
]
IsolationOption = Annotated[
    Isolation,
    typer.Option(
        "--isolation",
        "-i",
        help="read_committed skips aborted transactions and stops at the last stable offset.",
    ),
]
Keys = Annotated[bool, typer.Option("--keys", "-k", help="Print keys.")]
HeadersOption = Annotated[bool, typer.Option("--headers", "-H", help="Print headers.")]
Times = Annotated[bool, typer.Option("--times", "-t", help="Print timestamps.")]
Offsets = Annotated[bool, typer.Option("--offsets", "-o", help="Print partitions and offsets.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object per record.")]


@with_schema_options(CONSUMING)
def consume(
    formats: FormatOptions,
    topics: Topics,
    start: Start = None,
    follow: Follow = False,
    count_max: CountMax = None,
    partitions: Partitions = None,
    group: Group = None,
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED,
    keys: Keys = False,
    headers: HeadersOption = False,
    times: Times = False,
    offsets: Offsets = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Consume records. Prints one line per record: the requested fields and the value, separated by tabs.

    Example: runnel consume orders --from 15m --keys --headers

    Example: runnel consume orders --follow --json

    Example: runnel consume orders --group billing --max 100

    Example: runnel consume orders --isolation read_committed

    Example: runnel consume orders --value-format avro
    """
    from runnel.server.cli.options import parse_partitions
    from runnel.server.cli.reading import LineWriter, ReadOptions

    if group is not None and partitions is not None:
        raise typer.BadParameter(
            "--group and --partition are mutually exclusive: a group assigns partitions itself"
        )
    options = ReadOptions(
        topics=topics,
        start=start,
        follow=follow,
        count_max=count_max,
        partitions=None if partitions is None else parse_partitions(partitions),
        group=group,
        committed_only=isolation is Isolation.READ_COMMITTED,
    )
    writer = LineWriter(sys.stdout.buffer, as_json, keys, headers, times, offsets, *_decoders(formats))
    _print_records(bootstrap, options, writer)


def _print_records(bootstrap: str, options: "ReadOptions", writer: "LineWriter") -> None:
    from runnel.server.cli.reading import read
    from runnel.server.cli.session import with_cluster

    try:
        with_cluster(bootstrap, lambda cluster: read(cluster, options, writer))
    except KeyboardInterrupt:
        # The regular way to end --follow.
        pass
    finally:
        writer.flush()


def _decoders(formats: FormatOptions) -> "tuple[FieldDecoder | None, FieldDecoder | None]":
    if formats.key.format is formats.value.format is None:
        return None, None
    from runnel.server.cli.formats import decoders

    return decoders(formats)
