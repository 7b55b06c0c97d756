"""`runnel cluster …`: a local cluster, and the administration of any."""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Settings, Yes
from runnel.server.cli.serve import Http, LogLevel, LogLevelOption

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.server.balance import Assignments

app = typer.Typer(help="Run a local cluster; describe and administer a cluster.", no_args_is_help=True)

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="Node id.", show_default=False)]
Throttle = Annotated[
    str | None,
    typer.Option("--throttle", metavar="RATE", help="Limit of each broker in bytes/s: 500K, 50M or 1G."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once the reassignment has started.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, change nothing.")]
Directory = Annotated[
    str | None,
    typer.Option("--directory-id", metavar="ID", help="directory.id of its meta.properties."),
]


@app.command("up")
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=9, help="Number of nodes.")] = 3,
    data_dir: Annotated[str, typer.Option("--data-dir", "-d", help="Folder of the data directories.")] = (
        "runnel-cluster"
    ),
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            help="Address of the first node; the others have the next ports. Port 0 picks free ones.",
        ),
    ] = "127.0.0.1:9092",
    settings: Settings = None,
    http: Http = None,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Run a cluster on this machine until Ctrl-C or SIGTERM; every node is a broker and a controller.

    Example: runnel cluster up --nodes 3
    """
    from runnel.server.cli.local_cluster import run_local_cluster
    from runnel.server.gateway_process import HttpOptions

    run_local_cluster(nodes, data_dir, listen, settings or [], log_level, HttpOptions(http, alerts=None))


@app.command("status")
def status(as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Describe the quorum, the brokers, and partitions that need attention.

    Example: runnel cluster status
    """
    from runnel.server.cli.cluster_status import describe, print_status
    from runnel.server.cli.output import print_json
    from runnel.server.cli.session import with_cluster

    found = with_cluster(bootstrap, describe)
    if as_json:
        print_json(found)
    else:
        print_status(found)


@app.command("drain")
def drain(
    node: NodeId,
    throttle: Throttle = None,
    unregister: Annotated[
        bool, typer.Option("--unregister", help="Remove the registration too; the broker must be stopped.")
    ] = False,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Move all replicas of a broker to the others, so that it can be removed.

    Example: runnel cluster drain 3 --throttle 50M
    """
    from runnel.server.balance import TooFewBrokers, plan_drain
    from runnel.server.cli.output import CommandError
    from runnel.server.cli.reassign import Reassignment
    from runnel.server.cli.session import with_cluster

    reassignment = Reassignment(throttle, waits=not no_wait, is_dry_run=dry_run, is_confirmed=yes)
    if unregister and no_wait:
        raise typer.BadParameter("--unregister has to wait: remove --no-wait")

    async def work(cluster: "Cluster") -> None:
        # Until there is nothing to move: topics that are created meanwhile may have replicas there.
        has_moved = True
        while has_moved:
            state = await reassignment.load(cluster)
            state.check_known(node)
            try:
                plan = plan_drain(state.assignments, state.targets, node)
            except TooFewBrokers as error:
                raise CommandError(
                    f"{len(error.partitions)} partitions have replicas on all other brokers, for example "
                    f"{error.partitions[0]}: add a broker, or reduce their replication factor with "
                    "`runnel topic alter`"
                ) from None
            has_moved = await reassignment.run(cluster, state, plan, f"drain node {node}")
        if unregister and not dry_run:
            from runnel.client.cluster_admin import ClusterAdmin

            await ClusterAdmin(cluster).unregister(node)

    with_cluster(bootstrap, work)


@app.command("rebalance")
def rebalance(
    throttle: Throttle = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Give all brokers about as many replicas and leaders, for example after one was added.

    Example: runnel cluster rebalance --throttle 50M --dry-run
    """
    from runnel.server.balance import plan_rebalance
    from runnel.server.cli.reassign import Reassignment
    from runnel.server.cli.session import with_cluster

    reassignment = Reassignment(throttle, waits=not no_wait, is_dry_run=dry_run, is_confirmed=yes)

    async def work(cluster: "Cluster") -> None:
        state = await reassignment.load(cluster)
        plan: Assignments = plan_rebalance(state.assignments, state.targets)
        await reassignment.run(cluster, state, plan, "rebalance the cluster")

    with_cluster(bootstrap, work)


@app.command("elect")
def elect(
    partition: Annotated[
        str,
        typer.Argument(metavar="TOPIC-PARTITION", help="A partition, such as orders-0.", show_default=False),
    ],
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect a replica that may lack committed records.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Elect a leader: the preferred replica, or any active one of a partition that is offline.

    Example: runnel cluster elect orders-0 --unclean
    """
    from runnel.client.cluster_admin import ClusterAdmin
    from runnel.model.ids import TopicPartition
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    topic, _, index = partition.rpartition("-")
    if not topic or not index.isdecimal():
        raise typer.BadParameter(f"{partition!r} is not a topic and a partition, such as orders-0")
    wanted = TopicPartition(topic, int(index))

    async def work(cluster: "Cluster") -> None:
        admin = ClusterAdmin(cluster)
        await (admin.elect_unclean(wanted) if unclean else admin.elect_preferred([wanted]))

    if unclean:
        confirm(f"elect a leader of {wanted} and lose the records that only other replicas have?", yes)
    with_cluster(bootstrap, work)
    print_info(
        f"{wanted} has a leader" if unclean else f"{wanted} is led by its preferred replica if in sync"
    )


@app.command("add-voter")
def add_voter(
    node: NodeId,
    directory_id: Directory = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="NAME://HOST:PORT", help="Its controller listener."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Add a running controller to the voters of the quorum, once it has caught up.

    The directory id is found among the observers of the quorum.

    Example: runnel cluster add-voter 4 --endpoint CONTROLLER://host4:9093
    """
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster
    from runnel.server.cli.voters import add

    with_cluster(bootstrap, lambda cluster: add(cluster, node, directory_id, endpoint))
    print_info(f"node {node} is a voter")


@app.command("remove-voter")
def remove_voter(
    node: NodeId, directory_id: Directory = None, yes: Yes = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT
) -> None:
    """Remove a controller from the voters of the quorum.

    Example: runnel cluster remove-voter 4
    """
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster
    from runnel.server.cli.voters import remove

    confirm(f"remove node {node} from the quorum?", yes)
    with_cluster(bootstrap, lambda cluster: remove(cluster, node, directory_id))
    print_info(f"node {node} is no longer a voter")
