"""SASL settings that could not protect anything stop the start; the others are understood."""

import pytest

from runnel.controller.settings import Settings
from runnel.security.sasl_client import Credentials
from runnel.server.layers import BadSettings
from runnel.server.node import Node
from runnel.server.roles import roles_of
from runnel.server.sasl_settings import check_token_secrets, own_identities, sasl_settings

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
    "sasl.oauthbearer.expected.audience": "cluster",
}
BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} username="broker" password="hidden";',
}


def read(settings: dict[str, str], address: str = "127.0.0.1:9092"):
    resolved = Settings({"listeners": f"SASL_PLAINTEXT://{address}", **settings})
    roles = roles_of(resolved)
    check_token_secrets(resolved, roles)
    return sasl_settings(resolved, roles), own_identities(resolved, roles)


def without(settings: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key != name}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "no mechanism is enabled"),
        ({"sasl.enabled.mechanisms": ""}, "no mechanism is enabled"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI, which is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "has no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{PLAIN};"}, "has no users"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "hidden"},
            "sasl.jaas.config for PLAIN of the listener SASL_PLAINTEXT is invalid",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "com.example.Login required;"},
            "other classes are not loaded",
        ),
        *(
            (without(OAUTH, name), f"OAUTHBEARER of the listener SASL_PLAINTEXT needs {name}")
            for name in list(OAUTH)[1:]
        ),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "http://issuer/keys"}, "must be an https URL"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "ftp://issuer/keys"}, "must be an https URL"),
        (without(BROKER, "sasl.mechanism.inter.broker.protocol"), "inter.broker.protocol is not set"),
        (without(BROKER, "sasl.mechanism.controller.protocol"), "controller.protocol is not set"),
        ({**BROKER, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, "not in sasl.enabled.mechanisms"),
        (without(BROKER, "sasl.jaas.config"), "but as no user"),
        ({**BROKER, "sasl.jaas.config": f"{SCRAM};"}, "but as no user"),
    ],
)
def test_what_cannot_be_in_force_stops_the_start(settings, complaint) -> None:
    with pytest.raises(BadSettings) as refused:
        read(settings)
    assert complaint in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("address", [":9092", "0.0.0.0:9092", "192.0.2.1:9092", "example.org:9092"])
def test_secrets_are_not_received_unencrypted(mechanism, address) -> None:
    with pytest.raises(BadSettings, match=f"secrets of {mechanism} unencrypted"):
        read({**OAUTH, "sasl.enabled.mechanisms": mechanism}, address)


def test_secrets_of_tokens_are_not_sent_unencrypted() -> None:
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "delegation.token.secret.key": "hidden"}
    with pytest.raises(BadSettings, match="secrets of delegation tokens unencrypted") as refused:
        read(settings, ":9092")
    assert "hidden" not in str(refused.value)
    assert read(settings)[0]


@pytest.mark.parametrize(
    ("listeners", "refused"),
    [
        ("CLIENTS://127.0.0.1:9092,NODES://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093", ""),
        ("CLIENTS://:9092,NODES://localhost:9094,CONTROLLER://[::1]:9093", ""),
        ("CLIENTS://:9092,NODES://:9094,CONTROLLER://127.0.0.1:9093", "NODES"),
        ("CLIENTS://:9092,NODES://127.0.0.1:9094,CONTROLLER://192.0.2.1:9093", "CONTROLLER"),
    ],
)
def test_secrets_of_tokens_are_not_sent_unencrypted_to_other_nodes(
    tmp_path, listeners: str, refused: str
) -> None:
    settings = {
        **{name: value for name, value in BROKER.items() if not name.startswith("sasl.")},
        "listener.security.protocol.map": "CLIENTS:SSL,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": listeners,
        "advertised.listeners": "CLIENTS://127.0.0.1:9092,NODES://127.0.0.1:9094",
        "inter.broker.listener.name": "NODES",
        "log.dirs": str(tmp_path),
    }
    Node(settings)
    settings["delegation.token.secret.key"] = "hidden"
    if refused:
        with pytest.raises(BadSettings, match=f"{refused}://.* secrets of delegation tokens unencrypted"):
            Node(settings)
    else:
        Node(settings)


def test_scram_may_be_used_on_any_address() -> None:
    listeners, _ = read({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, ":9092")
    assert listeners["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-256",)


def test_plain_may_have_the_users_of_scram() -> None:
    listeners, _ = read({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    assert listeners["SASL_PLAINTEXT"].passwords == {}


def test_settings_of_a_mechanism_precede_those_of_the_listener() -> None:
    prefix = "listener.name.sasl_plaintext."
    listeners, _ = read(
        {
            f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}plain.sasl.jaas.config": f'{PLAIN} user_alice="x";',
            "connections.max.reauth.ms": "5000",
            f"{prefix}connections.max.reauth.ms": "4000",
            f"{prefix}plain.connections.max.reauth.ms": "3000",
        }
    )
    settings = listeners["SASL_PLAINTEXT"]
    assert settings.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert settings.passwords == {"alice": "x"}
    assert settings.session_ms_max == {"PLAIN": 3000, "SCRAM-SHA-256": 4000}
    assert "'x'" not in repr(settings)


def test_nodes_authenticate_at_each_other() -> None:
    _, identities = read(BROKER)
    assert set(identities) == {"SASL_PLAINTEXT", "CONTROLLER"}
    for identity in identities.values():
        assert (identity.mechanism, identity.credentials) == (
            "SCRAM-SHA-512",
            Credentials("broker", "hidden"),
        )


def test_the_keys_of_tokens() -> None:
    listeners, _ = read(OAUTH)
    oauth = listeners["SASL_PLAINTEXT"].oauth
    assert oauth is not None
    assert (oauth.rules.issuer, oauth.rules.audiences) == ("https://issuer", ("cluster",))
    for url in ("file:///etc/keys.json", "http://127.0.0.1/keys", "http://localhost:80/keys"):
        read({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": url})
