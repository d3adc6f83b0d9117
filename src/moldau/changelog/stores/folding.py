"""Changes in portions, of which only the last one of each row counts: what a store has to do, in any order of rows.

Keys are distinguished as the log does: 1, 1.0, 1.00 and True are equal in Python, and the records of four keys. A store where they are one
row has at most one of them after a portion, and deletes the others before it writes that one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from moldau.changelog.values import Change, Key, Row

PORTION: Final = 1_000
_EXACT: Final = frozenset((str, int, bytes))
"""Types whose values are equal only if they are the same, as long as all values are of these types."""

FoldedRow = tuple[Key, Row | None]
"""A key, and the row afterwards; None where it is deleted."""


def folded(changes: Iterable[Change], portion: int = PORTION) -> Iterator[Mapping[str, Collection[FoldedRow]]]:
    """For each portion of changes, by table: the rows that they leave. Changes are read once."""
    source = iter(changes)
    while part := list(islice(source, portion)):
        tables: dict[str, dict[Any, FoldedRow]] = {}
        for change in part:
            key = change.key
            tables.setdefault(change.table, {})[key if _EXACT.issuperset(map(type, key)) else _exact(key)] = (key, change.after)
        yield {name: rows.values() for name, rows in tables.items()}


def _exact(key: Key) -> tuple[tuple[type, str], ...]:
    return tuple((type(value), str(value)) for value in key)
