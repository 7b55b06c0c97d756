"""The facts about a node that `security/exposure.py` judges: its settings, certificates and files."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace

from runnel.controller.config_broker_node import ADMIN_LISTENERS, OFF
from runnel.controller.config_types import parse_host_port
from runnel.controller.settings import Settings
from runnel.security.exposure import Facts, ListenerFacts, LooseFile
from runnel.server.addresses import Address, is_loopback
from runnel.server.permissions import is_exposed
from runnel.server.roles import Roles

_SECRET_WORDS = ("password", "jaas", "secret", "keystore.key")


def facts_of(settings: Settings, roles: Roles, now_s: float) -> Facts:
    """The facts that follow from the settings, without reading a file."""
    super_users = (settings.text("super.users") or "").split(";")
    has_audit_log = any(
        (settings.text("audit.log.file"), settings.text("audit.log.topic"), settings.bool("audit.log.logger"))
    )
    unlimited = 2**31 - 1
    return Facts(
        now_s=now_s,
        listeners=[_listener(settings, roles, each) for each in roles.listeners],
        has_authorizer=bool(settings["authorizer.class.name"]),
        super_users=frozenset(name.strip() for name in super_users if name.strip()),
        allows_unlisted=settings.bool("allow.everyone.if.no.acl.found"),
        limits_connections=any(
            settings.int(name) < unlimited for name in ("max.connections", "max.connections.per.ip")
        ),
        is_encrypted=settings.bool("log.encryption.enable"),
        has_audit_log=has_audit_log,
        has_remote_admin_listener=any(
            not is_loopback(parse_host_port(word)[0])
            for word in settings.words(ADMIN_LISTENERS)
            if word != OFF
        ),
    )


def with_files(
    facts: Facts, settings: Settings, roles: Roles, data_dir: str, config_file: str | None
) -> Facts:
    """Adds the facts of certificates and of file permissions. Raises BadSettings."""
    from runnel.server.layers import BadSettings
    from runnel.server.node_tls import tls_settings
    from runnel.tls.material import load_material
    from runnel.tls.settings import BadTls

    listeners = []
    for each in facts.listeners:
        expires_s = None
        if each.protocol.uses_tls:
            try:
                chain = load_material(tls_settings(roles, settings, each.name), facts.now_s).chain
            except BadTls as error:
                raise BadSettings(f"TLS of the listener {each.name}: {error}") from error
            expires_s = min((certificate.not_after_s for certificate in chain), default=None)
        listeners.append(replace(each, expires_s=expires_s))
    loose = list(_loose_files(settings, roles, data_dir, config_file))
    return replace(facts, listeners=listeners, loose_files=loose)


def _listener(settings: Settings, roles: Roles, address: Address) -> ListenerFacts:
    name, protocol = address.name, roles.protocols[address.name]
    mechanisms: list[str] = []
    if protocol.uses_sasl:
        enabled = settings.of_listener(name, "sasl.enabled.mechanisms")
        mechanisms = [word for word in enabled if word] if isinstance(enabled, list) else []
    of_nodes = () if roles.is_alone else (roles.inter_broker_listener, *roles.controller_listener_names)
    facts = ListenerFacts(
        name=name,
        protocol=protocol,
        is_local=is_loopback(address.host),
        is_for_nodes=name in of_nodes,
        mechanisms=mechanisms,
        has_endless_sessions=any(
            not settings.of_listener(name, "connections.max.reauth.ms", each) for each in mechanisms
        ),
    )
    if not protocol.uses_tls:
        return facts
    from runnel.server.node_tls import tls_settings

    tls = tls_settings(roles, settings, name)
    return replace(
        facts,
        client_auth=tls.client_auth,
        tls_versions=tls.enabled_protocols,
        verifies_hosts=bool(tls.endpoint_identification_algorithm),
    )


def _loose_files(
    settings: Settings, roles: Roles, data_dir: str, config_file: str | None
) -> Iterator[LooseFile]:
    """Files that users other than that of the node can access; missing files are skipped."""
    wanted: dict[str, tuple[str, bool]] = {}
    if config_file is not None:
        wanted[config_file] = ("the settings file", _has_secrets(config_file))
    for name, protocol in roles.protocols.items():
        if protocol.uses_tls:
            location = settings.of_listener(name, "ssl.keystore.location")
            wanted[str(location or "")] = ("the key store", True)
    wanted[settings.text("encryption.master.key.file") or ""] = ("the master key file", True)
    wanted[settings.text("audit.log.file") or ""] = ("the audit log", False)
    for path, (what, has_secrets) in wanted.items():
        status = _status(path)
        if status is not None and is_exposed(status):
            yield LooseFile(path, what, stat.S_IMODE(status.st_mode), has_secrets)
    status = _status(data_dir)
    if status is not None and stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        yield LooseFile(data_dir, "the data directory", mode, has_secrets=True, is_directory=True)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path) if path else None
    except OSError:
        return None


def _has_secrets(path: str) -> bool:
    try:
        with open(path, encoding="latin-1") as file:
            lines = [line.partition("=")[0].lower() for line in file if not line.lstrip().startswith("#")]
    except OSError:
        return False
    return any(word in line for line in lines for word in _SECRET_WORDS)
