"""How the columns of a table grow with the events' schema: pure, decided before anything is written.

New columns and new fields of structs are added, at the end; int becomes long and float double where events have that; columns that events
do not have any more stay and are null. Whatever else has changed is refused: a table has one type for each column.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moldau.lake.tables.format import TableMismatchError

_WIDER = frozenset(
    [
        (pa.int8(), pa.int16()),
        (pa.int8(), pa.int32()),
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.int16(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.int8(), pa.float64()),
        (pa.int16(), pa.float64()),
        (pa.int32(), pa.float64()),
    ]
)
"""Each pair without loss: long to double would lose digits, and is refused."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What becomes of a table's columns."""

    schema: Any
    """All columns then."""
    added: tuple[str, ...]
    widened: tuple[str, ...]
    """Columns whose type changes: files that have the old one are rewritten."""

    @property
    def changes(self) -> bool:
        """Whether the table's schema changes at all."""
        return bool(self.added or self.widened)


def evolve(path: str, table: Any, events: Any) -> Evolution:
    """The columns of the table at `path` when `events` come into it. TableMismatchError names the first that cannot be."""
    added: list[str] = []
    widened: list[str] = []
    fields = _merge(path, "", list(table), list(events), added, widened)
    return Evolution(pa.schema(fields), tuple(added), tuple(widened))


def _merge(path: str, above: str, old: list[Any], new: list[Any], added: list[str], widened: list[str]) -> list[Any]:
    coming = {each.name: each for each in new}
    merged = []
    for each in old:
        if each.name in coming:
            each = pa.field(each.name, _type(path, above + each.name, each.type, coming[each.name].type, added, widened))
        merged.append(each)
    there = {each.name for each in old}
    folded = {name.lower(): name for name in there}
    for each in new:
        if each.name not in there:
            twin = folded.get(each.name.lower())
            if twin is not None:
                raise TableMismatchError(f"{path}: column {above}{each.name} differs from column {above}{twin} in capital letters only")
            folded[each.name.lower()] = each.name
            added.append(above + each.name)
            merged.append(each)
    return merged


def _type(path: str, name: str, old: Any, new: Any, added: list[str], widened: list[str]) -> Any:
    if old == new or (new, old) in _WIDER:
        return old
    if (old, new) in _WIDER:
        widened.append(name)
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merge(path, f"{name}.", list(old), list(new), added, widened))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", _type(path, f"{name}.element", old.value_type, new.value_type, added, widened)))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _type(path, f"{name}.value", old.item_type, new.item_type, added, widened))
    raise TableMismatchError(f"{path}: column {name} is {old} in the table and {new} in the events: the one cannot become the other")
