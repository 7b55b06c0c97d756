"""The state of a cluster, for `runnel cluster status`."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from runnel.client.cluster import Cluster, TopicView
from runnel.client.cluster_admin import BrokerView, ClusterAdmin, QuorumReplica, QuorumView
from runnel.client.errors import ClientError
from runnel.model.ids import NO_LEADER, TopicPartition, id_text
from runnel.server.cli.output import print_fields, print_table, time_text

SHOWN_MAX = 20
"""Partitions of one kind that are listed by name."""

QUORUM_TIMEOUT_S = 5.0
"""How long to wait for the leader of the quorum; what the brokers know is shown without it, too."""

NO_QUORUM = QuorumView(NO_LEADER, -1, -1, [], [], {})

KINDS = ("offline", "under_min_isr", "under_replicated", "reassigning")


NO_LEADER_TEXT = (
    "none: a majority of the controllers does not answer, so that no metadata can change. Start those that "
    "are missing; the logs of all nodes name them"
)


async def describe(cluster: Cluster) -> dict[str, Any]:
    """Everything that `runnel cluster status` shows."""
    admin = ClusterAdmin(cluster)
    cluster_id, brokers = await admin.describe()
    topics = await cluster.topics()
    min_in_sync = await admin.min_in_sync(topic.name for topic in topics)
    leaders, replicas = _counts(topics)
    problems = _problems(topics, min_in_sync)
    offline = await _offline_replicas(admin, topics if problems["offline"] else [], brokers)
    # Last, as brokers hold a connection until the leader answers.
    quorum, moving = await _ask_leader(admin)
    return {
        "cluster_id": cluster_id,
        "quorum": {
            "leader": quorum.leader_id,
            "epoch": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "voters": [_replica(each) for each in quorum.voters],
            "observers": [_replica(each) for each in quorum.observers],
        },
        "brokers": [
            {
                "id": each.node_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "fenced": each.is_fenced,
                "leaders": leaders[each.node_id],
                "replicas": replicas[each.node_id],
            }
            for each in brokers
        ],
        "partitions": sum(len(topic.partitions) for topic in topics),
        **problems,
        "offline_replicas": offline,
        "reassigning": moving,
    }


async def _ask_leader(admin: ClusterAdmin) -> tuple[QuorumView, list[str]]:
    """The quorum, and the partitions that are reassigned; nothing of both without a leader."""
    try:
        async with asyncio.timeout(QUORUM_TIMEOUT_S):
            return await admin.quorum(), sorted(map(str, await admin.reassignments()))
    except (TimeoutError, ClientError):
        return NO_QUORUM, []


async def _offline_replicas(
    admin: ClusterAdmin, topics: list[TopicView], brokers: list[BrokerView]
) -> list[dict[str, Any]]:
    """The replicas of offline partitions, with their end offsets."""
    live = {each.node_id for each in brokers if not each.is_fenced}
    offline = {
        TopicPartition(topic.name, view.partition): view
        for topic in topics
        for view in topic.partitions
        if view.leader < 0
    }
    shown = dict(sorted(offline.items())[:SHOWN_MAX])
    ends: dict[int, dict[TopicPartition, int]] = {}
    for node in sorted({node for view in shown.values() for node in view.replicas} & live):
        wanted = [partition for partition, view in shown.items() if node in view.replicas]
        try:
            ends[node] = await admin.end_offsets(node, wanted)
        except (OSError, ClientError):
            # It is about to be fenced, too.
            ends[node] = {}
    return [
        {
            "partition": str(partition),
            "broker": node,
            "state": "active" if node in live else "fenced",
            "in_sync": node in view.in_sync,
            "end_offset": ends.get(node, {}).get(partition),
        }
        for partition, view in shown.items()
        for node in view.replicas
    ]


def _replica(replica: QuorumReplica) -> dict[str, Any]:
    return {
        "id": replica.node_id,
        "directory_id": id_text(replica.directory_id),
        "end_offset": replica.end_offset,
        "lag": replica.lag,
        "caught_up": time_text(replica.caught_up_ms),
    }


def _counts(topics: Iterable[TopicView]) -> tuple[Counter[int], Counter[int]]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in topics:
        for view in topic.partitions:
            leaders[view.leader] += 1
            replicas.update(view.replicas)
    return leaders, replicas


def _problems(topics: Iterable[TopicView], min_in_sync: dict[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {kind: [] for kind in KINDS[:3]}
    for topic in topics:
        for view in topic.partitions:
            name = f"{topic.name}-{view.partition}"
            if view.leader < 0:
                found["offline"].append(name)
            if len(view.in_sync) < min(min_in_sync.get(topic.name, 1), len(view.replicas)):
                found["under_min_isr"].append(name)
            if len(view.in_sync) < len(view.replicas):
                found["under_replicated"].append(name)
    return found


def print_status(found: dict[str, Any]) -> None:
    """Print the state as tables."""
    quorum = found["quorum"]
    print_fields(
        {
            "cluster": found["cluster_id"],
            "quorum leader": NO_LEADER_TEXT if quorum["leader"] < 0 else f"node {quorum['leader']}",
            "epoch": quorum["epoch"],
            "high watermark": quorum["high_watermark"],
            "partitions": found["partitions"],
            **{kind.replace("_", " "): _listed(found[kind]) for kind in KINDS},
        }
    )
    if found["offline_replicas"]:
        _print_choices(found["offline_replicas"])
    if quorum["voters"]:
        print()
    print_table(
        ["node", "quorum", "end offset", "lag", "caught up"],
        [
            (each["id"], _role(kind, each, quorum), each["end_offset"], each["lag"], each["caught_up"])
            for kind in ("voters", "observers")
            for each in quorum[kind]
        ],
    )
    print()
    print_table(
        ["broker", "address", "rack", "state", "leaders", "replicas"],
        [
            (
                each["id"],
                f"{each['host']}:{each['port']}",
                each["rack"],
                "fenced" if each["fenced"] else "active",
                each["leaders"],
                each["replicas"],
            )
            for each in found["brokers"]
        ],
    )


def _print_choices(replicas: list[dict[str, Any]]) -> None:
    """Print the replicas of offline partitions, and the commands to elect one."""
    print()
    print_table(
        ["offline partition", "replica on", "state", "in sync", "end offset"],
        [
            (
                each["partition"],
                each["broker"],
                each["state"],
                "yes" if each["in_sync"] else "no",
                "unknown" if each["end_offset"] is None else each["end_offset"],
            )
            for each in replicas
        ],
    )
    print()
    print("Start the brokers that are fenced: a replica that was in sync leads again, and nothing is lost.")
    print("If none of them returns, elect an active replica; records that it does not have are lost:")
    print(f"  runnel cluster elect {replicas[0]['partition']} --unclean")


def _role(kind: str, replica: dict[str, Any], quorum: dict[str, Any]) -> str:
    if kind == "observers":
        return "observer"
    return "leader" if replica["id"] == quorum["leader"] else "voter"


def _listed(names: list[str]) -> str:
    if not names:
        return "0"
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"{len(names)}: {', '.join(names[:SHOWN_MAX])}{more}"
