"""The client on TLS listeners of the broker itself, with certificates of clients and with SASL."""

import pytest

from runnel.client import AuthenticationFailed, TlsFailed
from runnel.testing import Broker
from tools.certificates import CaFolder

PASSWORD = "hunter2-of-a-test"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return CaFolder(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def settings(ca):
    server = ca.issue("server", "127.0.0.1")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server.pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.certificate,
    }


def pass_a_record(broker: Broker, properties: dict[str, str]) -> None:
    with broker.client(properties=properties) as client:
        client.create_topic("orders", partitions=1)
        # Large enough to be sent in several TLS records, and to leave the fast paths of small ones.
        values = [bytes([number]) * 300_000 for number in range(4)]
        client.send_all("orders", [(None, value) for value in values])
        assert [message.value for message in client.read("orders")] == values


def test_certificates_of_clients(ca, settings):
    identity = ca.issue("client")
    trust = {"security.protocol": "SSL", "ssl.ca.location": str(ca.certificate)}
    with Broker({**settings, "ssl.client.auth": "required"}, security_protocol="SSL") as broker:
        pass_a_record(broker, {**trust, "ssl.keystore.location": str(identity.pem)})
        with pytest.raises(TlsFailed, match=r"ssl\.keystore\.location"):
            broker.client(properties=trust)
        with pytest.raises(TlsFailed, match=r"ssl\.truststore\.location"):
            broker.client(properties={"security.protocol": "SSL"})


def test_sasl_over_tls(ca, settings):
    jaas = f'{MODULE} required username="alice" password="{PASSWORD}" user_alice="{PASSWORD}";'
    own = {
        **settings,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "security.inter.broker.protocol": "SASL_SSL",
    }
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    with Broker(own, security_protocol="SASL_SSL") as broker:
        pass_a_record(broker, given)
        with pytest.raises(AuthenticationFailed) as refused:
            broker.client(properties={**given, "sasl.password": f"x{PASSWORD}"})
        assert PASSWORD not in str(refused.value)
