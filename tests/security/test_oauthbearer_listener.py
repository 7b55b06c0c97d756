"""OAUTHBEARER over real sockets, with the keys in a file."""

import json
import time

import jwt
import pytest
from confluent_kafka import KafkaError, Producer
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from runnel.messages.metadata import MetadataRequest
from runnel.security.sasl_client import Credentials
from runnel.server.layers import BadSettings
from tests.security.sasl_node import Caller, sasl_node

KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())


def settings(url: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "issuer",
        "sasl.oauthbearer.expected.audience": "cluster",
    }


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oauth")
    keys = folder / "keys.json"
    keys.write_text(
        json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "one"}]})
    )
    with sasl_node(str(folder / "data"), settings(keys.as_uri())) as node:
        yield node.ports["SASL_PLAINTEXT"]


def token(key=KEY) -> str:
    now = int(time.time())
    claims = {"iss": "issuer", "aud": "cluster", "sub": "alice", "iat": now, "exp": now + 600}
    return jwt.encode(claims, key, "ES256", headers={"kid": "one"})


def test_a_signed_token_is_accepted_for_its_lifetime(port) -> None:
    with Caller(port) as caller:
        response = caller.log_in("OAUTHBEARER", Credentials(token=token()))
        assert response.error_code == 0
        assert 500_000 < response.session_lifetime_ms <= 630_000
        assert caller.call(MetadataRequest()).brokers


def test_a_token_of_another_issuer_is_refused(port) -> None:
    with Caller(port) as caller:
        caller.handshake("OAUTHBEARER")
        first = caller.authenticate(f"n,,\x01auth=Bearer {token(STRANGER)}\x01\x01".encode())
        assert (first.error_code, bytes(first.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        assert caller.authenticate(b"\x01").error_code == 58


@pytest.mark.parametrize(("key", "is_accepted"), [(KEY, True), (STRANGER, False)])
def test_librdkafka(port, key, is_accepted) -> None:
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda config: (token(key), time.time() + 600),
            "error_cb": failures.append,
            "log_level": 0,
        }
    )
    producer.produce("oauth", b"value")
    if is_accepted:
        assert producer.flush(30) == 0
        return
    while not failures:
        producer.poll(0.1)
    assert failures[0].code() == KafkaError._AUTHENTICATION
    producer.purge()
    producer.flush(1)


@pytest.mark.parametrize("content", [None, "{}", '{"keys": []}'])
def test_without_usable_keys_the_broker_does_not_start(tmp_path, content) -> None:
    keys = tmp_path / "keys.json"
    if content is not None:
        keys.write_text(content)
    with (
        pytest.raises(BadSettings, match=r"jwks\.endpoint\.url cannot be used"),
        sasl_node(str(tmp_path / "data"), settings(keys.as_uri())),
    ):
        pass
