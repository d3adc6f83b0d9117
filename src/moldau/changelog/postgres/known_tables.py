"""With which key and columns the tables are in a changelog: kept as JSON in the comment of its publication."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from moldau.changelog.postgres.tables import ColumnDescription, TableView


class KnownTable(NamedTuple):
    """One of them."""

    key: Mapping[str, str]
    """Columns of the primary key, in its order, with their types in the changelog."""
    columns: Sequence[ColumnDescription]
    numbers: Mapping[str, int]
    """Of columns, in the catalog: another one is another column of the same name."""
    removed: Sequence[str]
    """Columns that the table has no more, of which rows in the log have values."""

    @classmethod
    def of(cls, view: TableView, numbers: Mapping[str, int], before: Self | None) -> Self:
        """As a view has it, after what was known `before`."""
        there = view.table.columns
        gone = [] if before is None else [name for name in (*before.removed, *(each[0] for each in before.columns)) if name not in there]
        key = {name: there[name] for name in view.table.key}
        return cls(
            key, list(view.described), {name: number for name, number in numbers.items() if name in there}, list(dict.fromkeys(gone))
        )

    def is_renumbered(self, numbers: Mapping[str, int]) -> bool:
        """Whether a column was dropped, and one of the same name added."""
        return any(numbers.get(name, number) != number for name, number in self.numbers.items())


def comment_of(tables: Mapping[str, KnownTable]) -> str:
    """What `known_tables` reads."""
    return json.dumps({name: known._asdict() for name, known in tables.items()}, ensure_ascii=False, separators=(",", ":"))


def known_tables(comment: str | None) -> dict[str, KnownTable]:
    """By table, what a comment says; nothing if it is not one of ours."""
    try:
        return {str(table): _known(known) for table, known in json.loads(comment or "{}").items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _known(found: Mapping[str, Any]) -> KnownTable:
    return KnownTable(
        {str(name): str(kind) for name, kind in found["key"].items()},
        [(str(name), str(kind), int(oid), int(modifier)) for name, kind, oid, modifier in found["columns"]],
        {str(name): int(number) for name, number in found["numbers"].items()},
        [str(name) for name in found["removed"]],
    )
