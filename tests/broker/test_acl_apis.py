"""CreateAcls, DescribeAcls and DeleteAcls."""

from typing import Any

from runnel.messages.create_acls import AclCreation, CreateAclsRequest
from runnel.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from runnel.messages.describe_acls import DescribeAclsRequest
from runnel.model.limits import ACL_CHANGES_PER_REQUEST_MAX, ACL_SCANS_PER_REQUEST_MAX
from runnel.security.acl import CLUSTER_NAME
from tests.broker.authorized import SETTINGS, Caller, prepare

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, ALLOW, DENY = 3, 3, 2
INVALID_REQUEST, POLICY_VIOLATION, SECURITY_DISABLED = 42, 44, 54


def acl(name: str = "t", **changes: Any) -> AclCreation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **changes,
    }
    return AclCreation(**fields)


def selecting(name: str | None = None, pattern: int = ANY, **changes: Any) -> DeleteAclsFilter:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changes,
    }
    return DeleteAclsFilter(**fields)


EVERYTHING = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)


async def created(client: Any, *creations: AclCreation, version: int = 3) -> list[int]:
    response = await client.ask(CreateAclsRequest(list(creations)), version)
    return [result.error_code for result in response.results]


async def described(client: Any, version: int = 3) -> list[tuple[int, str, int, str]]:
    response = await client.ask(EVERYTHING, version)
    assert response.error_code == 0
    return sorted(
        (each.resource_type, each.resource_name, each.pattern_type, entry.principal)
        for each in response.resources
        for entry in each.acls
    )


def test_acls_are_created_described_and_deleted(tell):
    async def scenario(world: Any) -> None:
        client = await world.connect()
        for version in (1, 2, 3):
            await live(world, client, version)

    async def live(world: Any, client: Any, version: int) -> None:
        both = (acl("orders"), acl("ord", resource_pattern_type=PREFIXED, principal="User:b"))
        assert await created(client, *both, both[0], version=version) == [0, 0, 0]
        assert await created(client, both[0], version=version) == [0]
        expected = [(TOPIC, "ord", PREFIXED, "User:b"), (TOPIC, "orders", LITERAL, "User:a")]
        assert await described(client, version) == expected
        assert len(world.broker.metadata.image.acls) == 2
        filters = [selecting("orders", MATCH), selecting("orders", LITERAL), selecting("none")]
        response = await client.ask(DeleteAclsRequest(filters), version)
        found = [
            sorted(each.resource_name for each in result.matching_acls) for result in response.filter_results
        ]
        assert found == [["ord", "orders"], ["orders"], []]
        assert all(result.error_code == 0 for result in response.filter_results)
        assert await described(client, version) == []
        assert not world.broker.metadata.image.acl_ids

    tell(scenario, SETTINGS)


INVALID: list[dict[str, Any]] = [
    {"resource_pattern_type": ANY},
    {"resource_pattern_type": MATCH},
    {"operation": ANY},
    {"resource_type": ANY},
    {"permission_type": ANY},
    {"resource_name": ""},
    {"resource_type": CLUSTER, "resource_name": "cluster"},
    {"principal": "alice"},
    {"host": "10.0.0.0/99"},
]


def test_an_invalid_acl_does_not_affect_others(tell):
    async def scenario(world: Any) -> None:
        client = await world.connect()
        cluster = acl(CLUSTER_NAME, resource_type=CLUSTER, host="10.0.0.0/9")
        for changes in INVALID:
            assert await created(client, acl(), acl(**changes), cluster) == [0, INVALID_REQUEST, 0], changes
        assert len(await described(client)) == 2

    tell(scenario, SETTINGS)


def test_unknown_codes_close_the_connection(tell):
    async def scenario(world: Any) -> None:
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            for code in (0, 99):
                client = await world.connect()
                changes: dict[str, Any] = {field: code}
                client.send(CreateAclsRequest([acl(**changes)]), 3)
                assert await client.is_closed(), (field, code)

    tell(scenario, SETTINGS)


def test_limits(tell):
    async def scenario(world: Any) -> None:
        client = await world.connect()
        many = [acl(f"t-{number}") for number in range(ACL_CHANGES_PER_REQUEST_MAX + 1)]
        assert set(await created(client, *many)) == {POLICY_VIOLATION}
        assert not world.broker.metadata.image.acls
        assert set(await created(client, *many[:-1])) == {0}
        assert set(await created(client, *many)) == {0}, "only one of them is new"
        for filters in ([selecting()], [selecting()] * (ACL_SCANS_PER_REQUEST_MAX + 1)):
            response = await client.ask(DeleteAclsRequest(filters), 3)
            assert {result.error_code for result in response.filter_results} == {INVALID_REQUEST}
        assert len(world.broker.metadata.image.acls) == len(many)
        exact = selecting(
            "t-7",
            LITERAL,
            resource_type_filter=TOPIC,
            principal_filter="User:a",
            host_filter="*",
            operation=READ,
            permission_type=ALLOW,
        )
        response = await client.ask(DeleteAclsRequest([exact] * 2_000), 3)
        assert all(len(result.matching_acls) == 1 for result in response.filter_results)
        assert len(world.broker.metadata.image.acls) == len(many) - 1
        assert len(await described(client)) == len(many) - 1

    tell(scenario, SETTINGS)


def test_without_an_authorizer_they_are_disabled(tell):
    async def scenario(world: Any) -> None:
        client = await world.connect()
        assert await created(client, acl(), acl()) == [SECURITY_DISABLED] * 2
        assert (await client.ask(EVERYTHING, 3)).error_code == SECURITY_DISABLED
        response = await client.ask(DeleteAclsRequest([selecting()]), 3)
        assert [result.error_code for result in response.filter_results] == [SECURITY_DISABLED]

    tell(scenario)


def test_acls_apply_at_once_and_after_a_restart(tell):
    async def before(world: Any) -> None:
        prepare(world)
        alice = Caller(world, "alice")
        assert (await alice.ask(EVERYTHING, 3)).error_code == 31
        cluster = acl(CLUSTER_NAME, resource_type=CLUSTER, operation=8, principal="User:alice")
        await created(await world.connect(), cluster)
        assert (await alice.ask(EVERYTHING, 3)).error_code == 0

    async def after(world: Any) -> None:
        prepare(world)
        assert (await Caller(world, "alice").ask(EVERYTHING, 3)).error_code == 0
        assert (await Caller(world, "bob").ask(EVERYTHING, 3)).error_code == 31

    tell(before, SETTINGS)
    tell(after, SETTINGS)
