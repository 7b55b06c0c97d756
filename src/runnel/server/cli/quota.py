"""`runnel quota …`: set, list and remove client quotas."""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json
from runnel.server.cli.quota_options import (
    ConsumerRate,
    MutationRate,
    ProducerRate,
    RequestPercentage,
    client_quotas,
    quota_text,
)

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster

app = typer.Typer(help="Set, list and remove quotas of users, clients and addresses.", no_args_is_help=True)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Quotas of a user.")]
AnyUser = Annotated[
    bool, typer.Option("--user-default", help="Default quotas of users without quotas of their own.")
]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Quotas of a client id.")]
AnyClientId = Annotated[
    bool,
    typer.Option("--client-id-default", help="Default quotas of client ids without quotas of their own."),
]
Address = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Quotas of an IP address.")]
AnyAddress = Annotated[
    bool, typer.Option("--ip-default", help="Default quotas of addresses without quotas of their own.")
]


@app.command("set")
def set_quotas(
    user: User = None,
    user_default: AnyUser = False,
    client_id: ClientId = None,
    client_id_default: AnyClientId = False,
    ip: Address = None,
    ip_default: AnyAddress = False,
    producer_byte_rate: ProducerRate = None,
    consumer_byte_rate: ConsumerRate = None,
    request_percentage: RequestPercentage = None,
    controller_mutation_rate: MutationRate = None,
    connection_creation_rate: Annotated[
        int | None,
        typer.Option("--connection-creation-rate", metavar="N", help="Connections/s of an IP address."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Set quotas of a user, a client id, a pair of both, or an IP address; others of it do not change.

    Example: runnel quota set --user etl --producer-byte-rate 50M --consumer-byte-rate 100M

    Example: runnel quota set --user etl --client-id loader --request-percentage 25

    Example: runnel quota set --ip-default --connection-creation-rate 10
    """
    from runnel.client.quotas import Quotas, entity_text
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    if not entity:
        raise typer.BadParameter("whose quotas? Use --user, --client-id, --ip or one of their defaults")
    values = client_quotas(
        producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate
    )
    if connection_creation_rate is not None:
        values["connection_creation_rate"] = connection_creation_rate
    if not values:
        raise typer.BadParameter("nothing to set: use --producer-byte-rate or another quota")
    with_cluster(bootstrap, lambda cluster: Quotas(cluster).alter(entity, values))
    print_info(f"set {', '.join(values)} of {entity_text(entity)}")


@app.command("list")
def list_quotas(
    user: User = None,
    user_default: AnyUser = False,
    client_id: ClientId = None,
    client_id_default: AnyClientId = False,
    ip: Address = None,
    ip_default: AnyAddress = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """List quotas: all, or those of entities with these names.

    Example: runnel quota list --user etl
    """
    from runnel.client.quotas import Quotas
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    views = with_cluster(bootstrap, lambda cluster: Quotas(cluster).describe(entity))
    if as_json:
        print_json([{"entity": view.entity, "quotas": view.values} for view in views])
        return
    print_table(
        ["user", "client id", "ip", "quota", "value"],
        [
            (*(_shown(view.entity, kind) for kind in ("user", "client-id", "ip")), key, quota_text(value))
            for view in views
            for key, value in sorted(view.values.items())
        ],
        empty="no quotas",
    )


@app.command()
def remove(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="Quotas by Kafka's names. Default: all.", show_default=False),
    ] = None,
    user: User = None,
    user_default: AnyUser = False,
    client_id: ClientId = None,
    client_id_default: AnyClientId = False,
    ip: Address = None,
    ip_default: AnyAddress = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Remove quotas of a user, a client id, a pair of both, or an IP address.

    Example: runnel quota remove producer_byte_rate --user etl

    Example: runnel quota remove --ip-default
    """
    from runnel.client.quotas import Quotas, entity_text
    from runnel.server.cli.output import CommandError, print_info
    from runnel.server.cli.session import with_cluster

    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    if not entity:
        raise typer.BadParameter("whose quotas? Use --user, --client-id, --ip or one of their defaults")

    async def work(cluster: "Cluster") -> list[str]:
        quotas = Quotas(cluster)
        found = await quotas.describe(entity, is_exact=True)
        present = set().union(*(view.values for view in found))
        missing = set(keys or ()) - present
        if missing or not present:
            what = ", ".join(sorted(missing)) or "quotas"
            raise CommandError(f"{entity_text(entity)} has no {what}")
        removed = sorted(keys or present)
        await quotas.alter(entity, dict.fromkeys(removed))
        return removed

    removed = with_cluster(bootstrap, work)
    print_info(f"removed {', '.join(removed)} of {entity_text(entity)}")


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> dict[str, str | None]:
    """The entity that the options name; empty if there are none."""
    entity: dict[str, str | None] = {}
    for kind, name, is_default in (
        ("user", user, user_default),
        ("client-id", client_id, client_id_default),
        ("ip", ip, ip_default),
    ):
        if name is not None and is_default:
            raise typer.BadParameter(f"--{kind} and --{kind}-default exclude each other")
        if name is not None or is_default:
            entity[kind] = name
    if "ip" in entity and len(entity) > 1:
        raise typer.BadParameter(
            "quotas of an IP address cannot be combined with others: remove --user and --client-id"
        )
    return entity


def _shown(entity: dict[str, str | None], kind: str) -> str | None:
    """The name of an entity; None, shown as a dash, if it has no part of this type."""
    if kind not in entity:
        return None
    name = entity[kind]
    return "(default)" if name is None else name
