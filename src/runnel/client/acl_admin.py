"""Administration of ACLs."""

from collections.abc import Sequence

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from runnel.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from runnel.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from runnel.security.acl import AccessControlEntry
from runnel.security.acl_filter import AclFilter

CHANGES_MAX = 5_000
"""ACLs of one request."""


class AclAdmin:
    """Creates, describes and deletes ACLs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self, acls: Sequence[AccessControlEntry]) -> None:
        """Create ACLs; those that exist are left as they are."""
        for start in range(0, len(acls), CHANGES_MAX):
            creations = [
                AclCreation(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for acl in acls[start : start + CHANGES_MAX]
            ]
            request = CreateAclsRequest(creations)
            response = await self._cluster.send_to_controller(request, CreateAclsResponse)
            for result in response.results:
                check(result.error_code, "creating an ACL", result.error_message)

    async def describe(self, wanted: AclFilter) -> list[AccessControlEntry]:
        """The ACLs that a filter selects, in order of resource and principal."""
        request = DescribeAclsRequest(*_fields(wanted))
        response = await self._cluster.retry(lambda: self._cluster.send_to_any(request, DescribeAclsResponse))
        check(response.error_code, "describing ACLs", response.error_message)
        found = [
            AccessControlEntry(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        ]
        return sorted(found, key=_order)

    async def delete(self, filters: Sequence[AclFilter]) -> list[AccessControlEntry]:
        """Delete the ACLs that filters select; returns them."""
        request = DeleteAclsRequest([DeleteAclsFilter(*_fields(each)) for each in filters])
        response = await self._cluster.send_to_controller(request, DeleteAclsResponse)
        found: dict[AccessControlEntry, None] = {}
        for result in response.filter_results:
            check(result.error_code, "deleting ACLs", result.error_message)
            for each in result.matching_acls:
                check(each.error_code, "deleting an ACL", each.error_message)
                acl = AccessControlEntry(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
                found[acl] = None
        return sorted(found, key=_order)


def exactly(acl: AccessControlEntry) -> AclFilter:
    """The filter that selects one ACL."""
    return AclFilter(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _fields(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    return (
        wanted.resource_type,
        wanted.resource_name,
        wanted.pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )


def _order(acl: AccessControlEntry) -> tuple[int | str, ...]:
    return (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation)
