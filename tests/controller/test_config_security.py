"""Configs that promise protection which is not enforced prevent startup; others do not."""

import pytest

from runnel.controller.config_types import BadConfig
from runnel.controller.settings import Settings

KAFKAS_PROTOCOL_MAP = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.keystore.location", "/etc/kafka/broker.p12"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required;"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("principal.builder.class", "com.example.Principals"),
        ("connections.max.reauth.ms", "3600000"),
        ("super.users", "User:admin"),
        ("audit.log.file", "audit.jsonl"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("delegation.token.secret.key", "hidden"),
        ("delegation.token.master.key", "hidden"),
        ("password.encoder.secret", "hidden"),
        ("client.quota.callback.class", "com.example.Quotas"),
        ("create.topic.policy.class.name", "com.example.Topics"),
        ("alter.config.policy.class.name", "com.example.Configs"),
        ("listener.name.external.ssl.keystore.location", "/etc/kafka/broker.p12"),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", "ScramLoginModule required;"),
        ("listener.name.external.principal.builder.class", "com.example.Principals"),
        ("listeners", "SASL_SSL://:9093"),
        ("listeners", "PLAINTEXT://:9092,ssl://:9093"),
        ("advertised.listeners", "SSL://broker.example.com:9093"),
        ("inter.broker.listener.name", "SASL_PLAINTEXT"),
    ],
)
def test_a_security_config_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(BadConfig, match=f"{name} asks for") as refused:
        Settings({name: value})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("spelling", ["EXTERNAL:SASL_SSL", "INTERNAL:PLAINTEXT, external : sasl_ssl"])
def test_a_listener_is_rejected_by_its_protocol(spelling: str) -> None:
    with pytest.raises(BadConfig, match=r"listeners asks for SASL_SSL \(listener EXTERNAL\)"):
        Settings({"listener.security.protocol.map": spelling, "listeners": "EXTERNAL://:9092"})


def test_a_duplicate_protocol_is_rejected_if_either_is_secure() -> None:
    with pytest.raises(BadConfig, match=r"listeners asks for SSL"):
        Settings({"listener.security.protocol.map": "A:SSL,A:PLAINTEXT", "listeners": "A://:9092"})


def test_all_security_configs_are_reported_at_once() -> None:
    with pytest.raises(BadConfig, match=r"ssl\.protocol asks for TLS; super\.users asks for authorization"):
        Settings({"super.users": "User:admin", "ssl.protocol": "TLSv1.3"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "8"),
        ("ssl.client.auth", "none"),
        ("connections.max.reauth.ms", "0"),
        ("delegation.token.max.lifetime.ms", "604800000"),
        ("listener.name.external.num.network.threads", "3"),
    ],
)
def test_a_config_without_protection_is_ignored(name: str, value: str) -> None:
    assert Settings({name: value}).ignored == (name,)


@pytest.mark.parametrize("name", ["security.inter.broker.protocol", "inter.broker.listener.name"])
def test_a_listener_for_brokers_without_protection_is_accepted(name: str) -> None:
    assert Settings({name: "PLAINTEXT"}).text(name) == "PLAINTEXT"


def test_unused_listener_protocols_are_ignored() -> None:
    settings = Settings(
        {
            "listener.security.protocol.map": KAFKAS_PROTOCOL_MAP,
            "listeners": "PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert settings.words("listeners") == ["PLAINTEXT://:9092"]


def test_settings_of_the_authorizer_need_one() -> None:
    kafka = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    for name in (kafka, "acl"):
        settings = Settings({"authorizer.class.name": name, "super.users": "User:a; User:CN=b,O=c"})
        assert not settings.ignored and not settings["allow.everyone.if.no.acl.found"]
    assert Settings({"allow.everyone.if.no.acl.found": "true", "authorizer.class.name": ""})


@pytest.mark.parametrize(
    ("name", "value"), [("authorizer.class.name", "com.example.Authorizer"), ("super.users", "alice")]
)
def test_an_unknown_authorizer_and_what_is_no_principal_are_rejected(name: str, value: str) -> None:
    with pytest.raises(BadConfig, match=f"Invalid value .* for configuration {name}"):
        Settings({"authorizer.class.name": "acl", name: value})
