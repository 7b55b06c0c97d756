"""Credentials of a request are those of a user of the broker, and ACLs decide; HTTPS; roles."""

import base64
import http.client
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from runnel.client.admin import Admin
from runnel.client.users import Users
from runnel.gateway.http.principals import Credentials, read_credentials
from runnel.gateway.options import GatewayOptions
from runnel.security.scram import SCRAM_HASHES
from runnel.testing import Broker, LocalGateway
from tests.gateway.gateways import serving
from tests.gateway.http.clients import NDJSON, Client
from tests.gateway.http.test_pressure import eventually
from tests.gateway.secured_broker import PASSWORDS, properties, secured_broker
from tools import token_issuer
from tools.certificates import CaFolder


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Broker]:
    keys = token_issuer.write_keys(tmp_path_factory.mktemp("keys") / "keys.json")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        **token_issuer.settings(keys),
        "super.users": "User:admin;User:carl;User:alice",
    }
    with secured_broker(settings) as broker:
        with broker.client(properties=properties("admin")) as client:
            mechanism = next(name for name in SCRAM_HASHES if name.endswith("256"))
            client.run(lambda cluster: Users(cluster).add("carl", "carl-of-a-test", mechanism, 4096))
        yield broker


@pytest.fixture(scope="module")
def door(secured: Broker) -> Iterator[Client]:
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    with serving(options) as visitor:
        yield Client.of(visitor)


def test_requests_without_credentials_are_refused(door: Client) -> None:
    for method, path, body in (
        ("GET", "/topics", None),
        ("POST", "/topics", {"name": "x"}),
        ("POST", "/topics/secret/publish", {"value": "x"}),
        ("GET", "/topics/secret/subscribe", None),
        ("DELETE", "/topics/secret", None),
    ):
        answer = door.call(method, path, body)
        assert answer.status == 401 and "Basic" in answer.headers["www-authenticate"], path
    assert door.get("/docs").status == door.get("/openapi.json").status == 200


@pytest.mark.parametrize(
    "given",
    [
        basic("anna", "wrong"),
        basic("nemo", "nothing"),
        basic("anna", ""),
        basic("", "x"),
        basic("anna", "${env:HOME}"),
        "Basic ###",
        "Basic /w==",
        "Bearer",
        "Bearer not.a.token",
        "Digest x",
        "",
    ],
)
def test_credentials_that_are_refused(door: Client, given: str) -> None:
    answer = door.get("/topics", Authorization=given)
    assert answer.status == 401 and answer.headers["www-authenticate"], answer


def test_users_of_all_mechanisms_act_as_themselves(door: Client) -> None:
    for user, password in (("admin", PASSWORDS["admin"]), ("carl", "carl-of-a-test")):
        given = {"Authorization": basic(user, password)}
        assert "secret" in door.get("/topics", **given).json
        assert door.post("/topics/secret/publish", {"value": user}, **given).status == 200
        with door.events("/topics/secret/subscribe?offset=0", **given) as events:
            assert events.take(1)[0]["value"] == "admin"


def test_a_principal_does_not_take_all_streams(secured: Broker, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.sse.STREAMS_MAX", 2)
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    admin = {"Authorization": basic("admin", PASSWORDS["admin"])}
    carl = {"Authorization": basic("carl", "carl-of-a-test")}
    with serving(options) as visitor:
        door = Client.of(visitor)
        with door.events("/topics/secret/subscribe", **admin):
            refused = door.get("/topics/secret/subscribe", Accept="text/event-stream", **admin)
            assert refused.status == 429 and "this principal" in refused.json["detail"]
            with door.events("/topics/secret/subscribe", **carl):
                refused = door.get("/topics/secret/subscribe", Accept="text/event-stream", **carl)
                assert refused.status == 503


def test_users_that_were_removed_are_refused(secured: Broker, monkeypatch) -> None:
    """The connections that they have to brokers stay open."""
    monkeypatch.setattr("runnel.gateway.sessions.REAP_INTERVAL_S", 0.1)
    monkeypatch.setattr("runnel.gateway.sessions.LOGIN_VALID_S", 0.0)
    mechanism = next(name for name in SCRAM_HASHES if name.endswith("256"))
    with secured.client(properties=properties("admin")) as client:
        client.run(lambda cluster: Users(cluster).add("dora", "dora-of-a-test", mechanism, 4096))
        options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
        given = {"Authorization": basic("dora", "dora-of-a-test")}
        with serving(options) as visitor:
            door = Client.of(visitor)
            form = {"username": "dora", "password": "dora-of-a-test", "mechanism": mechanism}
            assert visitor.request("POST", "/console/login", form).status == 303
            assert visitor.get("/console/topics").status == 200
            assert door.get("/topics", **given).status == 200
            client.run(lambda cluster: Users(cluster).remove("dora", mechanism))
            assert door.get("/topics", **given).status == 200
            monkeypatch.setattr("runnel.gateway.http.principals.LOGIN_VALID_S", 0.0)
            deadline = time.monotonic() + 20
            for get, refused in (
                (lambda: door.get("/topics", **given), 401),
                (lambda: visitor.get("/console/topics"), 303),
            ):
                while get().status != refused:
                    assert time.monotonic() < deadline
                assert get().status == refused


def test_one_principal_however_its_header_is_written() -> None:
    plain = basic("anna", "a:b")
    token = plain.removeprefix("Basic ")
    for text in (plain, f"bAsic  {token}", f"  BASIC {token} "):
        assert read_credentials(text) == Credentials(False, "anna", "a:b")
    assert read_credentials("bearer   x.y ") == Credentials(True, "", "x.y")


def test_a_principal_does_not_take_all_memory_of_bodies(secured: Broker, monkeypatch) -> None:
    """A message of a WebSocket that is begun counts for its principal."""
    monkeypatch.setattr("runnel.gateway.http.api.BODIES_BYTES_MAX", 600_000)
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    admin = {"Authorization": basic("admin", PASSWORDS["admin"])}
    carl = {"Authorization": basic("carl", "carl-of-a-test")}
    large = {"value": "x" * 150_000}
    with serving(options) as visitor:
        client = Client.of(visitor)
        assert client.post("/topics", {"name": "large"}, **admin).status == 201
        address = f"ws://{client.host}:{client.port}/topics/large/subscribe"
        with connect(address, additional_headers=admin) as first:
            # The first bytes of a frame of a megabyte, and some of it.
            first.socket.sendall(b"\x81\xff" + (1_000_000).to_bytes(8, "big") + bytes(4) + b"x" * 200_000)
            eventually(client, lambda held: held > 180_000)
            refused = client.post("/topics/large/publish", large, **admin)
            assert refused.status == 429 and "300000 bytes" in refused.json["detail"]
            assert client.post("/topics/large/publish", large, **carl).status == 200
            first.socket.close()
        eventually(client, lambda held: held == 0)
        assert client.post("/topics/large/publish", large, **admin).status == 200


def test_logins_that_wait_are_limited(secured: Broker, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.principals.LOGINS_WAITING_MAX", 0)
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    with serving(options) as visitor:
        answer = Client.of(visitor).get("/topics", Authorization=basic("admin", PASSWORDS["admin"]))
    assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1


def test_a_bearer_token_is_one_of_oauthbearer(door: Client) -> None:
    assert "secret" in door.get("/topics", Authorization=f"Bearer {token_issuer.token()}").json
    stranger = token_issuer.token(token_issuer.STRANGER)
    assert door.get("/topics", Authorization=f"Bearer {stranger}").status == 401


def test_acls_decide(door: Client) -> None:
    anna = {"Authorization": basic("anna", PASSWORDS["anna"])}
    assert door.get("/topics", **anna).json == []
    assert door.post("/topics", {"name": "hers"}, **anna).status == 403
    for path in ("subscribe", "subscribe?group=g"):
        assert door.get(f"/topics/secret/{path}", **anna).status == 403
    assert door.post("/topics/secret/publish", {"value": "x"}, **anna).status == 403
    assert door.call("DELETE", "/topics/secret", headers=anna).status == 403
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{door.host}:{door.port}/topics/secret/subscribe", additional_headers=anna)
    assert refused.value.response.status_code == 403


def test_a_gateway_with_credentials_of_its_own(secured: Broker) -> None:
    with serving(GatewayOptions(secured.bootstrap_servers, properties("admin"))) as visitor:
        client = Client.of(visitor)
        assert "secret" in client.get("/topics").json
        anna = basic("anna", PASSWORDS["anna"])
        assert client.get("/topics", Authorization=anna).json == []
        assert client.get("/topics", Authorization=basic("anna", "wrong")).status == 401


@pytest.mark.parametrize("name", ["_schemas", "__runnel_alerts"])
def test_topics_of_the_cluster_are_not_changed(http_broker: Broker, client: Client, name: str) -> None:
    """Not even created: they would have the wrong settings."""
    [cluster] = client.get("/v3/clusters").json["data"]
    v3 = f"/v3/clusters/{cluster['cluster_id']}/topics"

    def statuses() -> list[int]:
        value = [{"name": "retention.ms", "value": "1"}]
        return [
            client.post(f"/topics/{name}/publish?create=true", {"value": "x"}).status,
            client.post(f"/topics/{name}/publish", b'{"value": 1}', Content_Type=NDJSON).status,
            client.post("/topics", {"name": name}).status,
            client.post(v3, {"topic_name": name}).status,
            client.call("DELETE", f"/topics/{name}").status,
            client.call("DELETE", f"{v3}/{name}").status,
            client.post(f"{v3}/{name}/records", {"value": {"type": "JSON", "data": 1}}).status,
            client.post(f"{v3}/{name}/configs:alter", {"data": value}).status,
        ]

    assert statuses()[:4] == [403] * 4 and name not in client.get("/topics").json
    with http_broker.client() as kafka:
        kafka.run(lambda cluster: Admin(cluster).create_topic(name))
    try:
        client.get(f"/topics/{name}")
        assert statuses() == [403] * 8
        assert client.get(f"/topics/{name}/subscribe").status == 200
    finally:
        with http_broker.client() as kafka:
            kafka.run(lambda cluster: Admin(cluster).delete_topic(name))


def test_https(http_broker: Broker, tmp_path: Path) -> None:
    authority = CaFolder(tmp_path)
    certificate = authority.issue("gateway", "localhost")
    gateway = LocalGateway(
        http_broker.bootstrap_servers,
        "PLAINTEXT",
        tls=(certificate.certificate, certificate.key),
    )
    try:
        assert gateway.url.startswith("https://127.0.0.1:")
        port = int(gateway.url.rstrip("/").rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(authority.certificate))
        line = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
        line.request("GET", "/topics")
        assert line.getresponse().status == 200
        line.close()
    finally:
        gateway.close()


def test_roles_and_read_only(http_broker: Broker, client: Client, topic) -> None:
    servers = http_broker.bootstrap_servers
    with serving(GatewayOptions(servers, role="ingress")) as visitor:
        ingress = Client.of(visitor)
        assert ingress.post(f"/topics/{topic}/publish", {"value": "x"}).status == 200
        elsewhere = ingress.get(f"/topics/{topic}/subscribe")
        assert elsewhere.status == 404 and "ingress" in elsewhere.json["detail"]
        assert ingress.post("/topics", {"name": "y"}).status == 404
        for path in ("/subjects", "/schemas/types", "/console/", "/console/topics"):
            assert ingress.get(path).status == 404, path
        assert ingress.get("/", Accept="text/html").headers["location"] == "/docs"
        assert ingress.get("/livez").status == 200
    with serving(GatewayOptions(servers, role="egress", read_only=True)) as visitor:
        egress = Client.of(visitor)
        assert egress.get("/subjects").status == egress.get("/console/").status == 200
        assert egress.get(f"/topics/{topic}/subscribe").json["messages"][0]["value"] == "x"
        assert egress.post(f"/topics/{topic}/publish", {"value": "x"}).status == 404
        assert egress.call("DELETE", f"/topics/{topic}").status == 403
        with connect(f"ws://{egress.host}:{egress.port}/topics/{topic}/subscribe") as line:
            line.send('{"type": "publish", "record": {"value": 1}}')
            assert '"status":404' in str(line.recv(timeout=10))
