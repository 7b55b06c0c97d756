"""`runnel topic …`: list, describe, create, alter and delete topics."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Settings, Yes, parse_settings

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster, TopicView

app = typer.Typer(help="List, describe, create, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics.", show_default=False)]


@app.command("list")
def list_topics(
    long: Annotated[bool, typer.Option("--long", "-l", help="Include record counts and sizes.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List topics.

    Example: runnel topic list --long
    """
    from runnel.server.cli.output import print_json, print_table, size_text
    from runnel.server.cli.session import with_cluster

    rows = with_cluster(bootstrap, lambda cluster: _list(cluster, long, internal))
    if as_json:
        print_json(rows)
    elif long:
        print_table(
            ["topic", "partitions", "replicas", "records", "size"],
            [
                (row["topic"], row["partitions"], row["replicas"], row["records"], size_text(row["bytes"]))
                for row in rows
            ],
            empty="no topics",
        )
    else:
        print_table(
            ["topic", "partitions", "replicas"],
            [(row["topic"], row["partitions"], row["replicas"]) for row in rows],
            empty="no topics; create one with `runnel topic create NAME`",
        )


async def _list(cluster: "Cluster", long: bool, internal: bool) -> list[dict[str, Any]]:
    from runnel.client.admin import Admin

    views = [view for view in await cluster.topics() if internal or not view.is_internal]
    rows: list[dict[str, Any]] = [
        {
            "topic": view.name,
            "partitions": len(view.partitions),
            "replicas": len(view.partitions[0].replicas) if view.partitions else 0,
            "internal": view.is_internal,
        }
        for view in views
    ]
    if long and views:
        sizes = await Admin(cluster).sizes()
        starts, ends = await _bounds(cluster, views)
        for view, row in zip(views, rows, strict=True):
            partitions = [partition for partition in ends if partition.topic == view.name]
            row["records"] = sum(ends[partition] - starts[partition] for partition in partitions)
            row["bytes"] = sum(size for partition, size in sizes.items() if partition.topic == view.name)
    return rows


async def _bounds(cluster: "Cluster", views: "list[TopicView]") -> tuple[dict[Any, int], dict[Any, int]]:
    from runnel.client.offsets import end_offsets, start_offsets
    from runnel.model.ids import TopicPartition

    partitions = [TopicPartition(view.name, part.partition) for view in views for part in view.partitions]
    return await start_offsets(cluster, partitions), await end_offsets(cluster, partitions)


@app.command()
def describe(names: Names, as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Describe topics: partitions, offsets, sizes and non-default settings.

    Example: runnel topic describe orders
    """
    from runnel.server.cli.output import print_json
    from runnel.server.cli.session import with_cluster

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        return [await _describe(cluster, name) for name in names]

    topics = with_cluster(bootstrap, work)
    if as_json:
        print_json(topics)
        return
    for index, topic in enumerate(topics):
        if index:
            print()
        _print_topic(topic)


async def _describe(cluster: "Cluster", name: str) -> dict[str, Any]:
    from runnel.client.admin import Admin
    from runnel.model.configs import ConfigSource, ResourceType
    from runnel.model.ids import TopicPartition, id_text

    admin = Admin(cluster)
    view = await admin.topic(name)
    starts, ends = await _bounds(cluster, [view])
    sizes = await admin.sizes()
    settings = await admin.settings(ResourceType.TOPIC, name)
    return {
        "topic": name,
        "id": id_text(view.topic_id),
        "internal": view.is_internal,
        "settings": {
            setting.name: setting.value for setting in settings if setting.source is ConfigSource.TOPIC
        },
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": part.replicas,
                "in_sync": part.in_sync,
                "first_offset": starts[TopicPartition(name, part.partition)],
                "end_offset": ends[TopicPartition(name, part.partition)],
                "bytes": sizes.get(TopicPartition(name, part.partition), 0),
            }
            for part in view.partitions
        ],
    }


def _print_topic(topic: dict[str, Any]) -> None:
    from runnel.server.cli.output import print_fields, print_table, size_text

    parts = topic["partitions"]
    print_fields(
        {
            "topic": topic["topic"],
            "id": topic["id"],
            "records": sum(part["end_offset"] - part["first_offset"] for part in parts),
            "size": size_text(sum(part["bytes"] for part in parts)),
            "settings": ", ".join(f"{key}={value}" for key, value in topic["settings"].items())
            or "all default",
        }
    )
    print_table(
        ["partition", "leader", "replicas", "in sync", "first", "end", "size"],
        [
            (
                part["partition"],
                part["leader"],
                ",".join(map(str, part["replicas"])),
                ",".join(map(str, part["in_sync"])),
                part["first_offset"],
                part["end_offset"],
                size_text(part["bytes"]),
            )
            for part in parts
        ],
    )


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Number of partitions. Default: num.partitions of the broker."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Replicas of each partition.")
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Create topics.

    Example: runnel topic create orders --partitions 6 --set retention.ms=86400000
    """
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    values = parse_settings(settings)

    async def work(cluster: "Cluster") -> None:
        from runnel.client.admin import BROKER_DEFAULT, Admin
        from runnel.client.errors import BrokerError
        from runnel.model.errors import ErrorCode

        for name in names:
            try:
                await Admin(cluster).create_topic(
                    name,
                    partitions=partitions or BROKER_DEFAULT,
                    replication_factor=replication_factor or BROKER_DEFAULT,
                    settings=values,
                )
            except BrokerError as error:
                if not (if_not_exists and error.error is ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                print_info(f"{name} already exists")
            else:
                print_info(f"created {name}")

    with_cluster(bootstrap, work)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Topic.", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Increase to this number.", show_default=False),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Replicas of each partition; they are moved."),
    ] = None,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove an override. Repeatable.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Change the partitions, the replication factor or the settings of a topic.

    Example: runnel topic alter orders --partitions 12 --set cleanup.policy=compact --unset retention.ms
    """
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    values = parse_settings(settings)
    if partitions is None and replication_factor is None and not values and not unset:
        raise typer.BadParameter(
            "nothing to change: use --partitions, --replication-factor, --set or --unset"
        )

    async def work(cluster: "Cluster") -> None:
        from runnel.client.admin import Admin
        from runnel.model.configs import AlterOperation, ResourceType

        admin = Admin(cluster)
        changes: list[tuple[str, AlterOperation, str | None]] = []
        changes += [(key, AlterOperation.SET, value) for key, value in values.items()]
        changes += [(key, AlterOperation.DELETE, None) for key in unset or ()]
        if changes:
            await admin.alter_settings(ResourceType.TOPIC, name, changes)
        if partitions is not None:
            await admin.add_partitions(name, partitions)
        if replication_factor is not None:
            await _change_factor(cluster, name, replication_factor)

    with_cluster(bootstrap, work)
    print_info(f"altered {name}")


async def _change_factor(cluster: "Cluster", name: str, factor: int) -> None:
    from dataclasses import replace

    from runnel.server.balance import TooFewBrokers, plan_factor
    from runnel.server.cli.output import CommandError
    from runnel.server.cli.reassign import Reassignment

    await cluster.topic(name)
    reassignment = Reassignment(None, is_confirmed=True)
    state = await reassignment.load(cluster)
    own = {partition: to for partition, to in state.assignments.items() if partition.topic == name}
    state = replace(state, assignments=own)
    try:
        plan = plan_factor(own, state.targets, factor)
    except TooFewBrokers:
        raise CommandError(
            f"a replication factor of {factor} needs as many brokers, and {len(state.targets)} are active"
        ) from None
    await reassignment.run(cluster, state, plan, f"alter {name}")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete topics and all their records.

    Example: runnel topic delete orders --yes
    """
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    confirm(f"delete {', '.join(names)} and all records?", yes)

    async def work(cluster: "Cluster") -> None:
        from runnel.client.admin import Admin
        from runnel.client.errors import BrokerError
        from runnel.model.errors import ErrorCode

        for name in names:
            try:
                await Admin(cluster).delete_topic(name)
            except BrokerError as error:
                if not (if_exists and error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
            else:
                print_info(f"deleted {name}")

    with_cluster(bootstrap, work)
