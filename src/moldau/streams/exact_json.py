"""Columns as JSON objects from which the same columns come again, value for value.

JSON as Spark writes it has milliseconds of timestamps, and reads no maps whose keys are not texts. So before it is written each column
becomes one that JSON has without loss: times are whole numbers of microseconds (those without a zone: texts), dates days since 1970, floats
doubles, maps arrays of their entries. Bytes are base64, decimals are numbers with all digits.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.streams.errors import StreamError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def packed_schema(schema: "StructType", where: str) -> "StructType":
    """Of the JSON objects for rows like these. StreamError for a type that has no such form."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, _packed_type(each.dataType, f"{where}: column {each.name}")) for each in schema.fields])


def packed(schema: "StructType") -> Any:
    """The JSON text of the columns of a frame with this schema."""
    from pyspark.sql import functions

    columns = [_packed(functions.col(quoted(each.name)), each.dataType).alias(each.name) for each in schema.fields]
    return functions.to_json(functions.struct(*columns), {"ignoreNullFields": "false"})


def unpacked(event: Any, schema: "StructType") -> list[Any]:
    """The columns from the struct of such an object, in the order of `schema`."""
    return [_unpacked(event.getField(each.name), each.dataType).alias(each.name) for each in schema.fields]


def quoted(name: str) -> str:
    """A column's name as Spark takes it whatever it has in it."""
    return f"`{name.replace('`', '``')}`"


def _packed_type(kind: "DataType", where: str) -> "DataType":
    from pyspark.sql import types

    match kind:
        case types.TimestampType():
            return types.LongType()
        case types.TimestampNTZType():
            return types.StringType()
        case types.DateType():
            return types.IntegerType()
        case types.FloatType():
            return types.DoubleType()
        case types.StructType():
            return types.StructType([types.StructField(each.name, _packed_type(each.dataType, where)) for each in kind.fields])
        case types.ArrayType():
            return types.ArrayType(_packed_type(kind.elementType, where))
        case types.MapType():
            key, value = (_packed_type(each, where) for each in (kind.keyType, kind.valueType))
            return types.ArrayType(types.StructType([types.StructField("key", key), types.StructField("value", value)]))
        case (
            types.BooleanType() | types.IntegralType() | types.DoubleType() | types.DecimalType() | types.StringType() | types.BinaryType()
        ):
            return kind
        case _:
            raise StreamError(f"{where} is {kind.simpleString()}, which cannot be brought through a topic")


def _packed(column: Any, kind: "DataType") -> Any:
    from pyspark.sql import functions, types

    match kind:
        case types.TimestampType():
            return functions.unix_micros(column)
        case types.TimestampNTZType():
            return column.cast("string")
        case types.DateType():
            return functions.unix_date(column)
        case types.FloatType():
            return column.cast("double")
        case _:
            return _rebuilt(column, kind, _packed, into_entries=True)


def _unpacked(column: Any, kind: "DataType") -> Any:
    from pyspark.sql import functions, types

    match kind:
        case types.TimestampType():
            return functions.timestamp_micros(column)
        case types.TimestampNTZType():
            return column.cast(kind)
        case types.DateType():
            return functions.date_from_unix_date(column)
        case types.FloatType():
            return column.cast("float")
        case _:
            return _rebuilt(column, kind, _unpacked, into_entries=False)


def _rebuilt(column: Any, kind: "DataType", change: Callable[[Any, "DataType"], Any], *, into_entries: bool) -> Any:
    """A nested column with its parts changed; another one as it is."""
    from pyspark.sql import functions, types

    match kind:
        case types.StructType():
            fields = [change(column.getField(each.name), each.dataType).alias(each.name) for each in kind.fields]
            return functions.when(column.isNotNull(), functions.struct(*fields))
        case types.ArrayType():
            return functions.transform(column, lambda each: change(each, kind.elementType))
        case types.MapType():

            def entry(each: Any) -> Any:
                parts = (("key", kind.keyType), ("value", kind.valueType))
                return functions.struct(*(change(each.getField(name), part).alias(name) for name, part in parts))

            if into_entries:
                return functions.transform(functions.map_entries(column), entry)
            return functions.map_from_entries(functions.transform(column, entry))
        case _:
            return column
