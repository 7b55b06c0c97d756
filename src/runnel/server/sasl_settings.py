"""The SASL settings of a node, validated: protection that could not be in force stops the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from runnel.controller.settings import Settings
from runnel.model.security_protocol import SecurityProtocol
from runnel.security.jaas import InvalidJaas, JaasLine, read_jaas
from runnel.security.oauthbearer_server import JwtRules
from runnel.security.sasl_client import MECHANISMS, OAUTHBEARER, PLAIN, Credentials
from runnel.security.scram import SCRAM_HASHES
from runnel.server.addresses import Address, is_loopback
from runnel.server.layers import BadSettings
from runnel.server.roles import Roles


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where the keys of tokens are, and what tokens must claim."""

    jwks_url: str
    refresh_ms: int
    rules: JwtRules


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How clients authenticate at one listener."""

    mechanisms: tuple[str, ...]
    session_ms_max: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism."""
    passwords: Mapping[str, str] = field(repr=False)
    """The users of PLAIN in the JAAS line."""
    oauth: OAuthSettings | None
    failure_delay_ms: int
    receive_bytes_max: int


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """How this node authenticates at other nodes."""

    mechanism: str
    credentials: Credentials


def sasl_settings(settings: Settings, roles: Roles) -> dict[str, SaslSettings]:
    """The settings of each listener of this node that uses SASL. Raises BadSettings."""
    return {
        address.name: _listener_settings(settings, address, roles.protocols[address.name])
        for address in roles.listeners
        if roles.protocols[address.name].uses_sasl
    }


def check_token_secrets(settings: Settings, roles: Roles) -> None:
    """Raises BadSettings if a listener would send the secrets of delegation tokens unencrypted.

    That is one whose clients may create tokens, or one of nodes, which forward requests with their responses.
    """
    if not settings.text("delegation.token.secret.key"):
        return
    # A single node is connected to by no other.
    of_nodes = () if roles.is_alone else (roles.inter_broker_listener, *roles.controller_listener_names)
    for address in roles.listeners:
        protocol = roles.protocols[address.name]
        if not (protocol.uses_sasl or address.name in of_nodes):
            continue
        if not protocol.uses_tls and not is_loopback(address.host):
            raise BadSettings(
                f"the listener {address} would send the secrets of delegation tokens unencrypted: use TLS, "
                "bind it to a loopback address, or remove delegation.token.secret.key"
            )


def own_identities(settings: Settings, roles: Roles) -> dict[str, OwnIdentity]:
    """How this node authenticates at the listeners of others, by their names. Raises BadSettings."""
    wanted = [(roles.inter_broker_listener, "sasl.mechanism.inter.broker.protocol")]
    if not roles.is_alone:
        wanted += [(name, "sasl.mechanism.controller.protocol") for name in roles.controller_listener_names]
    return {
        listener: _own_identity(settings, listener, setting)
        for listener, setting in wanted
        if listener in roles.protocols
        and roles.protocols[listener].uses_sasl
        # A single node connects to no other.
        and (not roles.is_alone or settings.text(setting))
    }


def _listener_settings(settings: Settings, address: Address, protocol: SecurityProtocol) -> SaslSettings:
    listener, is_local = address.name, is_loopback(address.host)
    mechanisms = _words(settings, listener, "sasl.enabled.mechanisms")
    if not mechanisms:
        raise BadSettings(
            f"the listener {listener} uses {protocol.name}, but no mechanism is enabled: set "
            f"sasl.enabled.mechanisms, for example to SCRAM-SHA-512"
        )
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise BadSettings(
                f"sasl.enabled.mechanisms of the listener {listener} has {mechanism}, which is not "
                f"supported: choose from {', '.join(MECHANISMS)}"
            )
        if mechanism in (PLAIN, OAUTHBEARER) and not protocol.uses_tls and not is_local:
            raise BadSettings(
                f"the listener {address} would receive the secrets of {mechanism} unencrypted: use "
                "SASL_SSL, or SCRAM, or bind it to a loopback address"
            )
    return SaslSettings(
        mechanisms=tuple(mechanisms),
        session_ms_max={
            each: _number(settings, listener, "connections.max.reauth.ms", each) for each in mechanisms
        },
        passwords=_passwords(settings, listener, mechanisms) if PLAIN in mechanisms else {},
        oauth=_oauth(settings, listener) if OAUTHBEARER in mechanisms else None,
        failure_delay_ms=_number(settings, listener, "connection.failed.authentication.delay.ms"),
        receive_bytes_max=_number(settings, listener, "sasl.server.max.receive.size"),
    )


def _passwords(settings: Settings, listener: str, mechanisms: list[str]) -> dict[str, str]:
    line = _jaas(settings, listener, PLAIN)
    users = {} if line is None else line.users
    if not users and not any(each in SCRAM_HASHES for each in mechanisms):
        raise BadSettings(
            f"PLAIN of the listener {listener} has no users: add them to "
            f'listener.name.{listener.lower()}.plain.sasl.jaas.config as user_name="password", or enable '
            "a SCRAM mechanism as well, whose users PLAIN accepts"
        )
    return users


def _oauth(settings: Settings, listener: str) -> OAuthSettings:
    prefix = "sasl.oauthbearer."
    url = _text(settings, listener, f"{prefix}jwks.endpoint.url")
    issuer = _text(settings, listener, f"{prefix}expected.issuer")
    audiences = _words(settings, listener, f"{prefix}expected.audience")
    for name, value in (
        ("jwks.endpoint.url", url),
        ("expected.issuer", issuer),
        ("expected.audience", audiences),
    ):
        if not value:
            raise BadSettings(
                f"OAUTHBEARER of the listener {listener} needs {prefix}{name}: without it tokens that were "
                "not issued for this cluster would be accepted"
            )
    parts = urlsplit(url)
    is_safe = parts.scheme in ("https", "file") or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    if not is_safe:
        raise BadSettings(
            f"{prefix}jwks.endpoint.url must be an https URL, an http URL of this machine, or a file URL"
        )
    rules = JwtRules(
        issuer,
        tuple(audiences),
        _text(settings, listener, f"{prefix}sub.claim.name") or "sub",
        _number(settings, listener, f"{prefix}clock.skew.seconds") * 1000,
    )
    return OAuthSettings(url, _number(settings, listener, f"{prefix}jwks.endpoint.refresh.ms"), rules)


def _own_identity(settings: Settings, listener: str, setting: str) -> OwnIdentity:
    mechanism = settings.text(setting) or ""
    if mechanism not in MECHANISMS:
        raise BadSettings(
            f"{setting} is {mechanism or 'not set'}, but nodes authenticate at the listener {listener}: "
            f"choose from {', '.join(MECHANISMS)}"
        )
    enabled = _words(settings, listener, "sasl.enabled.mechanisms")
    if enabled and mechanism not in enabled:
        raise BadSettings(
            f"{setting} is {mechanism}, which is not in sasl.enabled.mechanisms of the listener {listener}"
        )
    line = _jaas(settings, listener, mechanism)
    credentials = None if line is None else line.credentials()
    if credentials is None:
        raise BadSettings(
            f"nodes authenticate at the listener {listener} by {mechanism}, but as no user: set username "
            f"and password in listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        )
    return OwnIdentity(mechanism, credentials)


def _jaas(settings: Settings, listener: str, mechanism: str) -> JaasLine | None:
    text = settings.of_listener(listener, "sasl.jaas.config", mechanism)
    if not text:
        return None
    assert isinstance(text, str)
    try:
        return read_jaas(text, mechanism)
    except InvalidJaas as error:
        raise BadSettings(
            f"sasl.jaas.config for {mechanism} of the listener {listener} is invalid: {error}"
        ) from None


def _text(settings: Settings, listener: str, name: str) -> str:
    return str(settings.of_listener(listener, name) or "")


def _words(settings: Settings, listener: str, name: str) -> list[str]:
    value = settings.of_listener(listener, name) or []
    assert isinstance(value, list)
    return [word for word in value if word]


def _number(settings: Settings, listener: str, name: str, mechanism: str = "") -> int:
    value = settings.of_listener(listener, name, mechanism)
    assert isinstance(value, int)
    return value
