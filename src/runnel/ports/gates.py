"""What every request passes besides its handler: authentication, authorization, quotas, accounting.

    decode → authenticate → resolve topics → authorize → throttle → handle → account → encode

The broker asks through these protocols; which parts answer is decided where a node is assembled.
"""

from collections.abc import Iterator
from typing import Protocol

from runnel.ports.service import Session
from runnel.security.acl import CLUSTER_NAME, Operation, Permission, ResourceType

__all__ = [
    "CLUSTER_NAME",
    "Accounting",
    "Audit",
    "Authenticator",
    "Authorizer",
    "Mutations",
    "Operation",
    "Permission",
    "Quotas",
    "ResourceType",
]


class Authenticator(Protocol):
    """Decides whether a connection may send a request at this point of its exchange."""

    def check(self, session: Session, api_key: int) -> None:
        """Raises ApiError, which is answered, or CloseConnection."""
        ...


class Authorizer(Protocol):
    """Decides what the principal of a connection may do."""

    version: int
    """Changes whenever an earlier decision may no longer hold: ACLs, super users, the end of a session.

    Repeated requests are served without asking again while it is the same.
    """

    def allows_all(self, session: Session) -> bool:
        """Whether nothing can be denied: there are no ACLs, or the principal is a super user."""
        ...

    def allows(self, session: Session, permission: Permission) -> bool:
        """Whether an ACL permits this."""
        ...

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """All operations that are permitted on a resource, as a bit field: bit n is the one with code n."""
        ...

    def allows_some(
        self, session: Session, operation: Operation, resource_type: ResourceType
    ) -> Iterator[bool | None]:
        """Whether an ACL permits this on at least one resource of the type (KIP-679).

        It is decided in steps: None after each that is not the last one.
        """
        ...


class Audit(Protocol):
    """Records what principals did, and tried to do."""

    is_enabled: bool
    """Is anything recorded? Then super users are authorized like others."""

    def decided(
        self,
        session: Session,
        client_id: str | None,
        api_key: int,
        permission: Permission,
        *,
        is_allowed: bool,
    ) -> None:
        """The authorizer permitted or denied an operation. Called by any thread; never waits."""
        ...


class Quotas(Protocol):
    """Decides how long a client must pause because of what it has used.

    A client is the principal and the last client id of a session.
    """

    def limits(self, session: Session) -> bool:
        """Whether a quota of bytes or time applies to the client: if not, requests need not be charged."""
        ...

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        """Charge a request that is about to be handled; 0 if the client is within its quotas.

        The response states the time, and nothing more is read from the connection for that time (KIP-219).
        The time that an exempt request takes is not charged.
        """
        ...

    def fetch_bytes_max(self, session: Session) -> int | None:
        """The size of a fetch response that can be within the quota; None if there is no quota."""
        ...

    def fetch_throttle_ms(self, session: Session, response_bytes: int) -> int:
        """Charge a fetch response that is about to be sent; 0 if the client is within its quota.

        Otherwise nothing is charged, and an empty response is to be sent instead.
        """
        ...

    def mutations(self, session: Session) -> "Mutations | None":
        """The quota of partitions that the client creates and deletes; None if it has none."""
        ...

    def connection_hold_ms(self, host: str) -> int:
        """Charge a new connection of an address; 0 if it is within its quota.

        Otherwise nothing is charged, and the connection is to be held unread for this time, then closed.
        """
        ...


class Mutations(Protocol):
    """A quota of partitions that are created and deleted."""

    def throttle_ms(self) -> int:
        """How long to change nothing; 0 if something may be changed now."""
        ...

    def charge(self, partitions: int) -> None:
        """Partitions are created or deleted, even if these are more than the quota allows."""
        ...


class Accounting(Protocol):
    """Counts what was served; every request is counted once, with any outcome."""

    def account(
        self,
        session: Session,
        api_key: int,
        api_version: int,
        request_count: int,
        request_bytes: int,
        response_bytes: int,
        began: float,
    ) -> None:
        """Requests of one API and version are finished; response_bytes is 0 where nothing was answered.

        `began` is when they were received, in seconds of the monotonic clock.
        """
        ...

    def failed(self, api_key: int, code: int, count: int = 1) -> None:
        """Requests, or partitions of them, were answered with this error code."""
        ...
