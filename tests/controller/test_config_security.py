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
        ("ssl.engine.factory.class", "com.example.Engines"),
        ("security.providers", "com.example.Providers"),
        ("sasl.server.callback.handler.class", "com.example.Passwords"),
        ("sasl.client.callback.handler.class", "com.example.Passwords"),
        ("sasl.login.callback.handler.class", "com.example.Passwords"),
        ("sasl.login.class", "com.example.Login"),
        ("principal.builder.class", "com.example.Principals"),
        ("super.users", "User:admin"),
        ("audit.log.file", "audit.jsonl"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("delegation.token.master.key", "hidden"),
        ("password.encoder.secret", "hidden"),
        ("client.quota.callback.class", "com.example.Quotas"),
        ("create.topic.policy.class.name", "com.example.Topics"),
        ("alter.config.policy.class.name", "com.example.Configs"),
        ("listener.name.external.plain.sasl.server.callback.handler.class", "com.example.Passwords"),
        ("listener.name.external.principal.builder.class", "com.example.Principals"),
    ],
)
def test_a_security_config_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(BadConfig, match=f"{name} asks for") as refused:
        Settings({name: value})
    assert "hidden" not in str(refused.value)


def test_all_security_configs_are_reported_at_once() -> None:
    with pytest.raises(BadConfig, match=r"sasl\.login\.class asks for auth.*; super\.users asks for auth"):
        Settings({"super.users": "User:admin", "sasl.login.class": "hidden"})


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.keystore.location": "/etc/kafka/broker.p12"},
        {"ssl.client.auth": "required"},
        {"listener.name.plaintext.ssl.keystore.location": "/etc/kafka/broker.p12"},
    ],
)
def test_configs_of_tls_are_rejected_if_no_listener_uses_it(settings: dict[str, str]) -> None:
    with pytest.raises(
        BadConfig, match=f"{next(iter(settings))} is set, but no listener to which it applies uses TLS"
    ):
        Settings({"listeners": "PLAINTEXT://:9092", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        {"sasl.jaas.config": "hidden"},
        {"connections.max.reauth.ms": "3600000"},
        {"listener.name.plaintext.scram-sha-256.sasl.jaas.config": "hidden"},
        {"listener.name.plaintext.plain.connections.max.reauth.ms": "1000"},
    ],
)
def test_configs_of_sasl_are_rejected_if_no_listener_uses_it(settings: dict[str, str]) -> None:
    with pytest.raises(
        BadConfig, match=f"{next(iter(settings))} is set, but no listener to which it applies uses SASL"
    ) as refused:
        Settings({"listeners": "PLAINTEXT://:9092", **settings})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("name", ["sasl.enabled.mechanism", "listener.name.sasl_plaintext.sasl.jaas.configs"])
def test_an_unknown_config_of_sasl_is_rejected(name: str) -> None:
    with pytest.raises(BadConfig, match=f"Unknown broker config name: {name}"):
        Settings({"listeners": "SASL_PLAINTEXT://:9092", name: "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        ),
        ("num.io.threads", "8"),
        ("ssl.provider", ""),
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


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("listener.name.EXTERNAL.ssl.client.auth", "listener.name.external.ssl.client.auth"),
        ("listener.name.External.max.connections", "listener.name.external.max.connections"),
        (
            "listener.name.external.PLAIN.sasl.jaas.config",
            "listener.name.external.plain.sasl.jaas.config",
        ),
    ],
)
def test_a_prefix_that_is_not_in_lower_case_is_rejected(name: str, right: str) -> None:
    listeners = {
        "listeners": "EXTERNAL://:9092",
        "listener.security.protocol.map": "EXTERNAL:SASL_SSL",
    }
    with pytest.raises(BadConfig, match=f"{name} would have no effect: write {right}, ") as refused:
        Settings({**listeners, name: "hidden"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("value", ["required", "requested"])
def test_certificates_of_clients_of_sasl_listeners_are_required_by_prefix(value: str) -> None:
    protocols = {"listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,OPEN:PLAINTEXT"}
    sasl_only = {**protocols, "listeners": "CLIENTS://:9092,OPEN://:9093"}
    with pytest.raises(BadConfig, match=r"no effect: .*Set listener\.name\.clients\.ssl\.client\.auth, or"):
        Settings({**sasl_only, "ssl.client.auth": value})
    for accepted in (
        {**sasl_only, "listener.name.clients.ssl.client.auth": value},
        {**sasl_only, "ssl.client.auth": "none"},
        {**protocols, "listeners": "CLIENTS://:9092,NODES://:9093", "ssl.client.auth": value},
    ):
        assert not Settings(accepted).ignored
