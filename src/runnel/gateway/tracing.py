"""Traces by OpenTelemetry, if `runnel[otel]` is installed and an endpoint is set; else nothing, at no cost.

Spans are created here only, never by brokers. A record carries the trace in the header `traceparent` (W3C
Trace Context), so that its readers can refer to it. OpenTelemetry's conventions for messaging are still
in development: all names are in this file.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 runnel serve
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TRACEPARENT = "traceparent"
SERVICE = "runnel-gateway"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

METHOD, ROUTE, STATUS = "http.request.method", "http.route", "http.response.status_code"
SYSTEM, OPERATION, DESTINATION = "messaging.system", "messaging.operation.name", "messaging.destination.name"
PARTITION, OFFSET = "messaging.destination.partition.id", "messaging.kafka.offset"
KAFKA, SEND, RECEIVE = "kafka", "send", "receive"

Headers = Sequence[tuple[str, bytes | None]]


class Tracing:
    """Creates spans with a tracer of OpenTelemetry; without a tracer, none."""

    def __init__(self, tracer: Any = None) -> None:
        self._tracer = tracer

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def server(self, method: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """A request that is being served; it belongs to the trace that the request names."""
        if self._tracer is None:
            yield None
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        context = propagate.extract(headers)
        with self._tracer.start_as_current_span(method, context, SpanKind.SERVER) as span:
            span.set_attribute(METHOD, method)
            yield span

    @contextmanager
    def sending(self, topic: str, headers: Headers) -> Iterator[Headers]:
        """A record that is sent, and the headers to send it with: unless they name a span, they name its own.

        Whatever sends records is traced by one line: `with tracing.sending(topic, headers) as headers:`
        """
        if self._tracer is None:
            yield headers
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(f"{SEND} {topic}", kind=SpanKind.PRODUCER) as span:
            span.set_attributes({SYSTEM: KAFKA, OPERATION: SEND, DESTINATION: topic})
            if any(name == TRACEPARENT for name, _ in headers):
                yield headers
                return
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            yield [*headers, *((name, value.encode()) for name, value in carrier.items())]

    def received(self, topic: str, partition: int, offset: int, headers: Headers) -> None:
        """A record was read: a span that is linked with that of its producer."""
        if self._tracer is None:
            return
        from opentelemetry import propagate, trace

        carrier = {name: (value or b"").decode("ascii", "replace") for name, value in headers}
        origin = trace.get_current_span(propagate.extract(carrier)).get_span_context()
        links = [trace.Link(origin)] if origin.is_valid else []
        kind = trace.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(f"{RECEIVE} {topic}", kind=kind, links=links) as span:
            span.set_attributes({SYSTEM: KAFKA, OPERATION: RECEIVE, DESTINATION: topic})
            span.set_attributes({PARTITION: str(partition), OFFSET: offset})


def tracing_of(environment: Mapping[str, str] = os.environ) -> Tracing:
    """As the environment asks for. ImportError if it does, but OpenTelemetry is not installed."""
    if not any(environment.get(name) for name in ENDPOINTS):
        return Tracing()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME") or SERVICE})
    provider = TracerProvider(resource=resource)
    # Spans are sent by a thread of its own; what cannot be sent is dropped.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider.get_tracer("runnel.gateway"))


class Traced:
    """Middleware: a span for each request, named by its route."""

    def __init__(self, app: "ASGIApp", tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if not self._tracing.is_on or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracing.server(scope["method"], headers) as span:

            async def send_noted(message: "Message") -> None:
                if message["type"] == "http.response.start":
                    route = route_of(scope)
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attributes({ROUTE: route, STATUS: message["status"]})
                await send(message)

            await self._app(scope, receive, send_noted)


def route_of(scope: "Scope") -> str:
    """The path without its parameters, so that there are few of them; an unknown path is not recorded."""
    if "endpoint" not in scope:
        return "unknown"
    path = str(scope["path"])
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(f"/{value}", f"/{{{name}}}", 1)
    return path
