"""The certificate of HTTPS, which is reloaded when its files change. Open connections keep theirs."""

import asyncio
import logging
import os
import ssl
from pathlib import Path

CHECK_S = 3.0
"""How often the files are checked for changes, as by brokers."""

log = logging.getLogger("runnel.gateway")

Stamp = tuple[int, int, int] | None
"""What changes when a file does; None if it cannot be read."""


class Certificate:
    """A certificate and its key, in PEM files."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Raises an error unless both can be read, and fit together."""
        self._certificate, self._key = certificate, key
        self._stamps = self._read_stamps()
        self._current = self._load()

    def install(self, listening: ssl.SSLContext) -> None:
        """Handshakes of this context use the certificate that is loaded at the time."""
        listening.sni_callback = self._choose

    async def watch(self) -> None:
        """Reload the files when they change, until cancelled; invalid files change nothing."""
        while True:
            await asyncio.sleep(CHECK_S)
            stamps = await asyncio.to_thread(self._read_stamps)
            if stamps == self._stamps:
                continue
            self._stamps = stamps
            try:
                self._current = await asyncio.to_thread(self._load)
            except (OSError, ssl.SSLError) as error:
                # Perhaps only one of the files is written yet.
                log.error("the certificate of HTTPS was not changed: %s", error)
            else:
                log.info("the certificate of HTTPS was reloaded")

    def _choose(self, connection: ssl.SSLObject, name: str | None, listening: ssl.SSLContext) -> None:
        """Called in each handshake, with or without the name of a host."""
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        return context

    def _read_stamps(self) -> list[Stamp]:
        return [_stamp(path) for path in (self._certificate, self._key) if path is not None]


def _stamp(path: Path) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
