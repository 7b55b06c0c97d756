"""Delegation tokens (KIP-48): created, renewed, expired, described, and removed when they have expired.

A token is stored without its secret, which every node derives from its id and `delegation.token.secret.key`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from runnel.controller.features import TOKENS_LEVEL
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.token_ids import TokenIds
from runnel.controller.values import DelegationToken
from runnel.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from runnel.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from runnel.messages.expire_delegation_token import ExpireDelegationTokenResponse
from runnel.messages.renew_delegation_token import RenewDelegationTokenResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import (
    DELEGATION_TOKEN_RENEWERS_MAX,
    DELEGATION_TOKENS_MAX,
    DELEGATION_TOKENS_PER_PRINCIPAL_MAX,
    TOKEN_PRINCIPAL_CHARACTERS_MAX,
)
from runnel.schemas.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from runnel.security.principal import ANONYMOUS, USER, Principal
from runnel.security.scram_server import token_hmac


def secret_of(settings: Settings, requester: Principal) -> str:
    """The secret of the tokens of this cluster. Raises ApiError if the client cannot use tokens."""
    if requester == ANONYMOUS or requester.is_by_token:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation tokens need a client that is authenticated, and not by a token",
        )
    secret = settings.text("delegation.token.secret.key")
    if not secret:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set on this broker"
        )
    return secret


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Whose token is to be created."""
    if not request.owner_principal_name:
        return requester._replace(is_by_token=False)
    return Principal(request.owner_principal_type or USER, request.owner_principal_name)


def decide_create_token(
    image: MetadataImage,
    settings: Settings,
    request: CreateDelegationTokenRequest,
    requester: Principal,
    token_id: str,
    now_ms: int,
) -> ControllerResult[CreateDelegationTokenResponse]:
    """Create a token for the requester or another owner, which the caller has authorized."""
    secret = secret_of(settings, requester)
    if image.metadata_level < TOKENS_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "metadata.version does not support delegation tokens")
    owner = owner_of(request, requester)
    if any(renewer.principal_type != USER for renewer in request.renewers) or owner.type != USER:
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Owners and renewers are of type User only")
    _check_limits(image, request, owner, requester)
    lifetime_ms = settings.int("delegation.token.max.lifetime.ms")
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    expiry_ms = now_ms + min(lifetime_ms, settings.int("delegation.token.expiry.time.ms"))
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=expiry_ms,
        max_timestamp_ms=record.max_timestamp,
        token_id=token_id,
        hmac=token_hmac(secret, token_id),
    )
    return ControllerResult([record], response)


def decide_renew_token(
    image: MetadataImage,
    settings: Settings,
    ids: TokenIds,
    token_secret: bytes,
    period_ms: int,
    requester: Principal,
    now_ms: int,
) -> ControllerResult[RenewDelegationTokenResponse]:
    """Extend a token, up to its maximum lifetime; a negative period is the default one."""
    token_id, token = _token(image, settings, ids, token_secret, requester, now_ms)
    if period_ms < 0:
        period_ms = settings.int("delegation.token.expiry.time.ms")
    expiry_ms = min(token.max_timestamp, now_ms + period_ms)
    record = _record(token_id, token, expiry_ms)
    return ControllerResult([record], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def decide_expire_token(
    image: MetadataImage,
    settings: Settings,
    ids: TokenIds,
    token_secret: bytes,
    period_ms: int,
    requester: Principal,
    now_ms: int,
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """Let a token expire after a period; a negative one removes it now."""
    token_id, token = _token(image, settings, ids, token_secret, requester, now_ms)
    if period_ms < 0:
        removal = RemoveDelegationTokenRecord(token_id)
        return ControllerResult([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    expiry_ms = min(token.max_timestamp, now_ms + period_ms)
    record = _record(token_id, token, expiry_ms)
    return ControllerResult([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def decide_remove_expired_tokens(image: MetadataImage, now_ms: int) -> ControllerResult[int]:
    """Remove the tokens that have expired; the response is their number."""
    expired = [token_id for token_id, token in image.tokens.items() if token.expiration_timestamp < now_ms]
    return ControllerResult([RemoveDelegationTokenRecord(token_id) for token_id in expired], len(expired))


def describe_tokens(
    tokens: Mapping[str, DelegationToken],
    settings: Settings,
    request: DescribeDelegationTokenRequest,
    requester: Principal,
    may_describe: Callable[[str, str], bool],
) -> DescribeDelegationTokenResponse:
    """The requester's own tokens, those it may renew, and others that `may_describe` (id, owner) permits."""
    secret = secret_of(settings, requester)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    response = DescribeDelegationTokenResponse()
    for token_id, token in tokens.items():
        if owners is not None and not owners & set(_parties(token)):
            continue
        if str(requester) in _parties(token) or may_describe(token_id, token.owner):
            response.tokens.append(_described(token_id, token, token_hmac(secret, token_id)))
    return response


def _check_limits(
    image: MetadataImage, request: CreateDelegationTokenRequest, owner: Principal, requester: Principal
) -> None:
    """Raises ApiError if a token would take too much of the metadata."""
    if len(request.renewers) > DELEGATION_TOKEN_RENEWERS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"A token has at most {DELEGATION_TOKEN_RENEWERS_MAX} renewers"
        )
    names = (owner.name, requester.name, *(renewer.principal_name for renewer in request.renewers))
    if max(map(len, names)) > TOKEN_PRINCIPAL_CHARACTERS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Owners and renewers have names of at most {TOKEN_PRINCIPAL_CHARACTERS_MAX} characters",
        )
    if len(image.tokens) >= DELEGATION_TOKENS_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"There are {len(image.tokens)} tokens, the limit")
    owner_text, requester_text = str(owner), str(requester)
    owned = sum(token.owner == owner_text for token in image.tokens.values())
    requested = sum(token.requester == requester_text for token in image.tokens.values())
    if max(owned, requested) >= DELEGATION_TOKENS_PER_PRINCIPAL_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{owner if owned >= requested else requester} has {max(owned, requested)} tokens, the limit",
        )


def _token(
    image: MetadataImage,
    settings: Settings,
    ids: TokenIds,
    token_secret: bytes,
    requester: Principal,
    now_ms: int,
) -> tuple[str, DelegationToken]:
    """The token with this secret, if the requester may change it. Raises ApiError."""
    secret = secret_of(settings, requester)
    token_id = ids.find(image.tokens, token_secret, partial(token_hmac, secret))
    if token_id is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no delegation token with this HMAC")
    token = image.tokens[token_id]
    if str(requester) not in _parties(token):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Only owners and renewers may do this")
    if min(token.max_timestamp, token.expiration_timestamp) < now_ms:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The delegation token has expired")
    return token_id, token


def _parties(token: DelegationToken) -> Iterable[str]:
    return (token.owner, token.requester, *token.renewers)


def _record(token_id: str, token: DelegationToken, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )


def _described(token_id: str, token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token_id,
        hmac=secret,
        renewers=[DescribedDelegationTokenRenewer(*renewer.split(":", 1)) for renewer in token.renewers],
    )
