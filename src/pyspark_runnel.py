"""How Spark finds the format "runnel" by itself: it looks into modules of this name's form."""

from runnel.pipelines.data_source import RunnelDataSource as DefaultSource

__all__ = ["DefaultSource"]
