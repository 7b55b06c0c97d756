"""Gateways in a thread of the test, and requests to them."""

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from runnel.gateway.app import Gateway
from runnel.gateway.options import GatewayOptions
from runnel.gateway.process import WebServer, open_socket
from runnel.gateway.tracing import Tracing


@dataclass
class Reply:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Visitor:
    """Sends requests as a browser does."""

    host: str
    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: str | None = None,
    ) -> Reply:
        sent: dict[str, str | None] = {"Host": f"{self.host}:{self.port}", "Accept": "text/html"}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if form is not None:
            body = urlencode(form)
            sent |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        sent |= headers or {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body.encode())))
            connection.endheaders(None if body is None else body.encode())
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            self._keep(received.get("set-cookie"))
            return Reply(response.status, received, response.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Reply:
        return self.request("GET", path, headers={name.replace("_", "-"): headers[name] for name in headers})

    def content(self, path: str) -> Reply:
        """The content of a page, as htmx asks for it."""
        return self.get(path, HX_Request="true")

    def post(self, path: str, **form: str) -> Reply:
        return self.request("POST", path, form, {"HX-Request": "true"})

    def _keep(self, cookie: str | None) -> None:
        if cookie is not None:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value


@contextmanager
def serving(options: GatewayOptions, tracing: Tracing | None = None) -> Iterator[Visitor]:
    """A gateway on a free port."""
    listening = open_socket("127.0.0.1", 0)
    host, port = listening.getsockname()
    ready = threading.Event()
    found: dict[str, object] = {}

    async def serve() -> None:
        server = WebServer(Gateway(options, tracing), listening)
        loop = asyncio.get_running_loop()
        found["stop"] = lambda: loop.call_soon_threadsafe(server.stop)
        waiting = asyncio.create_task(server.ready.wait())
        waiting.add_done_callback(lambda _: ready.set())
        await server.run()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="gateway")
    thread.start()
    try:
        assert ready.wait(20)
        yield Visitor(host, port)
    finally:
        found["stop"]()  # type: ignore[operator]
        thread.join(20)
        assert not thread.is_alive()
