"""`runnel pipeline run restore`: from an archive, or from the folder of a stopped broker, back to a topic."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import parse_moment_ms, parse_settings
from runnel.server.cli.output import print_json, print_table
from runnel.server.cli.pipeline.archive import CatalogSettings, Namespace
from runnel.server.cli.pipeline.options import JobOptions, job

if TYPE_CHECKING:
    from runnel.pipelines.restore.job import RestoreOutcome


@job(streams=False)
def restore(
    options: JobOptions,
    topic: Annotated[
        str | None,
        typer.Argument(help="The topic, as it was called. Left out: list what could be restored."),
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option("--warehouse", "-w", metavar="DIR", help="The archive to restore from.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="Or: the data folder of a broker that is not running."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="The topic to restore to. Left out: the same name."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Records with timestamps up to this and no others: 2026-10-01T12:30, @EPOCH_MS or 2h (ago).",
        ),
    ] = None,
    until_offset: Annotated[
        list[str] | None,
        typer.Option(
            "--until-offset",
            metavar="PARTITION:OFFSET",
            help="Of this partition, the records before this offset. May be repeated.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Move this consumer group, without members, to where it had read to. May be repeated.",
        ),
    ] = None,
    groups_from: Annotated[
        str | None,
        typer.Option(
            "--groups-from",
            metavar="ADDRESS",
            help="The broker that knows how far groups had read. Left out: the folder, or --bootstrap-server.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, metavar="COUNT", help="Of a topic that is made. Left out: as many."
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Also to a topic with other records, behind those.")
    ] = False,
    namespace: Namespace = "archive",
    catalog: CatalogSettings = None,
) -> None:
    """Bring a topic back: whole, or up to a point in time, and its consumer groups with it.

    Each record comes back once, in its partition, in order, with its timestamp, and with headers that say
    where it stood: runnel.restore.topic, .partition, .offset and .timestamp. Interrupted, run it again with
    the same options. What the broker had compacted away before it was archived does not come back.

    Examples:

      runnel pipeline run restore orders --warehouse /srv/archive --to orders-again --until 2026-10-01T12:30

      runnel pipeline run restore orders --warehouse /srv/archive --to orders-again --group billing

      runnel pipeline run restore orders --from /old/disk/data --group billing
    """
    from runnel.pipelines.restore.job import RestoreOptions, run
    from runnel.server.cli.pipeline.running import run_job

    if (warehouse is None) == (folder is None):
        raise typer.BadParameter("say where to restore from: --warehouse DIR, or --from DIR")
    if topic is None:
        columns, rows = _listed(warehouse, folder, namespace, parse_settings(catalog))
        if options.as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
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
    run_job(
        "restore",
        options,
        lambda session, progress: run(session, chosen, progress),
        show=_show,
        is_fine=lambda outcome: outcome.is_fine,
    )


def _offsets(texts: list[str] | None) -> dict[int, int]:
    places: dict[int, int] = {}
    for text in texts or ():
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise typer.BadParameter(f"--until-offset looks like 0:1500, not {text}")
        places[int(partition)] = int(offset)
    return places


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
