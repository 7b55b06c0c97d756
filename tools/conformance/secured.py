"""A broker with TLS, SASL and an authorizer, and the properties of its clients."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority, Identity
from tests.security import issuer
from tools.broker_process import BrokerProcess, free_port
from tools.cluster.nodes import RUNNEL, new_cluster_id

PROTOCOLS = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
ADMIN = "admin"
USERS = (ADMIN, "wordcount", "connect", "mirror-source", "mirror-target")
"""Each has a password of its own; all but the first may do what ACLs permit."""
CERTIFICATE_NAME = "client"
_LOGIN = "org.apache.kafka.common.security"
SCRAM_LOGIN = f"{_LOGIN}.scram.ScramLoginModule required"


@dataclass(frozen=True, slots=True)
class Security:
    """How clients connect to a secured broker, and as whom."""

    ports: Mapping[str, int]
    """Security protocol → port."""
    authority: Path
    """The certificate that clients trust."""
    client: Identity
    """Of a client with a certificate, which may do everything."""
    stranger: Identity
    """Of a client whose certificate another authority has signed."""
    audit_log: Path

    def bootstrap(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def properties(self, user: str = ADMIN, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """What a client needs for SASL_SSL, by the names of Kafka's Java clients."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": _login(user, mechanism),
        }

    def librdkafka(self) -> dict[str, str]:
        """The same for the first user, by the names of librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": SCRAM[1],
            "sasl.username": ADMIN,
            "sasl.password": password(ADMIN),
        }

    def environment(self) -> dict[str, str]:
        """The same for `runnel`, which reads a properties file."""
        path = self.authority.with_name("runnel.properties")
        write_properties(path, self.properties())
        return {"RUNNEL_BOOTSTRAP": self.bootstrap("SASL_SSL"), "RUNNEL_COMMAND_CONFIG": str(path)}


def password(user: str) -> str:
    return f"{user}-secret"


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


@contextmanager
def secured(folder: Path, settings: Mapping[str, str]) -> Iterator[Security]:
    """A new broker with a listener of every security protocol and every mechanism."""
    folder.mkdir(parents=True)
    authority = Authority(folder)
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    security = Security(
        ports,
        authority.certificate,
        authority.sign(CERTIFICATE_NAME),
        Authority(folder, "strangers").sign("stranger"),
        folder / "audit.jsonl",
    )
    own = authority.sign("broker", "127.0.0.1")
    keys = issuer.write_keys(folder / "keys.json")
    properties = {**_settings(security, own), **issuer.settings(keys), **settings}
    broker = _SecuredProcess(folder / "data", properties, ports["SASL_PLAINTEXT"])
    broker.format()
    with broker:
        yield security


class _SecuredProcess(BrokerProcess):
    """`runnel serve` with a properties file, formatted with the users."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], port: int) -> None:
        super().__init__(data_dir, {**settings, "log.dirs": str(data_dir)})
        # The one that is asked whether it has started: before SASL, it answers ApiVersions to everyone.
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
        return [RUNNEL, "serve", "--config", str(self.config)]


def _settings(security: Security, own: Identity) -> dict[str, str]:
    sasl_ssl = "listener.name.sasl_ssl"
    return {
        "node.id": "1",
        "listeners": ",".join(f"{protocol}://{security.bootstrap(protocol)}" for protocol in PROTOCOLS),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": SCRAM[1],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.authority),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(SCRAM),
        f"{sasl_ssl}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{sasl_ssl}.plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_{ADMIN}="{password(ADMIN)}";'
        ),
        f"{sasl_ssl}.{SCRAM[1].lower()}.sasl.jaas.config": _login(ADMIN, SCRAM[1]),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:CN={CERTIFICATE_NAME}",
        "delegation.token.secret.key": "the secret of tokens",
        "audit.log.file": str(security.audit_log),
        "audit.log.allowed": "all",
    }


def _login(user: str, mechanism: str) -> str:
    """The JAAS line of a client."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{_LOGIN}.{module} required username="{user}" password="{password(user)}";'
