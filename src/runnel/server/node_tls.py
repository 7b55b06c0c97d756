"""The TLS of a node: what its listeners and its connections to other nodes use, and its reload at run time.

    start            any mistake in a setting or file prevents it
    reload           on SIGHUP, when a dynamic config or a file changes; a mistake is logged, changes nothing
    dynamic config   is validated before it is stored, by the broker that it is for

Open connections keep what they have. Files are read and keys are loaded in threads.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runnel.controller.config_broker import LISTENER_PREFIX, own_name_of
from runnel.controller.settings import Settings
from runnel.model.security_protocol import SecurityProtocol
from runnel.security.distinguished_name import rfc2253
from runnel.security.principal_mapping import BadRules, PrincipalMapping
from runnel.security.x509 import Certificate
from runnel.server.layers import BadSettings
from runnel.server.roles import Roles
from runnel.tls.context import check_pair, client_context, server_context
from runnel.tls.material import load_material
from runnel.tls.server import ServerTls
from runnel.tls.settings import BadTls, ClientAuth, TlsSettings

CHECK_SECONDS = 3
"""How often files are checked for changes."""

SSL_PREFIX = "ssl."

log = logging.getLogger("runnel.server")

Stamp = tuple[int, int, int] | None
"""What changes when a file does; None if it cannot be read."""


@dataclass(frozen=True, slots=True, repr=False)
class _Made:
    """The result of the TLS settings of one listener."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext | None
    certificate: Certificate | None


class NodeTls:
    """The TLS of all listeners of a node that use it."""

    def __init__(self, roles: Roles, settings: Settings) -> None:
        self._roles = roles
        self._settings = settings
        self._made: dict[str, _Made] = {}
        self._stamps: dict[str, Stamp] = {}
        self._reloading = asyncio.Lock()
        self.servers: dict[str, ServerTls] = {}
        """By listener."""

    def load(self) -> None:
        """Load everything for the first time. Raises BadSettings."""
        for name, protocol in self._roles.protocols.items():
            if not protocol.uses_tls:
                continue
            try:
                made = self._make(name, self._settings)
                mapping = PrincipalMapping(
                    str(self._settings.of_listener(name, "ssl.principal.mapping.rules"))
                )
            except BadTls as error:
                raise BadSettings(f"TLS of the listener {name}: {error}") from error
            except BadRules as error:
                raise BadSettings(f"ssl.principal.mapping.rules of the listener {name}: {error}") from error
            self._made[name] = made
            if made.server is not None:
                names_principal = protocol is SecurityProtocol.SSL
                self.servers[name] = ServerTls(made.server, mapping, names_principal=names_principal)
        self._stamps = self._read_stamps()

    @property
    def expiries(self) -> dict[str, int]:
        """When the certificates of listeners expire, in seconds since 1970."""
        return {
            name: made.certificate.not_after_s
            for name, made in self._made.items()
            if made.certificate is not None and made.server is not None
        }

    def client(self, listener: str) -> Callable[[], ssl.SSLContext] | None:
        """The current context of connections to this listener of other nodes; None if it is without TLS."""
        if listener not in self._made or self._made[listener].client is None:
            return None

        def current() -> ssl.SSLContext:
            context = self._made[listener].client
            assert context is not None
            return context

        return current

    async def reload(self) -> None:
        """Load everything again; what fails stays as it is."""
        async with self._reloading:
            self._stamps = await asyncio.to_thread(self._read_stamps)
            for name in list(self._made):
                try:
                    made = await asyncio.to_thread(self._remake, name, self._settings)
                except BadTls as error:
                    log.error("TLS of the listener %s was not changed: %s", name, error)
                    continue
                except Exception:
                    # One failure must not end all later rotations.
                    log.exception("TLS of the listener %s was not changed", name)
                    continue
                self._made[name] = made
                if made.server is not None:
                    self.servers[name].context = made.server
                log.info("TLS of the listener %s was reloaded", name)

    async def watch(self) -> None:
        """Reload when a file changes, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if await asyncio.to_thread(self._read_stamps) != self._stamps:
                await self.reload()

    async def refusal(self, changes: Mapping[str, str | None]) -> str | None:
        """Why these changes of dynamic configs cannot be applied; None if they can."""
        return await asyncio.to_thread(self._refusal, changes)

    def concerns(self, names: frozenset[str]) -> bool:
        """Whether a change of these configs may change TLS."""
        return any(own_name_of(name).startswith(SSL_PREFIX) for name in names)

    def _refusal(self, changes: Mapping[str, str | None]) -> str | None:
        of_listeners = {f"{LISTENER_PREFIX}{name.lower()}.{SSL_PREFIX}": name for name in self._made}
        # A client can name any number of listeners and of configs that are not of TLS.
        own = {config: value for config, value in changes.items() if config.startswith(tuple(of_listeners))}
        changed = self._settings.changed(own)
        for prefix, name in of_listeners.items():
            if any(config.startswith(prefix) for config in own):
                try:
                    self._remake(name, changed)
                except BadTls as error:
                    return f"TLS of the listener {name}: {error}"
        return None

    def _remake(self, listener: str, settings: Settings) -> _Made:
        made, old = self._make(listener, settings), self._made[listener].certificate
        new = made.certificate
        if old is None or new is None:
            if old is not new:
                raise BadTls("a key store can neither be added nor removed while the node runs")
            return made
        if old.subject != new.subject and not settings.of_listener(listener, "ssl.allow.dn.changes"):
            raise BadTls(
                f"ssl.keystore has the distinguished name {rfc2253(new.subject)!r} instead of "
                f"{rfc2253(old.subject)!r}, which needs ssl.allow.dn.changes"
            )
        is_smaller = not old.alternative_names <= new.alternative_names
        if is_smaller and not settings.of_listener(listener, "ssl.allow.san.changes"):
            raise BadTls(
                "ssl.keystore lacks alternative names of the certificate that is in use, which needs "
                "ssl.allow.san.changes"
            )
        return made

    def _make(self, listener: str, settings: Settings) -> _Made:
        """Raises BadTls."""
        roles = self._roles
        own = tls_settings(self._roles, settings, listener)
        material = load_material(own, time.time())
        server = client = None
        if any(address.name == listener for address in roles.listeners):
            server = server_context(own, material)
        if listener in (roles.inter_broker_listener, *roles.controller_listener_names):
            client = client_context(own, material)
        if server is not None and client is not None and not roles.is_alone:
            check_pair(server, client)
        return _Made(server, client, material.chain[0] if material.chain else None)

    def _read_stamps(self) -> dict[str, Stamp]:
        files = {
            path for name in self._made for path in tls_settings(self._roles, self._settings, name).files
        }
        return {path: _stamp(path) for path in sorted(files)}


def tls_settings(roles: Roles, settings: Settings, listener: str) -> TlsSettings:
    """The settings of TLS that apply to a listener."""

    def value_of(name: str) -> object:
        has_sasl = roles.protocols[listener].uses_sasl
        if name == "ssl.client.auth" and has_sasl and not settings.is_set_for(listener, name):
            # As in Kafka: clients of SASL need no certificate, unless the listener requires it.
            return ClientAuth.NONE.value
        return settings.of_listener(listener, name)

    return TlsSettings.read(value_of)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
