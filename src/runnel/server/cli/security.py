"""`runnel security …`: what an attacker could do at the listeners of a node or cluster."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, Settings
from runnel.server.cli.serve import Config, DataDir, Listen, NodeId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.security.exposure import Facts, Finding, ListenerFacts

app = typer.Typer(help="Check how a node or cluster is protected.", no_args_is_help=True)


class Format(StrEnum):
    """Formats of the output."""

    TEXT = "text"
    JSON = "json"


@app.callback()
def security() -> None:
    """Check how a node or cluster is protected."""


@app.command()
def check(
    context: typer.Context,
    data_dir: DataDir = None,
    listen: Listen = None,
    node_id: NodeId = None,
    settings: Settings = None,
    config: Config = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Annotated[Format, typer.Option("--format", help="Format of the output.")] = Format.TEXT,
    as_json: Json = False,
) -> None:
    """Print what an attacker could do at each listener, and how to prevent it.

    With the options of `runnel serve` it checks a configuration before it is used; nothing is started or
    changed. Otherwise it queries a running cluster, for which it needs DESCRIBE_CONFIGS and DESCRIBE on the
    cluster. The exit status is 1 if a finding has the severity high.

    Example: runnel security check --config server.properties

    Example: runnel security check --bootstrap-server localhost:9092 --command-config admin.properties
    """
    from runnel.security.exposure import Severity, findings
    from runnel.server.cli.output import print_json

    is_configuration = any(each is not None for each in (data_dir, listen, node_id, settings, config))
    source = context.get_parameter_source("bootstrap")
    asks_cluster = source is not None and source.name == "COMMANDLINE"
    if is_configuration and not asks_cluster:
        nodes, not_checked = _of_configuration(data_dir, listen, node_id, settings, config)
    else:
        nodes, not_checked = _of_cluster(bootstrap)
    found: dict[Finding, list[int]] = {}
    for node, facts in nodes.items():
        for finding in findings(facts):
            found.setdefault(finding, []).append(node)
    if as_json or output is Format.JSON:
        listed = [{**finding._asdict(), "nodes": where} for finding, where in found.items()]
        print_json({"findings": listed, "listeners": _listeners(nodes), "not_checked": not_checked})
    else:
        _print(nodes, found, not_checked)
    if any(finding.severity is Severity.HIGH for finding in found):
        raise typer.Exit(1)


def _of_configuration(
    data_dir: Path | None,
    listen: str | None,
    node_id: int | None,
    settings: list[str] | None,
    config: Path | None,
) -> "tuple[dict[int, Facts], list[str]]":
    import time

    from runnel.server.cli.serve import static_options
    from runnel.server.exposure_facts import facts_of, with_files
    from runnel.server.node import Node

    node = Node(static_options(data_dir, listen, node_id, settings, config))
    facts = facts_of(node.settings, node.roles, time.time())
    path = None if config is None else str(config)
    facts = with_files(facts, node.settings, node.roles, node.data_dir, path)
    stored = "ACLs and quotas, which the cluster stores: run it with --bootstrap-server once it is started"
    return {node.roles.node_id: facts}, [stored]


def _of_cluster(bootstrap: str) -> "tuple[dict[int, Facts], list[str]]":
    from runnel.server.cli.output import CommandError
    from runnel.server.cli.session import with_cluster
    from runnel.server.cluster_facts import cluster_facts

    known = with_cluster(bootstrap, cluster_facts)
    if not known.brokers:
        # Nothing was found, because nothing was seen.
        raise CommandError(f"no broker could be checked: {'; '.join(known.not_checked)}")
    return known.brokers, known.not_checked


def _print(
    nodes: "Mapping[int, Facts]", found: "Mapping[Finding, Sequence[int]]", not_checked: list[str]
) -> None:
    """One section per listener, then the node itself."""
    for listener in _listeners(nodes):
        print(f"listener {listener['name']} ({listener['protocol']}): {listener['clients']}")
        _print_findings(found, listener["name"], nodes)
    print("every listener")
    _print_findings(found, None, nodes)
    for reason in not_checked:
        print(f"not checked: {reason}")


def _print_findings(
    found: "Mapping[Finding, Sequence[int]]", listener: str | None, nodes: "Mapping[int, Facts]"
) -> None:
    own = [(finding, where) for finding, where in found.items() if finding.listener == listener]
    for finding, where in own:
        only = "" if len(where) == len(nodes) else f" (on {', '.join(map(str, where))})"
        print(f"  {finding.severity.upper()} {finding.name}{only}")
        print(f"    {finding.consequence}")
        print(f"    {finding.remedy}")
    if not own:
        print("  no findings")


def _listeners(nodes: "Mapping[int, Facts]") -> list[dict[str, Any]]:
    """The listeners of all nodes, those that are the same once."""
    seen: dict[tuple[str, str, str], list[int]] = {}
    for node, facts in nodes.items():
        for each in facts.listeners:
            seen.setdefault((each.name, each.protocol.name, _clients(each)), []).append(node)
    return [
        {"name": name, "protocol": protocol, "clients": clients, "nodes": where}
        for (name, protocol, clients), where in seen.items()
    ]


def _clients(listener: "ListenerFacts") -> str:
    """Who the clients of a listener are."""
    if listener.protocol.uses_sasl:
        return f"clients authenticate by {', '.join(listener.mechanisms)}"
    if listener.protocol.uses_tls and listener.client_auth != "none":
        return f"certificates of clients are {listener.client_auth}"
    return "clients do not authenticate"
