"""A pipeline whose gates record what they are asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from runnel.broker.apis import handlers
from runnel.broker.apis.handlers import BROKER_APIS
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.gates import AllowAll, Gates, Uncounted, Unlimited
from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.registry import api
from runnel.ports.gates import Operation, Permission, ResourceType
from runnel.ports.service import Reply, Session
from runnel.wire import Request, decode
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame


class Recorder(AllowAll, Unlimited, Uncounted):
    """All four gates, which allow or deny everything, and the order in which a request met them."""

    def __init__(self, *, denies: bool = False, throttle_ms: int = 0) -> None:
        self.version = 1
        self.denies = denies
        self.delay_ms = throttle_ms
        self.met: list[str] = []
        self.accounts: list[tuple[int, int, int, int, int]] = []

    def check(self, session: Session, api_key: int) -> None:
        self.met.append("authenticate")

    def allows_all(self, session: Session) -> bool:
        self.met.append("authorize")
        return not self.denies

    def allows(self, session: Session, permission: Permission) -> bool:
        return not self.denies

    def allows_some(
        self, session: Session, operation: Operation, resource_type: ResourceType
    ) -> Iterator[bool | None]:
        return iter((not self.denies,))

    def limits(self, session: Session) -> bool:
        return self.delay_ms > 0

    def throttle_ms(self, session: Session, api_key: int, request_bytes: int, *, is_exempt: bool) -> int:
        self.met.append("throttle")
        return self.delay_ms

    def account(
        self,
        session: Session,
        api_key: int,
        api_version: int,
        request_count: int,
        request_bytes: int,
        response_bytes: int,
        began: float,
    ) -> None:
        self.met.append("account")
        self.accounts.append((api_key, api_version, request_count, request_bytes, response_bytes))


class Gated:
    """A pipeline with recording gates, and handlers that only note that they were called."""

    def __init__(self, world: Any, monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
        self.recorder = recorder
        world.broker.gates = Gates(recorder, recorder, recorder, recorder)
        world.broker.controller_listeners = frozenset({"CONTROLLER"})
        self.pipeline = Pipeline(world.broker)
        self.session = Session("host", 1, "PLAINTEXT", 1)
        self.handled: list[Request] = []
        self._monkeypatch = monkeypatch

    def replace(self, api_key: int, handle: Any = None) -> None:
        """Let the handler do this instead; by default it returns an empty response."""

        def handler(request: Request, ctx: Context) -> Any:
            # The broker itself sends heartbeats meanwhile.
            if ctx.session is self.session:
                self.recorder.met.append("handle")
                self.handled.append(request)
            return api(api_key).response() if handle is None else handle()

        handlers.handler_of(api_key)
        self._monkeypatch.setitem(handlers._registered, api_key, handler)

    def serve(self, *requests: tuple[Request, int]) -> list[Reply]:
        """The outcome of requests that arrive together, at a listener that serves the first of them."""
        self.session.listener = "PLAINTEXT" if requests[0][0].api_key in BROKER_APIS else "CONTROLLER"
        buffer = b"".join(
            b"".join(request_frame(request, version, number, "client"))
            for number, (request, version) in enumerate(requests)
        )
        view = memoryview(bytearray(buffer))
        replies: list[Reply] = []
        position = 0
        try:
            while position < len(view):
                after = position + 4 + int.from_bytes(view[position : position + 4])
                position = self.pipeline.serve(
                    view, position + 4, after, len(view), self.session, replies, 512
                )
        finally:
            self.pipeline.finish_turn()
        return replies

    def ask(self, request: Request, version: int) -> Any:
        (reply,) = self.serve((request, version))
        return self.decoded(request, version, reply)

    def decoded(self, request: Request, version: int, reply: Reply) -> Any:
        response = api(request.api_key).response
        frame = memoryview(b"".join(reply.parts))[4:]  # type: ignore[arg-type]
        _, position = read_response_header(frame, has_flexible_header(response, version))
        return decode(response, version, frame, position)
