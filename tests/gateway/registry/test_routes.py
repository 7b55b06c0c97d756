"""The registry's REST API on a broker."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.client.errors import AuthenticationFailed, BrokerError, ClientError
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry import routes
from runnel.gateway.registry.handlers import OPERATIONS
from runnel.gateway.registry.routes import client_error, encoded
from runnel.model.errors import ErrorCode
from runnel.registry.formats import FORMATS
from tests.gateway.gateways import serving
from tests.gateway.registry.calls import MEDIA_TYPE, call, register

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
ORDER = A.replace('"R"', '"Order"')
AB = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def test_the_root_answers_an_empty_object(registry):
    assert call(registry, "GET", "/") == (200, {})
    assert registry.get("/").status == 307


def test_a_schema_is_registered_and_read_in_all_ways(registry):
    found = register(registry, "orders-value", ORDER)
    schema_id, guid = found["id"], found["guid"]

    assert found == {"subject": "orders-value", "version": 1, "id": schema_id, "guid": guid, "schema": ORDER}
    assert call(registry, "GET", f"/schemas/ids/{schema_id}") == (200, {"schema": ORDER, "guid": guid})
    assert registry.get(f"/schemas/ids/{schema_id}/schema").text == ORDER
    assert call(registry, "GET", f"/schemas/ids/{schema_id}?fetchMaxId=true")[1]["maxId"] >= schema_id
    assert call(registry, "GET", f"/schemas/ids/{schema_id}/subjects") == (200, ["orders-value"])
    assert call(registry, "GET", f"/schemas/ids/{schema_id}/versions") == (
        200,
        [{"subject": "orders-value", "version": 1}],
    )
    assert call(registry, "GET", f"/schemas/guids/{guid}")[1]["schema"] == ORDER
    assert call(registry, "GET", f"/schemas/guids/{guid}/ids") == (200, [{"context": ".", "id": schema_id}])
    assert call(registry, "GET", "/subjects/orders-value/versions") == (200, [1])
    assert call(registry, "GET", "/subjects/orders-value/versions/latest") == (200, found)
    assert registry.get("/subjects/orders-value/versions/1/schema").text == ORDER
    assert call(registry, "GET", "/subjects/orders-value/versions/1/referencedby") == (200, [])
    assert call(registry, "POST", "/subjects/orders-value", {"schema": ORDER}) == (200, found)
    assert "orders-value" in call(registry, "GET", "/subjects")[1]
    assert found in call(registry, "GET", "/schemas")[1]
    assert call(registry, "GET", "/schemas/types") == (200, sorted(FORMATS))


def test_errors_have_codes_and_messages(registry):
    register(registry, "errors", A)

    assert call(registry, "GET", "/subjects/nothing/versions/1") == (
        404,
        {"error_code": 40401, "message": "Subject 'nothing' not found."},
    )
    assert call(registry, "GET", "/subjects/errors/versions/7")[1]["error_code"] == 40402
    assert call(registry, "GET", "/schemas/ids/4711")[1]["error_code"] == 40403
    assert call(registry, "GET", "/schemas/ids/x")[1]["error_code"] == 40403
    status, conflict = call(registry, "POST", "/subjects/errors/versions", {"schema": AB})
    assert (status, conflict["error_code"]) == (409, 409)
    assert "field b of R is not written" in conflict["message"]
    assert call(registry, "POST", "/subjects/errors/versions", {"schema": "{"})[1]["error_code"] == 42201
    assert call(registry, "PUT", "/config", {"compatibility": "x"})[0] == 422
    assert call(registry, "DELETE", "/subjects/errors?permanent=true")[1]["error_code"] == 40405


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/subjects/a/b/c", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("POST", "/subjects/a/versions", "{", 400),
        ("POST", "/subjects/a/versions", "[" * 100_000, 400),
        ("POST", "/subjects/a/versions", "", 400),
        ("POST", "/subjects/a/versions", "null", 422),
        ("POST", "/subjects/a/versions", '"' + "x" * 5_000_000 + '"', 413),
        ("GET", "/subjects/%ff/versions", None, 400),
        ("GET", "/subjects/%00/versions", None, 422),
        ("GET", "/v1/metadata/nothing", None, 404),
        ("GET", "/v1/other/id", None, 404),
        ("POST", "/v1/metadata/id", "{}", 405),
    ],
)
def test_malformed_requests(registry, method, path, body, status):
    found, error = call(registry, method, path, body)

    assert found == status
    assert error["message"]


def test_media_types(registry):
    for media_type in (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json; charset=utf-8"):
        status, _ = call(
            registry, "POST", "/subjects/media/versions", {"schema": A}, **{"Content-Type": media_type}
        )
        assert status == 200
    assert (
        call(registry, "POST", "/subjects/media/versions", {"schema": A}, **{"Content-Type": "text/plain"})[0]
        == 415
    )
    assert registry.get("/subjects").headers["content-type"] == MEDIA_TYPE


@pytest.mark.parametrize("subject", ["a/b", "with blank", "ä/ö", "100%", ".", "a?b=c#d", "latest"])
def test_names_of_subjects_are_percent_encoded(registry, subject):
    assert register(registry, subject, A)["subject"] == subject
    assert subject in call(registry, "GET", "/subjects")[1]


def test_booleans_in_any_case(registry):
    register(registry, "case", A)
    call(registry, "DELETE", "/subjects/case?permanent=False")

    assert "case" in call(registry, "GET", "/subjects?deleted=True")[1]
    assert "case" not in call(registry, "GET", "/subjects?deleted=False")[1]


def test_settings_and_modes(registry):
    assert call(registry, "GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call(registry, "GET", "/config/set")[1]["error_code"] == 40408
    assert call(registry, "PUT", "/config/set", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert call(registry, "GET", "/config/set") == (200, {"compatibilityLevel": "FULL"})
    assert call(registry, "DELETE", "/config/set") == (200, {"compatibilityLevel": "FULL"})
    assert call(registry, "PUT", "/mode/set", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert call(registry, "POST", "/subjects/set/versions", {"schema": A})[1]["error_code"] == 42205
    assert call(registry, "DELETE", "/mode/set") == (200, {"mode": "READONLY"})
    assert call(registry, "GET", "/mode") == (200, {"mode": "READWRITE"})


def test_contexts(registry):
    body = {"schema": '"string"'}
    status, found = call(registry, "POST", "/contexts/.prod/subjects/s/versions", body)

    assert (status, found["subject"], found["id"]) == (200, ":.prod:s", 1)
    assert call(registry, "GET", "/contexts")[1] == [".", ".prod"]
    assert call(registry, "GET", "/contexts/.prod/subjects") == (200, [":.prod:s"])
    assert call(registry, "GET", "/contexts/.prod/schemas/ids/1")[1]["schema"] == '"string"'
    assert call(registry, "GET", "/schemas/ids/1?subject=:.prod:s")[1]["schema"] == '"string"'
    call(registry, "PUT", "/contexts/.prod/config", {"compatibility": "NONE"})
    assert call(registry, "GET", "/config/:.prod:") == (200, {"compatibilityLevel": "NONE"})
    assert call(registry, "DELETE", "/contexts/.prod")[1]["error_code"] == 42211
    call(registry, "DELETE", "/contexts/.prod/subjects/s")
    call(registry, "DELETE", "/contexts/.prod/subjects/s?permanent=true")
    assert call(registry, "DELETE", "/contexts/.prod") == (204, None)
    assert call(registry, "GET", "/contexts")[1] == ["."]


def test_compatibility(registry):
    register(registry, "comp", A)

    assert call(registry, "POST", "/compatibility/subjects/comp/versions/latest", {"schema": A}) == (
        200,
        {"is_compatible": True},
    )
    path = "/compatibility/subjects/comp/versions?verbose=true"
    status, found = call(registry, "POST", path, {"schema": AB})
    assert status == 200
    assert not found["is_compatible"]
    assert "field b" in found["messages"][0]


def test_versions_by_metadata(registry):
    register(registry, "meta", A, metadata={"properties": {"major": "1"}})
    register(registry, "meta", A.replace('"int"', '"long"'), metadata={"properties": {"major": "2"}})

    found = call(registry, "GET", "/subjects/meta/metadata?key=major&value=1")[1]
    assert found["version"] == 1


def test_metadata_of_the_cluster(registry):
    assert call(registry, "GET", "/v1/metadata/id")[1]["scope"]["clusters"]["kafka-cluster"]
    assert call(registry, "GET", "/v1/metadata/version")[1]["version"]


def test_a_read_only_gateway_refuses_changes(plain_broker):
    with serving(GatewayOptions(plain_broker.bootstrap_servers, read_only=True)) as visitor:
        assert call(visitor, "POST", "/subjects/x/versions", {"schema": A})[0] == 403
        assert call(visitor, "DELETE", "/subjects/x")[0] == 403
        assert call(visitor, "GET", "/subjects")[0] == 200


def test_pages_of_other_origins_cannot_change_anything(registry):
    status = registry.request(
        "POST",
        "/subjects/x/versions",
        headers={"Origin": "http://elsewhere", "Content-Type": "application/json"},
        body=json.dumps({"schema": A}),
    ).status
    assert status == 403


def test_every_operation_has_a_handler():
    for operation in OPERATIONS:
        assert (operation.read is None) != (operation.write is None)


def test_responses_are_encoded_in_a_thread(registry, monkeypatch):
    threads = []

    def noted(value):
        threads.append(threading.current_thread().name)
        return encoded(value)

    monkeypatch.setattr(routes, "encoded", noted)
    register(registry, "encoded", A)
    assert call(registry, "GET", "/schemas")[0] == 200

    assert len(threads) >= 2
    assert all(name.startswith("registry") for name in threads)


@given(JSON)
def test_responses_are_json(value):
    assert json.loads(encoded(value)) == value


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (AuthenticationFailed("broker-7:9092 refused"), 401, 40101),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "broker-7:9092"), 403, 40301),
        (BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker-7:9092"), 503, 50002),
        (ClientError("broker-7:9092 closed the connection"), 500, 50001),
    ],
)
def test_errors_of_the_client_do_not_name_brokers(error, status, code):
    response = client_error(error)

    assert (response.status_code, json.loads(bytes(response.body))["error_code"]) == (status, code)
    assert b"broker-7" not in response.body
