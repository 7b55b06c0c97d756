"""A broker that restarts at an exact request: before it receives the request, or before it is answered."""

import asyncio
import threading
from typing import Any

import pytest

from runnel.client.connection import Connection
from runnel.client.errors import ConnectionLost
from runnel.testing import Broker


class Outage:
    """Counts the requests of this process; at the chosen one the broker stops, and starts again by itself."""

    def __init__(self, broker: Broker, at_request: int, *, is_answer_lost: bool) -> None:
        self.requests = 0
        self._broker = broker
        self._at_request = at_request
        self._is_answer_lost = is_answer_lost
        self._restart: threading.Thread | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real = Connection.send

        async def send(connection: Connection, *arguments: Any, **options: Any) -> Any:
            self.requests += 1
            if self.requests != self._at_request:
                return await real(connection, *arguments, **options)
            if self._is_answer_lost:
                await real(connection, *arguments, **options)
            await asyncio.to_thread(self._broker.stop)
            self._restart = threading.Thread(target=self._broker.start)
            self._restart.start()
            if self._is_answer_lost:
                raise ConnectionLost("the answer was lost")
            return await real(connection, *arguments, **options)

        patch.setattr(Connection, "send", send)

    def end(self) -> None:
        """Wait until the broker is back; it must have been away."""
        assert self._restart is not None, f"there was no request {self._at_request}"
        self._restart.join()
