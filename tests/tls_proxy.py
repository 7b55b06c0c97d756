"""A broker behind TLS: a proxy that terminates TLS, and a broker that advertises the proxy's address."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from runnel.client.loop_thread import LoopThread
from runnel.testing import Broker
from tools.certificates import CaFolder, KeyFiles

HOST = "127.0.0.1"


class TlsProxy:
    """Accepts TLS on a free port and forwards the clear bytes to another; use as `with`."""

    def __init__(self, identity: KeyFiles, ca: CaFolder, *, asks_for_certificates: bool = False) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(identity.certificate, identity.key)
        if asks_for_certificates:
            self.context.load_verify_locations(ca.certificate)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.target_port = 0
        self.port = 0
        self._thread = LoopThread("tls proxy")
        self._server: asyncio.Server | None = None

    def __enter__(self) -> "TlsProxy":
        self._thread.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.call(self._stop())
        self._thread.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(HOST, self.target_port)
        await asyncio.gather(_pipe(reader, back), _pipe(onward, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


@contextmanager
def broker_behind(proxy: TlsProxy) -> Iterator[Broker]:
    """A broker whose clients connect through the proxy."""
    with proxy, Broker({"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"}) as broker:
        proxy.target_port = broker.port
        yield broker
