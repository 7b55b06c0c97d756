"""Reports a quorum without a leader, and the controllers that do not answer."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.ports.peers import Channel, PeerFailed, Peers
from runnel.server.membership import CONTROLLERS, DESCRIBE_VERSION
from runnel.server.roles import Roles

CHECK_SECONDS = 10.0
"""How long there may be no leader before it is reported; elections take about a second."""

TIMEOUT_MS = 2000

log = logging.getLogger("runnel.server")


class QuorumWatch:
    """Checks periodically whether the quorum has a leader."""

    def __init__(self, roles: Roles, peers: Peers, cluster_id: str, has_leader: Callable[[], bool]) -> None:
        self._roles = roles
        self._peers = peers
        self._cluster_id = cluster_id
        self._has_leader = has_leader

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._has_leader():
                answers = await self._ask_all()
                if not self._has_leader():
                    log.warning("%s", self._report(answers))

    async def _ask_all(self) -> dict[str, str | PeerFailed]:
        """The cluster ids of the other controllers, or why they do not answer."""
        name = f"node-{self._roles.node_id}-watch"
        channels = {
            label: self._peers.channel(host, port, name)
            for label, (host, port) in self._roles.other_controllers.items()
        }
        answers = await asyncio.gather(*map(_ask, channels.values()))
        for channel in channels.values():
            channel.close()
        return dict(zip(channels, answers, strict=True))

    def _report(self, answers: Mapping[str, str | PeerFailed]) -> str:
        setting = "voters" if self._roles.voters else "bootstrap.servers"
        foreign = [
            f"{label} to {answer}"
            for label, answer in answers.items()
            if isinstance(answer, str) and answer not in ("", self._cluster_id)
        ]
        if foreign:
            return (
                f"no controller leads the quorum: this node belongs to the cluster {self._cluster_id}, but "
                f"{', '.join(foreign)}. Correct controller.quorum.{setting}, or choose another data directory"
            )
        silent = [
            f"{label} ({str(answer).partition(': ')[2]})"
            for label, answer in answers.items()
            if isinstance(answer, PeerFailed)
        ]
        if silent:
            return (
                f"no controller leads the quorum; these do not answer: {', '.join(silent)}. Start them, or "
                f"correct controller.quorum.{setting}"
            )
        return (
            f"no controller leads the quorum, although those of controller.quorum.{setting} answer: a "
            "majority of the voters is needed; see their logs"
        )


async def _ask(channel: Channel) -> str | PeerFailed:
    try:
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        response = await channel.send(request, version=DESCRIBE_VERSION, timeout_ms=TIMEOUT_MS)
    except PeerFailed as failure:
        return failure
    return str(response.cluster_id)
