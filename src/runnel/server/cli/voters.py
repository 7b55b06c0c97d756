"""Changes of the voters of the quorum."""

import typer

from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import ClusterAdmin, QuorumReplica, QuorumView
from runnel.client.errors import BrokerError
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID, id_from_text
from runnel.server.addresses import parse_address
from runnel.server.cli.output import CommandError

TIMEOUT_MS = 30_000
"""How long the new voter may take to catch up."""


async def add(cluster: Cluster, node: int, directory_id: str | None, endpoint: str | None) -> None:
    """Add a controller to the voters."""
    admin = ClusterAdmin(cluster)
    quorum = await admin.quorum()
    if any(each.node_id == node for each in quorum.voters):
        raise CommandError(f"node {node} is already a voter")
    if endpoint is None:
        raise typer.BadParameter(
            "the address of the controller is needed, such as CONTROLLER://host4:9093",
            param_hint="--endpoint",
        )
    address = parse_address(endpoint)
    _check_dynamic(quorum)
    key = _key(directory_id, node, quorum.observers, "observer")
    await cluster.refresh([])
    try:
        await admin.add_voter(node, key, [(address.name, address.host, address.port)], TIMEOUT_MS)
    except BrokerError as error:
        # Brokers repeat a request whose response was lost.
        if error.error is not ErrorCode.DUPLICATE_VOTER or not await _is_voter(admin, node, key):
            raise


async def remove(cluster: Cluster, node: int, directory_id: str | None) -> None:
    """Remove a controller from the voters."""
    admin = ClusterAdmin(cluster)
    quorum = await admin.quorum()
    _check_dynamic(quorum)
    key = _key(directory_id, node, quorum.voters, "voter")
    await cluster.refresh([])
    try:
        await admin.remove_voter(node, key)
    except BrokerError as error:
        if error.error is not ErrorCode.VOTER_NOT_FOUND or await _is_voter(admin, node, key):
            raise


async def _is_voter(admin: ClusterAdmin, node: int, directory_id: bytes) -> bool:
    voters = (await admin.quorum()).voters
    return any((each.node_id, each.directory_id) == (node, directory_id) for each in voters)


def _check_dynamic(quorum: QuorumView) -> None:
    """Refuse to change the voters of a static quorum; those are known by their ids only."""
    if all(each.directory_id == NO_ID for each in quorum.voters):
        raise CommandError(
            "the quorum is static (kraft.version 0): its voters are those of controller.quorum.voters. To "
            "change them while it runs, first `kafka-features.sh upgrade --feature kraft.version=1`; or "
            "replace a voter by a node with the same id and address"
        )


def _key(given: str | None, node: int, replicas: list[QuorumReplica], kind: str) -> bytes:
    """The directory id of a replica."""
    if given is not None:
        try:
            return id_from_text(given)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--directory-id") from None
    found = [each.directory_id for each in replicas if each.node_id == node]
    if not found:
        listed = ", ".join(str(each.node_id) for each in replicas) or "none"
        advice = ": start it first" if kind == "observer" else ""
        raise CommandError(f"node {node} is not among the {kind}s of the quorum ({listed}){advice}")
    if len(found) > 1 or found[0] == NO_ID:
        raise CommandError(f"the directory of node {node} is not unique: name it with --directory-id")
    return found[0]
