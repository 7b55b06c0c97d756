"""`runnel pipeline run archive`: topics into Iceberg tables."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import parse_settings
from runnel.server.cli.pipeline.options import JobOptions, job
from runnel.server.cli.schema_options import REGISTRY_DEFAULT, registry_option, user_option

if TYPE_CHECKING:
    from runnel.pipelines.archive.job import ArchiveOutcome
    from runnel.pipelines.upkeep import UpkeepPolicy

REGISTERED = ("avro", "protobuf", "json-schema")
"""Formats of values that have schemas of a registry, `avro` unless a schema is given."""

Warehouse = Annotated[
    str,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="DIR",
        help="Warehouse directory; with --catalog, any location that Iceberg and Spark support.",
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="Catalog namespace of the tables.")
]
CatalogSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="KEY=VALUE",
        help="Iceberg catalog property, such as type=rest. Default: a SQLite catalog in the warehouse. "
        "Repeatable.",
    ),
]
Topics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics to archive.")]
Pattern = Annotated[
    str | None, typer.Option("--pattern", metavar="REGEX", help="Topics whose full name matches.")
]
Retention = Annotated[
    int | None,
    typer.Option("--retention", min=1, metavar="DAYS", help="Remove archived records older than this."),
]
Compact = Annotated[
    bool,
    typer.Option("--compact", help="Compact all small files at the end, not only where there are many."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Iceberg table property, such as history.expire.max-snapshot-age-ms=604800000. Repeatable.",
    ),
]
WithUpkeep = Annotated[
    bool,
    typer.Option(
        "--upkeep/--no-upkeep",
        help="Compact small files, expire snapshots according to the table's properties, remove orphans.",
    ),
]
OrphanDays = Annotated[
    int,
    typer.Option("--orphan-days", min=1, metavar="DAYS", help="Age at which orphaned files are removed."),
]
ValueFormat = Annotated[
    str,
    typer.Option(
        "--value-format", metavar="FORMAT", help="bytes, string, json, avro, protobuf or json-schema."
    ),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="SCHEMA",
        help="Schema of the values, or a file with it: SQL columns for JSON, or an Avro schema.",
    ),
]
ValueSubject = Annotated[
    str | None,
    typer.Option(
        "--value-subject",
        metavar="SUBJECT",
        help="Subject of the values' schemas: avro without --value-schema, protobuf, json-schema. "
        "Default: TOPIC-value.",
    ),
]
Registry = Annotated[str, registry_option()]
RegistryUser = Annotated[str | None, user_option()]
Every = Annotated[
    float,
    typer.Option("--every", min=0.1, metavar="SECONDS", help="Trigger interval with --continuous."),
]
BatchRecords = Annotated[
    int | None,
    typer.Option("--batch-records", min=1, metavar="COUNT", help="Maximum number of records per snapshot."),
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue if the broker deleted records before they were archived."),
]


@job(streams=True)
def archive(
    options: JobOptions,
    topics: Topics = None,
    pattern: Pattern = None,
    warehouse: Warehouse = "warehouse",
    namespace: Namespace = "archive",
    catalog: CatalogSettings = None,
    retention: Retention = None,
    compact: Compact = False,
    upkeep: WithUpkeep = True,
    orphan_days: OrphanDays = 3,
    properties: Properties = None,
    value_format: ValueFormat = "bytes",
    value_schema: ValueSchema = None,
    value_subject: ValueSubject = None,
    registry: Registry = REGISTRY_DEFAULT,
    registry_user: RegistryUser = None,
    every: Every = 60.0,
    batch_records: BatchRecords = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Archive topics to Iceberg tables, one per topic: every committed record exactly once.

    A later run resumes from the checkpoint, or from the tables if the checkpoint is lost.

    Example: runnel pipeline run archive --pattern 'shop[.].*' --continuous --retention 365

    Example: runnel pipeline run archive orders --value-format json --value-schema 'id BIGINT, item STRING'
    """
    from runnel.pipelines.archive.job import ArchiveOptions, run
    from runnel.server.cli.pipeline.running import run_job

    chosen = ArchiveOptions(
        bootstrap=options.bootstrap,
        properties=options.properties,
        warehouse=warehouse,
        checkpoint=options.checkpoint(_name(namespace, topics, pattern)),
        topics=tuple(topics or ()),
        pattern=pattern,
        namespace=namespace,
        once=options.once is not False,
        trigger_s=every,
        records_per_batch=batch_records,
        **_values(value_format, value_schema, value_subject, registry, registry_user),
        retention_days=retention,
        **_tables(catalog, properties, _policy(upkeep, orphan_days, compact), compact),
        is_loss_accepted=accept_loss,
    )
    run_job("archive", options, lambda session, progress: run(session, chosen, progress), show=_show)


def _policy(upkeep: bool, orphan_days: int, compact: bool) -> "UpkeepPolicy":
    from runnel.pipelines.upkeep import DAY_MS, NO_UPKEEP, UpkeepPolicy

    if compact and not upkeep:
        raise typer.BadParameter("--compact is part of the upkeep that --no-upkeep switches off")
    return UpkeepPolicy(orphan_age_ms=orphan_days * DAY_MS) if upkeep else NO_UPKEEP


def _name(namespace: str, topics: list[str] | None, pattern: str | None) -> str:
    """A distinct name per archive: several may run with default checkpoint directories."""
    if bool(topics) == (pattern is not None):
        raise typer.BadParameter("specify the topics to archive: either names or --pattern")
    subject = ",".join(topics or [str(pattern)])
    return f"{namespace}-{sha256(subject.encode()).hexdigest()[:8]}"


def _tables(
    catalog: list[str] | None, properties: list[str] | None, upkeep: "UpkeepPolicy", compact: bool
) -> dict[str, Any]:
    """The options of tables."""
    return {
        "catalog": parse_settings(catalog),
        "table_properties": parse_settings(properties),
        "upkeep": upkeep,
        "is_compacting": compact,
    }


def _values(
    value_format: str, schema: str | None, subject: str | None, registry: str, user: str | None
) -> dict[str, Any]:
    """The options of values. Their schema is given, or that of a subject in a registry."""
    found = {"value_format": value_format, "value_schema": _text_of(schema)}
    if subject is None and (schema is not None or value_format not in REGISTERED):
        return found
    named = {"schemaRegistry.url": registry, "schemaRegistry.user": user, "valueSubject": subject}
    return {**found, "value_registry": {name: value for name, value in named.items() if value is not None}}


def _text_of(schema: str | None) -> str | None:
    """The schema, read from its file if a file name was given."""
    if schema is None or len(schema) > 1000 or not Path(schema).is_file():
        return schema
    return Path(schema).read_text("utf-8")


def _show(outcome: "ArchiveOutcome") -> None:
    from runnel.server.cli.output import print_table

    print_table(
        ["topic", "table", "records", "files", "removed", "next offsets"],
        [
            (
                topic.topic,
                topic.table,
                topic.rows,
                topic.files,
                topic.rows_removed,
                " ".join(f"{number}:{offset}" for number, offset in sorted(topic.next_offsets.items())),
            )
            for topic in outcome.topics
        ],
        empty="nothing to archive",
    )
