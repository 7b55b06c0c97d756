"""`runnel demo`: see it work."""

from typing import Annotated

import typer


def demo(
    orders: Annotated[
        int, typer.Option("--orders", "-n", min=100, max=1_000_000, help="How many to publish.")
    ] = 20_000,
) -> None:
    """Start a broker in a temporary folder and show what it can do, in about ten seconds.

    Example: runnel demo
    """
    from runnel.server.cli.session import run
    from runnel.server.demo.story import tell

    try:
        run(tell(orders))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
