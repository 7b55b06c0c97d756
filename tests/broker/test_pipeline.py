"""Responses to unknown, malformed and failing requests."""

import asyncio
import struct
from importlib import import_module

import pytest

from runnel.broker.apis import handlers
from runnel.broker.apis.handlers import APIS, BROKER_APIS
from runnel.broker.runtime.bug_reports import TRACEBACKS_PER_MINUTE_MAX
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.registry import api
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.wire import decode
from tests.broker.requests import batch, produce_to


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, correlation_id: int = 5) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, 1) + b"c"


@pytest.mark.parametrize("api_key", APIS)
def test_every_api_has_a_handler_and_declared_versions(api_key):
    row = APIS[api_key]
    import_module(f"runnel.broker.apis.{row.module}")
    assert api_key in handlers._registered
    versions = api(api_key).request.versions
    assert row.version_min in versions and row.version_max in versions


@pytest.mark.parametrize("version", range(5))
def test_each_version_of_api_versions(tell, version):
    async def scenario(world) -> None:
        client = await world.connect()
        response = await client.ask(ApiVersionsRequest("test-client", "1.0"), version)
        assert response.error_code == 0
        shown = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        assert shown[0] == (0, 13) and shown[1] == (4, 18) and shown[18] == (0, 4)
        if version >= 3:
            finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
            assert "metadata.version" in finalized and finalized["transaction.version"] == 2
            assert all(feature.min_version > 0 or version >= 4 for feature in response.supported_features)

    tell(scenario)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_of_api_versions_returns_version_0(tell, version):
    async def scenario(world) -> None:
        client = await world.connect()
        client.writer.write(frame(header(18, version) + b"\x00whatever follows"))
        answer = memoryview(await client.receive_frame())
        assert struct.unpack_from(">i", answer) == (5,)
        response = decode(ApiVersionsResponse, 0, answer, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION.code
        assert {key.api_key for key in response.api_keys} == BROKER_APIS
        # The connection stays open for a retry.
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    tell(scenario)


def test_invalid_client_software_name(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        response = await client.ask(ApiVersionsRequest("not ok!", "1"), 3)
        assert response.error_code == ErrorCode.INVALID_REQUEST.code

    tell(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        header(4, 0),
        header(999, 0),
        header(-1, 0),
        header(0, 2) + bytes(20),
        header(0, 14) + bytes(20),
        header(3, 12),
        header(3, 1) + struct.pack(">i", 2**31 - 1),
        header(3, 1) + struct.pack(">i", -5),
        header(3, 1) + struct.pack(">ih", 1, 5) + b"\xff\xff\xff\xff\xff",
        struct.pack(">hhih", 3, 1, 5, -2),
        struct.pack(">hhih", 3, 1, 5, 100) + b"short",
    ],
    ids=lambda body: body[:24].hex(),
)
def test_malformed_request_closes_its_connection_only(tell, body, caplog):
    async def scenario(world) -> None:
        client, other = await world.connect(), await world.connect()
        client.writer.write(frame(body))
        assert await client.is_closed()
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0

    tell(scenario)
    lines = [record for record in caplog.records if record.name.startswith("runnel")]
    assert len(lines) == 1 and lines[0].levelname == "WARNING" and lines[0].exc_info is None


def test_pending_responses_are_sent_before_closing(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        client.send(produce_to("events", (0, batch(b"a"))), 9)
        client.writer.write(frame(header(999, 0)))
        response = await client.receive()
        assert response.responses[0].partition_responses[0].error_code == 0
        assert await client.is_closed()

    tell(scenario)


def _replace(monkeypatch, api_key, handler) -> None:
    handlers.handler_of(api_key)
    monkeypatch.setitem(handlers._registered, api_key, handlers.as_handler(handler))


def test_api_error_becomes_the_top_level_error(tell, monkeypatch):
    def refuse(request, ctx):
        raise ApiError(ErrorCode.POLICY_VIOLATION, "not today")

    _replace(monkeypatch, 36, refuse)

    async def scenario(world) -> None:
        client = await world.connect()
        response = await client.ask(SaslAuthenticateRequest(), 2)
        assert (response.error_code, response.error_message) == (ErrorCode.POLICY_VIOLATION.code, "not today")

    tell(scenario)


@pytest.mark.parametrize("is_async", [False, True])
def test_exception_is_logged_and_not_exposed(tell, monkeypatch, caplog, is_async):
    def fail(request, ctx):
        raise ZeroDivisionError("secret detail")

    async def fail_later(request, ctx):
        await asyncio.sleep(0)
        raise ZeroDivisionError("secret detail")

    _replace(monkeypatch, 36, fail_later if is_async else fail)

    async def scenario(world) -> None:
        client = await world.connect()
        response = await client.ask(SaslAuthenticateRequest(), 2)
        assert (response.error_code, response.error_message) == (-1, None)
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    tell(scenario)
    assert "secret detail" in caplog.text


def test_a_client_that_repeats_a_bug_does_not_fill_the_disk_with_tracebacks(tell, monkeypatch, caplog):
    def fail(request, ctx):
        raise ZeroDivisionError

    _replace(monkeypatch, 36, fail)
    count = 3 * TRACEBACKS_PER_MINUTE_MAX

    async def scenario(world) -> None:
        client = await world.connect()
        for _ in range(count):
            assert (await client.ask(SaslAuthenticateRequest(), 2)).error_code == -1

    tell(scenario)
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert 1 <= len(tracebacks) <= 2 * TRACEBACKS_PER_MINUTE_MAX


@pytest.mark.parametrize("repeats", [False, True])
def test_an_acknowledgement_that_fails_closes_the_connection(tell, monkeypatch, caplog, repeats):
    """A response that is never sent would keep the client waiting forever."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("accounting failed")

    async def scenario(world) -> None:
        await world.create("events")
        client, other = await world.connect(), await world.connect()
        request = produce_to("events", (0, batch(b"value")))
        if repeats:
            assert (await client.ask(request, 9)).responses[0].partition_responses[0].error_code == 0
        with monkeypatch.context() as broken:
            broken.setattr(type(world.broker.gates.accounting), "account", fail)
            client.send(request, 9)
            if repeats:
                assert await client.is_closed()
            else:
                assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0

    tell(scenario)
    assert "accounting failed" in caplog.text


def test_exception_without_an_error_field_closes_the_connection(tell, monkeypatch, caplog):
    def fail(request, ctx):
        raise ZeroDivisionError

    _replace(monkeypatch, 2, fail)

    async def scenario(world) -> None:
        client, other = await world.connect(), await world.connect()
        client.send(api(2).request(), 5)
        assert await client.is_closed()
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0

    tell(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_sasl_is_rejected(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        for version in (0, 1):
            response = await client.ask(SaslHandshakeRequest("PLAIN"), version)
            assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE.code
        response = await client.ask(SaslAuthenticateRequest(b"\x00user\x00password"), 2)
        assert (
            response.error_code == ErrorCode.ILLEGAL_SASL_STATE.code and "PLAINTEXT" in response.error_message
        )

    tell(scenario)


def test_async_responses_keep_their_order(tell, monkeypatch):
    gates: list[asyncio.Event] = []

    async def wait(request, ctx):
        gate = asyncio.Event()
        gates.append(gate)
        await gate.wait()
        return SaslAuthenticateResponse(error_code=77)

    _replace(monkeypatch, 36, wait)

    async def scenario(world) -> None:
        client = await world.connect()
        client.send(SaslAuthenticateRequest(), 2)
        client.send(ApiVersionsRequest(), 0)
        while not gates:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        gates[0].set()
        assert (await client.receive()).error_code == 77
        assert (await client.receive()).error_code == 0

    tell(scenario)
