"""What a source has in its database, as one: the tables, their publication and the slot, over a connection that is opened for it.

The comment of the publication says with which key and columns its tables are in the changelog: what was published with other columns is
published again, and another key is an error.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from moldau.changelog.postgres.catalog import Catalog
from moldau.changelog.postgres.errors import TableError
from moldau.changelog.postgres.known_tables import KnownTable, comment_of, known_tables
from moldau.changelog.postgres.slots import Standing, standing
from moldau.changelog.postgres.snapshot import Snapshot
from moldau.changelog.postgres.tables import CatalogTable, TableName, TableView

if TYPE_CHECKING:
    from psycopg import Connection

    from moldau.changelog.postgres.sessions import Server


class Renumbered(NamedTuple):
    """A table has other columns of the same names. The stream does not say from where on, but is surely there at `lsn`."""

    numbers: Mapping[str, int]
    lsn: int


def published_tables(server: "Server", name: str) -> list[str]:
    """Tables of the publication `name`, and those that are in the changelog by its comment; none before the first start.

    Where another program has changed the publication, both differ, which the start then names. UnreachableServerError, RefusedError.
    """
    with server.connect(name) as connection:
        catalog = Catalog(server, connection)
        return sorted({*known_tables(catalog.comment(name)), *(each.published for each in catalog.published(name) or ())})


class Publication:
    """Of one changelog; `name` is that of the publication and of the slot. UnreachableServerError, RefusedError, TableError."""

    def __init__(self, server: "Server", name: str, tables: Sequence[TableName], as_text: Mapping[TableName, Collection[str]]) -> None:
        self._server = server
        self._name = name
        self._tables = tables
        self.as_text = as_text
        self._connection: Connection[tuple[Any, ...]] | None = None
        self._catalog: Catalog | None = None
        self._known: dict[str, KnownTable] = {}
        """By table, as the comment has them."""

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Its methods can be called inside, unless they say otherwise."""
        with self._server.connect(self._name) as connection:
            self._connection, self._catalog = connection, Catalog(self._server, connection)
            try:
                yield self
            finally:
                self._connection = self._catalog = None

    def standing(self, last: Mapping[str, str | int] | None, shards: int) -> Standing:
        """How the slot stands to the changelog, whose last commit has this `source`, if rows are divided over so many shards."""
        self._known = known_tables(self._opened.comment(self._name))
        slot, published = self._opened.slot(self._name), self._opened.published(self._name)
        altered = "" if published is None else self._opened.publication_flaw(self._name)
        if not altered and not {name.published for name in self._tables} <= set(self._known):
            altered = "lacks the comment with its tables: another program has dropped it and made it again"
        return standing(slot, published, set(self._tables), last, self._opened.place(), altered, shards)

    def origin(self) -> Mapping[str, str | int]:
        """For the `source` of each commit."""
        return self._opened.place().origin._asdict()

    def check(self) -> None:
        """TableError, RefusedError unless the tables can be published as they are."""
        self._opened.check_settings()
        tables = self._opened.tables(self._tables)
        self._opened.check_identities(tables)
        self._check_keys(tables)

    def check_now(self, name: TableName) -> None:
        """TableError unless a table can be published as it is now; one that is not there any more is left to the stream."""
        found = self._opened.find(name)
        if found is not None:
            self._opened.check(found)
            self._check_keys([found])

    def release(self) -> None:
        """End the connection of an older publisher."""
        self._opened.release_slot(self._name)

    def make_anew(self, *, before_images: bool, is_first: bool) -> None:
        """The publication; there is no slot then. `is_first`: the changelog is empty."""
        self._opened.check_settings()
        tables = self._opened.tables(self._tables)
        if is_first:
            self._known = {}
        self._check_keys(tables)
        if before_images:
            self._opened.publish_before_images(tables)
        else:
            self._opened.check_identities(tables)
        self._opened.drop_slot(self._name)
        self._opened.make_publication(self._name, self._tables)
        self._set_known(self._known)  # the new publication has no comment, and the keys of the topics cannot change

    def snapshot(self, tables: Sequence[TableName] | None = None) -> Snapshot:
        """Of these tables, or all, over this connection, which is in its transaction until it is closed."""
        assert self._connection is not None
        return Snapshot(self._server, self._connection, self._tables if tables is None else tables)

    def is_as_in_snapshot(self) -> bool:
        """Whether the tables, which are locked, are what the snapshot of this connection has: neither altered nor truncated in between."""
        with self._server.connect(self._name) as connection:
            return Catalog(self._server, connection).tables(self._tables) == self._opened.tables(self._tables)

    def drop_slot(self) -> None:
        """That of a snapshot which cannot be used."""
        self._opened.drop_slot(self._name)

    def views(self) -> list[TableView]:
        """The tables as they are now."""
        return [TableView.of_catalog(table, self.as_text.get(table.name, ())) for table in self._opened.tables(self._tables)]

    def view_of(self, name: TableName) -> TableView | None:
        """One of them; None if it is not there any more."""
        found = self._opened.find(name)
        return None if found is None else TableView.of_catalog(found, self.as_text.get(name, ()))

    def keys(self) -> Mapping[TableName, Sequence[str]]:
        """Primary keys of the tables."""
        return {table.name: tuple(table.key) for table in self._opened.tables(self._tables)}

    def knows(self, view: TableView) -> bool:
        """Whether the changelog has a table with the columns of this view. At any time."""
        known = self._known.get(view.table.name)
        return known is not None and list(view.described) == list(known.columns)

    def renumbered(self, name: TableName) -> Renumbered | None:
        """What the catalog has now, if a column of a table has become another one of the same name."""
        known, found = self._known.get(name.published), self._opened.find(name)
        if known is None or found is None or not known.is_renumbered(found.numbers):
            return None
        return Renumbered(found.numbers, self._opened.inserted_lsn())

    def has_other_values(self, view: TableView) -> bool:
        """Whether rows of a table may have other values than those that were published: in a column that is new, of another type, or added
        again after it was dropped.
        """
        found = self._known.get(view.table.name)
        known = {} if found is None else {name: rest for name, *rest in found.columns}
        for name, *rest in view.described:
            if name in known and known[name] != rest:
                return True
            if found is not None and name in found.removed:
                return True
            if name not in known and self._opened.has_values(view.name, name):
                return True
        return False

    def has_other_keys(self, view: TableView, renumbered: Renumbered | None) -> bool:
        """Whether rows of a table may have other keys than those that were published: a column of the key has another type, or is another
        column of the same name. At any time.
        """
        known = self._known.get(view.table.name)
        if known is None:
            return False
        before, now = ({name: rest for name, *rest in columns} for columns in (known.columns, view.described))
        numbers = {} if renumbered is None else renumbered.numbers
        return any(
            before.get(name) != now.get(name) or known.numbers.get(name) != numbers.get(name, known.numbers.get(name))
            for name in view.table.key
        )

    def with_other_keys(self) -> Mapping[TableName, int]:
        """Tables whose keys are now of other columns than those that the changelog has, and where the stream is surely past that."""
        views = filter(None, map(self.view_of, self._tables))
        return {view.name: self._opened.inserted_lsn() for view in views if self.has_other_keys(view, None)}

    def remember_anew(self, views: Sequence[TableView]) -> None:
        """The changelog has all rows of these tables as they are now."""
        self._known = {}
        self.remember(views)

    def remember(self, views: Sequence[TableView], renumbered: Renumbered | None = None) -> None:
        """The changelog has these tables with these columns: those that it had with the same name, unless they are `renumbered`."""
        known = dict(self._known)
        for view in views:
            before, found = known.get(view.table.name), self._opened.find(view.name)
            numbers = {} if found is None else dict(found.numbers)
            if renumbered is not None:
                numbers |= renumbered.numbers
            elif before is not None:
                numbers |= before.numbers
            known[view.table.name] = KnownTable.of(view, numbers, before)
        self._set_known(known)

    def _set_known(self, known: Mapping[str, KnownTable]) -> None:
        self._known = dict(known)
        self._opened.set_comment(self._name, comment_of(self._known))

    def _check_keys(self, tables: Sequence[CatalogTable]) -> None:
        """TableError for a table whose key is not that of its topic: of other columns, or with values of another type."""
        for table in tables:
            known = self._known.get(table.name.published)
            if known is None:
                continue
            if list(known.key) != list(table.key):
                raise TableError(
                    f"{self._server.name}: table {table.name.published}: its primary key was changed: it was {', '.join(known.key)},"
                    f" and is of {', '.join(table.key)}; the key of a changelog's topic cannot change: publish under another name"
                )
            columns = TableView.of_catalog(table, self.as_text.get(table.name, ())).table.columns
            for column, kind in known.key.items():
                if columns[column] != kind:
                    raise TableError(
                        f"{self._server.name}: table {table.name.published}: column {column} of its primary key was of type"
                        f" {kind} of changelogs, and is {columns[column]}; the key of a"
                        " changelog's topic cannot change: publish under another name"
                    )

    @property
    def _opened(self) -> Catalog:
        assert self._catalog is not None, "inside of `opened`"
        return self._catalog
