"""`runnel demo`: a guided tour of a broker."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from runnel.server.demo.report import Report

_PIPELINE_ORDERS_MAX = 5_000


def demo(
    orders: Annotated[
        int, typer.Option("--orders", "-n", min=100, max=1_000_000, help="Number of orders to produce.")
    ] = 20_000,
    pipelines: Annotated[
        bool | None,
        typer.Option(
            "--pipelines/--no-pipelines",
            help="Include the part that runs on Spark. Default: if PySpark is installed.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker and its console running until Ctrl-C.")
    ] = False,
) -> None:
    """Start a broker in a temporary directory and demonstrate its features in about ten seconds.

    With Spark, about a minute more: a pipeline, an audit, and two reports that are kept in .runnel/reports.

    Example: runnel demo

    Example: runnel demo --keep
    """
    import time
    from importlib.util import find_spec

    from runnel.server.cli.session import run
    from runnel.server.demo.report import Report
    from runnel.server.demo.tour import run_tour

    began_s = time.perf_counter()
    report = Report()
    report.title("runnel demo")
    has_pipelines = pipelines or (pipelines is None and find_spec("pyspark") is not None)
    try:
        if not keep:
            run(run_tour(report, orders))
        if has_pipelines:
            from runnel.server.demo.pipelines import run_pipeline_tour

            run_pipeline_tour(report, min(orders, _PIPELINE_ORDERS_MAX))
        if keep:
            # Last, as it waits.
            run(run_tour(report, orders, keep=True))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    _end(report, time.perf_counter() - began_s, keep)


def _end(report: "Report", seconds: float, keep: bool) -> None:
    report.say("")
    report.title(f"done in {seconds:.1f} s")
    report.say("Run one yourself with [bold]runnel serve[/bold]; any Kafka client can connect to it.")
    if not keep:
        report.say(
            "Its console is at [bold]http://127.0.0.1:8080/[/bold]; see it with the data of this demo: "
            "[bold]runnel demo --keep[/bold] (make demo KEEP=1)."
        )
