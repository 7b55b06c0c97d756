"""Kafka's security configs that are not enforced: a broker with one of them refuses to start.

A config that only tunes performance may be ignored with a warning. One that promises encryption,
authentication, authorization or a policy may not: the operator would run an open broker without knowing. For
the same reason configs of TLS are refused if no listener uses it.
"""

import re
from collections.abc import Iterator, Mapping

from runnel.model.security_protocol import SecurityProtocol

PLAINTEXT = SecurityProtocol.PLAINTEXT.name
ENFORCED_PROTOCOLS = frozenset({SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL})

_PROMISES = (
    (r"ssl\.engine\.factory\.class$", "another implementation of TLS"),
    (r"sasl\.", "SASL authentication"),
    (r"security\.(?!inter\.broker\.protocol$)", "security providers"),
    (r"principal\.builder\.class$", "authentication"),
    (r"connections\.max\.reauth\.ms$", "SASL re-authentication"),
    (r"authorizer\.", "authorization"),
    (r"(allow\.everyone\.if\.no\.acl\.found|super\.users)$", "authorization"),
    (r"confluent\.(authorizer|security)\.", "authorization"),
    (r"delegation\.token\.(master|secret)\.key$", "delegation tokens"),
    (r"password\.encoder\.", "encryption of stored passwords"),
    (r"(alter\.config|create\.topic)\.policy\.class\.name$", "policies"),
    (r"client\.quota\.callback\.class$", "quotas"),
)
_PROMISES_BY_PATTERN = [(re.compile(pattern), feature) for pattern, feature in _PROMISES]
_LISTENER_PREFIX = re.compile(r"listener\.name\.([^.]+)\.")
# Configs of one SASL mechanism are prefixed with its name.
_MECHANISM = re.compile(r"[^.]+\.(?=sasl\.)")

_PROMISE_NOTHING = {
    "allow.everyone.if.no.acl.found": "true",
    "connections.max.reauth.ms": "0",
    "ssl.client.auth": "none",
}
"""Values that enable no protection in Kafka either; an empty value never does."""

_LISTENER_SETTINGS = ("listeners", "advertised.listeners")
_LISTENER_NAME_SETTINGS = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "early.start.listeners",
)


def unenforced_security(static: Mapping[str, str]) -> str | None:
    """Why a broker with these configs must not start; None if all they promise is enforced."""
    promised = [*_promised_by_name(static), *_promised_by_listener(static)]
    if promised:
        named = "; ".join(f"{name} asks for {feature}" for name, feature in promised)
        return (
            f"this broker does not enforce all of its security settings: {named}. "
            "Remove these settings to run it without that protection, or keep running Apache Kafka."
        )
    unused = [name for name in sorted(static) if _is_unused_tls(static, name)]
    if unused:
        return (
            f"{', '.join(unused)} is set, but the listener does not use TLS: give it the protocol "
            f"{SecurityProtocol.SSL.name} in listener.security.protocol.map, or remove the setting."
        )
    return None


def _promised_by_name(static: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(static.items()):
        own_name = _MECHANISM.sub("", _LISTENER_PREFIX.sub("", name, count=1), count=1)
        feature = next((what for pattern, what in _PROMISES_BY_PATTERN if pattern.match(own_name)), None)
        if feature and value.strip() not in ("", _PROMISE_NOTHING.get(own_name)):
            yield name, feature


def _promised_by_listener(static: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for setting, name, protocol in _used_protocols(static):
        if protocol not in ENFORCED_PROTOCOLS:
            yield setting, f"{protocol.name} (listener {name})"


def _is_unused_tls(static: Mapping[str, str], name: str) -> bool:
    """Whether this config of TLS is for listeners that do not use it."""
    prefix = _LISTENER_PREFIX.match(name)
    own_name = name[prefix.end() :] if prefix else name
    if not own_name.startswith("ssl.") or static[name].strip() in ("", _PROMISE_NOTHING.get(own_name)):
        return False
    with_tls = {listener for _, listener, protocol in _used_protocols(static) if protocol.uses_tls}
    return not with_tls or (prefix is not None and prefix[1].upper() not in with_tls)


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
