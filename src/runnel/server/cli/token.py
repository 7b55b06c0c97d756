"""`runnel token …`: create, describe, renew and expire delegation tokens."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.acl import check_principal
from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, parse_duration_ms

if TYPE_CHECKING:
    from runnel.client.tokens import TokenView

app = typer.Typer(help="Create, describe, renew and expire delegation tokens.", no_args_is_help=True)

DEFAULT_PERIOD = "-1"
PERIOD_MS_MAX = 2**63 - 1

Owner = Annotated[
    str | None,
    typer.Option("--owner-principal", metavar="PRINCIPAL", help="The owner. Default: this client."),
]
Owners = Annotated[
    list[str] | None,
    typer.Option(
        "--owner-principal",
        metavar="PRINCIPAL",
        help="Only tokens that this principal owns or may renew. Repeatable.",
    ),
]
Renewers = Annotated[
    list[str] | None,
    typer.Option(
        "--renewer-principal", metavar="PRINCIPAL", help="Another principal that may renew it. Repeatable."
    ),
]
Lifetime = Annotated[
    str,
    typer.Option(
        "--max-life-time-period",
        metavar="PERIOD",
        help="How long it can be renewed: milliseconds, or 7d. -1: as the broker allows.",
    ),
]
RenewPeriod = Annotated[
    str,
    typer.Option(
        "--renew-time-period",
        metavar="PERIOD",
        help="For how long from now: milliseconds, or 1d. -1: as the broker is configured.",
    ),
]
ExpiryPeriod = Annotated[
    str,
    typer.Option(
        "--expiry-time-period", metavar="PERIOD", help="When, from now: milliseconds, or 1h. -1: at once."
    ),
]
Hmac = Annotated[
    str,
    typer.Option(
        "--hmac",
        envvar="RUNNEL_TOKEN_HMAC",
        metavar="HMAC",
        help="The HMAC of the token, in base64. It is a secret: prefer the environment variable.",
        show_default=False,
    ),
]


@app.command("create")
def create(
    lifetime: Lifetime = DEFAULT_PERIOD,
    renewers: Renewers = None,
    owner: Owner = None,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Create a token, and print it with its HMAC, which is the password of its users.

    Clients authenticate with it by SCRAM: the token id is the user name, the HMAC the password, and the JAAS
    line has tokenauth="true".

    Example: runnel token create --max-life-time-period 7d --renewer-principal User:scheduler
    """
    from runnel.client.tokens import Tokens
    from runnel.server.cli.session import with_cluster

    allowed = [check_principal(each) for each in renewers or ()]
    named = None if owner is None else check_principal(owner)
    lifetime_ms = _period_ms(lifetime, "--max-life-time-period")
    token = with_cluster(
        bootstrap,
        lambda cluster: Tokens(cluster).create(owner=named, renewers=allowed, lifetime_ms=lifetime_ms),
    )
    _print([token], as_json)


@app.command("describe")
def describe(owners: Owners = None, as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Describe the tokens that this client owns, may renew, or may describe.

    Example: runnel token describe --owner-principal User:etl
    """
    from runnel.client.tokens import Tokens
    from runnel.server.cli.session import with_cluster

    named = [check_principal(each) for each in owners or ()]
    _print(with_cluster(bootstrap, lambda cluster: Tokens(cluster).describe(named)), as_json)


@app.command("renew")
def renew(hmac: Hmac, period: RenewPeriod = DEFAULT_PERIOD, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Extend the validity of a token, up to its maximum lifetime.

    Example: runnel token renew --renew-time-period 1d --hmac "$HMAC"
    """
    from runnel.client.tokens import Tokens
    from runnel.server.cli.output import time_text
    from runnel.server.cli.session import with_cluster

    secret, period_ms = _secret(hmac), _period_ms(period, "--renew-time-period")
    expires_ms = with_cluster(bootstrap, lambda cluster: Tokens(cluster).renew(secret, period_ms))
    print(f"the token expires at {time_text(expires_ms)}")


@app.command("expire")
def expire(
    hmac: Hmac, period: ExpiryPeriod = DEFAULT_PERIOD, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT
) -> None:
    """End the validity of a token, now or later. Connections that are authenticated stay open.

    Example: runnel token expire --hmac "$HMAC"
    """
    from runnel.client.tokens import Tokens
    from runnel.server.cli.output import time_text
    from runnel.server.cli.session import with_cluster

    secret, period_ms = _secret(hmac), _period_ms(period, "--expiry-time-period")
    expires_ms = with_cluster(bootstrap, lambda cluster: Tokens(cluster).expire(secret, period_ms))
    print(f"the token expires at {time_text(expires_ms)}")


def _print(tokens: "list[TokenView]", as_json: bool) -> None:
    from base64 import b64encode
    from dataclasses import asdict

    from runnel.server.cli.output import print_json, print_table, time_text

    if as_json:
        print_json([{**asdict(each), "hmac": b64encode(each.hmac).decode()} for each in tokens])
        return
    columns = ["token id", "hmac", "owner", "requester", "renewers", "issued", "expires", "max date"]
    rows = [
        (
            each.token_id,
            b64encode(each.hmac).decode(),
            each.owner,
            each.requester,
            ",".join(each.renewers) or None,
            *map(time_text, (each.issued_ms, each.expires_ms, each.max_ms)),
        )
        for each in tokens
    ]
    print_table(columns, rows, empty="no delegation tokens")


def _period_ms(text: str, option: str) -> int:
    try:
        period_ms = int(text) if re.fullmatch(r"-1|\d+", text) else parse_duration_ms(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if period_ms > PERIOD_MS_MAX:
        raise typer.BadParameter(f"{text} is too long", param_hint=option)
    return period_ms


def _secret(hmac: str) -> bytes:
    from base64 import b64decode

    try:
        return b64decode(hmac, validate=True)
    except ValueError:
        raise typer.BadParameter("the HMAC is not base64", param_hint="--hmac") from None
