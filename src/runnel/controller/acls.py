"""CreateAcls and DeleteAcls: what they change, decided in steps; and which ACLs a filter selects.

A filter that names one ACL is a lookup; any other one is compared with all ACLs, a step at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from runnel.controller.image import MetadataImage
from runnel.controller.steps import Steps
from runnel.messages.create_acls import AclCreation, AclCreationResult
from runnel.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import ACL_CHANGES_PER_REQUEST_MAX, ACL_SCANS_PER_REQUEST_MAX
from runnel.schemas.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from runnel.security.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    is_malformed_range,
)
from runnel.security.acl_filter import AclFilter

T = TypeVar("T")

STEP = 1000
"""ACLs that are created, or compared with a filter, in one step: some milliseconds."""

_KNOWN_OPERATIONS = frozenset(Operation)
_KNOWN_TYPES = frozenset(ResourceType)
_KNOWN_PATTERNS = frozenset(PatternType)
_KNOWN_PERMISSIONS = frozenset(PermissionType)


def has_unknown_codes(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> bool:
    """Whether a request has a code that this release does not know: Kafka closes its connection."""
    return (
        resource_type not in _KNOWN_TYPES
        or pattern_type not in _KNOWN_PATTERNS
        or operation not in _KNOWN_OPERATIONS
        or permission_type not in _KNOWN_PERMISSIONS
    )


def create_acls(
    image: MetadataImage, creations: Sequence[AclCreation], new_id: Callable[[], bytes]
) -> Steps[list[AclCreationResult]]:
    """Create ACLs; those that exist are left as they are. Raises ApiError if there are too many."""
    results: list[AclCreationResult] = []
    new: dict[AccessControlEntry, None] = {}
    for some in _chunks(creations):
        for creation in some:
            acl = _entry(creation)
            refusal = _refusal(acl)
            if refusal is not None:
                results.append(AclCreationResult(ErrorCode.INVALID_REQUEST.code, refusal))
                continue
            results.append(AclCreationResult(error_message=None))
            if acl not in image.acl_ids:
                new[acl] = None
        image = yield []
    if len(new) > ACL_CHANGES_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(new)} ACLs in one request, the limit is {ACL_CHANGES_PER_REQUEST_MAX}",
        )
    for some_new in _chunks(new):
        image = yield [_record(new_id(), acl) for acl in some_new if acl not in image.acl_ids]
    return results


def _entry(creation: AclCreation) -> AccessControlEntry:
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _refusal(acl: AccessControlEntry) -> str | None:
    """Why an ACL cannot be created."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type == ResourceType.ANY:
        return "Invalid resourceType ANY"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {PatternType(acl.pattern_type).name}"
    if acl.operation == Operation.ANY:
        return "Invalid operation ANY"
    if acl.permission_type == PermissionType.ANY:
        return "Invalid permissionType ANY"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    if is_malformed_range(acl.host):
        return f"{acl.host} is not a range of addresses such as 10.0.0.0/8"
    return None


def _record(acl_id: bytes, acl: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def delete_acls(image: MetadataImage, filters: Sequence[AclFilter]) -> Steps[list[list[AccessControlEntry]]]:
    """Delete the ACLs that filters select; returns those of each filter. Raises ApiError.

    Nothing is deleted if there are too many.
    """
    found: list[list[AccessControlEntry]] = [[] for _ in filters]
    hit: dict[AccessControlEntry, None] = {}
    scans: list[tuple[int, AclFilter]] = []
    for some in _chunks(enumerate(filters)):
        for index, each in some:
            acl = each.exact()
            if acl is None:
                scans.append((index, each))
            elif acl in image.acl_ids:
                found[index].append(acl)
                hit[acl] = None
        image = yield []
    if len(scans) > ACL_SCANS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(scans)} filters that may match several ACLs, the limit is {ACL_SCANS_PER_REQUEST_MAX}",
        )
    for index, each in scans:
        for some_acls in _chunks(list(image.acl_ids)):
            matching = [acl for acl in some_acls if each.matches(acl)]
            found[index] += matching
            hit.update(dict.fromkeys(matching))
            image = yield []
    if len(hit) > ACL_CHANGES_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot remove more than {ACL_CHANGES_PER_REQUEST_MAX} acls in a single delete operation.",
        )
    for some_hit in _chunks(hit):
        records: list[MetadataRecord] = [
            RemoveAccessControlEntryRecord(image.acl_ids[acl]) for acl in some_hit if acl in image.acl_ids
        ]
        image = yield records
    return found


def matching_acls(acls: Iterable[AccessControlEntry]) -> DeleteAclsFilterResult:
    """The response for a filter that has selected these ACLs."""
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ],
    )


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, STEP)):
        yield chunk
