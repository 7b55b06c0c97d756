"""The server's side of OAUTHBEARER (RFC 7628), and the validation of its tokens, signed JWTs (RFC 7519).

A token is accepted if a key of the issuer's JWKS signed it with an asymmetric algorithm, if issuer and
audience are the expected ones, and if it is not expired. There is no other way: without keys no listener
offers the mechanism. PyJWT and cryptography are imported when the first keys are read.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runnel.security.principal import USER, Principal
from runnel.security.sasl_server import Accepted, AuthenticationFailed, Challenge, Outcome, Step, Work

JWT_BYTES_MAX = 48 * 1024
"""The longest message: with many groups a token has a few kilobytes. A request with it is not too large for a
client that is not authenticated."""

_SEPARATOR = "\x01"
_INVALID_TOKEN = b'{"status":"invalid_token"}'
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of a key by its type and curve. Symmetric ones have no row."""


class UnusableKeys(Exception):
    """A JWKS has no key that could verify a token."""


class JwtRules(NamedTuple):
    """What a token must claim."""

    issuer: str
    audiences: tuple[str, ...]
    subject_claim: str = "sub"
    clock_skew_ms: int = 30_000


class Claims(NamedTuple):
    """What a valid token says."""

    subject: str
    expires_at_ms: int


class _Key(NamedTuple):
    key: Any
    algorithms: tuple[str, ...]


class JwtValidator:
    """Validates tokens with the keys of a JWKS, which are replaced at any time."""

    def __init__(self, rules: JwtRules, on_unknown_key: Callable[[], None] | None = None) -> None:
        self._rules = rules
        self._keys: dict[str, _Key] = {}
        self._on_unknown_key = on_unknown_key

    def set_keys(self, jwks: str | bytes) -> None:
        """Use the keys of this JSON text from now on. Raises UnusableKeys, and keeps the former ones."""
        try:
            from jwt import PyJWK
            from jwt.exceptions import PyJWTError
        except ImportError:
            raise UnusableKeys("OAUTHBEARER needs PyJWT: pip install 'runnel[security]'") from None
        try:
            entries = json.loads(jwks)["keys"]
            candidates = [entry for entry in entries if isinstance(entry, dict)]
        except (ValueError, KeyError, TypeError):
            raise UnusableKeys("not a JSON Web Key Set") from None
        keys: dict[str, _Key] = {}
        for entry in candidates:
            algorithms = _algorithms(entry)
            if algorithms and entry.get("use", "sig") == "sig":
                try:
                    keys[str(entry.get("kid", ""))] = _Key(PyJWK(entry, algorithms[0]).key, algorithms)
                except PyJWTError:
                    continue
        if not keys:
            raise UnusableKeys("the JSON Web Key Set has no asymmetric key for signatures")
        self._keys = keys

    def validate(self, token: str, now_ms: int) -> Claims:
        """The claims of a valid token. Raises AuthenticationFailed, whose text does not have the token."""
        import jwt

        try:
            key = self._key(jwt.get_unverified_header(token))
            payload = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self._rules.audiences,
                issuer=self._rules.issuer,
                options={
                    "require": ["exp", "iat", "iss", "aud", self._rules.subject_claim],
                    # Checked below, by the clock of the caller.
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except jwt.PyJWTError as error:
            raise AuthenticationFailed(f"OAUTHBEARER: an invalid token: {type(error).__name__}") from None
        return self._in_time(payload, now_ms)

    def _key(self, header: Mapping[str, Any]) -> _Key:
        keys, name = self._keys, header.get("kid")
        if name is None and len(keys) == 1:
            return next(iter(keys.values()))
        if not isinstance(name, str) or name not in keys:
            if self._on_unknown_key is not None:
                self._on_unknown_key()
            raise AuthenticationFailed("OAUTHBEARER: a token that is signed by an unknown key")
        return keys[name]

    def _in_time(self, payload: Mapping[str, Any], now_ms: int) -> Claims:
        skew_ms, subject = self._rules.clock_skew_ms, payload[self._rules.subject_claim]
        if not isinstance(subject, str) or not subject:
            raise AuthenticationFailed("OAUTHBEARER: a token without subject")
        expires_at_ms = _time_ms(payload, "exp")
        if expires_at_ms + skew_ms <= now_ms:
            raise AuthenticationFailed("OAUTHBEARER: an expired token")
        if max(_time_ms(payload, "iat"), _time_ms(payload, "nbf")) - skew_ms > now_ms:
            raise AuthenticationFailed("OAUTHBEARER: a token that is not valid yet")
        return Claims(subject, expires_at_ms + skew_ms)


def _algorithms(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms that a key may be used with: its own one, or all of its type."""
    known = _ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))), ())
    own = entry.get("alg")
    return known if own is None else tuple(name for name in known if name == own)


def _time_ms(payload: Mapping[str, Any], claim: str) -> int:
    value = payload.get(claim, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**40:
        raise AuthenticationFailed(f"OAUTHBEARER: the claim {claim} is no time")
    return int(value * 1000)


class OAuthBearerServer:
    """One OAUTHBEARER exchange: a token, and after an invalid one the client's acknowledgement."""

    def __init__(self, validate: Callable[[str, int], Claims]) -> None:
        self._validate = validate
        self._failure: AuthenticationFailed | None = None

    def receive(self, token: bytes, now_ms: int) -> Step:
        """The client's first message; later ones only end a failed exchange."""
        if self._failure is not None:
            raise self._failure
        authzid, jwt = _read_first(token)

        def validate() -> Outcome:
            try:
                claims = self._validate(jwt, now_ms)
                if authzid not in ("", claims.subject):
                    raise AuthenticationFailed("OAUTHBEARER: the client asks for another identity")
            except AuthenticationFailed as failure:
                self._failure = failure
                return Challenge(_INVALID_TOKEN)
            return Accepted(Principal(USER, claims.subject), expires_at_ms=claims.expires_at_ms)

        return Work(validate)


def _read_first(message: bytes) -> tuple[str, str]:
    """The authorization id and the JWT of a client's first message."""
    if len(message) > JWT_BYTES_MAX:
        raise AuthenticationFailed(f"OAUTHBEARER: a message of {len(message)} bytes")
    try:
        header, *fields, empty, end = message.decode().split(_SEPARATOR)
        flag, authzid, nothing = header.split(",")
        pairs = dict(field.split("=", 1) for field in fields)
    except ValueError:
        raise AuthenticationFailed("OAUTHBEARER: a malformed message") from None
    scheme, _, jwt = pairs.pop("auth", "").partition(" ")
    is_well_formed = (
        flag in ("n", "y")
        and (not authzid or authzid.startswith("a="))
        and not (nothing or empty or end)
        and scheme.lower() == "bearer"
        and jwt
        and all(name.isascii() and name.isalpha() for name in pairs)
    )
    if not is_well_formed:
        raise AuthenticationFailed("OAUTHBEARER: a malformed message")
    return authzid.removeprefix("a="), jwt.strip()
