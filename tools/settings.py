"""Settings of secured brokers and their clients, by Kafka's names, and properties files."""

from collections.abc import Iterable, Mapping
from pathlib import Path

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LOGIN_MODULES = "org.apache.kafka.common.security"
PLAIN_LOGIN = f"{_LOGIN_MODULES}.plain.PlainLoginModule required"
SCRAM_LOGIN = f"{_LOGIN_MODULES}.scram.ScramLoginModule required"


def pem_stores(key_store: Path, trust_store: Path | None = None) -> dict[str, str]:
    """Key store and trust store of a node."""
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    if trust_store is not None:
        stores |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust_store)}
    return stores


def login_config(mechanism: str, user: str, password: str) -> str:
    """The value of `sasl.jaas.config` with which a client authenticates."""
    module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
    return f'{module} username="{user}" password="{password}";'


def plain_users(users: Mapping[str, str], login: str | None = None) -> str:
    """The value of `sasl.jaas.config` of a listener: user → password, and the user that a node itself is."""
    options = [f'user_{name}="{password}"' for name, password in users.items()]
    if login is not None:
        options.append(f'username="{login}" password="{users[login]}"')
    return f"{PLAIN_LOGIN} {' '.join(options)};"


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a file that `--config` and `--command-config` read."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def read_properties(path: Path | None) -> dict[str, str]:
    """What `write_properties` wrote; nothing without a file."""
    lines: Iterable[str] = [] if path is None else path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)
