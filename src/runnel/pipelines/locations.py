"""Checks that Spark supports the location of tables and files."""

from typing import TYPE_CHECKING

from runnel.pipelines.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_location(session: "SparkSession", location: str) -> None:
    """TableError if Spark has no file system for an address such as s3://bucket/folder."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    scheme, separator, _ = location.partition("://")
    if not separator:
        return
    context = session.sparkContext
    jvm, java_context = context._jvm, context._jsc
    assert jvm is not None
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, java_context.hadoopConfiguration())
    except Py4JJavaError as error:
        raise TableError(
            f"Spark has no file system for {location}: object stores are not supported yet. Use a directory "
            f"that all machines can access, or add a Hadoop file system for {scheme} (spark.jars.packages "
            f"and spark.hadoop.fs.{scheme}.impl), which is not tested"
        ) from error
