"""Local servers for tests: metrics of a broker, a webhook, and a mail server that keeps what it receives."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"


@dataclass
class Webhook:
    """What was posted; answers with `status`."""

    port: int = 0
    status: int = 200
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    @property
    def statuses(self) -> list[str]:
        """Of all notifications that were accepted."""
        return [body["status"] for body in self.bodies]

    def wait_for(self, count: int, timeout_s: float = 30) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, timeout_s), self.statuses


@dataclass
class Metrics:
    """The text of /metrics; None: the server fails."""

    port: int = 0
    text: str | None = ""
    scrapes: int = 0


@contextmanager
def webhook() -> Iterator[Webhook]:
    state = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = state.status
            # Before the answer: who has it may look at once.
            if status == 200:
                with state.arrived:
                    state.requests.append((self.path, dict(self.headers), body))
                    state.arrived.notify_all()
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.send_header("Location", f"http://{HOST}:1/")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with _serving(Handler) as state.port:
        yield state


@contextmanager
def metrics() -> Iterator[Metrics]:
    state = Metrics()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.scrapes += 1
            body = (state.text or "").encode()
            self.send_response(503 if state.text is None else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # An evaluator that is killed does not read the answer.
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with _serving(Handler) as state.port:
        yield state


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class MailServer:
    """Speaks as much SMTP as a client needs to deliver a message."""

    def __init__(self, *, password: str | None = None) -> None:
        self.password = password
        """The base64 of AUTH PLAIN that is accepted."""
        self.messages: list[tuple[list[str], str]] = []
        """Recipients and content."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        say("220 test")
        recipients: list[str] = []
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            if verb == "EHLO":
                say("250-test\r\n250 AUTH PLAIN" if self.password else "250 test")
            elif verb == "AUTH":
                say("235 ok" if line.split()[2] == self.password else "535 wrong password")
            elif verb == "RCPT":
                recipients.append(line.partition(":")[2].strip("<> "))
                say("250 ok")
            elif verb == "DATA":
                say("354 go on")
                content = []
                while (text := (await reader.readline()).decode().rstrip("\r\n")) != ".":
                    content.append(text)
                self.messages.append((recipients, "\n".join(content)))
                say("250 ok")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 ok")
        writer.close()


@contextmanager
def mail_server(*, password: str | None = None) -> Iterator[tuple[MailServer, int]]:
    """A mail server in a thread, and its port."""
    mail = MailServer(password=password)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(mail.serve, HOST, 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield mail, server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
