"""`runnel consume`: read records to the end, or follow them as they come."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap


class Isolation(StrEnum):
    """Which records of transactions to see."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.", show_default=False)]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="earliest, latest, an OFFSET, -N (the last N of each partition), or a time: "
        "2026-10-01T12:30, @EPOCH_MS, 15m (ago). earliest if not given; a group goes on where it was.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end.")]
CountMax = Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many.")]
Partitions = Annotated[
    str | None, typer.Option("--partition", "-p", metavar="PARTITIONS", help="Only these: 3, 0,2 or 0-3.")
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit.")
]
IsolationOption = Annotated[
    Isolation,
    typer.Option(
        "--isolation",
        "-i",
        help="read_committed leaves out records of aborted transactions, and stops at the first open one.",
    ),
]
Keys = Annotated[bool, typer.Option("--keys", "-k", help="Print keys.")]
HeadersOption = Annotated[bool, typer.Option("--headers", "-H", help="Print headers.")]
Times = Annotated[bool, typer.Option("--times", "-t", help="Print timestamps.")]
Offsets = Annotated[bool, typer.Option("--offsets", "-o", help="Print partitions and offsets.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object per record.")]


def consume(
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
    """Read records: their values, one per line, tabs between what else is asked for.

    Example: runnel consume orders --from 15m --keys --headers

    Example: runnel consume orders --follow --json

    Example: runnel consume orders --group billing --max 100

    Example: runnel consume orders --isolation read_committed
    """
    from runnel.server.cli.options import parse_partitions
    from runnel.server.cli.reading import LineWriter, Wanted, read
    from runnel.server.cli.session import with_cluster

    if group is not None and partitions is not None:
        raise typer.BadParameter("a group shares partitions out by itself: --group or --partition, not both")
    wanted = Wanted(
        topics=topics,
        start=start,
        follow=follow,
        count_max=count_max,
        partitions=None if partitions is None else parse_partitions(partitions),
        group=group,
        committed_only=isolation is Isolation.READ_COMMITTED,
    )
    writer = LineWriter(sys.stdout.buffer, as_json, keys, headers, times, offsets)
    try:
        with_cluster(bootstrap, lambda cluster: read(cluster, wanted, writer))
    except KeyboardInterrupt:
        # The way to end a follower.
        pass
    finally:
        writer.flush()
