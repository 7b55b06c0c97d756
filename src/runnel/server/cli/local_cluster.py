"""A cluster on this machine, in the foreground."""

import os
from collections.abc import Sequence

import typer

from runnel.server.cli.options import parse_settings
from runnel.server.cli.output import CommandError
from runnel.server.cli.supervised import run_nodes
from runnel.server.gateway_process import HttpOptions
from runnel.server.local_nodes import cluster_id_in, cluster_settings, node_numbers
from runnel.server.log_format import configure_logging


def run_local_cluster(
    nodes: int, data_dir: str, listen: str, settings: Sequence[str], log_level: str, http: HttpOptions
) -> None:
    """Start the nodes, print the addresses, and stop them at the end."""
    configure_logging(log_level)
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise typer.BadParameter(
            f"{listen!r} is not HOST:PORT, such as 127.0.0.1:9092", param_hint="--listen"
        )
    folder = os.path.abspath(data_dir)
    static = parse_settings(list(settings))
    _check_size(folder, nodes)
    cluster_id = static.pop("cluster.id", None) or cluster_id_in(folder)
    run_nodes(
        cluster_settings(
            static,
            count=nodes,
            host=host.removeprefix("[").removesuffix("]"),
            port=int(port),
            folder=folder,
            cluster_id=cluster_id,
        ),
        log_level,
        http,
    )


def _check_size(folder: str, nodes: int) -> None:
    found = max(node_numbers(folder), default=nodes)
    if found != nodes:
        raise CommandError(
            f"{folder} has a cluster of {found} nodes: start it with --nodes {found}, or choose another "
            "--data-dir"
        )
