"""The authorizer over the ACLs of the cluster metadata, as Kafka's StandardAuthorizer.

Records of the metadata log update an index (`security/acl_index.py`). What was decided for a connection is
remembered in its session until ACLs change, so that a check costs a lookup, however many ACLs there are.
Until the node has caught up with the metadata log, only super users are allowed anything: that is what other
controllers must be.

Whether a client may use any resource at all is decided in steps, as each of its ACLs may have to be examined.
Large requests are authorized in threads: they read the index while the event loop may change it, and see
each ACL of a change or not.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from runnel.ports.service import Session
from runnel.schemas.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    SnapshotRecord,
)
from runnel.security.acl import (
    ALL_OPERATIONS,
    AccessControlEntry,
    Operation,
    Permission,
    ResourceType,
    parse_address,
)
from runnel.security.acl_index import AclIndex

if TYPE_CHECKING:
    from runnel.controller.settings import Settings
    from runnel.security.principal import Principal

VERDICTS_MAX = 256
"""Resources of which the operations that a connection may do are remembered."""

REMEMBERED_CHARACTERS_MAX = 512
"""Clients may choose names of many kilobytes: longer ones are looked up each time."""

_OPEN_OF_CLUSTER = 1 << Operation.DESCRIBE | 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.IDEMPOTENT_WRITE
"""The operations that everyone has on a cluster without ACLs, if there is an audit topic: who may alter it,
delete its topics or act as a broker has access to the audit topic as well."""


class Verdicts:
    """What was decided for the principal of one connection."""

    __slots__ = ("address", "by_resource", "is_super_user", "name", "principal", "version")

    def __init__(self, session: Session, version: int, super_users: frozenset[str]) -> None:
        self.version = version
        self.principal: Principal = session.principal
        self.name = str(session.principal)
        self.is_super_user = self.name in super_users
        self.address = parse_address(session.client_host)
        self.by_resource: dict[tuple[int, str], int] = {}
        """The allowed operations, as bit fields."""


class AclAuthorizer:
    """Permits all requests of super users, and those that ACLs allow."""

    def __init__(
        self, super_users: frozenset[str], *, allow_unlisted: bool, is_audited: bool, audit_topic: str = ""
    ) -> None:
        self.version = 1
        self._audit_topic = audit_topic
        """Exempt from allow.everyone.if.no.acl.found: it needs ACLs, and then the cluster does, too."""
        self._super_users = super_users
        self._allow_unlisted = allow_unlisted
        self._is_audited = is_audited
        self._index = AclIndex()
        self._is_loaded = False

    @classmethod
    def of(cls, settings: "Settings", *, is_audited: bool) -> "AclAuthorizer":
        """The authorizer with these settings."""
        names = (settings.text("super.users") or "").split(";")
        return cls(
            frozenset(name.strip() for name in names if name.strip()),
            allow_unlisted=settings.bool("allow.everyone.if.no.acl.found"),
            is_audited=is_audited,
            audit_topic=settings.text("audit.log.topic") or "",
        )

    # -- decisions

    def allows_all(self, session: Session) -> bool:
        # What is recorded must be checked, also of super users.
        return not self._is_audited and self._verdicts(session).is_super_user

    def allows(self, session: Session, permission: Permission) -> bool:
        allowed = self.operations(session, permission.resource_type, permission.name)
        return bool(allowed >> permission.operation & 1)

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        verdicts = self._verdicts(session)
        if verdicts.is_super_user:
            return ALL_OPERATIONS
        if not self._is_loaded:
            return 0
        known = verdicts.by_resource
        key = (resource_type, name)
        allowed = known.get(key)
        if allowed is None:
            allowed = self._looked_up(verdicts, resource_type, name)
            if len(name) > REMEMBERED_CHARACTERS_MAX:
                return allowed
            if len(known) >= VERDICTS_MAX:
                known.clear()
            known[key] = allowed
        return allowed

    def _looked_up(self, verdicts: Verdicts, resource_type: ResourceType, name: str) -> int:
        subject = (verdicts.name, verdicts.address, resource_type, name)
        if not self._allow_unlisted:
            return self._index.operations(*subject)
        if not self._audit_topic or resource_type not in (ResourceType.TOPIC, ResourceType.CLUSTER):
            return self._index.operations(*subject, allow_unlisted=True)
        if resource_type == ResourceType.TOPIC:
            return self._index.operations(*subject, allow_unlisted=name != self._audit_topic)
        open_to_all = self._index.operations(*subject, allow_unlisted=True) & _OPEN_OF_CLUSTER
        return self._index.operations(*subject) | open_to_all

    def allows_some(
        self, session: Session, operation: Operation, resource_type: ResourceType
    ) -> Iterator[bool | None]:
        verdicts = self._verdicts(session)
        if verdicts.is_super_user or not self._is_loaded:
            return iter((verdicts.is_super_user,))
        return self._index.allows_some(
            verdicts.name, verdicts.address, operation, resource_type, allow_unlisted=self._allow_unlisted
        )

    def _verdicts(self, session: Session) -> Verdicts:
        known: Verdicts | None = session.verdicts
        if known is None or known.version != self.version or known.principal != session.principal:
            known = session.verdicts = Verdicts(session, self.version, self._super_users)
        return known

    # -- metadata

    def loaded(self) -> None:
        """The node has caught up with the metadata log."""
        if not self._is_loaded:
            self._is_loaded = True
            self.version += 1

    def replayed(self, records: list[MetadataRecord]) -> None:
        """These records of the metadata log were committed."""
        has_changed = False
        for record in records:
            if type(record) is AccessControlEntryRecord:
                self._index.add(bytes(record.id), _entry(record))
            elif type(record) is RemoveAccessControlEntryRecord:
                self._index.remove(bytes(record.id))
            elif type(record) is SnapshotRecord:
                self._index = AclIndex()
            else:
                continue
            has_changed = True
        if has_changed:
            # Afterwards: what another thread decided meanwhile is not remembered.
            self.version += 1

    def replace(self, acls: Mapping[bytes, AccessControlEntry]) -> Iterator[None]:
        """The metadata was replaced by a snapshot, in steps; the old ACLs apply until the last one."""
        index = AclIndex()
        yield from index.build(acls)
        self._index = index
        self.version += 1


def _entry(record: AccessControlEntryRecord) -> AccessControlEntry:
    return AccessControlEntry(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
