"""`runnel pipeline run restore`: from an archive, or from the folder of a stopped broker, back to a topic."""

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
    typer.Argument(help="The topic, as it was called. Left out: list what could be restored."),
]
ArchiveFolder = Annotated[
    str | None, typer.Option("--warehouse", "-w", metavar="DIR", help="The archive to restore from.")
]
DataDir = Annotated[
    str | None,
    typer.Option("--from", metavar="DIR", help="Or: the data folder of a broker that is not running."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="The topic to restore to. Left out: the same name."),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Records with timestamps up to this and no others: 2026-10-01T12:30, @EPOCH_MS or 2h (ago).",
    ),
]
UntilOffset = Annotated[
    list[str] | None,
    typer.Option(
        "--until-offset",
        metavar="PARTITION:OFFSET",
        help="Of this partition, the records before this offset. May be repeated.",
    ),
]
GroupNames = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Move this consumer group, without members, to where it had read to. May be repeated.",
    ),
]
GroupsFrom = Annotated[
    str | None,
    typer.Option(
        "--groups-from",
        metavar="ADDRESS",
        help="Who knows how far groups had read. Left out: the folder, the same broker, or the archive.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", min=1, metavar="COUNT", help="Of a topic that is made. Left out: as many."),
]
Append = Annotated[bool, typer.Option("--append", help="Also to a topic with other records, behind those.")]


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
    """Bring a topic back: whole, or up to a point in time, and its consumer groups with it.

    Each record comes back once, in its partition, in order, with its timestamp, and with headers that say
    where it stood. Interrupted, run it again with the same options; the limit must be the very same, and an
    error tells which it was. What the broker had compacted away before it was archived does not come back.
    Ends with 1 if the folder has lost something.

    Example: runnel pipeline run restore orders -w /srv/archive --to again --until 2026-10-01T12:30

    Example: runnel pipeline run restore orders --from /old/disk/data --group billing
    """
    from runnel.pipelines.restore.job import RestoreOptions

    if (warehouse is None) == (folder is None):
        raise typer.BadParameter("say where to restore from: --warehouse DIR, or --from DIR")
    if topic is None:
        _list(options, *_listed(warehouse, folder, namespace, parse_settings(catalog)))
        return
    chosen = RestoreOptions(
        bootstrap=options.bootstrap,
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
    places: dict[int, int] = {}
    for text in texts or ():
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise typer.BadParameter(f"--until-offset looks like 0:1500, not {text}")
        places[int(partition)] = int(offset)
    return places


def _list(options: JobOptions, columns: list[str], rows: list[tuple[object, ...]]) -> None:
    if options.as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _listed(
    warehouse: str | None, folder: str | None, namespace: str, catalog: dict[str, str]
) -> tuple[list[str], list[tuple[object, ...]]]:
    """What could be restored from there."""
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
        empty="nothing was there to restore",
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
