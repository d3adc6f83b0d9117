"""One contract for all stores of replicas (mission I5): rows and position together or not at all, and values as they were."""

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from moldau.changelog.store import WHOLE, KeyRange, ReplicaStore, StoreError
from moldau.changelog.stores.delta import DeltaStore
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.stores.duckdb import DuckdbStore
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Table, Value
from support.replica_stores import ACCOUNTS, POSITION, ROWS, TABLES, TYPES, ReplicaStoreContract, account, drop, put

Place = Callable[[bool], ReplicaStore]


class TestDictionary(ReplicaStoreContract):
    durable = False
    by_types = False

    @pytest.fixture
    def place(self) -> Place:
        return lambda sharded: DictionaryStore()


class TestSqlite(ReplicaStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return lambda sharded: SqliteStore(tmp_path / "a täble.db", sharded=sharded)


class TestDuckdb(ReplicaStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return lambda sharded: DuckdbStore(tmp_path / "a täble.db", sharded=sharded)


class SmallPortions(DeltaStore):
    """Of which a batch of a few thousand changes is several commits of a table."""

    portion = 10_000


class TestDelta(ReplicaStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return lambda sharded: SmallPortions(tmp_path / "a täble", sharded=sharded)


def stores(tmp_path: Path) -> list[ReplicaStore]:
    return [DictionaryStore(), SqliteStore(tmp_path / "s.db"), DuckdbStore(tmp_path / "d.db"), DeltaStore(tmp_path / "delta")]


def test_checksums_of_all_stores_are_equal(tmp_path: Path) -> None:
    found = []
    for store in stores(tmp_path):
        store.prepare("bank", TABLES)
        store.apply(0, put(TYPES, *ROWS) + put(ACCOUNTS, *map(account, range(100))), POSITION)
        found.append([store.checksum(0, table.name, WHOLE) for table in TABLES])
        store.close()
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("kind", [SqliteStore, DuckdbStore, DeltaStore])
def test_a_time_that_has_no_date_in_utc_is_refused(kind: type[SqliteStore | DuckdbStore | DeltaStore], tmp_path: Path) -> None:
    store = kind(tmp_path / "times.db")
    store.prepare("bank", TABLES)
    with pytest.raises(StoreError, match=r"table types.*: date value out of range"):
        store.apply(0, put(TYPES, {"id": 1, "timestamptz": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}), POSITION)
    assert (store.rows(0, "types", WHOLE), store.positions()) == ([], {})
    store.close()


@pytest.mark.parametrize("kind", [SqliteStore, DuckdbStore])
def test_ranges_over_decimals_are_refused(kind: type[SqliteStore | DuckdbStore], tmp_path: Path) -> None:
    prices = Table("prices", {"price": "decimal", "what": "text"}, ("price",))
    store = kind(tmp_path / "prices.db")
    store.prepare("shop", [prices])
    store.apply(0, put(prices, {"price": Decimal(9)}, {"price": Decimal(10)}, {"price": Decimal("9.50")}), POSITION)
    assert store.checksum(0, "prices", WHOLE).rows == 3
    with pytest.raises(StoreError, match="decimal price"):
        store.middle(0, "prices", WHOLE)
    with pytest.raises(StoreError, match="decimal price"):
        store.checksum(0, "prices", KeyRange((Decimal(1),), None))
    store.close()


def test_an_sqlite_replica_is_read_by_others_while_it_is_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "bank.db")
    store.prepare("bank", TABLES)
    store.apply(0, put(ACCOUNTS, account(1, "ann", 5)), POSITION)
    with sqlite3.connect(tmp_path / "bank.db") as other:
        assert other.execute("SELECT id, owner, balance FROM accounts").fetchall() == [(1, "ann", 5)]
        assert other.execute("SELECT shard, phase, commit_number FROM _moldau_positions").fetchall() == [(0, "following", 17)]
    other.close()
    store.close()


def test_a_column_of_any_type_in_sqlite_keeps_numbers_and_text(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "odd.db")
    days = Table("days", {"id": "integer", "day": "any"}, ("id",))
    values: list[Value] = ["2026-01-02", 20260102, 2460000.5, "20260102", b"x", None]
    store.prepare("bank", [days])
    store.apply(0, put(days, *({"id": number, "day": value} for number, value in enumerate(values))), POSITION)
    found = [row["day"] for _, row in store.rows(0, "days", WHOLE)]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]
    store.close()


def test_an_sqlite_key_of_another_type_replaces_the_one_that_is_equal(tmp_path: Path) -> None:
    """An update of a key from 1 to 1.0 is a deletion and a creation, in one portion."""
    store = SqliteStore(tmp_path / "odd.db")
    things = Table("things", {"key": "bytes", "what": "text"}, ("key",))
    store.prepare("bank", [things])
    store.apply(0, put(things, {"key": 1, "what": "a"}), POSITION)
    store.apply(0, drop(things, (1,)) + put(things, {"key": 1.0, "what": "b"}), POSITION)
    ((key, row),) = store.rows(0, "things", WHOLE)
    assert (type(key[0]), row["what"]) == (float, "b")
    store.close()


def test_duckdb_refuses_what_it_would_convert(tmp_path: Path) -> None:
    store = DuckdbStore(tmp_path / "bank.db")
    store.prepare("bank", TABLES)
    for wrong in ({"id": 1, "integer": True}, {"id": 1, "text": 5}, {"id": 1, "boolean": 1}, {"id": 1, "real": 1}):
        with pytest.raises(StoreError, match=r"table types, key \(1,\): column"):
            store.apply(0, put(TYPES, wrong), POSITION)
    store.close()
