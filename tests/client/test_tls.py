"""TLS: every form of keys and certificates, and errors that name the property to look at."""

import ssl
from pathlib import Path

import pytest

from runnel.client.errors import ClientError, ConnectionLost, InvalidProperty, NoBrokerAvailable, TlsFailed
from runnel.client.properties import ClientProperties
from runnel.client.security import security_of
from runnel.client.sync import SyncClient
from runnel.client.tls import new_context
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.pipelines.source.connection import BlockingConnection
from runnel.testing import Broker
from tests.tls_proxy import TlsProxy, broker_behind
from tools.certificates import KEY_PASSWORD, CaFolder


@pytest.fixture(scope="module")
def ca(tmp_path_factory) -> CaFolder:
    return CaFolder(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def proxy(ca):
    """A broker behind TLS with client certificates."""
    proxy = TlsProxy(ca.issue("server", "127.0.0.1", "localhost"), ca, asks_for_certificates=True)
    with broker_behind(proxy):
        yield proxy


@pytest.fixture(scope="module")
def client(ca):
    return ca.issue("client")


def topics_of(port: int, properties: dict[str, str], host: str = "127.0.0.1") -> int:
    given = {"security.protocol": "SSL", **properties}
    with SyncClient(f"{host}:{port}", timeout_s=10, properties=given) as connected:
        return len(connected.run(lambda cluster: cluster.topics()))


def forms(ca: CaFolder, client) -> dict[str, dict[str, str]]:
    def one_line(path: Path) -> str:
        return path.read_text().replace("\n", " ")

    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca.certificate)}
    return {
        "pem": {**trust, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(client.pem)},
        "pkcs12": {
            "ssl.truststore.location": str(client.pkcs12),
            "ssl.truststore.password": KEY_PASSWORD,
            "ssl.keystore.location": str(client.pkcs12),
            "ssl.keystore.password": KEY_PASSWORD,
        },
        "librdkafka": {
            "ssl.ca.location": str(ca.certificate),
            "ssl.certificate.location": str(client.certificate),
            "ssl.key.location": str(client.encrypted_key),
            "ssl.key.password": KEY_PASSWORD,
        },
        "inline": {
            "ssl.truststore.certificates": one_line(ca.certificate),
            "ssl.keystore.key": one_line(client.encrypted_key),
            "ssl.keystore.certificate.chain": one_line(client.certificate),
            "ssl.key.password": KEY_PASSWORD,
        },
        "references": {
            "ssl.ca.pem": f"${{file:{ca.certificate}}}",
            "ssl.key.pem": f"${{file:{client.key}}}",
            "ssl.certificate.pem": f"${{file:{client.certificate}}}",
        },
    }


@pytest.mark.parametrize("form", ["pem", "pkcs12", "librdkafka", "inline", "references"])
def test_keys_and_certificates(proxy, ca, client, form):
    assert topics_of(proxy.port, forms(ca, client)[form]) == 0


def test_a_task_of_spark_connects_in_the_same_way(proxy, ca, client):
    security = security_of({"security.protocol": "SSL", **forms(ca, client)["pem"]})
    connection = BlockingConnection("127.0.0.1", proxy.port, client_id="t", timeout_s=10, security=security)
    with connection:
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert answer.brokers[0].port == proxy.port


def test_a_trusted_folder_and_the_versions_of_tls(ca, client, proxy):
    properties = {**forms(ca, client)["pem"], "ssl.enabled.protocols": "TLSv1.2"}
    context = new_context(ClientProperties(properties))
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_2,
    )
    assert topics_of(proxy.port, properties) == 0
    with pytest.raises(TlsFailed, match="certificate"):
        topics_of(proxy.port, {**properties, "ssl.truststore.location": str(ca.folder)})


def both_ways(port: int, properties: dict[str, str], host: str = "127.0.0.1") -> list[ClientError]:
    """The errors of the client of the command line and of that of Spark's tasks."""
    errors: list[ClientError] = []
    with pytest.raises(ClientError) as refused:
        topics_of(port, properties, host)
    errors.append(refused.value)
    with pytest.raises(ClientError) as refused:
        security = security_of({"security.protocol": "SSL", **properties})
        connection = BlockingConnection(host, port, client_id="t", timeout_s=10, security=security)
        with connection:
            connection.ask(MetadataRequest(topics=[]), MetadataResponse)
    return [*errors, refused.value]


def test_an_unknown_ca(proxy, client, tmp_path):
    stranger = CaFolder(tmp_path, "stranger")
    for error in both_ways(proxy.port, {"ssl.ca.location": str(stranger.certificate)}):
        assert isinstance(error, TlsFailed) and not error.retriable
        assert "was not verified" in str(error) and "ssl.truststore.location" in str(error)


def test_another_host_name(proxy, ca, client):
    pem = forms(ca, client)["pem"]
    # All of 127.0.0.0/8 is this machine.
    for error in both_ways(proxy.port, pem, "127.0.0.2"):
        assert isinstance(error, TlsFailed)
        assert "is not for '127.0.0.2'" in str(error)
        assert "ssl.endpoint.identification.algorithm" in str(error)


def test_no_certificate_of_the_client(proxy, ca):
    for error in both_ways(proxy.port, {"ssl.ca.location": str(ca.certificate)}):
        # A server may close the connection without saying why.
        assert isinstance(error, TlsFailed | ConnectionLost) and "ssl.keystore.location" in str(error)


def test_tls_to_a_listener_without(runnel_session: Broker, ca):
    for error in both_ways(runnel_session.port, {"ssl.ca.location": str(ca.certificate)}):
        assert isinstance(error, (TlsFailed, NoBrokerAvailable)) and "security.protocol" in str(error)


def test_clear_text_to_a_tls_listener(proxy):
    with pytest.raises(ClientError, match=r"security\.protocol"):
        SyncClient(f"127.0.0.1:{proxy.port}", timeout_s=5).close()


def test_an_expired_certificate(ca):
    identity = ca.issue("expired", "127.0.0.1", is_expired=True)
    with TlsProxy(identity, ca) as proxy:
        for error in both_ways(proxy.port, {"ssl.ca.location": str(ca.certificate)}):
            assert "certificate has expired" in str(error)


def test_checks_can_be_switched_off(ca, tmp_path):
    identity = CaFolder(tmp_path, "unknown").issue("elsewhere", "elsewhere.example")
    proxy = TlsProxy(identity, ca)
    with broker_behind(proxy):
        with pytest.raises(TlsFailed):
            topics_of(proxy.port, {"ssl.ca.location": str(tmp_path / "unknown.crt")})
        without_name = {
            "ssl.ca.location": str(tmp_path / "unknown.crt"),
            "ssl.endpoint.identification.algorithm": "",
        }
        assert topics_of(proxy.port, without_name) == 0
        assert topics_of(proxy.port, {"enable.ssl.certificate.verification": "false"}) == 0


@pytest.mark.parametrize(
    "properties, message",
    [
        ({"ssl.truststore.location": "/missing"}, "ssl.truststore.location: cannot read /missing"),
        ({"ssl.ca.location": "FOLDER/client.key"}, "ssl.ca.location contains no certificates"),
        ({"ssl.ca.pem": "nothing"}, "ssl.ca.pem contains no certificates"),
        ({"ssl.keystore.location": "FOLDER/client.crt"}, "ssl.keystore.location is not a private key"),
        (
            {"ssl.keystore.location": "FOLDER/client.p12"},
            "is no PKCS12 or JKS file, or its password is wrong",
        ),
        ({"ssl.keystore.location": "FOLDER/java.jks"}, "ssl.keystore.location: .*java.jks is cut off"),
        ({"ssl.keystore.location": "FOLDER/binary"}, "is no PKCS12 or JKS file"),
        (
            {
                "ssl.key.location": "FOLDER/client.encrypted.key",
                "ssl.certificate.location": "FOLDER/client.crt",
            },
            "ssl.key.password is required because the key of ssl.key.location is encrypted",
        ),
        (
            {
                "ssl.key.location": "FOLDER/client.encrypted.key",
                "ssl.certificate.location": "FOLDER/client.crt",
                "ssl.key.password": "hunter2",
            },
            "ssl.key.password is wrong",
        ),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain is required with ssl.keystore.key"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols is not a list of TLSv1.2, TLSv1.3"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "neither https nor empty"),
    ],
)
def test_unusable_properties(ca, client, properties, message):
    (ca.folder / "java.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (ca.folder / "binary").write_bytes(b"\xff\xff")
    given = {name: value.replace("FOLDER", str(ca.folder)) for name, value in properties.items()}
    with pytest.raises(InvalidProperty, match=message) as refused:
        new_context(ClientProperties(given))
    assert "hunter2" not in str(refused.value)
