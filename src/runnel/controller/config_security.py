"""Kafka's security configs that are not enforced: a broker with one of them refuses to start.

A config that only tunes performance may be ignored with a warning. One that promises encryption,
authentication, authorization or a policy may not: the operator would run an open broker without knowing. For
the same reason configs of TLS and SASL are refused if no listener uses them.
"""

import re
from collections.abc import Iterator, Mapping

from runnel.model.security_protocol import SecurityProtocol

PLAINTEXT = SecurityProtocol.PLAINTEXT.name

_PROMISES = (
    (r"ssl\.engine\.factory\.class$", "another implementation of TLS"),
    (r"sasl\.(server|client|login)\.callback\.handler\.class$", "authentication by a class"),
    (r"sasl\.login\.class$", "authentication by a class"),
    (r"sasl\.oauthbearer\.jwt\.validator\.class$", "authentication by a class"),
    (r"security\.(?!inter\.broker\.protocol$)", "security providers"),
    (r"principal\.builder\.class$", "authentication"),
    (r"authorizer\.(?!class\.name$)", "authorization"),
    (r"confluent\.(authorizer|security)\.", "authorization"),
    (r"delegation\.token\.master\.key$", "delegation tokens by the former name of their secret"),
    (r"password\.encoder\.", "encryption of stored passwords"),
    (r"(alter\.config|create\.topic)\.policy\.class\.name$", "policies"),
    (r"client\.quota\.callback\.class$", "quotas"),
)
_PROMISES_BY_PATTERN = [(re.compile(pattern), feature) for pattern, feature in _PROMISES]
_LISTENER_PREFIX = re.compile(r"listener\.name\.([^.]+)\.")
# Configs of one SASL mechanism are prefixed with its name.
_MECHANISM = re.compile(r"[^.]+\.(?=sasl\.|connections\.max\.reauth\.ms$)")

_CLIENT_AUTH = "ssl.client.auth"

_PROMISE_NOTHING = {
    "connections.max.reauth.ms": "0",
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
    "sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    _CLIENT_AUTH: "none",
}
"""Values that enable no protection in Kafka either, or what this broker does anyway; so does an empty one."""

_USED_BY = (
    (("ssl.",), "TLS", (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)),
    (
        ("sasl.", "connections.max.reauth.ms"),
        "SASL",
        (SecurityProtocol.SASL_SSL, SecurityProtocol.SASL_PLAINTEXT),
    ),
)
"""Configs that are refused unless a listener has one of the protocols."""

AUTHORIZER = "authorizer.class.name"
AUTHORIZERS = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "acl")
"""The authorizer by Kafka's name and by a shorter one."""

_OF_AUTHORIZER = re.compile(r"(allow\.everyone\.if\.no\.acl\.found|super\.users|audit\.log\..*)$")
_WITHOUT_AUTHORIZER = {"allow.everyone.if.no.acl.found": "true", "audit.log.logger": "false"}

_LISTENER_SETTINGS = ("listeners", "advertised.listeners")
_LISTENER_NAME_SETTINGS = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "early.start.listeners",
)


def unenforced_security(static: Mapping[str, str]) -> str | None:
    """Why a broker with these configs must not start; None if all they promise is enforced."""
    without_effect = _without_effect(static)
    if without_effect is not None:
        return without_effect
    promised = [*_promised_by_name(static), *_promised_by_authorizer(static)]
    if promised:
        named = "; ".join(f"{name} asks for {feature}" for name, feature in promised)
        return (
            f"this broker does not enforce all of its security settings: {named}. "
            "Remove these settings to run it without that protection, or keep running Apache Kafka."
        )
    for prefixes, feature, protocols in _USED_BY:
        unused = [name for name in sorted(static) if _is_unused(static, name, prefixes, protocols)]
        if unused:
            choices = " or ".join(protocol.name for protocol in protocols)
            return (
                f"{', '.join(unused)} is set, but no listener to which it applies uses {feature}: set its "
                f"protocol to {choices} in listener.security.protocol.map, or remove the setting."
            )
    return None


def _without_effect(static: Mapping[str, str]) -> str | None:
    """Why a config would do nothing, although a listener seems to use it."""
    for name in sorted(static):
        prefix = _LISTENER_PREFIX.match(name)
        if prefix is None:
            continue
        mechanism = _MECHANISM.match(name, prefix.end())
        end = prefix.end() if mechanism is None else mechanism.end()
        if not name[:end].islower():
            return f"{name} would have no effect: write {name[:end].lower()}{name[end:]}, in lower case."
    auth = static.get(_CLIENT_AUTH, "").strip()
    tls = {
        listener: protocol
        for setting, listener, protocol in _used_protocols(static)
        if setting == "listeners" and protocol.uses_tls
    }
    is_used = not tls or not all(protocol.uses_sasl for protocol in tls.values())
    if is_used or auth in ("", _PROMISE_NOTHING[_CLIENT_AUTH]):
        return None
    own_names = " and ".join(f"listener.name.{name.lower()}.{_CLIENT_AUTH}" for name in sorted(tls))
    return (
        f"{_CLIENT_AUTH}={auth} would have no effect: as in Kafka, it does not apply to listeners with "
        f"SASL_SSL. Set {own_names}, or remove it."
    )


def _promised_by_name(static: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(static.items()):
        own_name = _MECHANISM.sub("", _LISTENER_PREFIX.sub("", name, count=1), count=1)
        feature = next((what for pattern, what in _PROMISES_BY_PATTERN if pattern.match(own_name)), None)
        if feature and value.strip() not in ("", _PROMISE_NOTHING.get(own_name)):
            yield name, feature


def _promised_by_authorizer(static: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Settings of the authorizer, and of what it records, without one."""
    if static.get(AUTHORIZER, "").strip():
        return
    for name in sorted(static):
        value = static[name].strip()
        if value and _OF_AUTHORIZER.match(name) and value != _WITHOUT_AUTHORIZER.get(name):
            yield name, f"authorization, which {AUTHORIZER} enables"


def _is_unused(
    static: Mapping[str, str],
    name: str,
    prefixes: tuple[str, ...],
    protocols: tuple[SecurityProtocol, ...],
) -> bool:
    """Whether this config is for listeners that do not use one of the protocols."""
    prefix = _LISTENER_PREFIX.match(name)
    own_name = _MECHANISM.sub("", name[prefix.end() :] if prefix else name, count=1)
    if not own_name.startswith(prefixes) or static[name].strip() in ("", _PROMISE_NOTHING.get(own_name)):
        return False
    using = {listener for _, listener, protocol in _used_protocols(static) if protocol in protocols}
    return not using or (prefix is not None and prefix[1].upper() not in using)


def _used_protocols(static: Mapping[str, str]) -> Iterator[tuple[str, str, SecurityProtocol]]:
    """(setting, listener, protocol) of all listeners that the configs name."""
    protocols = listener_protocols(static.get("listener.security.protocol.map", ""))
    for setting in (*_LISTENER_SETTINGS, *_LISTENER_NAME_SETTINGS):
        for text in static.get(setting, "").split(","):
            name = text.partition("://")[0].strip().upper()
            for protocol in protocols.get(name, [name]):
                if protocol in SecurityProtocol.__members__:
                    yield setting, name, SecurityProtocol[protocol]


def listener_protocols(protocol_map: str) -> dict[str, list[str]]:
    """The protocols of each listener in listener.security.protocol.map; more than one is an error."""
    protocols: dict[str, list[str]] = {}
    for pair in protocol_map.upper().split(","):
        name, colon, protocol = pair.partition(":")
        if colon:
            protocols.setdefault(name.strip(), []).append(protocol.strip())
    return protocols
