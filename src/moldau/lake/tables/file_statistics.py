"""Delta's statistics of a data file: counts, and least and greatest values where a reader may skip the file by them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_STRING_MAX = 32
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(milliseconds=1)


class FileStatistics:
    """Grows with the row groups of a file. Bounds are never tighter than the rows: times are cut to the millisecond, long strings too."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, _Column] = {}

    def add(self, table: Any) -> None:
        """Take rows into account."""
        self.rows += table.num_rows
        for name in table.column_names:
            column = table.column(name)
            if not pa.types.is_nested(column.type) or pa.types.is_struct(column.type):
                self._columns.setdefault(name, _Column()).add(column)

    def result(self) -> dict[str, Any]:
        """numRecords, minValues, maxValues, nullCount."""
        return {
            "numRecords": self.rows,
            "minValues": _present({name: column.least() for name, column in self._columns.items()}),
            "maxValues": _present({name: column.greatest() for name, column in self._columns.items()}),
            "nullCount": {name: column.null_counts() for name, column in self._columns.items()},
        }


class _Column:
    """Of one column, or of the fields of a struct."""

    def __init__(self) -> None:
        self._bounds: tuple[Any, Any] | None = None
        self._unbounded = False
        self._nulls = 0
        self._fields: dict[str, _Column] = {}

    def add(self, column: Any) -> None:
        if pa.types.is_struct(column.type):
            for number, each in enumerate(column.type):
                if not pa.types.is_nested(each.type) or pa.types.is_struct(each.type):
                    self._fields.setdefault(each.name, _Column()).add(pc.struct_field(column, [number]))
            return
        self._nulls += column.null_count
        if not _has_bounds(column.type):
            return
        found = pc.min_max(column)
        try:
            low, high = found["min"].as_py(), found["max"].as_py()
        except (OverflowError, ValueError):  # a time that is in no year up to 9999
            self._unbounded = True
            return
        if low is None:
            return
        if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():  # NaN is above all, and `min_max` leaves it out
            self._unbounded = True
        elif self._bounds is None:
            self._bounds = (low, high)
        else:
            self._bounds = (min(low, self._bounds[0]), max(high, self._bounds[1]))

    def least(self) -> Any:
        if self._fields:
            return _present({name: field.least() for name, field in self._fields.items()}) or None
        return None if not self._is_bounded() else _least(self._bounds[0])  # type: ignore[index]  # it is there

    def greatest(self) -> Any:
        if self._fields:
            return _present({name: field.greatest() for name, field in self._fields.items()}) or None
        return None if not self._is_bounded() else _greatest(self._bounds[1])  # type: ignore[index]  # it is there

    def null_counts(self) -> Any:
        return {name: field.null_counts() for name, field in self._fields.items()} if self._fields else self._nulls

    def _is_bounded(self) -> bool:
        """A bound at one end only would be no use."""
        return self._bounds is not None and not self._unbounded and _greatest(self._bounds[1]) is not None


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _has_bounds(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind) or types.is_timestamp(kind))


def _least(value: Any) -> Any:
    """A value as Delta's JSON has it."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str) and len(value) > _STRING_MAX:
        return value[:_STRING_MAX]
    return value


def _greatest(value: Any) -> Any:
    """As `_least`, but never below the value: times are raised to the next millisecond, long strings give no bound."""
    if isinstance(value, datetime) and value.microsecond % 1000:
        return _least(value + timedelta(milliseconds=1)) if value <= _LAST else None
    if isinstance(value, str) and len(value) > _STRING_MAX:
        return None
    return _least(value)
