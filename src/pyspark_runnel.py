"""Makes Spark discover the format "runnel": it imports modules whose names begin with `pyspark_`."""

from runnel.pipelines.data_source import RunnelDataSource as DefaultSource

__all__ = ["DefaultSource"]
