"""`runnel user …`: add, list and remove users with SCRAM credentials."""

from pathlib import Path
from typing import Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes

app = typer.Typer(help="Add, list and remove users (SCRAM credentials).", no_args_is_help=True)

MECHANISM_DEFAULT = "SCRAM-SHA-512"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_VARIABLE = "RUNNEL_USER_PASSWORD"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.", show_default=False)]
Mechanism = Annotated[
    str, typer.Option("--mechanism", "-m", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512.")
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="Read the password from a file.")
]
Iterations = Annotated[
    int, typer.Option("--iterations", min=4096, max=16384, help="Number of iterations of the password hash.")
]


@app.command("add")
def add(
    name: Name,
    mechanism: Mechanism = MECHANISM_DEFAULT,
    password_file: PasswordFile = None,
    iterations: Iterations = 4096,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Add a user, or change its password.

    The password is read from --password-file, from the environment variable RUNNEL_USER_PASSWORD, or asked
    for on the terminal. It is salted and hashed here: no broker receives it.

    Example: runnel user add alice
    """
    from runnel.client.users import Users
    from runnel.server.cli.session import with_cluster

    _check(mechanism)
    password = _password(password_file)
    with_cluster(bootstrap, lambda cluster: Users(cluster).add(name, password, mechanism, iterations))
    print(f"{name} can authenticate with {mechanism}")


@app.command("list")
def list_users(as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """List users and their mechanisms.

    Example: runnel user list
    """
    from runnel.client.users import Users
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    users = with_cluster(bootstrap, lambda cluster: Users(cluster).known())
    if as_json:
        print_json([{"user": user.name, "mechanisms": user.mechanisms} for user in users])
    else:
        print_table(
            ["user", "mechanism", "iterations"],
            [(user.name, *credential) for user in users for credential in user.mechanisms.items()],
            empty="no users",
        )


@app.command("remove")
def remove(
    name: Name,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", "-m", metavar="MECHANISM", help="Only the credential of this mechanism."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Remove a user. Connections that are authenticated stay open.

    Example: runnel user remove alice --yes
    """
    from runnel.client.cluster import Cluster
    from runnel.client.users import Users
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import CommandError
    from runnel.server.cli.session import with_cluster

    if mechanism is not None:
        _check(mechanism)

    async def removed(cluster: Cluster) -> list[str]:
        users = Users(cluster)
        known = {user.name: user.mechanisms for user in await users.known()}.get(name, {})
        wanted = [each for each in known if mechanism in (None, each)]
        for each in wanted:
            await users.remove(name, each)
        return wanted

    confirm(f"Remove the user {name}?", yes)
    if not with_cluster(bootstrap, removed):
        raise CommandError(f"there is no user {name}" + (f" for {mechanism}" if mechanism else ""))
    print(f"removed {name}")


def _check(mechanism: str) -> None:
    if mechanism not in MECHANISMS:
        raise typer.BadParameter(
            f"{mechanism!r} is unknown; choose {' or '.join(MECHANISMS)}", param_hint="--mechanism"
        )


def _password(file: Path | None) -> str:
    """The password of a new user, from a file, the environment or the terminal; never empty."""
    import os
    import sys

    from runnel.server.cli.output import CommandError

    if file is not None:
        try:
            password = file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CommandError(f"cannot read {file}: {reason}") from None
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise CommandError(f"no password: use --password-file or the variable {PASSWORD_VARIABLE}")
    if not password:
        raise CommandError("the password is empty")
    return password
