"""The example that `runnel pipeline init` writes: orders, their payments, and the revenue per minute."""

from importlib.resources import files

FILE = "pipeline.yaml"


def example_text() -> str:
    """The example as a file, comments and all."""
    return (files(__name__) / FILE).read_text("utf-8")
