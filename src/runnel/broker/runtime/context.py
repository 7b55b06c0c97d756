"""The context of a request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from runnel.model.limits import RESPONSE_ELEMENTS_MAX
from runnel.ports.gates import Operation, Permission, ResourceType
from runnel.ports.service import Loan, Session

_describe_topic = partial(Permission, Operation.DESCRIBE, ResourceType.TOPIC)

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.ports.gates import Authorizer


@dataclass(slots=True)
class Encoded:
    """A response that is already encoded in the version of the request."""

    body: bytes


@dataclass(slots=True, eq=False)
class Context:
    """The broker, the connection, and the header of a request."""

    broker: "Broker"
    session: Session
    api_version: int
    client_id: str | None
    throttle_ms: int = field(default=0, kw_only=True)
    """For how long the client is throttled, as the response states."""
    readable_topics: frozenset[str] | None = field(default=None, kw_only=True)
    """The topics of a fetch session that the client may read; None if that was decided otherwise."""
    authorizer_version: int = field(default=-1, kw_only=True)
    """The version of the authorizer before it decided: what changes meanwhile may change the decision."""
    is_partly_denied: bool = field(default=False, kw_only=True)
    """Not every request that repeats this one is permitted."""
    is_large: bool = field(default=False, kw_only=True)
    """The response may have so many elements that it is encoded in a thread."""
    response_elements: int = field(default=0, kw_only=True)
    """What the response describes so far, over all slices of the request."""
    keeps_records: bool = field(default=False, kw_only=True)
    """The records of the request stay where they are after its turn."""
    loan: Loan | None = field(default=None, kw_only=True)
    """Where they are, if that is borrowed: what is staged of them is written with it."""
    close_reason: str = field(default="", kw_only=True)
    """Why the connection is closed after the response; empty if it is not."""

    def throttle(self, throttle_ms: int) -> None:
        """Throttle the client for this time, unless it is throttled for longer."""
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        self.session.throttle_ms = max(self.session.throttle_ms, throttle_ms)

    @property
    def is_response_full(self) -> bool:
        return self.response_elements > RESPONSE_ELEMENTS_MAX

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def listener(self) -> str:
        return self.session.listener

    @property
    def shows_topic(self) -> Callable[[str], bool] | None:
        """Whether the client may describe a topic; None if it may describe all."""
        authorizer, session = self.authorizer, self.session
        if authorizer.allows_all(session):
            return None
        return lambda name: authorizer.allows(session, _describe_topic(name))

    @property
    def is_permission_current(self) -> bool:
        """Whether the authorizer would decide as it did before this request began to wait."""
        return self.authorizer_version == self.broker.gates.authorizer.version

    @property
    def authorizer(self) -> "Authorizer":
        return self.broker.gates.authorizer
