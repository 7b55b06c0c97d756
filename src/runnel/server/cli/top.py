"""`runnel top`: brokers, topics and groups, live in a terminal."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runnel.client.cluster import Cluster
    from runnel.server.cli.top_data import Snapshot

ROWS = 12


def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.5, max=60.0, help="Seconds between updates.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many updates.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Show brokers, the busiest topics and the groups that are behind, until Ctrl-C.

    Example: runnel top

    Example: runnel top --interval 5 -b broker:9092
    """
    from runnel.server.cli.session import with_cluster

    async def work(cluster: "Cluster") -> None:
        await _show(cluster, interval, count)

    try:
        with_cluster(bootstrap, work)
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _show(cluster: "Cluster", interval_s: float, count: int | None) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from runnel.client.errors import ClientError
    from runnel.server.cli.top_data import Snapshot, read

    console = Console()
    before: Snapshot | None = None
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and count is None) as live:
        number = 0
        while True:
            try:
                now = await read(cluster)
            except ClientError as error:
                live.update(f"[red]{error}[/red]\ntrying again", refresh=True)
                now = None
            if now is not None:
                live.update(screen(now, before), refresh=True)
                before = now
            number += 1
            if number == count:
                return
            await asyncio.sleep(interval_s)


def screen(now: "Snapshot", before: "Snapshot | None") -> "RenderableType":
    """One reading as tables; rates need the one before."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text.from_markup(_headline(now, before)), _brokers(now), _topics(now, before)]
    parts.append(_groups(now))
    return Group(*parts)


def _headline(now: "Snapshot", before: "Snapshot | None") -> str:
    down = sum(broker.is_fenced for broker in now.brokers)
    state = "[green]✓ all in sync[/green]"
    if now.offline:
        state = f"[red]✕ {now.offline} partitions without a leader[/red]"
    elif down or now.under_replicated:
        state = f"[yellow]! {down} brokers down, {now.under_replicated} partitions under-replicated[/yellow]"
    rate = "" if before is None else f"  {now.rate(before):,.0f} records/s"
    return f"[bold]runnel top[/bold]  {state}{rate}  [dim]{now.clock} UTC[/dim]"


def _table(*columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    for column in columns:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left", no_wrap=True)
    return table


def _brokers(now: "Snapshot") -> Any:
    from rich.markup import escape

    table = _table("broker", "address", "rack", "state", "#leaders", "#replicas")
    for broker in now.brokers[:ROWS]:
        state = "[red]down[/red]" if broker.is_fenced else "[green]up[/green]"
        if broker.node_id == now.controller:
            state += " controller"
        address = escape(f"{broker.host}:{broker.port}")
        leaders, replicas = now.leaders[broker.node_id], now.replicas[broker.node_id]
        rack = escape(broker.rack or "-")
        table.add_row(str(broker.node_id), address, rack, state, f"{leaders:,}", f"{replicas:,}")
    return table


def _topics(now: "Snapshot", before: "Snapshot | None") -> Any:
    table = _table("topic", "#partitions", "#records", "#records/s")
    rates = {} if before is None else now.topic_rates(before)
    names = sorted(now.records, key=lambda name: (-rates.get(name, 0.0), -now.records[name], name))
    for name in names[:ROWS]:
        rate = "-" if before is None else f"{rates.get(name, 0.0):,.0f}"
        table.add_row(name, f"{now.partitions[name]:,}", f"{now.records[name]:,}", rate)
    if len(names) > ROWS:
        table.caption = f"and {len(names) - ROWS:,} more topics"
    return table


def _groups(now: "Snapshot") -> Any:
    from rich.markup import escape

    table = _table("group", "state", "#lag", "topics")
    for group in now.groups[:ROWS]:
        table.add_row(escape(group.name), group.state, f"{group.lag:,}", escape(", ".join(group.topics[:4])))
    if len(now.groups) > ROWS:
        table.caption = f"and {len(now.groups) - ROWS:,} more groups"
    return table
