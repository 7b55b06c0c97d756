"""The server's side of PLAIN: passwords of a JAAS line, or of users with SCRAM credentials.

A password is checked against a stored SCRAM verifier by deriving its key, which takes milliseconds. Clients
that reconnect are recognized by an HMAC with a secret of this process, as long as the verifier is the same.
"""

import hmac
from collections.abc import Callable, Mapping

from runnel.security.principal import USER, Principal
from runnel.security.sasl_server import Accepted, AuthenticationFailed, Outcome, Step, Work, shown
from runnel.security.scram import SCRAM_HASHES, ScramVerifier, salted_password, verifier_of
from runnel.security.scram_server import unknown_user

VERIFIED_MAX = 1000
"""Passwords that are recognized without deriving their key, a hundred bytes each."""

TOKEN_BYTES_MAX = 8 * 1024
"""The longest token: a name and a password."""


class PlainUsers:
    """The users of PLAIN on one listener."""

    def __init__(
        self,
        passwords: Mapping[str, str],
        verifier: Callable[[str, str], ScramVerifier | None],
        secret: bytes,
    ) -> None:
        self._passwords = {user: password.encode() for user, password in passwords.items()}
        self._verifier = verifier
        self._secret = secret
        self._verified: dict[bytes, bytes] = {}
        """The stored key that a password was found to fit, by the HMAC of user and password.

        Only the thread that derives keys changes it.
        """

    def begin(self) -> "PlainServer":
        """A new authentication."""
        return PlainServer(self)

    def check(self, user: str, password: str) -> bool | Callable[[], bool]:
        """Whether this is the user's password, or a function that takes milliseconds to find out."""
        if user in self._passwords:
            return hmac.compare_digest(self._passwords[user], password.encode())
        mechanism, verifier = self._stored(user)
        fingerprint = hmac.digest(self._secret, f"{user}\0{password}".encode(), "sha256")
        known = self._verified.get(fingerprint)
        if known is not None and hmac.compare_digest(known, verifier.stored_key):
            return True

        def derive() -> bool:
            algorithm = SCRAM_HASHES[mechanism]
            salted = salted_password(algorithm, password, verifier.salt, verifier.iterations)
            derived = verifier_of(algorithm, salted, verifier.salt, verifier.iterations)
            is_right = hmac.compare_digest(derived.stored_key, verifier.stored_key)
            if is_right:
                self._remember(fingerprint, verifier.stored_key)
            return is_right

        return derive

    def _stored(self, user: str) -> tuple[str, ScramVerifier]:
        for mechanism in SCRAM_HASHES:
            verifier = self._verifier(mechanism, user)
            if verifier is not None:
                return mechanism, verifier
        # As much work as for a user that exists.
        mechanism = next(iter(SCRAM_HASHES))
        return mechanism, unknown_user(self._secret, mechanism, user)

    def _remember(self, fingerprint: bytes, stored_key: bytes) -> None:
        while len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[fingerprint] = stored_key


class PlainServer:
    """One PLAIN exchange: one token."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def receive(self, token: bytes, now_ms: int) -> Step:
        """The name and the password."""
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailed(f"PLAIN: a token of {len(token)} bytes")
        try:
            authzid, user, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("PLAIN: a malformed token") from None
        if not user or not password:
            raise AuthenticationFailed("PLAIN: no user name or no password")
        if authzid not in ("", user):
            raise AuthenticationFailed(f"PLAIN: {shown(user)} asks for another identity")
        answer = self._users.check(user, password)
        if callable(answer):
            is_right = answer
            return Work(lambda: _outcome(user, is_right=is_right()))
        return _outcome(user, is_right=answer)


def _outcome(user: str, *, is_right: bool) -> Outcome:
    if not is_right:
        raise AuthenticationFailed(f"PLAIN: wrong user name or password, user {shown(user)}")
    return Accepted(Principal(USER, user))
