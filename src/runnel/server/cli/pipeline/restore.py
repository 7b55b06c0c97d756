"""`runnel pipeline run restore`: restore a topic from an archive or a data directory."""

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import parse_moment_ms, parse_settings
from runnel.server.cli.output import print_json, print_table
from runnel.server.cli.pipeline.archive import CatalogSettings, Namespace
from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.pipeline.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.pipelines.progress import Progress
    from runnel.pipelines.restore.job import RestoreOptions, RestoreOutcome
Topic = Annotated[
    str | None,
    typer.Argument(help="Name of the archived topic. Default: list the topics that can be restored."),
]
ArchiveFolder = Annotated[
    str | None, typer.Option("--warehouse", "-w", metavar="DIR", help="Warehouse directory of the archive.")
]
DataDir = Annotated[
    str | None,
    typer.Option("--from", metavar="DIR", help="Data directory of a stopped broker."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="Target topic. Default: the same name."),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Only records with timestamps up to this: 2026-10-01T12:30, @EPOCH_MS or 2h (ago).",
    ),
]
UntilOffset = Annotated[
    list[str] | None,
    typer.Option(
        "--until-offset",
        metavar="PARTITION:OFFSET",
        help="Only records of this partition below this offset. Repeatable.",
    ),
]
GroupNames = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Restore the committed offsets of this inactive consumer group. Repeatable.",
    ),
]
GroupsFrom = Annotated[
    str | None,
    typer.Option(
        "--groups-from",
        metavar="ADDRESS",
        help="Broker with the committed offsets. Default: data directory, same broker, or archive.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions", min=1, metavar="COUNT", help="Partitions of a new target topic. Default: as before."
    ),
]
Append = Annotated[bool, typer.Option("--append", help="Append to a topic that has other records.")]


@job(streams=False)
def restore(
    options: JobOptions,
    topic: Topic = None,
    warehouse: ArchiveFolder = None,
    folder: DataDir = None,
    to: To = None,
    until: Until = None,
    until_offset: UntilOffset = None,
    group: GroupNames = None,
    groups_from: GroupsFrom = None,
    partitions: Partitions = None,
    append: Append = False,
    namespace: Namespace = "archive",
    catalog: CatalogSettings = None,
) -> None:
    """Restore a topic, optionally up to a point in time and with its consumer groups.

    Each record is restored exactly once, in its partition, in order, with its timestamp, and with headers
    that state its original offset. An interrupted restore is resumed by the same command with the same limit;
    an error states the previous one. Records compacted away before they were archived are not restored.
    Exits with status 1 if the data directory has lost records.

    Example: runnel pipeline run restore orders -w /srv/archive --to again --until 2026-10-01T12:30

    Example: runnel pipeline run restore orders --from /old/disk/data --group billing
    """
    from runnel.pipelines.restore.job import RestoreOptions

    if (warehouse is None) == (folder is None):
        raise typer.BadParameter("specify the source: either --warehouse DIR or --from DIR")
    if topic is None:
        _list(options, *_restorable_topics(warehouse, folder, namespace, parse_settings(catalog)))
        return
    chosen = RestoreOptions(
        bootstrap=options.bootstrap,
        properties=options.properties,
        topic=topic,
        target=to,
        warehouse=warehouse,
        folder=folder,
        namespace=namespace,
        catalog=parse_settings(catalog),
        until_ms=None if until is None else parse_moment_ms(until, time.time_ns() // 1_000_000),
        until_offsets=_offsets(until_offset),
        groups=tuple(group or ()),
        groups_bootstrap=groups_from,
        partitions=partitions,
        is_appending=append,
    )
    run_job("restore", options, partial(_run, chosen), show=_show, is_fine=lambda outcome: outcome.is_fine)


def _run(chosen: "RestoreOptions", session: "SparkSession", progress: "Progress") -> "RestoreOutcome":
    from runnel.pipelines.restore.job import run

    return run(session, chosen, progress)


def _offsets(texts: list[str] | None) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for text in texts or ():
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise typer.BadParameter(
                f"--until-offset must have the form PARTITION:OFFSET, such as 0:1500, not {text}"
            )
        offsets[int(partition)] = int(offset)
    return offsets


def _list(options: JobOptions, columns: list[str], rows: list[tuple[object, ...]]) -> None:
    if options.as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _restorable_topics(
    warehouse: str | None, folder: str | None, namespace: str, catalog: dict[str, str]
) -> tuple[list[str], list[tuple[object, ...]]]:
    """Topics that can be restored from the source."""
    if folder is not None:
        from runnel.pipelines.restore.data_folder import DataFolder

        topics = DataFolder(folder).topics()
        return ["topic", "partitions", "bytes"], [
            (found.name, len(found.partitions), found.size_bytes) for found in topics
        ]
    from runnel.pipelines.archive.layout import archived_topics, table_of
    from runnel.pipelines.tables import open_catalog

    with open_catalog(str(warehouse), catalog) as opened:
        names = archived_topics(opened, namespace)
    return ["topic", "table"], [(name, table_of(namespace, name)) for name in names]


def _show(outcome: "RestoreOutcome") -> None:
    print_table(
        ["partition", "records restored", "restored before"],
        [(part.partition, part.records, part.records_before) for part in outcome.partitions],
        empty="nothing to restore",
    )
    if outcome.groups:
        print()
        print_table(
            ["group", "partition", "offset before", "offset now"],
            [(move.group, move.partition, move.offset_before, move.offset_after) for move in outcome.groups],
        )
    for note in outcome.notes:
        print(f"note: {note}")
    for damage in outcome.damages:
        print(f"LOST: {damage}")
