"""Delegation tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from runnel.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from runnel.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from runnel.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

BROKER_DEFAULT_MS = -1
"""The period that the broker is configured with; for the expiry of a token: now."""


@dataclass(frozen=True, slots=True)
class TokenView:
    """A delegation token."""

    token_id: str
    hmac: bytes = field(repr=False)
    """The password of clients that use it: a secret."""
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """Until when it can be renewed."""


class Tokens:
    """Creates, describes, renews and expires delegation tokens. Principals are texts such as User:etl."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), lifetime_ms: int = BROKER_DEFAULT_MS
    ) -> TokenView:
        """Create a token for this client, or for another owner."""
        allowed = tuple(renewers)
        kind, name = (None, None) if owner is None else _parts(owner)
        listed = [CreatableRenewers(*_parts(each)) for each in allowed]
        request = CreateDelegationTokenRequest(kind, name, listed, lifetime_ms)
        created = await self._cluster.send_to_controller(request, CreateDelegationTokenResponse)
        check(created.error_code, "creating a delegation token")
        created_for = f"{created.principal_type}:{created.principal_name}"
        requester = f"{created.token_requester_principal_type}:{created.token_requester_principal_name}"
        return TokenView(
            created.token_id,
            bytes(created.hmac),
            created_for,
            created_for if requester == ":" else requester,
            allowed,
            created.issue_timestamp_ms,
            created.expiry_timestamp_ms,
            created.max_timestamp_ms,
        )

    async def describe(self, owners: Iterable[str] = ()) -> list[TokenView]:
        """The tokens of these owners, or of all, that this client may see."""
        named = [DescribeDelegationTokenOwner(*_parts(each)) for each in owners]
        request = DescribeDelegationTokenRequest(named or None)
        response = await self._cluster.send_to_any(request, DescribeDelegationTokenResponse)
        check(response.error_code, "describing delegation tokens")
        found = [
            TokenView(
                each.token_id,
                bytes(each.hmac),
                f"{each.principal_type}:{each.principal_name}",
                f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in response.tokens
        ]
        return sorted(found, key=lambda each: (each.owner, each.issued_ms, each.token_id))

    async def renew(self, hmac: bytes, period_ms: int = BROKER_DEFAULT_MS) -> int:
        """Extend a token by this time from now; returns when it expires."""
        request = RenewDelegationTokenRequest(hmac, period_ms)
        response = await self._cluster.send_to_controller(request, RenewDelegationTokenResponse)
        check(response.error_code, "renewing the delegation token")
        return response.expiry_timestamp_ms

    async def expire(self, hmac: bytes, period_ms: int = BROKER_DEFAULT_MS) -> int:
        """Let a token expire after this time from now; returns when it does."""
        request = ExpireDelegationTokenRequest(hmac, period_ms)
        response = await self._cluster.send_to_controller(request, ExpireDelegationTokenResponse)
        check(response.error_code, "expiring the delegation token")
        return response.expiry_timestamp_ms


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name
