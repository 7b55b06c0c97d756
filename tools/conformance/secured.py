"""A broker with TLS, SASL and an authorizer, and the properties of its clients."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import token_issuer
from tools.broker_process import BrokerProcess, free_port
from tools.certificates import CaFolder, KeyFiles
from tools.cluster.nodes import RUNNEL, new_cluster_id
from tools.settings import STANDARD_AUTHORIZER, login_config, pem_stores, plain_users, write_properties

PROTOCOLS = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
ADMIN = "admin"
USERS = (ADMIN, "wordcount", "connect", "mirror-source", "mirror-target")
"""Each has a password of its own; all but the first may do what ACLs permit."""
CERTIFICATE_NAME = "client"


@dataclass(frozen=True, slots=True)
class Security:
    """How clients connect to a secured broker, and as whom."""

    ports: Mapping[str, int]
    """Security protocol → port."""
    ca: Path
    """The certificate that clients trust."""
    client: KeyFiles
    """Of a client with a certificate, which may do everything."""
    stranger: KeyFiles
    """Of a client whose certificate another CA has issued."""
    audit_log: Path

    def bootstrap(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def properties(self, user: str = ADMIN, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """What a client needs for SASL_SSL, by the names of Kafka's Java clients."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login_config(mechanism, user, password(user)),
        }

    def librdkafka(self) -> dict[str, str]:
        """The same for the first user, by the names of librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": SCRAM[1],
            "sasl.username": ADMIN,
            "sasl.password": password(ADMIN),
        }

    def environment(self) -> dict[str, str]:
        """The same for `runnel`, which reads a properties file."""
        path = self.ca.with_name("runnel.properties")
        write_properties(path, self.properties())
        return {"RUNNEL_BOOTSTRAP": self.bootstrap("SASL_SSL"), "RUNNEL_COMMAND_CONFIG": str(path)}


def password(user: str) -> str:
    return f"{user}-secret"


@contextmanager
def secured(folder: Path, settings: Mapping[str, str]) -> Iterator[Security]:
    """A new broker with a listener of every security protocol and every mechanism."""
    folder.mkdir(parents=True)
    ca = CaFolder(folder)
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    security = Security(
        ports,
        ca.certificate,
        ca.issue(CERTIFICATE_NAME),
        CaFolder(folder, "strangers").issue("stranger"),
        folder / "audit.jsonl",
    )
    own = ca.issue("broker", "127.0.0.1")
    keys = token_issuer.write_keys(folder / "keys.json")
    properties = {**_settings(security, own), **token_issuer.settings(keys), **settings}
    broker = _SecuredProcess(folder / "data", properties, ports["SASL_PLAINTEXT"])
    broker.format()
    with broker:
        yield security


class _SecuredProcess(BrokerProcess):
    """`runnel serve` with a properties file, formatted with the users."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], port: int) -> None:
        super().__init__(data_dir, {**settings, "log.dirs": str(data_dir)})
        # `answers` connects to it: a listener without TLS answers ApiVersions before authentication.
        self.port = port
        self.config = write_properties(data_dir.with_name("server.properties"), self.settings)

    def format(self) -> None:
        users = [
            option
            for user in USERS
            for mechanism in SCRAM
            for option in ("--add-scram", f"{mechanism}=[name={user},password={password(user)}]")
        ]
        cluster = ["--cluster-id", new_cluster_id(), "--config", str(self.config)]
        subprocess.run([RUNNEL, "storage", "format", *cluster, *users], check=True, capture_output=True)

    def command(self) -> list[str]:
        return [RUNNEL, "serve", "--config", str(self.config), "--http", "off"]


def _settings(security: Security, own: KeyFiles) -> dict[str, str]:
    sasl_ssl = "listener.name.sasl_ssl"
    return {
        "node.id": "1",
        "listeners": ",".join(f"{protocol}://{security.bootstrap(protocol)}" for protocol in PROTOCOLS),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": SCRAM[1],
        **pem_stores(own.pem, security.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(SCRAM),
        f"{sasl_ssl}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{sasl_ssl}.plain.sasl.jaas.config": plain_users({ADMIN: password(ADMIN)}),
        f"{sasl_ssl}.{SCRAM[1].lower()}.sasl.jaas.config": login_config(SCRAM[1], ADMIN, password(ADMIN)),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:CN={CERTIFICATE_NAME}",
        "delegation.token.secret.key": "the secret of tokens",
        "audit.log.file": str(security.audit_log),
        "audit.log.allowed": "all",
    }
