"""What an attacker could do at the listeners of a node: facts in, findings out.

A fact that is not known (None) yields no finding. Severities:

    high    anyone who can connect gets more than was probably intended: all records, or passwords
    medium  an attacker needs one more thing: access to the network path, a user, or a local account
    low     a protection that would limit the damage is not in use
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from runnel.model.security_protocol import SecurityProtocol
from runnel.security.acl import (
    ALL_OPERATIONS,
    ANY_USER,
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    allowed_bits,
)
from runnel.security.principal import ANONYMOUS

EXPIRES_SOON_S = 30 * 86400
EXPIRES_NOW_S = 7 * 86400
ACLS_SHOWN_MAX = 3

_HARMLESS = 1 << Operation.DESCRIBE | 1 << Operation.DESCRIBE_CONFIGS
_SECRETS_IN_CLEAR = ("PLAIN", "OAUTHBEARER")
_OLD_VERSIONS = ("SSLv3", "TLSv1", "TLSv1.1")


class Severity(StrEnum):
    """The severity of a finding."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Finding(NamedTuple):
    """What is wrong, what follows from it, and what to do."""

    severity: Severity
    name: str
    """A stable identifier, the same in every release."""
    listener: str | None
    """None if it concerns the whole node."""
    consequence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFacts:
    """What is known of one listener."""

    name: str
    protocol: SecurityProtocol
    is_local: bool
    """Is it reached from this machine only?"""
    is_for_nodes: bool = False
    """Do other brokers or controllers connect to it?"""
    client_auth: str = "none"
    mechanisms: Sequence[str] = ()
    has_endless_sessions: bool | None = None
    """Does a client stay authenticated for as long as it is connected?"""
    tls_versions: Sequence[str] = ()
    verifies_hosts: bool | None = None
    """Does a node that connects to it compare the name in the other's certificate?"""
    expires_s: int | None = None
    """The end of its certificate, in seconds since 1970."""

    @property
    def is_anonymous(self) -> bool:
        """May clients connect without authentication?"""
        return not self.protocol.uses_sasl and (
            self.protocol is SecurityProtocol.PLAINTEXT or self.client_auth != "required"
        )

    @property
    def has_nameless_clients(self) -> bool:
        """Are all clients anonymous?"""
        return self.is_anonymous and (not self.protocol.uses_tls or self.client_auth == "none")


@dataclass(frozen=True, slots=True)
class LooseFile:
    """A file or directory of the node that other users of the machine can access."""

    path: str
    what: str
    mode: int
    has_secrets: bool
    is_directory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a node and its cluster; None is not known."""

    now_s: float
    listeners: Sequence[ListenerFacts]
    has_authorizer: bool
    super_users: frozenset[str] = frozenset()
    allows_unlisted: bool = False
    acls: Sequence[AccessControlEntry] | None = None
    has_quotas: bool | None = None
    limits_connections: bool | None = None
    is_encrypted: bool | None = None
    has_audit_log: bool | None = None
    has_remote_admin_listener: bool | None = None
    """Can the admin listener be reached from other machines?"""
    loose_files: Sequence[LooseFile] = ()


def findings(facts: Facts) -> list[Finding]:
    """All findings, the worst first; those of a listener in the order of the listeners."""
    found = [
        *_authorization(facts),
        *(finding for each in facts.listeners for finding in _listener(each, facts)),
        *_wildcard_acls(facts),
        *_admin_listener(facts),
        *_files(facts.loose_files),
        *_missing(facts),
    ]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def _authorization(facts: Facts) -> Iterator[Finding]:
    if not facts.has_authorizer:
        return
    if facts.listeners and all(each.has_nameless_clients for each in facts.listeners):
        yield Finding(
            Severity.HIGH,
            "authorizer-without-authentication",
            None,
            f"An authorizer is configured, but no listener authenticates clients: all are {ANONYMOUS}, and "
            "ACLs cannot distinguish them.",
            "Use SASL_SSL, or SSL with ssl.client.auth=required, for the listeners of clients and nodes.",
        )
    if str(ANONYMOUS) in facts.super_users:
        yield Finding(
            Severity.HIGH,
            "anonymous-super-user",
            None,
            f"{ANONYMOUS} is a super user: clients without authentication are permitted everything.",
            f"Remove {ANONYMOUS} from super.users, and let nodes authenticate by certificates or SASL.",
        )


def _listener(listener: ListenerFacts, facts: Facts) -> Iterator[Finding]:
    yield from _entry(listener, facts)
    yield from _wiretapping(listener)
    yield from _tls(listener, facts.now_s)
    if listener.protocol.uses_sasl and listener.has_endless_sessions:
        yield Finding(
            Severity.LOW,
            "endless-sessions",
            listener.name,
            "A user that is removed, or whose password is changed, stays connected without a time limit.",
            "Set connections.max.reauth.ms, for example to 3600000.",
        )


def _entry(listener: ListenerFacts, facts: Facts) -> Iterator[Finding]:
    """Who can connect, and what those clients may do."""
    name, protocol = listener.name, listener.protocol
    if not listener.is_anonymous:
        if not facts.has_authorizer:
            yield Finding(
                Severity.MEDIUM,
                "no-authorizer",
                name,
                "Every client that authenticates can read, change and delete everything.",
                "Set authorizer.class.name and super.users, and grant permissions by ACLs.",
            )
        elif facts.allows_unlisted:
            yield _open_without_acls(listener, "Every client that authenticates", Severity.MEDIUM)
        return
    if not facts.has_authorizer:
        reach = "Every user of this machine" if listener.is_local else "Anyone who can connect"
        also = ", and act as a broker or controller" if listener.is_for_nodes else ""
        yield Finding(
            Severity.LOW if listener.is_local else Severity.HIGH,
            "open-to-everyone",
            name,
            f"{reach} can read, change and delete all records, topics and settings{also}: it needs no "
            "authentication.",
            "Use SASL_SSL, or SSL with ssl.client.auth=required, and set authorizer.class.name; or bind it "
            "to a loopback address.",
        )
        return
    if protocol is SecurityProtocol.SSL and listener.client_auth == "requested":
        yield Finding(
            Severity.LOW,
            "optional-certificates",
            name,
            f"A client without a certificate is accepted, as {ANONYMOUS}.",
            "Set ssl.client.auth=required.",
        )
    if facts.allows_unlisted:
        severity = Severity.MEDIUM if listener.is_local else Severity.HIGH
        yield _open_without_acls(listener, "A client without authentication", severity)
    if str(ANONYMOUS) not in facts.super_users:
        yield from _anonymous_acls(listener, facts.acls or ())


def _open_without_acls(listener: ListenerFacts, who: str, severity: Severity) -> Finding:
    return Finding(
        severity,
        "open-without-acls",
        listener.name,
        f"{who} is permitted everything on topics, groups and transactional ids without ACLs; and on the "
        "cluster, if that has none: create ACLs, change settings, act as a broker.",
        "Set allow.everyone.if.no.acl.found=false.",
    )


def _anonymous_acls(listener: ListenerFacts, acls: Iterable[AccessControlEntry]) -> Iterator[Finding]:
    granted = [acl for acl in acls if _is_grant(acl) and acl.principal in (ANY_USER, str(ANONYMOUS))]
    if granted:
        is_high = not listener.is_local and any(_is_far_reaching(acl) for acl in granted)
        yield Finding(
            Severity.HIGH if is_high else Severity.MEDIUM,
            "acls-of-anonymous",
            listener.name,
            f"A client without authentication can {_texts(granted)}.",
            f"Remove the ACLs of {ANONYMOUS} and {ANY_USER}, or require authentication at this listener.",
        )


def _wiretapping(listener: ListenerFacts) -> Iterator[Finding]:
    """What can be read on the network without TLS."""
    protocol = listener.protocol
    if protocol.uses_tls:
        return
    in_clear = [each for each in listener.mechanisms if each in _SECRETS_IN_CLEAR]
    if in_clear:
        yield Finding(
            Severity.LOW if listener.is_local else Severity.HIGH,
            "secrets-in-clear",
            listener.name,
            f"Anyone who can read the network sees the passwords or tokens of {' and '.join(in_clear)}.",
            "Use SASL_SSL.",
        )
    if listener.is_local:
        return
    if any(each.startswith("SCRAM-") for each in listener.mechanisms):
        yield Finding(
            Severity.MEDIUM,
            "scram-in-clear",
            listener.name,
            "Anyone who can read the network can guess passwords offline from recorded SCRAM exchanges, and "
            "take over authenticated connections.",
            "Use SASL_SSL.",
        )
    yield Finding(
        Severity.MEDIUM,
        "unencrypted",
        listener.name,
        "Anyone who can read or change network traffic can read or change all records"
        + (", and what brokers and controllers send each other" if listener.is_for_nodes else "")
        + ".",
        f"Use {'SASL_SSL' if protocol.uses_sasl else 'SSL'}.",
    )


def _tls(listener: ListenerFacts, now_s: float) -> Iterator[Finding]:
    if not listener.protocol.uses_tls:
        return
    old = [version for version in listener.tls_versions if version in _OLD_VERSIONS]
    if old:
        yield Finding(
            Severity.HIGH,
            "old-tls",
            listener.name,
            f"A client can be made to use {' or '.join(old)}, whose encryption can be broken.",
            "Set ssl.enabled.protocols=TLSv1.2,TLSv1.3.",
        )
    if listener.is_for_nodes and listener.verifies_hosts is False:
        yield Finding(
            Severity.MEDIUM,
            "unverified-nodes",
            listener.name,
            "Any certificate of a trusted CA is accepted for another node.",
            "Set ssl.endpoint.identification.algorithm=https.",
        )
    if listener.expires_s is not None and listener.expires_s - now_s < EXPIRES_SOON_S:
        days = (listener.expires_s - now_s) / 86400
        when = "has expired" if days < 0 else f"expires in {days:.0f} days"
        yield Finding(
            Severity.HIGH if listener.expires_s - now_s < EXPIRES_NOW_S else Severity.MEDIUM,
            "certificate-expires",
            listener.name,
            f"The certificate {when}; clients that verify it cannot connect after that.",
            "Replace the key store; a running node reloads it.",
        )


def _wildcard_acls(facts: Facts) -> Iterator[Finding]:
    granted = [
        acl
        for acl in facts.acls or ()
        if facts.has_authorizer and _is_grant(acl) and acl.principal == ANY_USER and _is_far_reaching(acl)
    ]
    if granted:
        yield Finding(
            Severity.MEDIUM,
            "acls-of-all-users",
            None,
            f"Every client can {_texts(granted)}.",
            f"Grant this to the principals that need it, instead of {ANY_USER}.",
        )


def _admin_listener(facts: Facts) -> Iterator[Finding]:
    if facts.has_remote_admin_listener:
        yield Finding(
            Severity.MEDIUM,
            "open-metrics",
            None,
            "Anyone who can connect to the admin listener sees the names of topics and groups, their rates "
            "and their lag: it needs no authentication.",
            "Bind it to a loopback address or a network of your monitoring with --admin, or restrict it by a "
            "firewall.",
        )


def _files(loose: Iterable[LooseFile]) -> Iterator[Finding]:
    for file in loose:
        yield Finding(
            Severity.HIGH if file.has_secrets and file.mode & 0o007 else Severity.MEDIUM,
            "loose-permissions",
            None,
            f"Other users of the machine have access to {file.what} {file.path} (mode {file.mode:04o}).",
            f"Run chmod {'700' if file.is_directory else '600'} on it.",
        )


def _missing(facts: Facts) -> Iterator[Finding]:
    for is_present, name, consequence, remedy in (
        (
            facts.has_audit_log,
            "no-audit-log",
            "Denied and permitted operations cannot be traced to a principal later.",
            "Set audit.log.file or audit.log.topic, which need an authorizer.",
        ),
        (
            facts.has_quotas,
            "no-quotas",
            "One client can use all of the bandwidth and time of a broker.",
            "Set quotas, at least of the default user: runnel quota set.",
        ),
        (
            facts.limits_connections,
            "unlimited-connections",
            "One address can open connections until the broker accepts no others.",
            "Set max.connections.per.ip or max.connections.",
        ),
        (
            facts.is_encrypted,
            "not-encrypted-at-rest",
            "Anyone with a disk, snapshot or backup can read records of topics without encryption.enable.",
            "Use an encrypted volume, or set encryption.master.key.file and log.encryption.enable.",
        ),
    ):
        if is_present is False:
            yield Finding(Severity.LOW, name, None, consequence, remedy)


def _is_grant(acl: AccessControlEntry) -> bool:
    """Does it allow more than DESCRIBE and DESCRIBE_CONFIGS?"""
    is_allowed = acl.permission_type == PermissionType.ALLOW
    return is_allowed and bool(allowed_bits(acl.operation) & ALL_OPERATIONS & ~_HARMLESS)


def _is_far_reaching(acl: AccessControlEntry) -> bool:
    """Does it apply to all resources of a type, or to the cluster?"""
    is_all = acl.resource_name == WILDCARD and acl.pattern_type == PatternType.LITERAL
    return is_all or acl.resource_type == ResourceType.CLUSTER


def _texts(acls: Sequence[AccessControlEntry]) -> str:
    texts = list(dict.fromkeys(map(_text, acls)))
    more = len(texts) - ACLS_SHOWN_MAX
    shown = [*texts[:ACLS_SHOWN_MAX], f"{more} more"] if more > 0 else texts
    return "; ".join(shown)


def _text(acl: AccessControlEntry) -> str:
    operation = Operation(acl.operation).name
    if acl.resource_type == ResourceType.CLUSTER:
        return f"{operation} the cluster"
    kind = ResourceType(acl.resource_type).name.lower().replace("_", " ")
    if acl.resource_name == WILDCARD:
        return f"{operation} every {kind}"
    suffix = WILDCARD if acl.pattern_type == PatternType.PREFIXED else ""
    host = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{operation} the {kind} {acl.resource_name}{suffix}{host}"
