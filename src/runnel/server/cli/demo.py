"""`runnel demo`: see it work."""

from typing import Annotated

import typer

_ORDERS_PIPED = 5_000


def demo(
    orders: Annotated[
        int, typer.Option("--orders", "-n", min=100, max=1_000_000, help="How many to publish.")
    ] = 20_000,
    pipelines: Annotated[
        bool | None,
        typer.Option(
            "--pipelines/--no-pipelines",
            help="Tell the part that runs on Spark. Left out: if it is installed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a broker in a temporary folder and show what it can do, in about ten seconds.

    With Spark, a minute more: a pipeline, an audit, and two reports that stay in .runnel/reports.

    Example: runnel demo
    """
    import time
    from importlib.util import find_spec

    from runnel.server.cli.session import run
    from runnel.server.demo.report import Report
    from runnel.server.demo.story import tell

    began_s = time.perf_counter()
    report = Report()
    report.title("runnel demo")
    try:
        run(tell(report, orders))
        if pipelines or (pipelines is None and find_spec("pyspark") is not None):
            from runnel.server.demo.pipelines import tell_pipelines

            tell_pipelines(report, min(orders, _ORDERS_PIPED))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    report.say("")
    report.title(f"done in {time.perf_counter() - began_s:.1f} s")
    report.say("Run one yourself with [bold]runnel serve[/bold]; any Kafka client can talk to it.")
