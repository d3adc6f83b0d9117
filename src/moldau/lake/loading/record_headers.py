"""Headers of records as columns: the last one of a name counts."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.tables.value_ranges import beyond


def marked_records(headers: Any, name: str) -> dict[int, str]:
    """The records that have the header `name`, and its text."""
    texts = _last_header(headers, name)
    numbers = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return {number: texts[number].as_py().decode("utf-8", "replace") for number in numbers}


def header_column(headers: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    """The last header `name` of each record, as `kind`; null where there is none. What cannot be read is added to `rejected`."""
    texts = _last_header(headers, name)
    try:
        column = texts.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        column = _one_by_one(texts, name, kind, rejected)
    for number in beyond(pa.table([column], names=[name])).tolist():
        rejected.setdefault(number, f"header {name!r}: {texts[number].as_py().decode()} is beyond what a column {kind} can hold")
    return column


def _last_header(headers: Any, name: str) -> Any:
    """The bytes of the last header `name` of each record; null where there is none."""
    entries = pc.list_flatten(headers)
    records = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    mine = np.flatnonzero(pc.equal(pc.struct_field(entries, "key"), name).to_numpy(zero_copy_only=False))
    chosen = np.full(len(headers), -1, np.int64)
    chosen[records[mine]] = mine  # the last one stands
    return pc.struct_field(entries, "value").take(pa.array(chosen, mask=chosen < 0))


def _one_by_one(texts: Any, name: str, kind: Any, rejected: dict[int, str]) -> Any:
    cells = []
    for number in range(len(texts)):
        try:
            cells.append(texts.slice(number, 1).cast(pa.string()).cast(kind))
        except pa.ArrowInvalid as error:
            cells.append(pa.nulls(1, kind))
            rejected.setdefault(number, f"header {name!r}: {error}")
    return pa.concat_arrays(cells)
