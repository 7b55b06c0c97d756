"""A broker with SASL and ACLs, and its users."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from runnel.testing import Broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORDS = {"admin": "admin-of-a-test", "anna": "anna-of-a-test"}


@contextmanager
def secured_broker(more: Mapping[str, str] | None = None, *, admin: bool = False) -> Iterator[Broker]:
    """A broker on which `admin` may do everything, and has created a topic `secret`."""
    users = " ".join(f'user_{name}="{word}"' for name, word in PASSWORDS.items())
    own = f'username="admin" password="{PASSWORDS["admin"]}"'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required {own} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        **(more or {}),
    }
    with Broker(settings, security_protocol="SASL_PLAINTEXT", admin=admin) as broker:
        with broker.client(properties=properties("admin")) as client:
            client.create_topic("secret", partitions=1)
        yield broker


def properties(user: str) -> dict[str, str]:
    """The client properties of a user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
