"""Rows as framed Avro values: the schema that Arrow columns have by themselves, and the values of a batch by a schema.

What `types` says of decoding holds the other way: what was written with a derived schema is read into the same columns.
"""

import json
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from moldau.lake.avro.schemas import AvroSchemaError, AvroText
from moldau.registry.wire import frame

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")


class EncodingError(ValueError):
    """A row that the schema does not take."""


def derived_schema(name: str, columns: Any) -> str:
    """The text of a record's schema for Arrow columns, every field nullable. AvroSchemaError names a column that has no Avro type."""
    plain = _NO_NAME.sub("_", name)
    return json.dumps(_record(plain if _NAME.fullmatch(plain) else f"_{plain}", columns, ""))


def _record(name: str, fields: Any, where: str) -> dict[str, Any]:
    found = []
    for each in fields:
        place = f"{where}.{each.name}" if where else each.name
        if _NAME.fullmatch(each.name) is None:
            raise AvroSchemaError(f"column {place}: Avro has no field of that name; rename it")
        found.append({"name": each.name, "type": ["null", _type(each.type, f"{name}_{each.name}", place)], "default": None})
    return {"type": "record", "name": name, "fields": found}


def _type(kind: Any, name: str, where: str) -> Any:
    is_ = pa.types
    plain = (
        (is_.is_boolean, "boolean"),
        (lambda each: is_.is_int8(each) or is_.is_int16(each) or is_.is_int32(each), "int"),
        (is_.is_int64, "long"),
        (is_.is_float32, "float"),
        (is_.is_float64, "double"),
        (lambda each: is_.is_string(each) or is_.is_large_string(each), "string"),
        (lambda each: is_.is_binary(each) or is_.is_large_binary(each), "bytes"),
        (is_.is_date32, {"type": "int", "logicalType": "date"}),
    )
    for holds, found in plain:
        if holds(kind):
            return found
    if is_.is_timestamp(kind):
        return {"type": "long", "logicalType": "local-timestamp-micros" if kind.tz is None else "timestamp-micros"}
    if is_.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if is_.is_struct(kind):
        return _record(name, kind, where)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, name, where)]}
    if is_.is_map(kind) and is_.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_type, name, where)]}
    raise AvroSchemaError(f"column {where} is {kind}, which Avro has no type for")


def check_columns(schema: AvroText, names: Sequence[str]) -> None:
    """Every column is a field of the schema, and every field without a default a column. AvroSchemaError."""
    parsed, _ = _parsed(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise AvroSchemaError("the schema is no record: rows have columns")
    fields = {each["name"]: "default" in each for each in parsed["fields"]}
    unknown = [name for name in names if name not in fields]
    missing = [name for name, has_default in fields.items() if not has_default and name not in names]
    if unknown:
        raise AvroSchemaError(f"the schema has no field {', '.join(unknown)}; it has {', '.join(fields)}")
    if missing:
        raise AvroSchemaError(f"there is no column {', '.join(missing)}, and the schema has no default for it")


class AvroEncoder:
    """Encodes the rows of Arrow batches, each framed with the id of the schema. AvroSchemaError for a schema that cannot be read."""

    def __init__(self, schema_id: int, schema: AvroText) -> None:
        from fastavro import schemaless_writer

        self._id = schema_id
        self._schema, self._names = _parsed(schema)
        self._write = schemaless_writer

    def encode(self, batch: Any) -> Any:
        """A binary array of one value for each row. EncodingError."""
        found = []
        changes = {name: change for name, kind in zip(batch.schema.names, batch.schema.types, strict=True) if (change := _change(kind))}
        for row in batch.to_pylist():
            for name, change in changes.items():
                row[name] = change(row[name])
            body = BytesIO()
            try:
                self._write(body, self._schema, row)
            except Exception as error:  # of the library: whatever it is, the row does not fit
                raise EncodingError(
                    f"a row does not fit schema id {self._id}: {type(error).__name__}: {error}: {str(row)[:200]}"
                ) from error
            found.append(frame(self._id, body.getvalue()))
        return pa.array(found, pa.binary())


def _parsed(schema: AvroText) -> tuple[Any, dict[str, Any]]:
    from fastavro import parse_schema

    names: dict[str, Any] = {}
    try:
        for each in schema.references:
            parse_schema(json.loads(each), named_schemas=names)
        return parse_schema(json.loads(schema.text), named_schemas=names), names
    except Exception as error:  # of the library
        raise AvroSchemaError(f"the schema cannot be read: {type(error).__name__}: {error}") from error


def _change(kind: Any) -> Callable[[Any], Any] | None:
    """What makes the dictionaries of maps, which Arrow has as pairs; None for a type without maps."""
    if pa.types.is_map(kind):
        item = _change(kind.item_type)
        return lambda value: None if value is None else {key: item(each) if item else each for key, each in value}
    if pa.types.is_struct(kind):
        inner = {each.name: change for each in kind if (change := _change(each.type))}
        if inner:
            return lambda value: None if value is None else value | {name: change(value[name]) for name, change in inner.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _change(kind.value_type)
        if item:
            return lambda value: None if value is None else [item(each) for each in value]
    return None
