"""`runnel group …`: list, describe, reset and delete consumer groups."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.client.groups import GroupMember
    from runnel.model.ids import TopicPartition

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="A topic, or some of its partitions: orders:0,2"
    ),
]


LAGS_BY_PROTOCOL_MAX = 100
"""Groups of coordinators without an admin listener whose lag is listed: each takes a request."""


@app.command("list")
def list_groups(as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """List groups of the classic and of the consumer protocol, with their lag in records and in time.

    Example: runnel group list
    """
    from runnel.server.cli.lag import duration_text, forecast_text
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    rows = with_cluster(bootstrap, _list)
    if as_json:
        print_json(rows)
    else:
        print_table(
            ["group", "state", "type", "lag", "behind", "verdict", "caught up"],
            [
                (
                    row["group"],
                    row["state"],
                    row["type"],
                    row["lag"],
                    duration_text(row["lag_seconds"]),
                    row["verdict"],
                    forecast_text(row),
                )
                for row in rows
            ],
            empty="no groups",
        )


async def _list(cluster: "Cluster") -> list[dict[str, Any]]:
    from runnel.client.groups import Groups
    from runnel.server.cli.lag import lags_by_protocol, lags_from_coordinator

    listings = await Groups(cluster).list()
    lags: dict[str, dict[str, Any]] = {}
    for node_id in sorted({view.coordinator for view in listings}):
        lags |= await lags_from_coordinator(cluster, node_id) or {}
    missing = [view.group_id for view in listings if view.group_id not in lags]
    lags |= await lags_by_protocol(cluster, missing[:LAGS_BY_PROTOCOL_MAX])
    names = ("lag", "lag_seconds", "verdict", "forecast", "forecast_seconds")
    return [
        {
            "group": view.group_id,
            "state": view.state,
            "type": view.kind,
            **{name: lags.get(view.group_id, {}).get(name) for name in names},
        }
        for view in listings
    ]


@app.command()
def describe(group: Group, as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Describe a group: members, assignments, committed offsets, and lag in records and in time.

    Classic and consumer groups (KIP-848) are shown alike; only consumer groups have epochs. "Behind" is the
    age of the first unread record since its append or, if the coordinator cannot tell, by its timestamp.

    Example: runnel group describe billing
    """
    from runnel.server.cli.lag import forecast_text
    from runnel.server.cli.output import print_fields, print_json
    from runnel.server.cli.session import with_cluster

    view = with_cluster(bootstrap, lambda cluster: _describe(cluster, group))
    if as_json:
        print_json(view)
        return
    print_fields(
        {
            "group": view["group"],
            "type": view["type"],
            "state": view["state"],
            "coordinator": f"broker {view['coordinator']}",
            "assignor": view["assignor"] or "-",
            **_epoch_facts(view),
            "members": len(view["members"]),
            "lag": view["lag"],
            "behind": _behind_text(view),
            "verdict": view["verdict"] or "-",
            "caught up": forecast_text(view) or "-",
        }
    )
    if view["members"]:
        print()
        _print_members(view["members"])
    if view["partitions"]:
        print()
        _print_partitions(view["partitions"])


def _behind_text(view: dict[str, Any]) -> str:
    from runnel.server.cli.lag import duration_text

    text = duration_text(view["lag_seconds"]) or "unknown"
    return f"{text} (by {view['lag_by']})" if view["lag_seconds"] else text


def _print_partitions(rows: list[dict[str, Any]]) -> None:
    from runnel.server.cli.lag import duration_text
    from runnel.server.cli.output import print_table

    columns = ["topic", "partition", "committed", "end", "lag", "behind", "member", "client", "host"]
    has_notes = any(row["reason"] for row in rows)
    print_table(
        [*columns, "note"] if has_notes else columns,
        [
            (
                row["topic"],
                row["partition"],
                row["committed"],
                row["end_offset"],
                row["lag"],
                duration_text(row["lag_seconds"]),
                row["member"],
                row["client"],
                row["host"],
                *([(row["reason"] or "").partition(":")[0]] if has_notes else []),
            )
            for row in rows
        ],
    )


def _epoch_facts(view: dict[str, Any]) -> dict[str, object]:
    """The epochs of a consumer group; classic groups have none."""
    if view["epoch"] is None:
        return {}
    return {"epoch": view["epoch"], "target epoch": view["target_epoch"]}


def _print_members(members: list[dict[str, Any]]) -> None:
    from runnel.server.cli.output import print_table

    def text(names: list[dict[str, Any]]) -> str:
        from runnel.model.ids import TopicPartition
        from runnel.server.cli.partitions import partitions_text

        return partitions_text(TopicPartition(name["topic"], name["partition"]) for name in names) or "-"

    print_table(
        ["member", "type", "client", "host", "instance", "rack", "epoch", "partitions", "target"],
        [
            (
                row["member"],
                row["type"],
                row["client"],
                row["host"],
                row["instance"],
                row["rack"],
                row["epoch"],
                text(row["partitions"]),
                text(row["target_partitions"]),
            )
            for row in members
        ],
    )


async def _describe(cluster: "Cluster", group_id: str) -> dict[str, Any]:
    from runnel.client.groups import Groups
    from runnel.model.ids import TopicPartition
    from runnel.server.cli.lag import lag_source, lags_by_protocol, lags_from_coordinator

    view = await Groups(cluster).describe(group_id)
    known = await lags_from_coordinator(cluster, view.coordinator, [group_id])
    lag = (known or {}).get(group_id)
    if lag is None:
        lag = (await lags_by_protocol(cluster, [group_id]))[group_id]
    by_partition = {TopicPartition(row["topic"], row["partition"]): row for row in lag["partitions"]}
    owners = {partition: member for member in view.members for partition in member.partitions}
    rows = []
    for name in sorted({*owners, *by_partition}):
        owner, row = owners.get(name), by_partition.get(name, {})
        rows.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "committed": row.get("committed"),
                "end_offset": row.get("end"),
                "lag": row.get("lag"),
                "lag_seconds": row.get("lag_seconds"),
                "reason": row.get("reason"),
                "member": owner and owner.member_id,
                "client": owner and owner.client_id,
                "host": owner and owner.client_host,
            }
        )
    return {
        "group": view.group_id,
        "type": view.kind,
        "state": view.state,
        "coordinator": view.coordinator,
        "assignor": view.assignor,
        "epoch": view.epoch,
        "target_epoch": view.target_epoch,
        "lag": lag["lag"] or 0,
        "lag_seconds": lag["lag_seconds"],
        "lag_by": lag_source(lag),
        "verdict": lag["verdict"],
        "forecast": lag["forecast"],
        "forecast_seconds": lag["forecast_seconds"],
        "members": [_member_row(member) for member in view.members],
        "partitions": rows,
    }


def _member_row(member: "GroupMember") -> dict[str, Any]:
    def rows(partitions: "list[TopicPartition]") -> list[dict[str, Any]]:
        return [{"topic": name.topic, "partition": name.partition} for name in partitions]

    return {
        "member": member.member_id,
        "type": member.kind,
        "client": member.client_id,
        "host": member.client_host,
        "instance": member.instance_id,
        "rack": member.rack,
        "epoch": member.epoch,
        "partitions": rows(member.partitions),
        "target_partitions": rows(member.target),
    }


AllTopics = Annotated[bool, typer.Option("--all-topics", help="All topics with committed offsets.")]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the log start offset.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the log end offset.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")]
ToDatetime = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help="To the first record at or after a time."),
]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="AGE", help="To the first record of the last 15m, 2h, …"),
]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", help="Forward by this many offsets, backward if negative.")
]
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="Apply the reset, or only show it.")]


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    execute: Execute = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Reset the committed offsets of an inactive group. Without --execute, only shows the new offsets.

    Example: runnel group reset-offsets billing --topic orders --to-earliest --execute

    Example: runnel group reset-offsets billing --all-topics --by-duration 15m
    """
    from runnel.server.cli.output import print_info, print_json, print_table
    from runnel.server.cli.reset import choose_target, reset
    from runnel.server.cli.session import with_cluster

    target = choose_target(to_earliest, to_latest, to_offset, to_datetime, by_duration, shift_by)
    if bool(topics) == all_topics:
        raise typer.BadParameter("specify either --topic or --all-topics")
    moves = with_cluster(bootstrap, lambda cluster: reset(cluster, group, topics or [], target, execute))
    if as_json:
        print_json(
            [
                {
                    "topic": move.partition.topic,
                    "partition": move.partition.partition,
                    "from": move.before,
                    "to": move.after,
                }
                for move in moves
            ]
        )
    else:
        print_table(
            ["topic", "partition", "from", "to"],
            [(move.partition.topic, move.partition.partition, move.before, move.after) for move in moves],
            empty="nothing to reset: the group has no committed offsets",
        )
    if not execute:
        print_info("dry run: add --execute to apply")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups.", show_default=False)],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete inactive groups and their committed offsets.

    Example: runnel group delete billing --yes
    """
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    confirm(f"delete {', '.join(groups)} and all committed offsets?", yes)

    async def work(cluster: "Cluster") -> None:
        from runnel.client.groups import Groups

        for group in groups:
            await Groups(cluster).delete(group)
            print_info(f"deleted {group}")

    with_cluster(bootstrap, work)


@app.command("delete-offsets")
def delete_offsets(
    group: Group, topics: Topics = None, yes: Yes = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT
) -> None:
    """Delete committed offsets of a group.

    Example: runnel group delete-offsets billing --topic orders --yes
    """
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.reset import chosen_partitions
    from runnel.server.cli.session import with_cluster

    if not topics:
        raise typer.BadParameter("specify the topics with --topic")
    confirm(f"delete the committed offsets of {group} for {', '.join(topics)}?", yes)

    async def work(cluster: "Cluster") -> None:
        from runnel.client.groups import Groups

        partitions = await chosen_partitions(cluster, topics)
        await Groups(cluster).delete_offsets(group, partitions)
        print_info(f"deleted {len(partitions)} offsets of {group}")

    with_cluster(bootstrap, work)
