"""People log in as users of the broker, and see what these may see."""

import pytest

from runnel.client.acl_admin import AclAdmin
from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.gateway import lag_history
from runnel.gateway.options import GatewayOptions
from runnel.gateway.sessions import needs_login
from runnel.model.ids import TopicPartition
from runnel.security.acl import AccessControlEntry, Operation, PatternType, PermissionType, ResourceType
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving
from tests.gateway.secured_broker import PASSWORDS, properties, secured_broker
from tests.gateway.test_lag_history import until


@pytest.fixture(scope="module")
def secured():
    with secured_broker(admin=True) as broker:
        with broker.client(properties=properties("admin")) as client:
            client.run(share_a_group)
        yield broker


async def share_a_group(cluster: Cluster) -> None:
    """A group reads a topic that anna may see and one that she may not; she finds the brokers' metrics."""
    async with Producer(cluster) as producer:
        for topic, count in (("hers", 3), ("secret", 40)):
            for _ in range(count):
                await producer.send_and_wait(topic, b"x", partition=0)
    for group, topics in (("mixed", ("hers", "secret")), ("open", ("hers",))):
        await Groups(cluster).commit(group, {TopicPartition(topic, 0): 0 for topic in topics})
    granted = [
        (ResourceType.GROUP, "*", Operation.DESCRIBE),
        (ResourceType.TOPIC, "hers", Operation.DESCRIBE),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE_CONFIGS),
    ]
    await AclAdmin(cluster).create(
        [
            AccessControlEntry(
                kind, name, PatternType.LITERAL, "User:anna", "*", operation, PermissionType.ALLOW
            )
            for kind, name, operation in granted
        ]
    )


@pytest.fixture
def door(secured: Broker, monkeypatch):
    monkeypatch.setattr(lag_history, "INTERVAL_S", 0.1)
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    with serving(options) as visitor:
        yield visitor


def log_in(visitor: Visitor, user: str, password: str, to: str = "/console/topics"):
    form = {"username": user, "password": password, "mechanism": "PLAIN"}
    return visitor.request("POST", f"/console/login?to={to}", form)


def test_without_a_login_nothing_is_shown(door: Visitor) -> None:
    page = door.get("/console/topics?q=sec")
    assert page.status == 303
    assert page.headers["location"] == "/console/login?to=/console/topics%3Fq%3Dsec"
    assert door.content("/console/topics").status == 401
    assert door.get("/console/throughput.json").status == 303
    assert door.post("/console/new-topic", name="x").status == 401
    assert "Log in" in door.get("/console/login").text


def test_a_login_is_that_of_the_broker(door: Visitor) -> None:
    assert log_in(door, "anna", "wrong").status == 401
    assert log_in(door, "", "").status == 401
    assert log_in(door, "anna", "${env:HOME}").status == 401
    assert door.cookies == {}
    entered = log_in(door, "admin", PASSWORDS["admin"])
    assert (entered.status, entered.headers["location"]) == (303, "/console/topics")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert PASSWORDS["admin"] not in entered.headers["set-cookie"]
    assert 't-secret"' in door.content("/console/topics").text
    assert "admin at" in door.get("/console/topics").text


def test_people_see_what_they_may(door: Visitor) -> None:
    other = Visitor(door.host, door.port)
    assert log_in(door, "admin", PASSWORDS["admin"]).status == 303
    assert log_in(other, "anna", PASSWORDS["anna"]).status == 303
    assert 't-secret"' in door.content("/console/topics").text
    assert 't-secret"' not in other.content("/console/topics").text
    assert other.content("/console/topics/secret").status in (403, 404)
    assert other.content("/console/topics/secret/settings").status == 403
    assert other.get("/console/topics/secret/message?partition=0&offset=0").status in (403, 404)
    refused = other.post("/console/new-topic", name="hers", partitions="1")
    assert refused.status == 403 and "authorization" in refused.text.lower()


def test_lag_in_topics_that_a_person_may_not_see_is_not_shown(door: Visitor) -> None:
    """The admin listeners of brokers report all of it, to everyone who finds them."""
    other = Visitor(door.host, door.port)
    log_in(door, "admin", PASSWORDS["admin"])
    log_in(other, "anna", PASSWORDS["anna"])
    until(door, "/console/groups", lag_cell(43))
    shown = until(other, "/console/groups", lag_cell(3))
    assert lag_cell(43) not in shown and "40" not in shown
    page = other.content("/console/group?id=mixed").text
    assert "hers-0" in page and "secret" not in page and '<div class="value">3</div>' in page
    as_of = f"asof=%40{2**41}"
    until(door, f"/console/group?id=mixed&{as_of}", '<div class="value">43</div>')
    until(other, f"/console/group?id=open&{as_of}", '<div class="value">3</div>')
    assert "Not known" in other.content(f"/console/group?id=mixed&{as_of}").text
    assert "<svg" not in other.get("/console/group/history?id=mixed").text
    assert lag_cell(43) not in other.content(f"/console/groups?{as_of}").text


def lag_cell(records: int) -> str:
    return f'<td class="number" data-label="Lag">{records}</td>'


def test_a_logout_ends_the_session(door: Visitor) -> None:
    log_in(door, "admin", PASSWORDS["admin"])
    before = dict(door.cookies)
    assert door.request("POST", "/console/logout", {}).status == 303
    door.cookies = before
    assert door.get("/console/topics").status == 303


def test_one_user_does_not_end_the_sessions_of_others(door: Visitor, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.sessions.SESSIONS_OF_ONE_MAX", 2)
    monkeypatch.setattr("runnel.gateway.sessions.SESSIONS_MAX", 4)
    other = Visitor(door.host, door.port)
    log_in(door, "admin", PASSWORDS["admin"])
    opened = []
    for _ in range(4):
        other.cookies = {}
        assert log_in(other, "anna", PASSWORDS["anna"]).status == 303
        opened.append(other.cookies)
    statuses = []
    for other.cookies in opened:
        statuses.append(other.get("/console/topics").status)
    assert statuses == [303, 303, 200, 200]
    assert door.get("/console/topics").status == 200


def test_cookies_of_others_are_not_parsed(door: Visitor, monkeypatch) -> None:
    """Python's parser of cookies takes quadratic time for quoted ones."""

    def parse(text: str) -> None:
        raise AssertionError("they are parsed")

    monkeypatch.setattr("http.cookies._unquote", parse)
    log_in(door, "admin", PASSWORDS["admin"])
    [(name, token)] = door.cookies.items()
    door.cookies = {"other": '"' + r"\"" * 100 + '"', name: token, "a": ""}
    assert door.get("/console/topics").status == 200
    assert door.get("/console/login").status == 303
    assert door.request("POST", "/console/logout", {}).status == 303
    assert door.get("/console/topics").status == 303


def test_credentials_of_the_gateway_need_no_login() -> None:
    assert needs_login({"security.protocol": "SASL_SSL"})
    assert not needs_login({"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "b"})
    assert not needs_login({"security.protocol": "SSL"})
    assert not needs_login({})
