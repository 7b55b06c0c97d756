"""ACLs in the form in which they are evaluated.

    principal, resource type → literal names, prefixes → hosts → (allowed, denied) operations

A check looks up the name, `*` and the prefixes of the name whose lengths are in use, for the principal and
for `User:*`: its cost depends on the length of the name, and not on how many ACLs there are. Operations are
bit fields into which the implied ones are folded, so that one check decides about all operations on a
resource.

Whether there is a resource at all that a principal may use (`allows_some`) may depend on each of its ACLs:
that is decided in steps, and remembered until ACLs of the principal or of `User:*` change.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
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

SEARCH_STEP = 5000
"""Lookups of one step of `allows_some`: a few milliseconds."""

FIRST_SEARCH_STEP = 500
"""Of the first one, which finds what most clients are allowed; many clients may ask at the same time."""

LOOKUPS_PER_PATTERN = 5
"""What an allowed pattern costs such a step besides the prefixes and hosts that are tried: whether it is
allowed and denied, to the principal and to `User:*`."""

SEARCHES_MAX = 3
"""Searches of one `allows_some`: ACLs that have changed between its steps make it search once more."""

_EVERY = (PatternType.LITERAL, WILDCARD)
"""The pattern of every resource."""

T = TypeVar("T")

_States = tuple[object, object]
"""Of the ACLs of a principal and of `User:*`; compared by identity."""


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

    __slots__ = ("by_operation", "limited", "state")

    def __init__(self) -> None:
        super().__init__()
        self.by_operation: dict[tuple[int, int], dict[tuple[int, str], int]] = {}
        """How many ACLs each pattern has, by permission and operation."""
        self.limited = 0
        """How many ACLs are for some hosts only."""
        self.state = object()
        """Replaced after each change."""

    def count(self, acl: AccessControlEntry, count: int) -> None:
        if acl.host != WILDCARD:
            self.limited += count
        key, pattern = (acl.permission_type, acl.operation), (acl.pattern_type, acl.resource_name)
        patterns = self.by_operation.setdefault(key, {})
        patterns[pattern] = patterns.get(pattern, 0) + count
        if not patterns[pattern]:
            del patterns[pattern]
            if not patterns:
                del self.by_operation[key]

    def allowing(self, operation: int) -> list[dict[tuple[int, str], int]]:
        """The patterns with ACLs that allow an operation, for some host."""
        return [
            patterns
            for (permission, given), patterns in self.by_operation.items()
            if permission == PermissionType.ALLOW and allowed_bits(given) >> operation & 1
        ]

    def has_denials(self, operation: int) -> bool:
        """Whether there is an ACL that denies an operation, for some host."""
        return any(
            permission == PermissionType.DENY and denied_bits(given) >> operation & 1
            for permission, given in self.by_operation
        )

    def denies(self, pattern: tuple[int, str], address: Address, bit: int) -> bool:
        """Whether an operation is denied to a client by a pattern that contains this one."""
        kind, name = pattern
        literal, prefixed = self.literal, self.prefixed
        if (found := literal.get(WILDCARD)) is not None and found.of(address)[1] & bit:
            return True
        if pattern == _EVERY:
            return False
        found = literal.get(name) if kind == PatternType.LITERAL else None
        if found is not None and found.of(address)[1] & bit:
            return True
        for length in self.lengths.keys:
            if length > len(name):
                return False
            if (found := prefixed.get(name[:length])) is not None and found.of(address)[1] & bit:
                return True
        return False


class AclIndex:
    """A set of ACLs by id, and what they permit."""

    def __init__(self) -> None:
        self._acls: dict[bytes, AccessControlEntry] = {}
        self._names: dict[tuple[str, int], _Subject] = {}
        """By principal and resource type."""
        self._patterns: dict[int, _Names[int]] = {}
        """How many ACLs of any principal each pattern has, by resource type."""
        self._decisions: dict[tuple[str, Address, int, int], tuple[_States, bool]] = {}
        """Whether a principal, from an address, may do an operation with any resource of a type."""

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
        names.state = object()
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
    ) -> Iterator[bool | None]:
        """Whether a principal may do this with at least one resource of the type (KIP-679).

        That is, a pattern is allowed that no denied pattern contains. It is decided in steps: None after each
        that is not the last one. If ACLs of the principal change between them, a denial is decided again;
        only if they keep changing, it may be that each ACL was denied at a different time.
        """
        decision: bool | None = False
        for _ in range(SEARCHES_MAX):
            usual = self.operations(
                principal, address, resource_type, _HARD_CODED, allow_unlisted=allow_unlisted
            )
            if usual >> operation & 1:
                yield True
                return
            states = self._states(principal, resource_type)
            key = self._decision_key(principal, address, operation, resource_type)
            known = self._decisions.get(key)
            if known is not None and _are_same(known[0], states):
                yield known[1]
                return
            for decision in self._search(principal, address, operation, resource_type):
                if decision is None:
                    yield None
            has_changed = not _are_same(self._states(principal, resource_type), states)
            if not has_changed:
                if len(self._decisions) >= _DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = states, bool(decision)
            if decision or not has_changed:
                break
        yield bool(decision)

    def _subjects(self, principal: str, resource_type: int) -> list[_Subject]:
        found = [self._names.get((subject, resource_type)) for subject in (principal, ANY_USER)]
        return [names for names in found if names is not None]

    def _states(self, principal: str, resource_type: int) -> _States:
        own, common = (self._names.get((subject, resource_type)) for subject in (principal, ANY_USER))
        return own and own.state, common and common.state

    def _decision_key(
        self, principal: str, address: Address, operation: int, resource_type: int
    ) -> tuple[str, Address, int, int]:
        """Clients share a decision if the ACLs do not distinguish them."""
        if (principal, resource_type) not in self._names:
            principal = ANY_USER
        if not any(names.limited for names in self._subjects(principal, resource_type)):
            address = WILDCARD
        return principal, address, operation, resource_type

    def _search(
        self, principal: str, address: Address, operation: int, resource_type: int
    ) -> Iterator[bool | None]:
        """Look for an allowed pattern that is not denied, in steps; ACLs may change between two of them."""
        bit, left = 1 << operation, FIRST_SEARCH_STEP
        found = [
            patterns
            for names in self._subjects(principal, resource_type)
            for patterns in names.allowing(operation)
        ]
        patterns: Iterator[tuple[int, str]] = chain.from_iterable(found)
        is_first = True
        while True:
            subjects = self._subjects(principal, resource_type)
            denying = [names for names in subjects if names.has_denials(operation)]
            if any(names.denies(_EVERY, address, bit) for names in denying):
                yield False
                return
            lookups = LOOKUPS_PER_PATTERN + sum(len(names.lengths.keys) for names in denying)
            for pattern in patterns:
                for names in subjects:
                    hosts = names.of(pattern[0]).get(pattern[1])
                    if hosts is None:
                        continue
                    left -= len(hosts.lengths.keys)
                    if hosts.of(address)[0] & bit and not any(
                        [each.denies(pattern, address, bit) for each in denying]
                    ):
                        yield True
                        return
                left -= lookups
                if left <= 0:
                    break
            else:
                yield False
                return
            yield None
            left = SEARCH_STEP
            if is_first:
                # They may change from now on. Copying them takes longer than the first step.
                patterns, is_first = chain.from_iterable(list(each) for each in found), False


def _are_same(states: _States, others: _States) -> bool:
    return states[0] is others[0] and states[1] is others[1]
