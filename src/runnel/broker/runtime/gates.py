"""The gates of a broker without security and quotas: all requests are allowed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runnel.ports.gates import (
    Accounting,
    Audit,
    Authenticator,
    Authorizer,
    Mutations,
    Operation,
    Permission,
    Quotas,
    ResourceType,
)
from runnel.ports.service import Session
from runnel.security.acl import ALL_OPERATIONS


class AllowAll:
    """An authenticator and authorizer for listeners without security."""

    version = 0

    def check(self, session: Session, api_key: int) -> None:
        """Every connection has the anonymous principal."""

    def allows_all(self, session: Session) -> bool:
        return True

    def allows(self, session: Session, permission: Permission) -> bool:
        return True

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        return ALL_OPERATIONS

    def allows_some(
        self, session: Session, operation: Operation, resource_type: ResourceType
    ) -> Iterator[bool | None]:
        return iter((True,))


class Unaudited:
    """Nothing is recorded."""

    is_enabled = False

    def decided(
        self,
        session: Session,
        client_id: str | None,
        api_key: int,
        permission: Permission,
        *,
        is_allowed: bool,
    ) -> None:
        """Discard the event."""


class Unlimited:
    """No client has a quota."""

    def limits(self, session: Session) -> bool:
        return False

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        return 0

    def fetch_bytes_max(self, session: Session) -> int | None:
        return None

    def fetch_throttle_ms(self, session: Session, response_bytes: int) -> int:
        return 0

    def mutations(self, session: Session) -> Mutations | None:
        return None

    def connection_hold_ms(self, host: str) -> int:
        return 0


class Uncounted:
    """No metrics are kept until the broker that has these gates is created."""

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
        """Discard the metrics."""

    def failed(self, api_key: int, code: int, count: int = 1) -> None:
        """Discard the metrics."""


@dataclass(slots=True)
class Gates:
    """The gates of the request pipeline."""

    authenticator: Authenticator = field(default_factory=AllowAll)
    authorizer: Authorizer = field(default_factory=AllowAll)
    quotas: Quotas = field(default_factory=Unlimited)
    accounting: Accounting = field(default_factory=Uncounted)
    audit: Audit = field(default_factory=Unaudited)
