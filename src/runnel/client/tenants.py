"""Tenants: principals that share a name prefix, with ACLs on it and quotas.

Kafka has no tenants. Here a tenant is a record in a compacted topic, the ACLs that permit its principals all
operations on topics, groups and transactional ids with its prefix, and quotas of its users. ACLs and quotas
are Kafka's, and can be seen and changed with any tool; the record only says what belongs together.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError, check
from runnel.client.producer import Producer
from runnel.client.quotas import Quotas
from runnel.client.reader import Reader
from runnel.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from runnel.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from runnel.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.security.principal import USER

TENANTS_TOPIC = "__runnel_tenants"

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
RESOURCE_TYPES = (TOPIC, GROUP, TRANSACTIONAL_ID)
PREFIXED, ALLOW, ALL, ANY = 4, 3, 2, 1
ANY_HOST = "*"


class TenantError(ClientError):
    """The tenant cannot be created, or does not exist."""


class NoAuthorizer(TenantError):
    """The cluster has no ACLs, so that nothing separates tenants."""

    def __init__(self) -> None:
        super().__init__(
            "the cluster has no authorizer, so that ACLs would not separate tenants: "
            "set authorizer.class.name on its nodes"
        )


@dataclass(frozen=True, slots=True)
class Tenant:
    """What belongs to one tenant."""

    name: str
    prefix: str
    principals: tuple[str, ...]
    quotas: dict[str, float]
    """The quotas that each of its users was given, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What a tenant has at present."""

    acls: int
    """How many of its ACLs exist: three for each principal."""
    quotas: dict[str, dict[str, float]]
    """The quotas in force, by user."""
    topics: int
    partitions: int
    stored_bytes: int
    """The size of all replicas."""


class Tenants:
    """Creates, describes and deletes tenants."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._quotas = Quotas(cluster)

    async def all(self) -> list[Tenant]:
        """All tenants, by name."""
        if not any(view.name == TENANTS_TOPIC for view in await self._admin.topics()):
            return []
        found: dict[str, Tenant] = {}
        async with Reader(self._cluster, out_of_range="earliest") as reader:
            await reader.assign({TopicPartition(TENANTS_TOPIC, 0): 0})
            async for message in reader.messages_to_end():
                name = (message.key or b"").decode()
                if message.value is None:
                    found.pop(name, None)
                else:
                    found[name] = _tenant(name, message.value)
        return sorted(found.values(), key=lambda tenant: tenant.name)

    async def get(self, name: str) -> Tenant:
        """A tenant. Raises TenantError."""
        for tenant in await self.all():
            if tenant.name == name:
                return tenant
        raise TenantError(f"there is no tenant {name!r}")

    async def create(self, tenant: Tenant) -> None:
        """Create its ACLs, its quotas and its record, in this order: a failed creation can be repeated."""
        users = _users(tenant.principals)
        _check_distinct(tenant, await self.all())
        await self._create_acls(tenant)
        if tenant.quotas:
            for user in users:
                await self._quotas.alter({"user": user}, tenant.quotas)
        await self._store(tenant.name, json.dumps(asdict(tenant)).encode())

    async def delete(self, tenant: Tenant) -> None:
        """Delete its ACLs, its quotas and its record, in this order; its topics remain."""
        await self._delete_acls(tenant)
        for user, values in (await self._quotas_of(tenant)).items():
            removed = dict.fromkeys(values.keys() & tenant.quotas.keys())
            if removed:
                await self._quotas.alter({"user": user}, removed)
        await self._store(tenant.name, None)

    async def usage(self, tenant: Tenant) -> TenantUsage:
        """What the tenant has at present."""
        topics = await self.topics_of(tenant)
        names = set(topics)
        sizes = await self._admin.sizes()
        return TenantUsage(
            await self._count_acls(tenant),
            await self._quotas_of(tenant),
            len(topics),
            sum(topics.values()),
            sum(size for partition, size in sizes.items() if partition.topic in names),
        )

    async def topics_of(self, tenant: Tenant) -> dict[str, int]:
        """The partitions of each topic of the tenant."""
        views = await self._admin.topics()
        return {view.name: len(view.partitions) for view in views if view.name.startswith(tenant.prefix)}

    async def _quotas_of(self, tenant: Tenant) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for user in _users(tenant.principals):
            for view in await self._quotas.describe({"user": user}, is_exact=True):
                found[user] = view.values
        return found

    async def _create_acls(self, tenant: Tenant) -> None:
        creations = [
            AclCreation(kind, tenant.prefix, PREFIXED, principal, ANY_HOST, ALL, ALLOW)
            for principal in tenant.principals
            for kind in RESOURCE_TYPES
        ]
        response = await self._cluster.send_to_controller(CreateAclsRequest(creations), CreateAclsResponse)
        for result in response.results:
            _check_acls(result.error_code, "creating ACLs", result.error_message)

    async def _delete_acls(self, tenant: Tenant) -> None:
        filters = [
            DeleteAclsFilter(kind, tenant.prefix, PREFIXED, principal, ANY_HOST, ALL, ALLOW)
            for principal in tenant.principals
            for kind in RESOURCE_TYPES
        ]
        response = await self._cluster.send_to_controller(DeleteAclsRequest(filters), DeleteAclsResponse)
        for result in response.filter_results:
            _check_acls(result.error_code, "deleting ACLs", result.error_message)
            for acl in result.matching_acls:
                check(acl.error_code, "deleting ACLs", acl.error_message)

    async def _count_acls(self, tenant: Tenant) -> int:
        request = DescribeAclsRequest(ANY, tenant.prefix, PREFIXED, None, None, ALL, ALLOW)
        response = await self._cluster.send_to_any(request, DescribeAclsResponse)
        _check_acls(response.error_code, "describing ACLs", response.error_message)
        return sum(
            acl.principal in tenant.principals and acl.host == ANY_HOST
            for resource in response.resources
            if resource.resource_type in RESOURCE_TYPES
            for acl in resource.acls
        )

    async def _store(self, name: str, value: bytes | None) -> None:
        try:
            await self._admin.create_topic(
                TENANTS_TOPIC, partitions=1, settings={"cleanup.policy": "compact"}
            )
        except BrokerError as error:
            if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        async with Producer(self._cluster) as producer:
            await producer.send_and_wait(TENANTS_TOPIC, value, key=name.encode())


def _tenant(name: str, value: bytes) -> Tenant:
    try:
        fields = json.loads(value)
        return Tenant(name, fields["prefix"], tuple(fields["principals"]), dict(fields["quotas"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TenantError(
            f"the record of tenant {name!r} in {TENANTS_TOPIC} is malformed: {error!r}"
        ) from error


def _users(principals: Iterable[str]) -> list[str]:
    """The names of users. Raises TenantError for a principal of another type, which can have no quota."""
    users = []
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if kind != USER or not colon or not name or name == "*":
            raise TenantError(f"{principal!r} is not a principal of a user, as User:etl is")
        users.append(name)
    return users


def _check_distinct(new: Tenant, others: list[Tenant]) -> None:
    """Tenants share neither a name, nor a principal, whose quotas are one, nor a resource."""
    for other in others:
        if other.name == new.name:
            raise TenantError(f"tenant {new.name!r} exists")
        if other.prefix.startswith(new.prefix) or new.prefix.startswith(other.prefix):
            raise TenantError(
                f"the prefix {new.prefix!r} overlaps with {other.prefix!r} of tenant {other.name!r}"
            )
        shared = sorted(set(other.principals) & set(new.principals))
        if shared:
            raise TenantError(f"{shared[0]} belongs to tenant {other.name!r}")


def _check_acls(code: int, about: str, message: str | None) -> None:
    if code == ErrorCode.SECURITY_DISABLED.code:
        raise NoAuthorizer
    check(code, about, message)
