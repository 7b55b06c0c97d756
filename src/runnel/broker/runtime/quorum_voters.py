"""Changes of the voter set: adding, removing and updating voters, and the change to kraft.version 1."""

import asyncio
from typing import TYPE_CHECKING

from runnel.controller.features import KRAFT_VERSION
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.peers import PeerFailed
from runnel.raft.control import voter_records
from runnel.raft.values import ReplicaKey
from runnel.raft.voters import DYNAMIC_KRAFT_VERSION, Voter, Voters
from runnel.schemas.control import ControlType
from runnel.wire import Data

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.quorum_log import QuorumLog

ADD_TIMEOUT_MS_MAX = 20_000
"""Less than brokers wait for the response to a forwarded request: an operator repeats the command."""

CATCH_UP_INTERVAL_MS = 50
"""How often a new voter is checked for having caught up."""


class CommitWait:
    """Waits for everything below an offset to be committed."""

    def __init__(self, end_offset: int, done: "asyncio.Future[None]") -> None:
        self.end_offset = end_offset
        self.done = done

    def advanced(self, high_watermark: int) -> None:
        """Everything below is committed."""
        if high_watermark >= self.end_offset and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """It may never be committed."""
        if not self.done.done():
            self.done.set_exception(error)


class QuorumVoters:
    """Changes the voters of the quorum that this node leads. Methods raise ApiError, or NotController."""

    def __init__(self, quorum: "QuorumLog", broker: "Broker") -> None:
        self._quorum = quorum
        self._broker = broker
        self._is_adding = False
        """Is a voter being added?"""

    async def add(self, voter: Voter, timeout_ms: int, *, waits: bool) -> None:
        """Add a voter once it has caught up; with `waits`, returns when that is committed."""
        if self._is_adding:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another voter is being added")
        self._is_adding = True
        try:
            await self._add(voter, min(timeout_ms, ADD_TIMEOUT_MS_MAX), waits=waits)
        finally:
            self._is_adding = False

    async def _add(self, voter: Voter, timeout_ms: int, *, waits: bool) -> None:
        core, clock = self._quorum.core, self._broker.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        core.changes.adding(voter)
        supported = await self._supported_versions(voter, timeout_ms)
        while not core.changes.has_caught_up(voter.key, clock.monotonic_ms()):
            if clock.monotonic_ms() >= deadline_ms:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.id} has not caught up yet")
            await asyncio.sleep(CATCH_UP_INTERVAL_MS / 1000)
        voters = core.changes.adding(Voter(voter.key, voter.endpoints, supported))
        await self._append(voters, deadline_ms - clock.monotonic_ms(), waits=waits)

    async def remove(self, key: ReplicaKey, timeout_ms: int) -> None:
        """Remove a voter; returns when that is committed. A leader that removes itself then resigns."""
        await self._append(self._quorum.core.changes.removing(key), timeout_ms, waits=True)

    async def update(self, voter: Voter, timeout_ms: int) -> None:
        """A voter reports its listeners; returns when a change is committed."""
        voters = self._quorum.core.changes.updating(voter)
        if voters is not None:
            await self._append(voters, timeout_ms, waits=True)

    async def upgrade(self, timeout_ms: int) -> None:
        """Change to kraft.version 1: from now on voters are records in the log."""
        if self._quorum.kraft_version < DYNAMIC_KRAFT_VERSION:
            voters = self._quorum.core.changes.upgrading()
            records = voter_records(DYNAMIC_KRAFT_VERSION, voters)
            await self._quorum.committed(self._quorum.append_voters(records), timeout_ms)

    def of_new_leader(self) -> list[tuple[ControlType, Data]]:
        """What a new leader adds to its first batch: voters that no log has yet, or its own new address."""
        core, history = self._quorum.core, self._quorum.core.history
        own = Voter(core.node, self._quorum.membership.endpoints)
        if history.kraft_version < DYNAMIC_KRAFT_VERSION or core.node not in history.current:
            return []
        if history.last_change_offset < 0:
            return voter_records(history.kraft_version, history.current.having(own))
        if history.current.get(core.node.id) != own:
            return [(ControlType.VOTERS, history.current.having(own).to_record())]
        return []

    async def _append(self, voters: Voters, timeout_ms: int, *, waits: bool) -> None:
        end_offset = self._quorum.append_voters([(ControlType.VOTERS, voters.to_record())])
        if waits:
            await self._quorum.committed(end_offset, max(timeout_ms, 1))

    async def _supported_versions(self, voter: Voter, timeout_ms: int) -> tuple[int, int]:
        """The levels of kraft.version that a new voter supports, by ApiVersions."""
        endpoint = voter.endpoint(self._quorum.membership.listener)
        assert endpoint is not None
        channel = self._broker.to_controllers.channel(
            endpoint.host, endpoint.port, f"raft-client-{self._broker.node_id}"
        )
        request = ApiVersionsRequest(client_software_name="runnel", client_software_version="1")
        try:
            response: ApiVersionsResponse = await channel.send(request, timeout_ms=max(timeout_ms, 1))
        except PeerFailed as error:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"the new voter cannot be reached: {error}"
            ) from error
        finally:
            channel.close()
        for feature in response.supported_features:
            if feature.name == KRAFT_VERSION and feature.max_version >= self._quorum.kraft_version:
                return feature.min_version, feature.max_version
        raise ApiError(ErrorCode.INVALID_REQUEST, f"node {voter.key.id} does not support this kraft.version")
