"""OAUTHBEARER: only tokens of the issuer, for this audience, signed by its keys, and valid now."""

import json
from base64 import urlsafe_b64encode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from runnel.security.oauthbearer_server import JwtRules, JwtValidator, OAuthBearerServer, UnusableKeys
from runnel.security.principal import Principal
from runnel.security.sasl_client import Credentials, OAuthBearerClient
from runnel.security.sasl_server import Accepted, AuthenticationFailed, Challenge, Work

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
RULES = JwtRules("https://issuer", ("cluster", "other"))
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
STRANGER = ec.generate_private_key(ec.SECP256R1())
JWKS = json.dumps(
    {
        "keys": [
            {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "rsa", "use": "sig"},
            {**json.loads(ECAlgorithm.to_jwk(EC.public_key())), "kid": "ec", "alg": "ES256"},
            {**json.loads(OKPAlgorithm.to_jwk(ED.public_key())), "kid": "ed"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric", "alg": "HS256"},
            {"kty": "RSA", "kid": "encryption", "use": "enc"},
        ]
    }
)
CLAIMS = {"iss": "https://issuer", "aud": "cluster", "sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


@pytest.fixture
def validator() -> JwtValidator:
    validator = JwtValidator(RULES)
    validator.set_keys(JWKS)
    return validator


def signed(key=EC, algorithm="ES256", kid="ec", **changes) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(EC, "ES256", "ec"), (RSA, "RS256", "rsa"), (RSA, "PS512", "rsa"), (ED, "EdDSA", "ed")],
)
def test_a_signed_token_names_its_subject(validator, key, algorithm, kid) -> None:
    claims = validator.validate(signed(key, algorithm, kid), NOW_MS)
    assert (claims.subject, claims.expires_at_ms) == ("alice", NOW_MS + 60_000 + 30_000)


def unsigned(algorithm: str) -> str:
    head, body = (
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": algorithm, "kid": "ec"}, CLAIMS)
    )
    return f"{head}.{body}."


PUBLIC = json.dumps(json.loads(RSAAlgorithm.to_jwk(RSA.public_key())))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        unsigned("none"),
        unsigned("ES256"),
        signed(STRANGER),
        signed(kid="unknown"),
        signed(kid=None),
        signed(EC, "ES256", "rsa"),
        signed(RSA, "RS256", "ec"),
        signed(RSA, "RS256", "encryption"),
        signed("secret" * 8, "HS256", "symmetric"),
        signed("x" * 64, "HS256", "rsa"),
        signed(iss="https://other"),
        signed(iss=None),
        signed(aud="another"),
        signed(aud=None),
        signed(sub=None),
        signed(sub=""),
        signed(exp=None),
        signed(iat=None),
        signed(exp=NOW_S - 31),
        signed(iat=NOW_S + 31),
        signed(nbf=NOW_S + 31),
    ],
)
def test_any_other_token_is_refused_without_being_repeated(validator, token) -> None:
    with pytest.raises(AuthenticationFailed) as refusal:
        validator.validate(token, NOW_MS)
    assert not token or token not in str(refusal.value)


def test_clocks_may_differ(validator) -> None:
    for changes in ({"exp": NOW_S - 29}, {"iat": NOW_S + 29}, {"aud": ["x", "other"]}):
        assert validator.validate(signed(**changes), NOW_MS).subject == "alice"


def test_an_unknown_key_is_reported() -> None:
    reports: list[None] = []
    validator = JwtValidator(RULES, lambda: reports.append(None))
    validator.set_keys(JWKS)
    with pytest.raises(AuthenticationFailed):
        validator.validate(signed(kid="new"), NOW_MS)
    assert reports == [None]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', '{"keys": 1}']
)
def test_without_an_asymmetric_key_the_former_keys_stay(validator, text) -> None:
    with pytest.raises(UnusableKeys):
        validator.set_keys(text)
    assert validator.validate(signed(), NOW_MS).subject == "alice"


def exchange(validator: JwtValidator, message: bytes):
    server = OAuthBearerServer(validator.validate)
    step = server.receive(message, NOW_MS)
    assert isinstance(step, Work)
    return server, step.run()


def test_the_exchange_of_a_valid_token(validator) -> None:
    client = OAuthBearerClient(Credentials(token=signed(), extensions={"team": "data"}))
    _, outcome = exchange(validator, client.first())
    assert outcome == Accepted(Principal("User", "alice"), b"", NOW_MS + 90_000)
    assert client.respond(outcome.token) is None


def test_an_invalid_token_is_acknowledged_before_the_exchange_fails(validator) -> None:
    client = OAuthBearerClient(Credentials(token=signed(STRANGER)))
    server, outcome = exchange(validator, client.first())
    assert outcome == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed):
        server.receive(client.respond(outcome.token) or b"", NOW_MS)


def test_another_identity_is_not_granted(validator) -> None:
    token = signed()
    _, outcome = exchange(validator, f"n,a=bob,\x01auth=Bearer {token}\x01\x01".encode())
    assert isinstance(outcome, Challenge)
    _, outcome = exchange(validator, f"n,a=alice,\x01auth=Bearer {token}\x01\x01".encode())
    assert isinstance(outcome, Accepted)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"p=x,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01b4d=1\x01\x01",
        b"n,,\x01auth=Bearer x\x01novalue\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 48 * 1024 + b"\x01\x01",
    ],
)
def test_malformed_messages_fail(validator, message) -> None:
    with pytest.raises(AuthenticationFailed):
        OAuthBearerServer(validator.validate).receive(message, NOW_MS)
