"""Assembles the authentication of a node: users of the metadata image, threads, keys of OAUTHBEARER."""

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, cast

from runnel.broker.runtime.sasl import SaslListener, Settled
from runnel.controller.values import ScramCredential
from runnel.disk.workers import LoopWorkers
from runnel.schemas.metadata import UserScramCredentialRecord
from runnel.security.login_failures import LoginFailures
from runnel.security.oauthbearer_server import OAuthBearerServer
from runnel.security.plain_server import PlainUsers
from runnel.security.principal import Principal
from runnel.security.sasl_client import OAUTHBEARER, PLAIN
from runnel.security.sasl_login import SaslLogin
from runnel.security.sasl_server import OfferedMechanism, Outcome, ServerMechanism
from runnel.security.scram import SCRAM_HASHES, SCRAM_MECHANISM_CODES, ScramVerifier, base64
from runnel.security.scram_server import ScramServer, ScramUsers, TokenIdentity, token_hmac
from runnel.server.jwks import Jwks
from runnel.server.sasl_settings import OwnIdentity, SaslSettings

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

NONCE_BYTES = 24


class Users:
    """The users and delegation tokens of the metadata image."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        secret_key = broker.settings.text("delegation.token.secret.key")
        self.secret_key = secret_key or ""
        # With the cluster's secret all brokers give an unknown user the same salt, also after a restart.
        self.secret = token_hmac(self.secret_key, "unknown users") if secret_key else os.urandom(32)

    def verifier(self, mechanism: str, user: str) -> ScramVerifier | None:
        """The stored credential of a user."""
        code = SCRAM_MECHANISM_CODES[mechanism]
        stored = self._broker.metadata.image.credentials.get(user, {}).get(code)
        return _verifier(stored or self._formatted(code, user))

    def _formatted(self, code: int, user: str) -> ScramCredential | None:
        """A user that the directory was formatted with, before the first controller stores it."""
        if self._broker.metadata.image.features:
            return None
        for record in self._broker.formatted:
            if not isinstance(record, UserScramCredentialRecord):
                continue
            if (record.mechanism, record.name) == (code, user):
                salt, stored_key, server_key = map(bytes, (record.salt, record.stored_key, record.server_key))
                return ScramCredential(salt, stored_key, server_key, record.iterations)
        return None

    def token(self, token_id: str) -> TokenIdentity | None:
        """The owner and the password of a delegation token."""
        token = self._broker.metadata.image.tokens.get(token_id)
        if token is None or not self.secret_key:
            return None
        type_, _, name = token.owner.partition(":")
        return TokenIdentity(
            Principal(type_, name, is_by_token=True),
            base64(token_hmac(self.secret_key, token_id)),
            min(token.expiration_timestamp, token.max_timestamp),
        )


def _verifier(stored: ScramCredential | None) -> ScramVerifier | None:
    if stored is None:
        return None
    return ScramVerifier(stored.salt, stored.iterations, stored.stored_key, stored.server_key)


async def sasl_listeners(
    broker: "Broker", listeners: Mapping[str, SaslSettings], stack: AsyncExitStack
) -> dict[str, SaslListener]:
    """The authentication of each listener with SASL. Raises BadSettings if keys cannot be read."""
    workers = LoopWorkers(1, "login")
    stack.callback(workers.close)
    users, failures = Users(broker), LoginFailures()

    def run_blocking(work: Callable[[], Outcome], done: Settled) -> None:
        def delivered(result: Outcome | None, failure: BaseException | None) -> None:
            done(failure if result is None and failure is not None else cast("Outcome", result))

        workers.submit(work, delivered)

    built = {}
    for name, settings in listeners.items():
        begin = _mechanisms(settings, users)
        if settings.oauth is not None:
            keys = Jwks(settings.oauth)
            await keys.start()
            stack.push_async_callback(keys.close)
            begin[OAUTHBEARER] = partial(_oauth, keys)
        built[name] = SaslListener(
            mechanisms={
                mechanism: OfferedMechanism(begin[mechanism], settings.session_ms_max[mechanism])
                for mechanism in settings.mechanisms
            },
            clock=broker.clock,
            timers=broker.timers,
            run_blocking=run_blocking,
            failures=failures,
            failure_delay_ms=settings.failure_delay_ms,
            receive_bytes_max=settings.receive_bytes_max,
        )
    return built


def new_login(identity: OwnIdentity) -> SaslLogin:
    """Begin an authentication of this node at another one."""
    return SaslLogin(identity.mechanism, identity.credentials, base64(os.urandom(NONCE_BYTES)))


def _mechanisms(settings: SaslSettings, users: Users) -> dict[str, Callable[[], ServerMechanism]]:
    scram_users = ScramUsers(users.verifier, users.token, users.secret)
    begin: dict[str, Callable[[], ServerMechanism]] = {
        mechanism: partial(_scram, mechanism, scram_users) for mechanism in SCRAM_HASHES
    }
    begin[PLAIN] = PlainUsers(settings.passwords, users.verifier, users.secret).begin
    return begin


def _scram(mechanism: str, users: ScramUsers) -> ScramServer:
    return ScramServer(mechanism, users, base64(os.urandom(NONCE_BYTES)))


def _oauth(keys: "Jwks") -> OAuthBearerServer:
    return OAuthBearerServer(keys.validator.validate)
