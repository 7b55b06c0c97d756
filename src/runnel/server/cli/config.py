"""`runnel config …`: read and change the settings of topics, brokers and groups."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Settings, parse_settings

if TYPE_CHECKING:
    from runnel.client.admin import Setting
    from runnel.model.configs import ResourceType

app = typer.Typer(help="Read and change the settings of topics, brokers and groups.", no_args_is_help=True)


class Kind(StrEnum):
    """Resource types that have settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help="Resource type.", show_default=False)]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Resource name; for a broker its id, or `default` for the cluster-wide default.",
        show_default=False,
    ),
]
Keys = Annotated[list[str] | None, typer.Option(metavar="KEY")]


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings that have their default value.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Print the documentation of each setting.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Describe settings: value and source.

    Example: runnel config describe topic orders --all
    """
    from runnel.client.admin import Admin
    from runnel.model.configs import ConfigSource
    from runnel.server.cli.output import print_info, print_json, print_table
    from runnel.server.cli.session import with_cluster

    resource = (_resource_type(kind), _resource_name(kind, name))
    settings = with_cluster(bootstrap, lambda cluster: Admin(cluster).settings(*resource, documentation=docs))
    shown = [setting for setting in settings if all_ or setting.source is not ConfigSource.DEFAULT]
    if as_json:
        print_json(
            [
                {
                    "name": setting.name,
                    "value": setting.value,
                    "source": setting.source.name.lower(),
                    "read_only": setting.is_read_only,
                    "sensitive": setting.is_sensitive,
                    **({"documentation": setting.documentation} if docs else {}),
                }
                for setting in shown
            ]
        )
        return
    if docs:
        _print_with_documentation(shown)
    else:
        print_table(
            ["setting", "value", "source"],
            [(setting.name, _value(setting), _source(setting)) for setting in shown],
            empty="all settings have their default value",
        )
    if shown and len(shown) < len(settings):
        print_info(f"{len(settings) - len(shown)} more with their default value: use --all to show them")


@app.command()
def alter(
    kind: KindArgument,
    name: NameArgument,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove an override. Repeatable.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Append to a list. Repeatable.")
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="KEY=VALUE", help="Remove from a list. Repeatable."),
    ] = None,
    check_only: Annotated[bool, typer.Option("--check", help="Validate only, change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Change settings atomically.

    Example: runnel config alter topic orders --set retention.ms=86400000 --unset cleanup.policy

    Example: runnel config alter broker default --set log.retention.ms=86400000
    """
    from runnel.client.admin import Admin
    from runnel.model.configs import AlterOperation
    from runnel.server.cli.output import print_info
    from runnel.server.cli.session import with_cluster

    changes: list[tuple[str, AlterOperation, str | None]] = []
    changes += [(key, AlterOperation.SET, value) for key, value in parse_settings(settings).items()]
    changes += [(key, AlterOperation.DELETE, None) for key in unset or ()]
    changes += [(key, AlterOperation.APPEND, value) for key, value in parse_settings(append).items()]
    changes += [(key, AlterOperation.SUBTRACT, value) for key, value in parse_settings(subtract).items()]
    if not changes:
        raise typer.BadParameter("nothing to change: use --set, --unset, --append or --subtract")
    resource_type = _resource_type(kind)
    with_cluster(
        bootstrap,
        lambda cluster: Admin(cluster).alter_settings(
            resource_type, _resource_name(kind, name), changes, validate_only=check_only
        ),
    )
    print_info("the change is valid" if check_only else f"altered {kind.value} {name}")


def _print_with_documentation(settings: "list[Setting]") -> None:
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size().columns, 100)
    for setting in settings:
        print(f"{setting.name} = {_value(setting)}  ({_source(setting)})")
        print(
            textwrap.fill(setting.documentation or "", width, initial_indent="    ", subsequent_indent="    ")
        )


def _value(setting: "Setting") -> str | None:
    return "(hidden)" if setting.is_sensitive else setting.value


def _source(setting: "Setting") -> str:
    return setting.source.name.lower().replace("_", " ")


def _resource_type(kind: Kind) -> "ResourceType":
    from runnel.model.configs import ResourceType

    return ResourceType[kind.name]


def _resource_name(kind: Kind, name: str) -> str:
    return "" if kind is Kind.BROKER and name == "default" else name
