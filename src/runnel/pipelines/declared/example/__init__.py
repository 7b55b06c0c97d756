"""The example that `runnel pipeline init` writes: orders, their payments, and the revenue per minute."""

from importlib.resources import files

FILE = "pipeline.yaml"


def example_text() -> str:
    """The text of the example."""
    return (files(__name__) / FILE).read_text("utf-8")
