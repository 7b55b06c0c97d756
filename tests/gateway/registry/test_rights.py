"""Requests act with the rights of the user whose credentials they have."""

import base64
import time

import pytest

from runnel.client.acl_admin import AclAdmin
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry.store import TRANSACTIONAL_ID
from runnel.security.acl import AccessControlEntry, Operation, PatternType, PermissionType, ResourceType
from runnel.security.acl_filter import AclFilter
from tests.gateway.gateways import serving
from tests.gateway.registry.calls import call
from tests.gateway.secured_broker import PASSWORDS, properties, secured_broker

SCHEMA = {"schema": '"string"'}


def basic(user: str, password: str | None = None) -> dict[str, str]:
    pair = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


@pytest.fixture(scope="module")
def secured():
    with secured_broker() as broker:
        yield broker


@pytest.fixture
def door(secured):
    options = GatewayOptions(secured.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
    with serving(options) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def own_rights():
    """A gateway with credentials of its own, and a broker on which anna has no rights."""
    with (
        secured_broker() as broker,
        serving(GatewayOptions(broker.bootstrap_servers, properties("admin"))) as visitor,
    ):
        yield visitor


def permit(broker, kind: ResourceType, name: str, *operations: Operation) -> None:
    acls = [
        AccessControlEntry(kind, name, PatternType.LITERAL, "User:anna", "*", operation, PermissionType.ALLOW)
        for operation in operations
    ]
    with broker.client(properties=properties("admin")) as client:
        client.run(lambda cluster: AclAdmin(cluster).create(acls))


REFUSED = pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Basic !"},
        {"Authorization": "Basic " + base64.b64encode(b"anna:wrong").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff").decode()},
        {"Authorization": "Digest x"},
        {"Authorization": "Bearer x"},
    ],
    ids=["malformed", "wrong password", "not UTF-8", "another scheme", "token"],
)


@REFUSED
def test_without_valid_credentials_nothing_is_answered(door, headers):
    status, error = call(door, "GET", "/subjects", **headers)

    assert (status, error["error_code"]) == (401, 40101)


def test_credentials_are_asked_for(door):
    reply = door.get("/subjects")

    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Basic ")


@REFUSED
def test_the_rights_of_the_gateway_are_not_those_of_wrong_credentials(own_rights, headers):
    status, error = call(own_rights, "GET", "/subjects", **headers)

    assert (status, error["error_code"]) == (401, 40101)


def test_the_rights_of_the_gateway_are_those_of_requests_without_credentials(own_rights):
    assert call(own_rights, "GET", "/subjects")[0] == 200
    assert call(own_rights, "GET", "/subjects", **basic("admin"))[0] == 200
    status, error = call(own_rights, "POST", "/subjects/own/versions", SCHEMA, **basic("anna"))
    assert (status, error["error_code"]) == (403, 40301)


def test_acls_decide(secured, door):
    assert call(door, "POST", "/subjects/s/versions", SCHEMA, **basic("admin"))[0] == 200
    assert call(door, "GET", "/subjects", **basic("admin")) == (200, ["s"])
    status, error = call(door, "GET", "/subjects", **basic("anna"))
    assert (status, error["error_code"]) == (403, 40301)

    permit(secured, ResourceType.TOPIC, "_schemas", Operation.READ)
    assert call(door, "GET", "/subjects", **basic("anna")) == (200, ["s"])
    assert call(door, "POST", "/subjects/t/versions", SCHEMA, **basic("anna"))[0] == 403
    # What is registered already needs no right to write.
    assert call(door, "POST", "/subjects/s/versions", SCHEMA, **basic("anna"))[0] == 200

    permit(secured, ResourceType.TOPIC, "_schemas", Operation.WRITE)
    permit(secured, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, Operation.WRITE)
    assert call(door, "POST", "/subjects/t/versions", SCHEMA, **basic("anna"))[0] == 200
    assert call(door, "GET", "/subjects", **basic("admin")) == (200, ["s", "t"])


def test_who_may_not_read_any_more_is_not_shown_what_was_read(monkeypatch):
    """Nothing new has to be read, and the topic may still be described."""
    monkeypatch.setattr("runnel.gateway.registry.store.PERMITTED_S", 0.0)
    with secured_broker() as broker:
        options = GatewayOptions(broker.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT"})
        permit(broker, ResourceType.TOPIC, "_schemas", Operation.READ, Operation.DESCRIBE)
        with serving(options) as visitor:
            assert call(visitor, "POST", "/subjects/s/versions", SCHEMA, **basic("admin"))[0] == 200
            assert call(visitor, "GET", "/subjects", **basic("anna")) == (200, ["s"])
            wanted = AclFilter(operation=Operation.READ, principal="User:anna")
            with broker.client(properties=properties("admin")) as client:
                client.run(lambda cluster: AclAdmin(cluster).delete([wanted]))
            deadline = time.monotonic() + 20
            while (answer := call(visitor, "GET", "/subjects", **basic("anna")))[0] == 200:
                assert time.monotonic() < deadline
            assert answer[0] == 403 and answer[1]["error_code"] == 40301
            assert call(visitor, "GET", "/subjects", **basic("admin")) == (200, ["s"])
