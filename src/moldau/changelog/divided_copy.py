"""A source whose rows are divided over shards, as what it has of each shard: to be compared with a replica of that shard."""

from collections.abc import Iterator, Sequence
from typing import Any

from moldau.changelog.all_shards import shard_of
from moldau.changelog.envelope import key_bytes
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import Checksum, KeyRange
from moldau.changelog.stores.sql_store import SqlStore
from moldau.changelog.values import Key, Row


class DividedCopy:
    """A `moldau.changelog.checksums.TableCopy` of the database of `store`, which is prepared or looked at, over so many shards.

    The hash of a key is not known to the database: each range is read as a whole.
    """

    def __init__(self, store: SqlStore[Any], shards: int) -> None:
        self._store = store
        self._shards = shards

    def checksum(self, shard: int, table: str, rows: KeyRange) -> Checksum:
        """Over the rows of a range that are in the shard."""
        return checksum_of(row for _, row in self._of(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """Of all rows in the range, which is about that of the shard."""
        return self._store.middle(shard, table, rows)

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        return list(self._of(shard, table, rows))

    def _of(self, shard: int, table: str, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        columns = tuple(self._store.known(table).table.key)
        for key, row in self._store.scan(shard, table, rows):
            if shard_of(key_bytes(columns, key), self._shards) == shard:
                yield key, row
