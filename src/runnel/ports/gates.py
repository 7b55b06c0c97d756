"""What every request passes besides its handler: authentication, authorization, quotas, accounting.

    decode → authenticate → resolve topics → authorize → throttle → handle → account → encode

The broker asks through these protocols; which parts answer is decided where a node is assembled.
"""

from enum import IntEnum
from typing import NamedTuple, Protocol

from runnel.ports.service import Session


class Operation(IntEnum):
    """What a principal may be allowed to do with a resource, by Kafka's codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What permissions are given on, by Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""


class Permission(NamedTuple):
    """One operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


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

    def allows_some(self, session: Session, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether an ACL permits this on at least one resource of the type (KIP-679)."""
        ...


class Quotas(Protocol):
    """Decides how long a client must pause because of what it has used."""

    def limits(self, session: Session) -> bool:
        """Whether any quota applies to the connection: if not, its requests need not be charged."""
        ...

    def throttle_ms(self, session: Session, client_id: str | None, api_key: int, request_bytes: int) -> int:
        """Charge a request that is about to be handled; 0 if the client is within its quota.

        The response states the time, and nothing more is read from the connection for so long (KIP-219).
        """
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
    ) -> None:
        """Requests of one API and version are finished; response_bytes is 0 where nothing was answered."""
        ...
