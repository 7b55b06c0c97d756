"""Columns of framed values without Spark: options, outages of a registry, versions to write with."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest

from runnel.pipelines.errors import BadOption, PipelineError, SchemaUnavailable
from runnel.pipelines.registered.decoding import RegisteredDecoder, looked_up
from runnel.pipelines.registered.encoding import RegisteredEncoder
from runnel.pipelines.registered.options import ValueOptions
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.source.options import read_options
from runnel.registry.format import AVRO
from runnel.registry.framing import framed

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
NOTE = '{"type":"record","name":"Order","fields":[{"name":"note","type":"string"}]}'
KIND = pa.struct([("id", pa.int64())])
BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
REGISTRY = {"schemaRegistry.url": "http://127.0.0.1:8080"}


class FakeRegistry:
    """Answers from a table of paths, and fails as often as it is asked to."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.failures = 0
        self.status = 503
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = fake.answers.get(self.path.partition("?")[0])
                status = 200 if found is not None else 404
                if fake.failures:
                    fake.failures -= 1
                    status, found = fake.status, None
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(found or {"error_code": status, "message": "no"}).encode())

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, version: int, schema_id: int, text: str) -> None:
        found = {"id": schema_id, "version": version, "schema": text}
        self.answers[f"/subjects/orders-value/versions/{version}"] = found
        self.answers["/subjects/orders-value/versions/latest"] = found
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": text}
        self.answers["/subjects/orders-value/versions"] = list(range(1, version + 1))

    def options(self, wait_s: float = 5, version: str = "latest") -> ValueOptions:
        return looked_up(ValueOptions(AVRO, self.url, None, "orders-value", version, None, wait_s))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    yield fake
    fake.server.shutdown()
    thread.join()
    fake.server.server_close()


def test_a_registry_that_does_not_respond_is_waited_for(registry) -> None:
    registry.add(1, 1, ORDER)
    decoder = RegisteredDecoder(registry.options(), KIND)
    registry.add(2, 2, ORDER)
    registry.failures = 2
    decoded = decoder.decode(pa.array([framed(1, b"\x02"), framed(2, b"\x04"), None, framed(2, b"\x04\x04")]))
    assert decoded.values.to_pylist() == [{"id": 1}, {"id": 2}, None, None]
    assert decoded.schema_ids is not None and decoded.schema_ids.to_pylist() == [1, 2, None, 2]
    assert decoded.errors.to_pylist()[3] == "does not match the Avro schema: 1 trailing bytes"


@pytest.mark.parametrize("status", [503, 401])
def test_an_outage_does_not_make_values_malformed(registry, status) -> None:
    registry.add(1, 1, ORDER)
    decoder = RegisteredDecoder(registry.options(wait_s=0), KIND)
    registry.failures, registry.status = 100, status
    with pytest.raises(SchemaUnavailable, match="no"):
        decoder.decode(pa.array([framed(2, b"\x02")]))


def test_rows_are_written_with_the_latest_version_that_they_fit(registry) -> None:
    registry.add(1, 1, ORDER)
    registry.add(2, 2, NOTE)
    encoder = RegisteredEncoder(registry.options())
    texts = pa.array(['{"id": 1}', '{"note": "x"}', None])
    assert encoder.encode(texts).to_pylist() == [framed(1, b"\x02"), framed(2, b"\x02x"), None]
    assert encoder.encode(pa.array([{"id": 1}])).to_pylist() == [framed(1, b"\x02")]
    for encoder_, value in (
        (encoder, {"other": 1}),
        (RegisteredEncoder(registry.options(version="2")), {"id": 1}),
    ):
        with pytest.raises(PipelineError, match="it does not fit orders-value, schema 2"):
            encoder_.encode(pa.array([value]))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"valueSubject": "x"}, "valueSubject applies to valueFormat=avro, protobuf, json-schema"),
        ({"valueFormat": "protobuf"}, "schemaRegistry.url is required"),
        ({"valueFormat": "avro", **REGISTRY, "valueSchema": ORDER}, "remove valueSchema"),
        ({"valueFormat": "json-schema", "valueSchema": "id long"}, "remove valueSchema"),
        ({"valueFormat": "avro", **REGISTRY, "valueVersion": "0"}, "valueVersion='0' is neither"),
        ({"valueFormat": "avro", **REGISTRY, "subscribe": "a,b"}, "valueSubject is required"),
        ({"valueFormat": "avro", **REGISTRY, "valueSubjct": "a"}, "did you mean 'valueSubject'"),
    ],
)
def test_options_of_the_source(given, problem) -> None:
    with pytest.raises(BadOption, match=problem):
        read_options({**BASE, **given})


def test_default_subjects() -> None:
    source = read_options({**BASE, "valueFormat": "avro", **REGISTRY}).values
    sink = write_options({**BASE, "topic": "orders", "valueFormat": "protobuf", **REGISTRY}).values
    assert source is not None and sink is not None
    assert source.subject == sink.subject == "orders-value"
    with pytest.raises(BadOption, match=r"valueFormat=avro requires the option schemaRegistry.url"):
        write_options({**BASE, "topic": "orders", "valueFormat": "avro"})
