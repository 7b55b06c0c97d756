"""An issuer of OAUTHBEARER tokens: its keys, the settings of a broker that trusts it, and tokens."""

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())
LIFETIME_S = 600


def write_keys(path: Path) -> str:
    """Write the public key as a JWKS; its URL."""
    public = json.loads(ECAlgorithm.to_jwk(KEY.public_key()))
    path.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
    return path.as_uri()


def settings(url: str) -> dict[str, str]:
    """Those of a broker, besides its mechanisms."""
    return {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "issuer",
        "sasl.oauthbearer.expected.audience": "cluster",
    }


def token(key: ec.EllipticCurvePrivateKey = KEY, subject: str = "alice", lifetime_s: int = LIFETIME_S) -> str:
    """A signed token of this subject."""
    now = int(time.time())
    claims = {"iss": "issuer", "aud": "cluster", "sub": subject, "iat": now, "exp": now + lifetime_s}
    return jwt.encode(claims, key, "ES256", headers={"kid": "one"})
