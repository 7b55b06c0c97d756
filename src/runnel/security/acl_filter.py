"""Which ACLs a filter of DescribeAcls and DeleteAcls selects."""

from dataclasses import dataclass

from runnel.security.acl import (
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Conditions that an ACL must meet; None and ANY are met by all."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission_type: int = PermissionType.ANY

    def exact(self) -> AccessControlEntry | None:
        """The only ACL that the filter can match; None if there may be several."""
        name, principal, host = self.resource_name, self.principal, self.host
        if name is None or principal is None or host is None:
            return None
        codes = (self.resource_type, self.operation, self.permission_type)
        if ResourceType.ANY in codes or self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            return None
        return AccessControlEntry(
            self.resource_type,
            name,
            self.pattern_type,
            principal,
            host,
            self.operation,
            self.permission_type,
        )

    def matches(self, acl: AccessControlEntry) -> bool:
        """Whether the filter selects an ACL. Principals and hosts are compared as texts."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: AccessControlEntry) -> bool:
        """MATCH selects the ACLs that apply to a resource of this name."""
        name, wanted = self.resource_name, self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if wanted != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)
