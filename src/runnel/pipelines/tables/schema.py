"""Conversion and evolution between Spark schemas and table schemas."""

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

from runnel.pipelines.errors import SchemaChanged, TableError

_WHOLE: Sequence[type[DataType]] = (IntegerType, LongType)
_FLOATING: Sequence[type[DataType]] = (FloatType, DoubleType)


def arrow_schema(columns: StructType) -> object:
    """The Arrow schema of the columns, all of them optional."""
    _check_types(columns)
    return to_arrow_schema(_optional(columns), timezone="UTC")


def spark_schema(schema: Schema) -> StructType:
    """The Spark schema of a table."""
    return from_arrow_schema(schema.as_arrow())


def merged(table: StructType, rows: StructType) -> StructType:
    """The evolved columns for existing and new rows; SchemaChanged if they are incompatible."""
    _check_names(rows)
    result = _merged_struct(_optional(table), _optional(rows), "")
    _check_names(result)
    _check_types(result)
    return result


def fitted(frame: DataFrame, columns: StructType) -> DataFrame:
    """Project rows to these columns: missing ones are null, narrower types are widened."""
    present = {field.name: field.dataType for field in frame.schema.fields}
    return frame.select(*(_fitted_column(field, present.get(field.name)) for field in columns.fields))


def _fitted_column(field: StructField, present: DataType | None) -> Column:
    if present is None:
        return F.lit(None).cast(field.dataType).alias(field.name)
    column = F.col(f"`{field.name.replace('`', '``')}`")
    if isinstance(present, NullType):
        return column.cast(field.dataType).alias(field.name)
    return _fitted_value(column, present, field.dataType).alias(field.name)


def _fitted_value(value: Column, present: DataType, wanted: DataType) -> Column:
    if _same(present, wanted):
        return value
    if isinstance(wanted, StructType) and isinstance(present, StructType):
        parts = {field.name: field.dataType for field in present.fields}
        built = F.struct(
            *(
                (
                    _fitted_value(value.getField(field.name), parts[field.name], field.dataType)
                    if field.name in parts
                    else F.lit(None).cast(field.dataType)
                ).alias(field.name)
                for field in wanted.fields
            )
        )
        return F.when(value.isNotNull(), built)
    if isinstance(wanted, ArrayType) and isinstance(present, ArrayType):
        element, target = present.elementType, wanted.elementType
        return F.transform(value, lambda item: _fitted_value(item, element, target))
    if isinstance(wanted, MapType) and isinstance(present, MapType):
        inner, target = present.valueType, wanted.valueType
        return F.transform_values(value, lambda _, item: _fitted_value(item, inner, target))
    return value.cast(wanted)


def _merged_struct(table: StructType, rows: StructType, path: str) -> StructType:
    new = {field.name: field for field in rows.fields}
    fields = [
        StructField(
            field.name,
            _merged_type(field.dataType, new[field.name].dataType, f"{path}{field.name}")
            if field.name in new
            else field.dataType,
        )
        for field in table.fields
    ]
    known = {field.name for field in table.fields}
    return StructType(fields + [field for field in rows.fields if field.name not in known])


def _merged_type(old: DataType, new: DataType, path: str) -> DataType:
    if isinstance(new, NullType) or _same(old, new):
        return old
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _merged_struct(old, new, f"{path}.")
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_merged_type(old.elementType, new.elementType, f"{path}.element"))
    if isinstance(old, MapType) and isinstance(new, MapType) and _same(old.keyType, new.keyType):
        return MapType(old.keyType, _merged_type(old.valueType, new.valueType, f"{path}.value"))
    wider = _wider(old, new)
    if wider is None:
        raise SchemaChanged(
            f"column {path} of the table is {old.simpleString()}, the rows have {new.simpleString()}: "
            "cast them, or rename the column"
        )
    return wider


def _wider(old: DataType, new: DataType) -> DataType | None:
    for family in (_WHOLE, _FLOATING):
        if type(old) in family and type(new) in family:
            return max(old, new, key=lambda kind: family.index(type(kind)))
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale == new.scale:
        return old if old.precision >= new.precision else new
    return None


def _same(left: DataType, right: DataType) -> bool:
    return _plain(left) == _plain(right)


def _plain(kind: DataType) -> DataType:
    """The type as stored by Iceberg: everything optional, integers of at least 32 bits."""
    if isinstance(kind, StructType):
        return _optional(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType))
    return IntegerType() if isinstance(kind, ByteType | ShortType) else kind


def _optional(columns: StructType) -> StructType:
    return StructType([StructField(field.name, _plain(field.dataType)) for field in columns.fields])


def _check_names(columns: StructType) -> None:
    seen: dict[str, str] = {}
    for field in columns.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            raise SchemaChanged(f"columns {other} and {field.name} differ in case alone: rename one of them")


def _check_types(columns: StructType) -> None:
    for field in columns.fields:
        if isinstance(field.dataType, NullType):
            raise TableError(f"column {field.name} has no type: cast it, as in CAST(NULL AS STRING)")
