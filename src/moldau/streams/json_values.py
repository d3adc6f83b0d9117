"""JSON objects in the values of records, as columns: what inputs and secondary stores have in common."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CORRUPT: Final = "_corrupt"
"""The field of an event that has the text which could not be decoded."""


def json_schema(given: "str | StructType") -> "StructType":
    """A schema in Spark's words or types."""
    from pyspark.sql.types import StructType, _parse_datatype_string

    found = given if isinstance(given, StructType) else _parse_datatype_string(given)
    if not isinstance(found, StructType):
        raise ValueError(f"{given!r} is {found.simpleString()}, not the columns of a row")
    return found


def json_event(value: Any, schema: "StructType") -> Any:
    """The struct of a column with JSON as bytes or text, with the field CORRUPT besides; nulls where it could not be decoded."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructType

    whole = StructType([*schema.fields]).add(CORRUPT, StringType())
    return functions.from_json(value.cast("string"), whole, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


def is_corrupt(event: Any) -> Any:
    """Whether the bytes of this event, which are not null, are no JSON object of the schema."""
    return event.isNull() | event.getField(CORRUPT).isNotNull()
