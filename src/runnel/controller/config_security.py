"""Kafka's security configs, none of which is enforced yet: a broker with one of them refuses to start.

A config that only tunes performance may be ignored with a warning. One that promises encryption,
authentication, authorization or a policy may not: the operator would run an open broker without knowing.
"""

import re
from collections.abc import Iterator, Mapping

PLAINTEXT = "PLAINTEXT"

_PROMISES = (
    (r"ssl\.", "TLS"),
    (r"sasl\.", "SASL authentication"),
    (r"security\.", "TLS and SASL"),
    (r"principal\.builder\.class$", "authentication"),
    (r"connections\.max\.reauth\.ms$", "SASL re-authentication"),
    (r"authorizer\.(?!class\.name$)", "authorization"),
    (r"confluent\.(authorizer|security)\.", "authorization"),
    (r"delegation\.token\.(master|secret)\.key$", "delegation tokens"),
    (r"password\.encoder\.", "encryption of stored passwords"),
    (r"(alter\.config|create\.topic)\.policy\.class\.name$", "policies"),
    (r"client\.quota\.callback\.class$", "quotas"),
)
_PROMISES_BY_PATTERN = [(re.compile(pattern), feature) for pattern, feature in _PROMISES]
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
# Configs of one SASL mechanism are prefixed with its name.
_MECHANISM = re.compile(r"[^.]+\.(?=sasl\.)")

_PROMISE_NOTHING = {
    "connections.max.reauth.ms": "0",
    "security.inter.broker.protocol": PLAINTEXT,
    "ssl.client.auth": "none",
}
"""Values that enable no protection in Kafka either; an empty value never does."""

AUTHORIZER = "authorizer.class.name"
AUTHORIZERS = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "acl")
"""The authorizer by Kafka's name and by a shorter one."""

_OF_AUTHORIZER = re.compile(r"(allow\.everyone\.if\.no\.acl\.found|super\.users|audit\.log\..*)$")
_WITHOUT_AUTHORIZER = {"allow.everyone.if.no.acl.found": "true", "audit.log.logger": "false"}

_LISTENER_SETTINGS = ("listeners", "advertised.listeners")
_LISTENER_NAME_SETTINGS = ("inter.broker.listener.name", "controller.listener.names", "early.start.listeners")


def unenforced_security(static: Mapping[str, str]) -> str | None:
    """Why a broker with these configs must not start; None if they promise no protection."""
    promised = [*_promised_by_name(static), *_promised_by_listener(static), *_promised_by_authorizer(static)]
    if not promised:
        return None
    named = "; ".join(f"{name} asks for {feature}" for name, feature in promised)
    return (
        f"this broker has no security yet and would be open to every client that can connect: {named}. "
        "Remove these settings to run it on a network that you trust, or keep running Apache Kafka."
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


def _promised_by_listener(static: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    protocols = listener_protocols(static.get("listener.security.protocol.map", ""))
    for setting in (*_LISTENER_SETTINGS, *_LISTENER_NAME_SETTINGS):
        for text in static.get(setting, "").split(","):
            name = text.partition("://")[0].strip().upper()
            for protocol in protocols.get(name, [name]):
                if _is_secure(protocol):
                    yield setting, f"{protocol} (listener {name})"


def listener_protocols(protocol_map: str) -> dict[str, list[str]]:
    """The protocols of each listener in listener.security.protocol.map; more than one is an error."""
    protocols: dict[str, list[str]] = {}
    for pair in protocol_map.upper().split(","):
        name, colon, protocol = pair.partition(":")
        if colon:
            protocols.setdefault(name.strip(), []).append(protocol.strip())
    return protocols


def _is_secure(protocol: str) -> bool:
    return protocol == "SSL" or protocol.startswith("SASL_")
