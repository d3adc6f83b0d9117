"""With which key and columns the tables are in a changelog: kept as JSON in the comment of its publication."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from moldau.changelog.postgres.tables import ColumnDescription, TableView


class KnownTable(NamedTuple):
    """One of them."""

    key: Mapping[str, str]
    """Columns of the primary key, in its order, with their types in the changelog."""
    columns: Sequence[ColumnDescription]

    @classmethod
    def of(cls, view: TableView) -> Self:
        """As a view has it."""
        return cls({name: view.table.columns[name] for name in view.table.key}, list(view.described))


def comment_of(tables: Mapping[str, KnownTable]) -> str:
    """What `known_tables` reads."""
    return json.dumps({name: known._asdict() for name, known in tables.items()}, ensure_ascii=False, separators=(",", ":"))


def known_tables(comment: str | None) -> dict[str, KnownTable]:
    """By table, what a comment says; nothing if it is not one of ours."""
    try:
        return {str(table): _known(known) for table, known in json.loads(comment or "{}").items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _known(found: Mapping[str, object]) -> KnownTable:
    key, columns = found["key"], found["columns"]
    if not isinstance(key, dict) or not isinstance(columns, list):
        raise TypeError(f"no description of a table: {found}")
    return KnownTable(
        {str(name): str(kind) for name, kind in key.items()}, [(str(name), int(oid), int(modifier)) for name, oid, modifier in columns]
    )
