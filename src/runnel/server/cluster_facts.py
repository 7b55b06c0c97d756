"""The facts about a running cluster that `security/exposure.py` judges, as far as a client can know."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runnel.client.acl_admin import AclAdmin
from runnel.client.admin import Admin, Setting
from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import BrokerView, ClusterAdmin
from runnel.client.errors import BrokerError, ClientError
from runnel.client.quotas import Quotas
from runnel.controller.config_broker import broker_definition
from runnel.controller.config_types import BadConfig
from runnel.controller.settings import Settings
from runnel.model.configs import ConfigSource, ResourceType
from runnel.model.errors import ErrorCode
from runnel.security.acl import AccessControlEntry
from runnel.security.acl_filter import AclFilter
from runnel.security.exposure import Facts, ListenerFacts
from runnel.security.x509 import BadCertificate, read_certificate
from runnel.server.exposure_facts import facts_of
from runnel.server.layers import BadSettings
from runnel.server.roles import NONROUTABLE, Roles, roles_of

HANDSHAKE_SECONDS = 5.0


@dataclass(slots=True)
class ClusterFacts:
    """The facts of each broker by its id, and why others are not known."""

    brokers: dict[int, Facts] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=list)


async def cluster_facts(cluster: Cluster) -> ClusterFacts:
    """Describe all brokers of a cluster."""
    found = ClusterFacts()
    acls, has_quotas = await _acls(cluster, found), await _has_quotas(cluster, found)
    _, brokers = await ClusterAdmin(cluster).describe()
    for broker in brokers:
        try:
            described = await Admin(cluster).settings(ResourceType.BROKER, str(broker.node_id))
            settings = _settings(described)
            roles = roles_of(settings)
        except (ClientError, BadConfig, BadSettings) as error:
            found.not_checked.append(f"broker {broker.node_id}: {error}")
            continue
        facts = facts_of(settings, roles, time.time())
        listeners = [await _with_certificate(each, roles, broker) for each in facts.listeners]
        facts = replace(facts, listeners=listeners, acls=acls, has_quotas=has_quotas)
        if not any(each.name == "audit.log.file" for each in described):
            # Apache Kafka has other settings for these.
            facts = replace(facts, has_audit_log=None, is_encrypted=None)
        found.brokers[broker.node_id] = facts
    found.not_checked.append(
        "files and their permissions, and nodes that are only controllers: run it there with --config"
    )
    return found


async def _acls(cluster: Cluster, found: ClusterFacts) -> Sequence[AccessControlEntry] | None:
    try:
        return await AclAdmin(cluster).describe(AclFilter())
    except BrokerError as error:
        if error.error is not ErrorCode.SECURITY_DISABLED:
            found.not_checked.append(f"ACLs: {error}")
        return None


async def _has_quotas(cluster: Cluster, found: ClusterFacts) -> bool | None:
    try:
        return bool(await Quotas(cluster).describe())
    except BrokerError as error:
        found.not_checked.append(f"quotas: {error}")
        return None


def _settings(described: Sequence[Setting]) -> Settings:
    """The settings of a broker that are not defaults, without secrets and those that only Kafka has."""
    return Settings(
        {
            each.name: each.value
            for each in described
            if each.value is not None
            and each.source is not ConfigSource.DEFAULT
            and broker_definition(each.name) is not None
        }
    )


async def _with_certificate(listener: ListenerFacts, roles: Roles, broker: BrokerView) -> ListenerFacts:
    """Adds the end of the certificate, if the listener can be reached from here."""
    address = _address(listener.name, roles, broker)
    if not listener.protocol.uses_tls or address is None:
        return listener
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It is read, not trusted.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            _, writer = await asyncio.open_connection(*address, ssl=context)
            encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.transport.abort()
        return replace(listener, expires_s=read_certificate(encoded or b"").not_after_s)
    except (OSError, TimeoutError, BadCertificate):
        return listener


def _address(listener: str, roles: Roles, broker: BrokerView) -> tuple[str, int] | None:
    """Where a listener can probably be reached; None if its port is not known."""
    if [each.name for each in roles.broker_listeners] == [listener]:
        return broker.host, broker.port
    for known in (*roles.advertised, *roles.listeners):
        if known.name == listener and known.port:
            return broker.host if known.host in ("", *NONROUTABLE) else known.host, known.port
    return None
