"""Traces: from a request to the record that it sends, and to the one who reads it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.gateway.tracing import DESTINATION, ENDPOINTS, ROUTE, STATUS, TRACEPARENT, Tracing, tracing_of
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving

memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Any:
    return memory.InMemorySpanExporter()


@pytest.fixture
def traced(broker: Broker, spans: Any) -> Iterator[Visitor]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = Tracing(provider.get_tracer("test"))
    with serving(GatewayOptions(broker.bootstrap_servers), tracing) as visitor:
        yield visitor


def finished(spans: Any, requests: int) -> tuple[Any, ...]:
    """The spans, once those of so many requests are among them: they end after the response is sent."""
    deadline = time.monotonic() + 30
    while True:
        found = spans.get_finished_spans()
        if sum(ROUTE in span.attributes for span in found) >= requests:
            return tuple(found)
        assert time.monotonic() < deadline, [span.name for span in found]
        time.sleep(0.01)


def test_from_a_request_to_the_record_and_its_reader(broker: Broker, traced: Visitor, spans: Any) -> None:
    path = "/console/topics/traced/produce"
    with broker.client() as client:
        client.create_topic("traced", partitions=1)
        form = {"value": "x", "headers": "a=1"}
        sent = traced.request("POST", path, form, {"HX-Request": "true", "traceparent": PARENT})
        assert sent.status == 200, sent.text
        [record] = client.read("traced")
    send, request = finished(spans, 1)
    assert (request.name, send.name) == ("POST /console/topics/{topic}/produce", "send traced")
    assert request.attributes[STATUS] == 200 and send.attributes[DESTINATION] == "traced"
    trace_id = int(PARENT.split("-")[1], 16)
    assert request.parent.span_id == int(PARENT.split("-")[2], 16)
    assert send.parent.span_id == request.context.span_id and send.context.trace_id == trace_id
    headers = dict(record.headers)
    assert headers == {"a": b"1", TRACEPARENT: f"00-{trace_id:032x}-{send.context.span_id:016x}-01".encode()}
    spans.clear()
    assert traced.get("/console/topics/traced/message?partition=0&offset=0").status == 200
    received = next(each for each in finished(spans, 1) if each.name == "receive traced")
    assert [link.context.span_id for link in received.links] == [send.context.span_id]
    assert received.context.trace_id != trace_id


def test_names_of_routes_are_few(traced: Visitor, spans: Any) -> None:
    for path in ("/console/topics/orders/messages", "/nothing/here", "/livez"):
        traced.get(path)
    found = [span.attributes[ROUTE] for span in finished(spans, 3) if ROUTE in span.attributes]
    assert set(found) == {"/console/topics/{topic}/messages", "unknown", "/livez"}


def test_headers_that_name_a_trace_stay(spans: Any) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    given = [(TRACEPARENT, PARENT.encode())]
    with Tracing(TracerProvider().get_tracer("test")).sending("t", given) as headers:
        assert headers == given
    with Tracing().sending("t", given) as headers:
        assert headers == given
    assert not tracing_of({}).is_on


def test_spans_are_sent_to_the_endpoint(monkeypatch) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        environment = {ENDPOINTS[0]: f"http://127.0.0.1:{server.server_address[1]}"}
        program = (
            "from runnel.gateway.tracing import tracing_of\n"
            "with tracing_of().sending('orders', []) as headers: print(headers[0][0])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.strip() == TRACEPARENT, done.stderr
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    [(path, body)] = received
    assert path == "/v1/traces" and b"send orders" in body and b"runnel-gateway" in body
