"""Rows of one schema to columns of another: missing columns become null, narrower numbers wider, structs by the names of their fields."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def fit(table: Any, schema: Any) -> Any:
    """The rows with exactly the columns of `schema`. pa.ArrowInvalid for a value that does not fit; columns beyond it are left out."""
    count = table.num_rows
    columns = [
        _fit(table.column(each.name), each.type) if each.name in table.column_names else pa.nulls(count, each.type) for each in schema
    ]
    return pa.table(columns, schema=schema)


def _fit(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_fit(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_dictionary(column.type):
        return _fit(column.dictionary_decode(), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        there = {each.name: number for number, each in enumerate(column.type)}
        fields = [
            _fit(pc.struct_field(column, [there[each.name]]), each.type) if each.name in there else pa.nulls(len(column), each.type)
            for each in kind
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        values = _fit(column.flatten(), kind.value_type)
        return _with_offsets(pa.ListArray, column, (values,), kind)
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        start, stop = _bounds(column)
        keys, items = column.keys.slice(start, stop - start), column.items.slice(start, stop - start)
        return _with_offsets(pa.MapArray, column, (_fit(keys, kind.key_type), _fit(items, kind.item_type)), kind)
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))  # what is finer than a microsecond is cut


def _bounds(column: Any) -> tuple[int, int]:
    """Where the entries of a map array begin and end in its children."""
    if len(column) == 0:
        return 0, 0
    offsets = column.offsets
    return offsets[0].as_py(), offsets[len(column)].as_py()


def _with_offsets(maker: Any, column: Any, children: tuple[Any, ...], kind: Any) -> Any:
    """The same lists (or maps) over other children, which begin where the first list does."""
    lengths = pc.fill_null(pc.list_value_length(column) if maker is pa.ListArray else _map_lengths(column), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = column.is_null() if column.null_count else None
    if maker is pa.ListArray:
        return pa.ListArray.from_arrays(offsets, children[0], type=kind, mask=mask)
    return pa.MapArray.from_arrays(offsets, *children, type=kind, mask=mask)


def _map_lengths(column: Any) -> Any:
    offsets = column.offsets
    lengths = pc.subtract(offsets.slice(1, len(column)), offsets.slice(0, len(column)))
    return pc.if_else(column.is_valid(), lengths, 0)
