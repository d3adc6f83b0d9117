"""Changes in portions, of which only the last one of each row counts: what a store has to do, in any order of rows."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from moldau.changelog.values import Change, Key, Row

PORTION = 1_000


def folded(changes: Iterable[Change], portion: int = PORTION) -> Iterator[Mapping[str, Mapping[Key, Row | None]]]:
    """For each portion of changes, by table and key: the row afterwards, None where it is deleted. Changes are read once."""
    source = iter(changes)
    while part := list(islice(source, portion)):
        tables: dict[str, dict[Key, Row | None]] = {}
        for change in part:
            tables.setdefault(change.table, {})[change.key] = change.after
        yield tables
