"""Steps of arrays and maps: their items are found in all rows (`blocks`), then read at once, by the step of the item's type."""

from typing import Any

import pyarrow as pa

from moldau.lake.avro.blocks import Items, Layout, walk
from moldau.lake.avro.vectors import Cursor, Step


def array_step(layout: Layout, item: Step, kind: Any) -> Step:
    """Reads arrays as lists of an Arrow type."""

    def read(cursor: Cursor) -> Any:
        items = walk(cursor, layout)
        values = item(items.cursor)
        items.doubt()
        return pa.ListArray.from_arrays(pa.array(items.offsets()), values, type=kind)

    return read


def map_step(layout: Layout, value: Step, kind: Any) -> Step:
    """Reads maps. A row that has a name twice is doubtful: of its entries the last one counts."""

    def read(cursor: Cursor) -> Any:
        entries = walk(cursor, layout)
        names = entries.cursor.strings(entries.cursor.gather(*entries.cursor.spans()))
        values = value(entries.cursor)
        entries.doubt()
        _doubt_repeated(cursor, entries, names)
        return pa.MapArray.from_arrays(pa.array(entries.offsets()), names, values, type=kind)

    return read


def _doubt_repeated(cursor: Cursor, entries: Items, names: Any) -> None:
    rows = entries.rows
    if not (rows[1:] == rows[:-1]).any():
        return
    known = names.dictionary_encode()
    different = len(known.dictionary)
    together = rows * different + known.indices.to_numpy()
    together.sort()
    cursor.doubtful[together[1:][together[1:] == together[:-1]] // different] = True
