"""Run a command on an event loop, with a connection to the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from runnel.client.loop_thread import fastest_loop
from runnel.server.cli.connecting import client_properties

if TYPE_CHECKING:
    from runnel.client.cluster import Cluster

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion on the fastest available event loop."""
    with asyncio.Runner(loop_factory=fastest_loop) as runner:
        return runner.run(coroutine)


def with_cluster(bootstrap: str, work: "Callable[[Cluster], Awaitable[T]]", *, timeout_s: float = 30.0) -> T:
    """Connect to the cluster, run `work`, disconnect."""
    from runnel.client.cluster import Cluster

    properties = client_properties()
    client_id = properties.text("client.id") or "runnel-cli"

    async def connected() -> T:
        try:
            cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s, properties=properties)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from None
        async with cluster:
            return await work(cluster)

    return run(connected())
