"""The client on a broker with SASL: every mechanism, sessions that end, and refusals."""

import asyncio
import json
import time
from base64 import b64encode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from runnel.client import AuthenticationFailed, ClientError, Cluster, SyncClient
from runnel.client.security import security_of
from runnel.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.pipelines.source.connection import BlockingConnection
from tests.security.sasl_node import PASSWORDS, SASL_SETTINGS, sasl_node

KEY = ec.generate_private_key(ec.SECP256R1())
SESSION_MS = 1_500
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """A broker whose sessions last for a moment."""
    folder = tmp_path_factory.mktemp("sasl")
    keys = folder / "keys.json"
    keys.write_text(
        json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "one"}]})
    )
    settings = {
        "sasl.enabled.mechanisms": SASL_SETTINGS["sasl.enabled.mechanisms"] + ",OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "issuer",
        "sasl.oauthbearer.expected.audience": "cluster",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with sasl_node(str(folder / "data"), settings) as node:
        yield node.ports


def token(seconds: int = 600) -> str:
    now = int(time.time())
    claims = {"iss": "issuer", "aud": "cluster", "sub": "alice", "iat": now, "exp": now + seconds}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "one"})


def properties(mechanism: str, **more: str) -> dict[str, str]:
    user = "alice" if mechanism == "PLAIN" else "bob"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return given | {"sasl.oauthbearer.token": token()} | more
    return given | {"sasl.username": user, "sasl.password": PASSWORDS[user]} | more


def topics_of(port: int, given: dict[str, str] | None) -> int:
    with SyncClient(f"127.0.0.1:{port}", timeout_s=5, properties=given) as client:
        return len(client.run(lambda cluster: cluster.refresh(None)).topics)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_every_mechanism(ports, mechanism):
    assert topics_of(ports["SASL_PLAINTEXT"], properties(mechanism)) == 0


def test_a_delegation_token(ports):
    request = CreateDelegationTokenRequest(max_lifetime_ms=60_000)
    address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
    with SyncClient(address, properties=properties("SCRAM-SHA-256")) as client:
        made = client.run(lambda cluster: cluster.send_to_any(request, CreateDelegationTokenResponse))
    assert made.error_code == 0
    jaas = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required tokenauth="true" '
        f'username="{made.token_id}" password="{b64encode(made.hmac).decode()}";'
    )
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    assert topics_of(ports["SASL_PLAINTEXT"], given) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(ports, mechanism):
    given = properties(mechanism, **{"sasl.password": "hunter2"})
    with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED") as refused:
        topics_of(ports["SASL_PLAINTEXT"], given)
    assert "hunter2" not in str(refused.value)


def test_a_refused_token(ports):
    with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
        topics_of(ports["SASL_PLAINTEXT"], properties("OAUTHBEARER", **{"sasl.oauthbearer.token": "a.b.c"}))


def test_the_wrong_listener(ports):
    with pytest.raises(AuthenticationFailed, match="does not use SASL"):
        topics_of(ports["PLAINTEXT"], properties("PLAIN"))
    with pytest.raises(ClientError, match=r"see security\.protocol"):
        topics_of(ports["SASL_PLAINTEXT"], None)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_session_is_renewed_on_the_same_connection(ports, mechanism):
    async def work() -> None:
        address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
        async with Cluster(address, properties=properties(mechanism)) as cluster:
            connection = await cluster.any_connection()
            first = connection._authenticate_at_s
            for _ in range(2):
                # Idle for longer than the session lasts: its first request is another authentication.
                await asyncio.sleep(1.1 * SESSION_MS / 1000)
                requests = (connection.send(MetadataRequest(topics=[]), MetadataResponse) for _ in range(5))
                assert len(await asyncio.gather(*requests)) == 5
                later = connection._authenticate_at_s
                assert first is not None and later is not None and later > first
                first = later

    asyncio.run(work())


def test_a_session_that_is_not_renewed_ends_with_the_reason(ports, monkeypatch):
    monkeypatch.setenv("RUNNEL_TEST_PASSWORD", PASSWORDS["bob"])
    given = properties("SCRAM-SHA-256", **{"sasl.password": "${env:RUNNEL_TEST_PASSWORD}"})

    async def work() -> None:
        address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
        async with Cluster(address, properties=given) as cluster:
            connection = await cluster.any_connection()
            monkeypatch.setenv("RUNNEL_TEST_PASSWORD", "hunter2")
            await asyncio.sleep(1.1 * SESSION_MS / 1000)
            with pytest.raises(ClientError, match="SASL_AUTHENTICATION_FAILED") as ended:
                await connection.send(MetadataRequest(topics=[]), MetadataResponse)
            assert "hunter2" not in str(ended.value)
            assert not connection.is_open
            # The next connection fails for the same reason, which is final.
            with pytest.raises(AuthenticationFailed):
                await cluster.refresh([])

    asyncio.run(work())


def test_a_task_of_spark_renews_its_session(ports):
    security = security_of(properties("SCRAM-SHA-512"))
    port = ports["SASL_PLAINTEXT"]
    with BlockingConnection("127.0.0.1", port, client_id="t", timeout_s=10, security=security) as connection:
        for _ in range(2):
            time.sleep(1.1 * SESSION_MS / 1000)
            assert connection.ask(MetadataRequest(topics=[]), MetadataResponse).brokers
