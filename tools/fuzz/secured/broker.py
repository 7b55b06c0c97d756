"""A broker with TLS, SASL and an authorizer, as the target of mutated frames."""

import asyncio
import ssl
import time
from pathlib import Path
from random import Random

from runnel.client.sync import SyncClient
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.wire import Request
from runnel.wire.frame import request_frame
from tools import token_issuer
from tools.broker_process import BrokerProcess, free_port
from tools.certificates import CaFolder
from tools.fuzz.attack import RESPONSE_BYTES_MAX, Streams, read_response
from tools.fuzz.secured.exchanges import loopback_address
from tools.settings import pem_stores, plain_users

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret-of-the-fuzzer"
GUEST, GUEST_PASSWORD = "guest", "guest-secret-of-the-fuzzer"
SCRAM_USER, SCRAM_PASSWORD = "scram", "scram-secret-of-the-fuzzer"
CONNECT_TIMEOUT_S = 30.0


class SecuredBroker(BrokerProcess):
    """A node with the listeners SASL_SSL, SSL and CONTROLLER, the last one with SASL_SSL, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "data")
        self.ssl_port, self.controller_port = free_port(), free_port()
        ca = CaFolder(folder)
        self._node = ca.issue("node", "127.0.0.1", "localhost")
        self.ca = ca.certificate
        self._keys_url = token_issuer.write_keys(folder / "keys.json")
        self.settings = self._settings()
        self.client_tls = ssl.create_default_context(cafile=str(self.ca))
        self._addresses = Random(1)

    def _settings(self) -> dict[str, str]:
        users = plain_users({ADMIN: ADMIN_PASSWORD, GUEST: GUEST_PASSWORD}, login=ADMIN)
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": (
                f"SASL_SSL://127.0.0.1:{self.port},SSL://127.0.0.1:{self.ssl_port},"
                f"CONTROLLER://127.0.0.1:{self.controller_port}"
            ),
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SASL_SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "inter.broker.listener.name": "SASL_SSL",
            **pem_stores(self._node.pem, self.ca),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
            "listener.name.controller.plain.sasl.jaas.config": users,
            **token_issuer.settings(self._keys_url),
            "connection.failed.authentication.delay.ms": "0",
            "authorizer.class.name": "acl",
            "super.users": f"User:{ADMIN}",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }

    def __enter__(self) -> "SecuredBroker":
        self.start()
        return self

    def wait_until_answering(self, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            assert self.process is not None
            try:
                asyncio.run(self._is_served())
                return
            except (OSError, EOFError, TimeoutError) as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the broker does not serve clients:\n{self.log_tail()}") from error
                time.sleep(0.05)

    async def _is_served(self) -> None:
        _, writer = await self.as_admin()
        writer.transport.abort()

    def admin(self) -> SyncClient:
        """A client that may do everything."""
        return SyncClient(self.bootstrap, properties=self._admin_properties())

    def admin_config(self) -> dict[str, str | int]:
        """The same for librdkafka."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **self._admin_properties()}

    def _admin_properties(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": ADMIN_PASSWORD,
        }

    def jwt(self) -> str:
        """A token that is valid for the whole run."""
        return token_issuer.token(subject="oauth", lifetime_s=86_400)

    # -- connections

    async def connect(self, port: int) -> Streams:
        """A TLS connection, from another address each time."""
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await asyncio.open_connection(
                "127.0.0.1",
                port,
                limit=RESPONSE_BYTES_MAX,
                ssl=self.client_tls,
                server_hostname="localhost",
                local_addr=loopback_address(self._addresses),
            )

    async def as_admin(self) -> Streams:
        """An authenticated connection that may do everything."""
        return await self._authenticated(self.port, ADMIN, ADMIN_PASSWORD)

    async def as_guest(self) -> Streams:
        """An authenticated connection without permissions."""
        return await self._authenticated(self.port, GUEST, GUEST_PASSWORD)

    async def as_guest_at_controller(self) -> Streams:
        """The same, on the listener for nodes."""
        return await self._authenticated(self.controller_port, GUEST, GUEST_PASSWORD)

    async def as_anonymous(self) -> Streams:
        """A connection of the SSL listener, without a certificate."""
        return await self.connect(self.ssl_port)

    async def _authenticated(self, port: int, user: str, password: str) -> Streams:
        reader, writer = await self.connect(port)
        writer.write(frame(SaslHandshakeRequest("PLAIN"), 1))
        writer.write(frame(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 1))
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            for _ in range(2):
                response = await read_response(reader)
                if response[4:6] != b"\0\0":
                    raise ConnectionError(f"{user} was refused")
        return reader, writer


def frame(request: Request, version: int) -> bytes:
    """A whole frame."""
    return b"".join(bytes(part) for part in request_frame(request, version, 7, "fuzzer"))
