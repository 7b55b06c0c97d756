"""Logs a quorum without a leader, and why: which members cannot be reached or reject this node.

Also node ids that two nodes have: the leader receives fetches of both, and a node finds that another one
leads with its own id.
"""

import logging
from typing import TYPE_CHECKING

from runnel.ports.clock import TimerHandle, Timers
from runnel.raft.values import Peer

if TYPE_CHECKING:
    from runnel.broker.runtime.quorum_log import QuorumLog

logger = logging.getLogger("runnel.broker")

INTERVAL_MS = 5_000
"""A quorum without a leader is reported at this interval."""
FAILURES_MAX = 64
ADVICE = (
    "of which one is ignored: stop the wrong one, or give it a node.id of its own and an empty data directory"
)


class QuorumReports:
    """The last failure of each peer; logged as long as there is no leader."""

    def __init__(self, quorum: "QuorumLog", timers: Timers) -> None:
        self._quorum = quorum
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._failures: dict[tuple[str, int], str] = {}
        self._had_leader = True
        self._was_replaced = False

    def start(self) -> None:
        """Begin to watch."""
        self._timer = self._timers.call_later(INTERVAL_MS, self._check)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failed(self, peer: Peer, reason: str) -> None:
        """A request to this peer failed."""
        if len(self._failures) < FAILURES_MAX:
            self._failures[peer.host, peer.port] = reason

    def answered(self, peer: Peer) -> None:
        """The peer answered."""
        if self._failures:
            self._failures.pop((peer.host, peer.port), None)

    def _check(self) -> None:
        self.start()
        has_leader = self._quorum.leader_id >= 0
        if not has_leader and not self._had_leader:
            logger.warning("the metadata quorum has no leader: %s", self._reason())
        elif has_leader and not self._had_leader:
            logger.warning("node %d leads the metadata quorum", self._quorum.leader_id)
        self._had_leader = has_leader
        self._report_duplicates()

    def _report_duplicates(self) -> None:
        core = self._quorum.core
        if core.leader is not None:
            for node_id in sorted(core.leader.duplicates):
                logger.error("two nodes fetch the metadata with node.id %d, %s", node_id, ADVICE)
            core.leader.duplicates.clear()
        is_replaced = core.leader is None and core.leader_id == core.node.id
        # A leader that resigned is its own leader for a short time.
        if is_replaced and self._was_replaced:
            logger.error(
                "another node leads the metadata quorum with the node.id %d of this one, %s",
                core.node.id,
                ADVICE,
            )
        self._was_replaced = is_replaced

    def _reason(self) -> str:
        voters = self._quorum.voters
        if not len(voters) and not self._quorum.membership.bootstrap:
            return "no voters are known; set controller.quorum.voters or controller.quorum.bootstrap.servers"
        if self._failures:
            problems = "; ".join(
                reason if reason.startswith(f"{host}:{port}: ") else f"{host}:{port}: {reason}"
                for (host, port), reason in self._failures.items()
            )
            return f"{problems} (voters: {', '.join(map(str, voters.ids)) or 'unknown'})"
        return f"voters {', '.join(map(str, voters.ids)) or 'unknown'} are reachable"
