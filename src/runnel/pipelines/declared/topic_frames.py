"""Sources as Spark's frames: values and metadata as columns, and what becomes of malformed ones."""

from typing import TYPE_CHECKING

from runnel.pipelines.declared.declaration import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def source_columns(source: Source) -> "StructType":
    """The columns that steps see."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    from runnel.pipelines.source.columns import TYPES

    columns = StructType()
    match source.format:
        case "string":
            columns.add("value", StringType())
        case "bytes":
            columns.add("value", BinaryType())
        case _:
            assert source.schema is not None
            fields = StructType.fromDDL(source.schema.text)
            assert isinstance(fields, StructType)
            columns = fields
    for name in source.metadata:
        columns = columns.add(f"_{name}", TYPES[name])
    return columns
