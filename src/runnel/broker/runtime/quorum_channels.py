"""Requests of this node to the other members of the quorum."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.broker.runtime.quorum_reports import QuorumReports
from runnel.broker.runtime.quorum_start import Membership
from runnel.broker.runtime.quorum_wire import PRE_VOTE_VERSION, BadReply, decode_reply, encode_request
from runnel.ports.peers import Channel, PeerFailed, PeerUnsupported
from runnel.raft.in_flight import Lane
from runnel.raft.values import Reply, Send, Vote

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

CHANNELS_MAX = 64
"""Channels to former members are closed when there are more than this many."""


class QuorumChannels:
    """One channel per address and lane, as a fetch waits at the leader and would delay a vote."""

    def __init__(
        self,
        broker: "Broker",
        membership: Membership,
        answered: Callable[[Send, Reply], None],
        failed: Callable[[Send, bool], None],
        unsupported: Callable[[Send], None],
        reports: QuorumReports,
    ) -> None:
        self._broker = broker
        self._membership = membership
        self._on_answered = answered
        self._on_failed = failed
        self._on_unsupported = unsupported
        self._reports = reports
        self._channels: dict[tuple[str, int, Lane], Channel] = {}
        self._is_closed = False

    def send(self, sent: Send) -> None:
        """Send a request, and report its outcome."""
        membership, request = self._membership, sent.request
        message = encode_request(request, self._broker.cluster_id or None, membership.timing)
        # In an older version it would be a vote.
        is_pre_vote = isinstance(request, Vote) and request.is_pre_vote
        version = PRE_VOTE_VERSION if is_pre_vote else None
        timeout_ms = membership.request_timeout_ms
        channel = self._channel(sent.peer.host, sent.peer.port, Lane.of(request))
        future = channel.send(message, version=version, timeout_ms=timeout_ms)
        future.add_done_callback(partial(self._done, sent, self._broker.clock.monotonic_ms() + timeout_ms))

    def close(self) -> None:
        """Close all channels; outcomes are no longer reported."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _channel(self, host: str, port: int, lane: Lane) -> Channel:
        channel = self._channels.get((host, port, lane))
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                oldest = next(iter(self._channels))
                self._channels.pop(oldest).close()
            name = f"raft-client-{self._membership.node.id}"
            channel = self._channels[host, port, lane] = self._broker.to_controllers.channel(host, port, name)
        return channel

    def _done(self, sent: Send, deadline_ms: int, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if self._is_closed:
            return
        if error is None:
            self._responded(sent, future.result())
        elif isinstance(error, PeerUnsupported):
            self._on_unsupported(sent)
        elif isinstance(error, PeerFailed):
            self._reports.failed(sent.peer, str(error))
            # One that fails before its time was refused or disconnected.
            self._on_failed(sent, self._broker.clock.monotonic_ms() < deadline_ms)
        else:
            assert isinstance(error, Exception)
            name = type(sent.request).__name__
            self._broker.bugs.report(error, "%s could not be sent to node %d", name, sent.peer.id)
            self._on_failed(sent, False)

    def _responded(self, sent: Send, response: Any) -> None:
        try:
            reply = decode_reply(sent.request, response, self._membership.listener)
        except BadReply as error:
            self._reports.failed(sent.peer, f"it rejects {type(sent.request).__name__} with {error}")
            self._on_failed(sent, False)
        else:
            self._reports.answered(sent.peer)
            self._on_answered(sent, reply)
