"""`runnel role …`: grant, revoke and list roles, which are stored as ACLs."""

from enum import StrEnum
from typing import Annotated

import typer

from runnel.server.cli.acl import Host, check_principal
from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json

app = typer.Typer(
    help="Grant, revoke and list roles: sets of ACLs on the topics, groups and transactional ids that a "
    "pattern matches.",
    no_args_is_help=True,
)


class Role(StrEnum):
    """The names of the roles."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


RoleArgument = Annotated[
    Role,
    typer.Argument(
        metavar="ROLE",
        help="`reader` consumes, with groups of the pattern; `writer` produces, with transactional ids of "
        "it; `admin` is permitted all operations on all three.",
        show_default=False,
    ),
]
Pattern = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="PATTERN",
        help="A name; a prefix if it ends in `*`; `*` for all.",
        show_default=False,
    ),
]
Granted = Annotated[
    str,
    typer.Option(
        "--to", "--principal", metavar="PRINCIPAL", help="User:NAME, or `User:*` for all.", show_default=False
    ),
]
Revoked = Annotated[
    str,
    typer.Option(
        "--from", "--principal", metavar="PRINCIPAL", help="User:NAME, or `User:*`.", show_default=False
    ),
]


@app.command()
def grant(
    role: RoleArgument, on: Pattern, to: Granted, host: Host = "*", bootstrap: Bootstrap = BOOTSTRAP_DEFAULT
) -> None:
    """Grant a role to a principal.

    Example: runnel role grant reader --on 'orders-*' --to User:etl
    """
    from runnel.client.acl_admin import AclAdmin
    from runnel.security.roles import Grant, role_acls
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    acls = role_acls(Grant(role.value, _checked(on), check_principal(to), host))
    with_cluster(bootstrap, lambda cluster: AclAdmin(cluster).create(acls))
    print_info(f"{to} is {role.value} on {on}")


@app.command()
def revoke(
    role: RoleArgument,
    on: Pattern,
    from_: Revoked,
    host: Host = "*",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Revoke a role from a principal.

    Example: runnel role revoke reader --on 'orders-*' --from User:etl
    """
    from runnel.client.acl_admin import AclAdmin, exactly
    from runnel.security.roles import Grant, role_acls
    from runnel.server.cli.output import CommandError, print_info
    from runnel.server.cli.session import with_cluster

    acls = role_acls(Grant(role.value, _checked(on), check_principal(from_), host))
    filters = [exactly(acl) for acl in acls]
    if not with_cluster(bootstrap, lambda cluster: AclAdmin(cluster).delete(filters)):
        raise CommandError(f"{from_} is not {role.value} on {on}")
    print_info(f"{from_} is no longer {role.value} on {on}")


@app.command("list")
def list_roles(
    of: Annotated[
        str | None, typer.Option("--of", "--principal", metavar="PRINCIPAL", help="Roles of this principal.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List the roles whose ACLs exist.

    Example: runnel role list --of User:etl
    """
    from runnel.client.acl_admin import AclAdmin
    from runnel.security.acl_filter import AclFilter
    from runnel.security.roles import granted_roles
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    wanted = AclFilter(principal=of)
    grants = granted_roles(with_cluster(bootstrap, lambda cluster: AclAdmin(cluster).describe(wanted)))
    if as_json:
        print_json([grant._asdict() for grant in grants])
    else:
        rows = [(grant.principal, grant.role, grant.pattern, grant.host) for grant in grants]
        print_table(["principal", "role", "pattern", "host"], rows, empty="no roles")


def _checked(pattern: str) -> str:
    if not pattern:
        raise typer.BadParameter("a pattern must not be empty", param_hint="--on")
    return pattern
