"""`runnel tenant …`: create, list, describe and delete tenants."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Yes
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

app = typer.Typer(
    help="Create, list, describe and delete tenants: principals with a prefix, ACLs and quotas.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Tenant.", show_default=False)]
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")


@app.command()
def create(
    name: Name,
    principals: Annotated[
        list[str],
        typer.Option("--principal", metavar="User:NAME", help="A principal of the tenant. Repeatable."),
    ],
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="PREFIX",
            help="Prefix of the names of its topics, groups and transactional ids. Default: NAME-",
        ),
    ] = None,
    producer_byte_rate: ProducerRate = None,
    consumer_byte_rate: ConsumerRate = None,
    request_percentage: RequestPercentage = None,
    controller_mutation_rate: MutationRate = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Create a tenant: ACLs for everything with its prefix, and quotas of each of its users.

    Example: runnel tenant create team-a --principal User:alice --principal User:etl --producer-byte-rate 50M
    """
    from runnel.client.tenants import Tenant, Tenants
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    prefix = f"{name}-" if prefix is None else prefix
    for text, option in ((name, "NAME"), (prefix, "--prefix")):
        if not _NAME.fullmatch(text):
            raise typer.BadParameter(
                f"{text!r} is not made of letters, digits, '.', '_' and '-'", param_hint=option
            )
    quotas = client_quotas(
        producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate
    )
    tenant = Tenant(name, prefix, tuple(dict.fromkeys(principals)), quotas)
    with_cluster(bootstrap, lambda cluster: Tenants(cluster).create(tenant))
    print_info(f"created tenant {name}: {len(tenant.principals)} principals, prefix {prefix}")


@app.command("list")
def list_tenants(as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """List tenants.

    Example: runnel tenant list
    """
    from dataclasses import asdict

    from runnel.client.tenants import Tenants
    from runnel.server.cli.output import print_json, print_table
    from runnel.server.cli.session import with_cluster

    tenants = with_cluster(bootstrap, lambda cluster: Tenants(cluster).all())
    if as_json:
        print_json([asdict(tenant) for tenant in tenants])
        return
    print_table(
        ["tenant", "prefix", "principals"],
        [(tenant.name, tenant.prefix, ", ".join(tenant.principals)) for tenant in tenants],
        empty="no tenants; create one with `runnel tenant create NAME --principal User:NAME`",
    )


@app.command()
def describe(name: Name, as_json: Json = False, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT) -> None:
    """Describe a tenant: principals, ACLs and quotas in force, and what it uses.

    Example: runnel tenant describe team-a
    """
    from runnel.server.cli.output import print_fields, print_json, print_table, size_text
    from runnel.server.cli.session import with_cluster

    view = with_cluster(bootstrap, lambda cluster: _describe(cluster, name))
    if as_json:
        print_json(view)
        return
    expected = 3 * len(view["principals"])
    print_fields(
        {
            "tenant": view["tenant"],
            "prefix": view["prefix"],
            "principals": ", ".join(view["principals"]),
            "acls": f"{view['acls']} of {expected}",
            "topics": view["topics"],
            "partitions": view["partitions"],
            "stored": size_text(view["stored_bytes"]),
        }
    )
    rows = [
        (user, key, quota_text(value))
        for user, values in view["quotas"].items()
        for key, value in sorted(values.items())
    ]
    if rows:
        print()
        print_table(["user", "quota", "value"], rows)


async def _describe(cluster: "Cluster", name: str) -> dict[str, Any]:
    from dataclasses import asdict

    from runnel.client.tenants import Tenants

    tenants = Tenants(cluster)
    tenant = await tenants.get(name)
    return {
        "tenant": tenant.name,
        "prefix": tenant.prefix,
        "principals": list(tenant.principals),
        **asdict(await tenants.usage(tenant)),
    }


@app.command()
def delete(
    name: Name,
    with_topics: Annotated[
        bool,
        typer.Option("--with-topics", help="Delete the topics of the tenant and all their records, too."),
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete a tenant: its ACLs and its quotas. Its topics remain unless they are to be deleted, too.

    Example: runnel tenant delete team-a --yes
    """
    from runnel.server.cli.confirm import confirm
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    what = "its ACLs, quotas, topics and all their records" if with_topics else "its ACLs and quotas"
    confirm(f"delete tenant {name}, {what}?", yes)

    async def work(cluster: "Cluster") -> int:
        from runnel.client.admin import Admin
        from runnel.client.tenants import Tenants

        tenants = Tenants(cluster)
        tenant = await tenants.get(name)
        topics = list(await tenants.topics_of(tenant)) if with_topics else []
        for topic in topics:
            await Admin(cluster).delete_topic(topic)
        await tenants.delete(tenant)
        return len(topics)

    count = with_cluster(bootstrap, work)
    print_info(f"deleted tenant {name}" + (f" and {count} topics" if with_topics else ""))
