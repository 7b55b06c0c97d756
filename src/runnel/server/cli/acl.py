"""`runnel acl …`: add, list and remove ACLs."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster
    from runnel.security.acl import AccessControlEntry, Operation, PatternType, ResourceType
    from runnel.security.acl_filter import AclFilter

app = typer.Typer(help="Add, list and remove ACLs.", no_args_is_help=True)


class Kind(StrEnum):
    """Resource types that ACLs are about."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"
    DELEGATION_TOKEN = "delegation-token"
    USER = "user"


KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help="Resource type.", show_default=False)]
PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="A name; a prefix if it ends in `*`; `*` for all. Not for the cluster, which has one name.",
        show_default=False,
    ),
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="An address, a range such as 10.0.0.0/8, or `*`.")
]
Principal = Annotated[
    str,
    typer.Option(
        "--to", "--principal", metavar="PRINCIPAL", help="User:NAME, or `User:*` for all.", show_default=False
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATION", help="An operation such as read, or all. Repeatable."),
]
KindFilter = Annotated[Kind | None, typer.Option("--kind", help="ACLs on this resource type.")]
PatternFilter = Annotated[
    str | None,
    typer.Option("--on", metavar="PATTERN", help="ACLs whose pattern is this: a name, or a prefix with `*`."),
]
NameFilter = Annotated[
    str | None,
    typer.Option("--applies-to", metavar="NAME", help="ACLs that apply to the resource with this name."),
]
PrincipalFilter = Annotated[
    str | None, typer.Option("--of", "--principal", metavar="PRINCIPAL", help="ACLs of this principal.")
]


@app.command()
def add(
    kind: KindArgument,
    pattern: PatternArgument,
    to: Principal,
    allow: Operations = None,
    deny: Operations = None,
    host: Host = "*",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Allow or deny operations on resources.

    Example: runnel acl add topic 'orders-*' --to User:etl --allow read --allow describe

    Example: runnel acl add cluster '*' --to User:ops --allow alter --host 10.0.0.0/8
    """
    from runnel.client.acl_admin import AclAdmin
    from runnel.security.acl import AccessControlEntry, PermissionType
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    name, pattern_type = _pattern(kind, pattern)
    wanted = [(each, PermissionType.ALLOW) for each in allow or ()]
    wanted += [(each, PermissionType.DENY) for each in deny or ()]
    if not wanted:
        raise typer.BadParameter("nothing to add: use --allow or --deny")
    acls = [
        AccessControlEntry(
            _resource_type(kind), name, pattern_type, check_principal(to), host, _operation(each), permission
        )
        for each, permission in wanted
    ]
    with_cluster(bootstrap, lambda cluster: AclAdmin(cluster).create(acls))
    print_info(f"added {len(acls)} ACLs")


@app.command("list")
def list_acls(
    kind: KindFilter = None,
    on: PatternFilter = None,
    applies_to: NameFilter = None,
    of: PrincipalFilter = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List ACLs.

    Example: runnel acl list --kind topic --applies-to orders-eu
    """
    from runnel.client.acl_admin import AclAdmin
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    wanted = _filter(kind, on, applies_to, of)
    acls = with_cluster(bootstrap, lambda cluster: AclAdmin(cluster).describe(wanted))
    rows = [_row(acl) for acl in acls]
    if as_json:
        print_json(rows)
    else:
        columns = ["kind", "pattern", "principal", "host", "permission", "operation"]
        print_table(columns, [[row[name] for name in columns] for row in rows], empty="no ACLs")


@app.command()
def remove(
    kind: KindFilter = None,
    on: PatternFilter = None,
    applies_to: NameFilter = None,
    of: PrincipalFilter = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Remove the ACLs that meet all conditions.

    Example: runnel acl remove --kind topic --on 'orders-*' --of User:etl
    """
    from runnel.client.acl_admin import AclAdmin, exactly
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info, print_table
    from runnel.server.cli.session import with_cluster

    if kind is None and on is None and applies_to is None and of is None:
        raise typer.BadParameter("which ACLs? Use --kind, --on, --applies-to or --of")
    wanted = _filter(kind, on, applies_to, of)

    async def work(cluster: "Cluster") -> int:
        admin = AclAdmin(cluster)
        found = await admin.describe(wanted)
        if not found:
            return 0
        if not yes:
            columns = ["kind", "pattern", "principal", "host", "permission", "operation"]
            rows = [_row(acl) for acl in found]
            print_table(columns, [[row[name] for name in columns] for row in rows])
        confirm(f"remove {len(found)} ACLs?", yes)
        return len(await admin.delete([exactly(acl) for acl in found]))

    print_info(f"removed {with_cluster(bootstrap, work)} ACLs")


def check_principal(text: str) -> str:
    """A principal, which has a type and a name."""
    if ":" not in text:
        raise typer.BadParameter(f"{text!r} is not a principal; examples: User:etl or 'User:*'")
    return text


def _filter(kind: Kind | None, on: str | None, applies_to: str | None, principal: str | None) -> "AclFilter":
    from runnel.security.acl import PatternType, ResourceType
    from runnel.security.acl_filter import AclFilter

    if on is not None and applies_to is not None:
        raise typer.BadParameter("--on and --applies-to cannot be used together")
    name, pattern_type = applies_to, PatternType.MATCH if applies_to is not None else PatternType.ANY
    if on is not None:
        name, pattern_type = _pattern(kind, on)
    resource_type = ResourceType.ANY if kind is None else _resource_type(kind)
    return AclFilter(resource_type, name, pattern_type, principal)


def _pattern(kind: Kind | None, text: str) -> "tuple[str, PatternType]":
    from runnel.security.acl import CLUSTER_NAME, PatternType
    from runnel.security.roles import parse_pattern

    if kind is Kind.CLUSTER:
        return CLUSTER_NAME, PatternType.LITERAL
    try:
        return parse_pattern(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _resource_type(kind: Kind) -> "ResourceType":
    from runnel.security.acl import ResourceType

    return ResourceType[kind.name]


def _operation(text: str) -> "Operation":
    from runnel.security.acl import Operation

    name = text.strip().upper().replace("-", "_")
    if name not in Operation.__members__ or name == Operation.ANY.name:
        known = ", ".join(each.name.lower().replace("_", "-") for each in Operation if each > Operation.ANY)
        raise typer.BadParameter(f"{text!r} is not an operation; one of: {known}")
    return Operation[name]


def _row(acl: "AccessControlEntry") -> dict[str, Any]:
    from runnel.security.acl import Operation, PermissionType, ResourceType
    from runnel.security.roles import pattern_text

    return {
        "kind": _text(ResourceType(acl.resource_type)),
        "pattern": pattern_text(acl.resource_name, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "permission": _text(PermissionType(acl.permission_type)),
        "operation": _text(Operation(acl.operation)),
    }


def _text(code: Any) -> str:
    name: str = code.name
    return name.lower().replace("_", "-")
