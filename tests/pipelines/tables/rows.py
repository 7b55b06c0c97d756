"""Rows that tests of tables write."""

import datetime
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

DAY = datetime.date(2026, 5, 1)


def rows(
    session: SparkSession, offsets: Sequence[int], *, partition: int = 0, days: int = 1, tasks: int = 1
) -> DataFrame:
    """One row per offset, spread over days in turn."""
    data = pa.table(
        {
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "day": [DAY + datetime.timedelta(days=offset % days) for offset in offsets],
            "value": [f"v{offset}" for offset in offsets],
        }
    )
    return session.createDataFrame(data).coalesce(tasks)


def offsets_in(frame: DataFrame) -> list[int]:
    """The offsets that are there, in order, each as often as it is there."""
    return sorted(row["offset"] for row in frame.select("offset").collect())
