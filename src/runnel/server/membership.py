"""The cluster id of a node with an empty data directory that is configured to join others.

    own meta.properties, cluster.id  ─►  known
    another controller knows it      ─►  adopted
    no voter of a static quorum has one, and all of them answered  ─►  created by the voter with the lowest id

A node never creates a cluster beside an existing one: as long as one voter does not answer, that
one may know a cluster, and the node waits. Ids are random: nodes of a former cluster at the same addresses
are refused. The request is DescribeCluster, which controllers of Kafka serve as well.
"""

import asyncio
import logging
from collections.abc import Mapping

from runnel.disk.identity import new_id
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.model.ids import id_text
from runnel.ports.entropy import Entropy
from runnel.ports.peers import Channel, PeerFailed, Peers
from runnel.server.layers import BadSettings
from runnel.server.roles import Roles

CONTROLLERS = 2
"""The endpoint type of controllers in DescribeCluster."""

DESCRIBE_VERSION = 1
"""The first version that distinguishes controllers. Nodes that are starting do not negotiate."""

ROUND_SECONDS = 0.2
"""Pause between two rounds of requests."""

TIMEOUT_MS = 2000
REPORT_SECONDS = 10
"""How often a waiting node logs that it waits."""

log = logging.getLogger("runnel.server")


class ClusterIdSearch:
    """Requests the cluster id from other controllers until it is known or may be chosen."""

    def __init__(self, roles: Roles, peers: Peers, entropy: Entropy) -> None:
        self._roles = roles
        self._entropy = entropy
        name = f"node-{roles.node_id}-join"
        self._channels: dict[str, Channel] = {
            label: peers.channel(host, port, name) for label, (host, port) in roles.other_controllers.items()
        }

    async def find(self) -> str:
        """The id of the cluster. Raises BadSettings if the controllers are of different clusters."""
        loop = asyncio.get_running_loop()
        report_at = loop.time() + REPORT_SECONDS
        try:
            while True:
                answers = await self._ask_all()
                found = self._decide(answers)
                if found:
                    return found
                if loop.time() >= report_at:
                    report_at = loop.time() + REPORT_SECONDS
                    log.warning("%s", self._report(answers))
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            for channel in self._channels.values():
                channel.close()

    async def _ask_all(self) -> dict[str, str | None]:
        """Cluster ids by address: empty if the node knows none, None if it did not answer."""
        return dict(
            zip(
                self._channels,
                await asyncio.gather(*(_ask(channel) for channel in self._channels.values())),
                strict=True,
            )
        )

    def _decide(self, answers: Mapping[str, str | None]) -> str:
        found = {cluster_id for cluster_id in answers.values() if cluster_id}
        if len(found) > 1:
            listed = ", ".join(f"{address}: {cluster_id}" for address, cluster_id in answers.items())
            raise BadSettings(
                f"the controllers belong to different clusters ({listed}): correct controller.quorum.voters "
                "or controller.quorum.bootstrap.servers"
            )
        if found:
            return found.pop()
        roles = self._roles
        may_create = roles.is_controller and bool(roles.voters) and roles.node_id == min(roles.voters)
        if may_create and None not in answers.values():
            return id_text(new_id(self._entropy))
        return ""

    def _report(self, answers: Mapping[str, str | None]) -> str:
        silent = [address for address, cluster_id in answers.items() if cluster_id is None]
        if not self._roles.voters:
            return (
                f"waiting to join a cluster: none of {', '.join(self._channels)} knows its id; start the "
                "controllers, or format the first one with `runnel storage format --standalone`"
            )
        if silent:
            return (
                f"waiting for the controllers {', '.join(silent)}, which may know the cluster; a new cluster "
                "is created when all have answered, or at once if all nodes have the same cluster.id"
            )
        return f"waiting for node {min(self._roles.voters)} to create the cluster"


async def _ask(channel: Channel) -> str | None:
    try:
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        response = await channel.send(request, version=DESCRIBE_VERSION, timeout_ms=TIMEOUT_MS)
    except PeerFailed:
        return None
    return None if response.error_code else str(response.cluster_id)
