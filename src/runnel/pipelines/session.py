"""The one place that builds a Spark session."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.jvm import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # What Iceberg and everybody but old Hive reads.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A query that is stopped should end its tasks, not leave them to write on.
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 200 tasks per shuffle, Spark's default, cost seconds on one machine and win nothing.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}
_JAVA_OPTIONS = "--enable-native-access=ALL-UNNAMED"


@contextmanager
def spark_session(
    name: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session that is stopped at the end; its settings can be overruled one by one."""
    session = start_session(name, master=master, settings=settings)
    try:
        yield session
    finally:
        session.stop()


def start_session(
    name: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session, which its caller stops."""
    builder_class = _builder_class()
    # The launcher takes these from the environment alone. Workers must run the Python that runnel is in.
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {**_SETTINGS, **(_LOCAL_SETTINGS if master.startswith("local") else {}), **(settings or {})}
    with as_file(files("runnel.pipelines") / "log4j2.properties") as quiet:
        options = f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile={quiet.as_uri()}"
        chosen["spark.driver.extraJavaOptions"] = (
            f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
        )
        builder = builder_class.appName(name).master(master)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def _builder_class() -> "SparkSession.Builder":
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(f"pipelines run on Spark: pip install 'runnel[spark]' ({error})") from error
    return SparkSession.builder
