"""The client of the cluster that a request uses: that of its credentials."""

import base64
import binascii
import hashlib
import secrets
from typing import TYPE_CHECKING

from runnel.client.cluster import Cluster
from runnel.gateway.sessions import LoginFailed

if TYPE_CHECKING:
    from runnel.gateway.options import GatewayOptions
    from runnel.gateway.sessions import Sessions

PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""In the order in which they are tried, unless the gateway's properties name one."""


class NotAuthenticated(Exception):
    """A request has no credentials, or the broker did not accept them."""


class Clients:
    """Sessions by the credentials of requests; without SASL, all use the same one."""

    def __init__(self, options: "GatewayOptions", sessions: "Sessions") -> None:
        self._options = options
        self._sessions = sessions
        self._key = secrets.token_bytes(32)
        self._tokens: dict[bytes, str] = {}

    async def of(self, authorization: str | None) -> Cluster:
        """The client of a request with this header. Raises NotAuthenticated."""
        if not self._sessions.needs_login:
            session = self._sessions.of(None)
            assert session is not None
            return session.cluster
        if authorization is None:
            raise NotAuthenticated("send the name and the password of a user, or a Bearer token")
        # Not the credentials themselves, so that the memory has them once.
        digest = hashlib.blake2b(authorization.encode("latin-1", "replace"), key=self._key).digest()
        session = self._sessions.of(self._tokens.get(digest))
        if session is None:
            token = await self._log_in(authorization)
            self._tokens = {known: one for known, one in self._tokens.items() if self._sessions.is_open(one)}
            self._tokens[digest] = token
            session = self._sessions.of(token)
        if session is None:
            raise NotAuthenticated("too many users are logged in")
        return session.cluster

    async def _log_in(self, authorization: str) -> str:
        scheme, _, value = authorization.strip().partition(" ")
        refusal = "the credentials are neither Basic nor a Bearer token"
        for mechanism, username, password in self._candidates(scheme.lower(), value.strip()):
            try:
                return await self._sessions.login(mechanism, username, password)
            except LoginFailed as error:
                refusal = str(error)
        raise NotAuthenticated(refusal)

    def _candidates(self, scheme: str, value: str) -> list[tuple[str, str, str]]:
        if scheme == "bearer":
            return [("OAUTHBEARER", "", value)]
        if scheme != "basic":
            return []
        try:
            username, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise NotAuthenticated("the Basic credentials are malformed") from None
        fixed = self._options.properties.get("sasl.mechanism")
        mechanisms = [fixed] if fixed in PASSWORD_MECHANISMS else PASSWORD_MECHANISMS
        return [(str(mechanism), username, password) for mechanism in mechanisms]
