"""The keys of an identity provider (JWKS), read from a file or a URL in a thread, and read again."""

import asyncio
import logging
import urllib.request
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from runnel.security.oauthbearer_server import JwtValidator, UnusableKeys
from runnel.server.layers import BadSettings
from runnel.server.sasl_settings import OAuthSettings

FETCH_SECONDS_MAX = 10
JWKS_BYTES_MAX = 1024 * 1024
REFRESH_SECONDS_MIN = 60
"""Tokens with unknown keys cause at most one read in this time: clients choose what they send."""

log = logging.getLogger("runnel.server")


class Jwks:
    """Keeps the keys of a validator up to date."""

    def __init__(self, settings: OAuthSettings) -> None:
        self._url = settings.jwks_url
        self._refresh_seconds = settings.refresh_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.validator = JwtValidator(settings.rules, self._unknown_key)

    async def start(self) -> None:
        """Read the keys. Raises BadSettings: without keys no token could be verified."""
        try:
            await self._read()
        except (OSError, UnusableKeys, ValueError) as error:
            raise BadSettings(f"sasl.oauthbearer.jwks.endpoint.url cannot be used: {error}") from None
        self._task = self._loop.create_task(self._refresh())

    async def close(self) -> None:
        """Stop reading keys."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _unknown_key(self) -> None:
        """From the thread that validates tokens."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._is_wanted.set)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(min(REFRESH_SECONDS_MIN, self._refresh_seconds))
            with suppress(TimeoutError):
                rest_seconds = max(0.0, self._refresh_seconds - REFRESH_SECONDS_MIN)
                await asyncio.wait_for(self._is_wanted.wait(), rest_seconds)
            self._is_wanted.clear()
            try:
                await self._read()
            except (OSError, UnusableKeys, ValueError) as error:
                log.warning(
                    "the keys of OAUTHBEARER could not be refreshed, the previous ones stay in use: %s", error
                )

    async def _read(self) -> None:
        self.validator.set_keys(await asyncio.to_thread(_fetched, self._url))


def _fetched(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return file.read(JWKS_BYTES_MAX)
    opener = urllib.request.build_opener(_NoRedirect())
    with opener.open(url, timeout=FETCH_SECONDS_MAX) as response:
        body: bytes = response.read(JWKS_BYTES_MAX)
    return body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from the configured place only."""

    def redirect_request(self, *arguments: object, **options: object) -> None:
        return None
