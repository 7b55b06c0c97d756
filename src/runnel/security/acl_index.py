"""ACLs in the form in which they are evaluated.

    principal, resource type → literal names, prefixes → hosts → (allowed, denied) operations

A check looks up the name, `*` and the prefixes of the name whose lengths are in use, for the principal and
for `User:*`: its cost depends on the length of the name, and not on how many ACLs there are. Operations are
bit fields into which the implied ones are folded, so that one check decides about all operations on a
resource.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from runnel.security.acl import (
    ALL_OPERATIONS,
    ANY_USER,
    WILDCARD,
    AccessControlEntry,
    Address,
    PatternType,
    PermissionType,
    Range,
    allowed_bits,
    denied_bits,
    enclosing,
    parse_host,
)

_HARD_CODED = "hardcode"
"""The topic that Kafka asks about before it looks for any that a principal may write to."""

_DECISIONS_MAX = 1000
"""Remembered decisions whether a principal may do something with any resource at all."""

BUILD_STEP = 1000
"""ACLs that are added to a new index before other work is done: some milliseconds."""

_EVERY = (PatternType.LITERAL, WILDCARD)
"""The pattern of every resource."""

T = TypeVar("T")


class _Counted:
    """Counts; a key whose count is 0 is not kept."""

    __slots__ = ("counts", "keys")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.keys: tuple[int, ...] = ()
        """The counted keys; replaced and never changed, as other threads read them."""

    def add(self, key: int, count: int) -> None:
        total = self.counts.get(key, 0) + count
        if total:
            self.counts[key] = total
        else:
            del self.counts[key]
        if total in (0, count):
            self.keys = tuple(sorted(self.counts))


class _Names(Generic[T]):
    """Values by the pattern of a resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, T] = {}
        self.prefixed: dict[str, T] = {}
        self.lengths = _Counted()

    def of(self, pattern_type: int) -> dict[str, T]:
        return self.prefixed if pattern_type == PatternType.PREFIXED else self.literal

    def put(self, pattern_type: int, name: str, value: T) -> None:
        if pattern_type == PatternType.PREFIXED and name not in self.prefixed:
            self.lengths.add(len(name), 1)
        self.of(pattern_type)[name] = value

    def remove(self, pattern_type: int, name: str) -> None:
        del self.of(pattern_type)[name]
        if pattern_type == PatternType.PREFIXED:
            self.lengths.add(len(name), -1)

    def matching(self, name: str) -> Iterator[T]:
        """The values of all patterns that match a name."""
        literal, prefixed = self.literal, self.prefixed
        if (found := literal.get(name)) is not None:
            yield found
        if (found := literal.get(WILDCARD)) is not None and name != WILDCARD:
            yield found
        for length in self.lengths.keys:
            if length > len(name):
                return
            if (found := prefixed.get(name[:length])) is not None:
                yield found

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


class _Operations:
    """The operations that the ACLs of one principal, pattern and host allow and deny."""

    __slots__ = ("allowed", "counts", "denied")

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        """ACLs by operation and permission: two may differ only in how the host is written."""
        self.allowed = self.denied = 0

    def add(self, acl: AccessControlEntry, count: int) -> None:
        key = (acl.operation, acl.permission_type)
        total = self.counts.get(key, 0) + count
        if total:
            self.counts[key] = total
        else:
            del self.counts[key]
        allowed = denied = 0
        for operation, permission in self.counts:
            if permission == PermissionType.DENY:
                denied |= denied_bits(operation)
            elif permission == PermissionType.ALLOW:
                allowed |= allowed_bits(operation)
        self.allowed, self.denied = allowed, denied


class _Hosts:
    """The ACLs of one principal and pattern, by host."""

    __slots__ = ("by_host", "lengths")

    def __init__(self) -> None:
        self.by_host: dict[Address, _Operations] = {}
        self.lengths = _Counted()

    def add(self, acl: AccessControlEntry, count: int) -> None:
        host = parse_host(acl.host)
        operations = self.by_host.get(host)
        if operations is None:
            operations = self.by_host[host] = _Operations()
            self._count(host, 1)
        operations.add(acl, count)
        if not operations.counts:
            del self.by_host[host]
            self._count(host, -1)

    def _count(self, host: Address, count: int) -> None:
        if isinstance(host, Range):
            self.lengths.add(host.length, count)

    def of(self, address: Address) -> tuple[int, int]:
        """(allowed, denied) operations of a client at this address."""
        if len(self.by_host) == 1 and (found := self.by_host.get(WILDCARD)) is not None:
            return found.allowed, found.denied
        hosts: list[Address] = [WILDCARD]
        if isinstance(address, Range):
            hosts += [enclosing(address, length) for length in self.lengths.keys if length <= address.length]
        else:
            hosts.append(address)
        allowed = denied = 0
        for host in hosts:
            found = self.by_host.get(host)
            if found is not None:
                allowed |= found.allowed
                denied |= found.denied
        return allowed, denied


class _Subject(_Names[_Hosts]):
    """The ACLs of one principal about one type of resources."""

    __slots__ = ("by_operation",)

    def __init__(self) -> None:
        super().__init__()
        self.by_operation: dict[tuple[int, int], dict[tuple[int, str], int]] = {}
        """How many ACLs each pattern has, by permission and operation."""

    def count(self, acl: AccessControlEntry, count: int) -> None:
        key, pattern = (acl.permission_type, acl.operation), (acl.pattern_type, acl.resource_name)
        patterns = self.by_operation.setdefault(key, {})
        patterns[pattern] = patterns.get(pattern, 0) + count
        if not patterns[pattern]:
            del patterns[pattern]
            if not patterns:
                del self.by_operation[key]

    def allowing(self, operation: int) -> Iterator[tuple[int, str]]:
        """The patterns with ACLs that allow an operation, for some host."""
        for (permission, given), patterns in list(self.by_operation.items()):
            if permission == PermissionType.ALLOW and allowed_bits(given) >> operation & 1:
                yield from list(patterns)

    def denying(self, operation: int) -> Iterator[tuple[int, str]]:
        """The patterns with ACLs that deny an operation, for some host."""
        for (permission, given), patterns in list(self.by_operation.items()):
            if permission == PermissionType.DENY and denied_bits(given) >> operation & 1:
                yield from list(patterns)


class AclIndex:
    """A set of ACLs by id, and what they permit."""

    def __init__(self) -> None:
        self._acls: dict[bytes, AccessControlEntry] = {}
        self._names: dict[tuple[str, int], _Subject] = {}
        """By principal and resource type."""
        self._patterns: dict[int, _Names[int]] = {}
        """How many ACLs of any principal each pattern has, by resource type."""
        self._decisions: dict[tuple[str, Address, int, int, bool], bool] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, acl_id: bytes, acl: AccessControlEntry) -> None:
        """An ACL was created, or replaced."""
        if acl_id in self._acls:
            self.remove(acl_id)
        self._acls[acl_id] = acl
        self._change(acl, 1)

    def remove(self, acl_id: bytes) -> None:
        """An ACL was deleted."""
        self._change(self._acls.pop(acl_id), -1)

    def build(self, acls: Mapping[bytes, AccessControlEntry]) -> Iterator[None]:
        """Add many ACLs, in steps."""
        for count, (acl_id, acl) in enumerate(acls.items(), 1):
            self.add(acl_id, acl)
            if count % BUILD_STEP == 0:
                yield

    def _change(self, acl: AccessControlEntry, count: int) -> None:
        self._decisions.clear()
        kind, name = acl.pattern_type, acl.resource_name
        key = (acl.principal, acl.resource_type)
        names = self._names.setdefault(key, _Subject())
        names.count(acl, count)
        hosts = names.of(kind).get(name)
        if hosts is None:
            hosts = _Hosts()
            names.put(kind, name, hosts)
        hosts.add(acl, count)
        if not hosts.by_host:
            names.remove(kind, name)
            if not names:
                del self._names[key]
        patterns = self._patterns.setdefault(acl.resource_type, _Names())
        total = patterns.of(kind).get(name, 0) + count
        if total:
            patterns.put(kind, name, total)
        else:
            patterns.remove(kind, name)

    def operations(
        self, principal: str, address: Address, resource_type: int, name: str, *, allow_unlisted: bool = False
    ) -> int:
        """The operations that a principal may do on a resource, as a bit field.

        `allow_unlisted`: all of them, if no ACL of any principal is about the resource.
        """
        allowed = denied = 0
        for subject in (principal, ANY_USER):
            names = self._names.get((subject, resource_type))
            if names is None:
                continue
            for hosts in names.matching(name):
                more_allowed, more_denied = hosts.of(address)
                allowed |= more_allowed
                denied |= more_denied
        if allow_unlisted and not self._has_acls(resource_type, name):
            return ALL_OPERATIONS
        return allowed & ~denied

    def _has_acls(self, resource_type: int, name: str) -> bool:
        patterns = self._patterns.get(resource_type)
        return patterns is not None and next(patterns.matching(name), None) is not None

    def allows_some(
        self,
        principal: str,
        address: Address,
        operation: int,
        resource_type: int,
        *,
        allow_unlisted: bool = False,
    ) -> bool:
        """Whether a principal may do this with at least one resource of the type (KIP-679).

        That is, a pattern is allowed that no denied pattern contains.
        """
        key = (principal, address, operation, resource_type, allow_unlisted)
        decision = self._decisions.get(key)
        if decision is None:
            usual = self.operations(
                principal, address, resource_type, _HARD_CODED, allow_unlisted=allow_unlisted
            )
            is_usual = bool(usual >> operation & 1)
            decision = is_usual or self._allows_some(principal, address, operation, resource_type)
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _allows_some(self, principal: str, address: Address, operation: int, resource_type: int) -> bool:
        bit = 1 << operation
        found = [self._names.get((subject, resource_type)) for subject in (principal, ANY_USER)]
        subjects = [names for names in found if names is not None]
        denied = {
            pattern
            for names in subjects
            for pattern in names.denying(operation)
            if _of(names, pattern, address)[1] & bit
        }
        if _EVERY in denied:
            return False
        prefixes = {name for kind, name in denied if kind == PatternType.PREFIXED}
        lengths = sorted({len(prefix) for prefix in prefixes})

        def is_contained_in_denied(pattern: tuple[int, str]) -> bool:
            name = pattern[1]
            return pattern in denied or any(name[:length] in prefixes for length in lengths)

        return any(
            _of(names, pattern, address)[0] & bit
            and (pattern == _EVERY or not denied or not is_contained_in_denied(pattern))
            for names in subjects
            for pattern in names.allowing(operation)
        )


def _of(names: _Subject, pattern: tuple[int, str], address: Address) -> tuple[int, int]:
    """(allowed, denied) operations of the ACLs with a pattern."""
    hosts = names.of(pattern[0]).get(pattern[1])
    return (0, 0) if hosts is None else hosts.of(address)
