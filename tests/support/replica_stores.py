"""The contract of stores of replicas, as a suite that each store's tests inherit: with a fixture `place`, where stores are opened."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, overload

import pytest

from moldau.changelog.checksums import Kind, compare
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import WHOLE, KeyRange, Phase, Position, ReplicaStore, StoreError
from moldau.changelog.values import Change, Key, Op, Row, Table

ACCOUNTS = Table("accounts", {"id": "integer", "owner": "text", "balance": "integer"}, ("id",))
PAIRS = Table('pairs of "words"', {"left": "text", "value": "text", "right": "text"}, ("right", "left"))
TYPES = Table(
    "types",
    {
        "id": "integer",
        "boolean": "boolean",
        "integer": "integer",
        "real": "real",
        "text": "text",
        "bytes": "bytes",
        "decimal": "decimal",
        "date": "date",
        "time": "time",
        "timestamp": "timestamp",
        "timestamptz": "timestamptz",
    },
    ("id",),
)
TABLES = (ACCOUNTS, PAIRS, TYPES)
POSITION = Position(
    Phase.FOLLOWING,
    3,
    17,
    1_700_000_000_000,
    {"bank._commits": 40, "bank.accounts": 2**40},
    {"bank._commits": "0a" * 16},
    {"bank.accounts": ACCOUNTS},
)
EMPTY = Position(Phase.LOADING, 0, 0, 5, {"bank._commits": 0})
ROWS: Sequence[Row] = (
    {"id": 1, "boolean": True, "integer": 2**63 - 1, "real": 0.1, "text": "žluťoučký\x00'\"", "bytes": bytes(range(256))},
    {"id": 2, "boolean": False, "integer": -(2**63), "real": -1e300, "text": "", "bytes": b""},
    {"id": 3, "real": 5.0, "integer": 5, "text": "5", "decimal": Decimal("12345678901234567890.12345678901234567890")},
    {"id": 4, "real": float("inf"), "decimal": Decimal("1.50"), "date": date(1, 1, 1), "time": time(23, 59, 59, 999_999)},
    {"id": 5, "decimal": Decimal(-7), "date": date(9999, 12, 31), "time": time(0), "timestamp": datetime(2026, 2, 28, 1, 2, 3, 4)},  # noqa: DTZ001
    {"id": 6, "timestamptz": datetime(2026, 2, 28, 1, 2, 3, 999_999, UTC), "timestamp": datetime(1969, 12, 31)},  # noqa: DTZ001
    {"id": 7, "timestamptz": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5)))},
    {"id": 8},
)


def whole(table: Table, row: Row) -> Row:
    return {name: row.get(name) for name in table.columns}


def put(table: Table, *rows: Row, op: Op = Op.UPDATE) -> list[Change]:
    return [Change(table.name, op, tuple(row[name] for name in table.key), None, row) for row in rows]


def drop(table: Table, *keys: Key) -> list[Change]:
    return [Change(table.name, Op.DELETE, key, None, None) for key in keys]


def account(number: int, owner: str = "x", balance: int = 0) -> Row:
    return {"id": number, "owner": owner, "balance": balance}


class Broken(Sequence[Change]):
    """Changes that cannot be read to their end, as those that were spilled to a disk that fails."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    @overload
    def __getitem__(self, index: int) -> Change: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Change]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._changes[index]

    def __len__(self) -> int:
        return len(self._changes) + 1

    def __iter__(self) -> Iterator[Change]:
        yield from self._changes
        raise OSError("the disk failed")


class ReplicaStoreContract:
    """`place(sharded)` opens the same store each time, as a process does that starts again."""

    durable = True
    by_types = True
    """Whether it refuses what a column cannot hold."""

    @pytest.fixture
    def place(self) -> Callable[[bool], ReplicaStore]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, place: Callable[[bool], ReplicaStore]) -> Iterator[ReplicaStore]:
        store = place(True)
        store.prepare("bank", TABLES)
        yield store
        store.close()

    def test_a_new_store_has_no_position(self, store: ReplicaStore) -> None:
        assert store.positions() == {}
        assert store.rows(0, "accounts", WHOLE) == []
        assert store.checksum(0, "accounts", WHOLE) == (0, 0)

    def test_rows_and_position_come_back_as_they_were(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(2), account(1, "ann", 5)), POSITION)
        assert store.rows(0, "accounts", WHOLE) == [((1,), account(1, "ann", 5)), ((2,), account(2))]
        assert store.positions() == {0: POSITION}

    def test_each_type_comes_back_exactly(self, store: ReplicaStore) -> None:
        store.apply(0, put(TYPES, *ROWS), POSITION)
        found = [row for _, row in store.rows(0, "types", WHOLE)]
        assert found == [whole(TYPES, row) for row in ROWS]
        for row, wanted in zip(found, ROWS, strict=True):
            assert {name: type(row[name]) for name in wanted} == {name: type(value) for name, value in wanted.items()}
            assert str(row["decimal"]) == str(wanted.get("decimal"))

    def test_a_number_that_is_none_comes_back(self, store: ReplicaStore) -> None:
        store.apply(0, put(TYPES, {"id": 1, "real": float("nan")}), POSITION)
        ((_, row),) = store.rows(0, "types", WHOLE)
        assert row["real"] != row["real"]

    def test_a_change_replaces_the_row_that_is_there(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1), op=Op.CREATE), EMPTY)
        store.apply(0, put(ACCOUNTS, account(1, "ann"), op=Op.CREATE), POSITION)
        assert store.rows(0, "accounts", WHOLE) == [((1,), account(1, "ann"))]

    def test_changes_of_a_row_count_in_their_order(self, store: ReplicaStore) -> None:
        changes = put(ACCOUNTS, account(1), account(2)) + drop(ACCOUNTS, (1,), (2,)) + put(ACCOUNTS, account(2, "bob"))
        store.apply(0, changes, POSITION)
        assert store.rows(0, "accounts", WHOLE) == [((2,), account(2, "bob"))]
        store.apply(0, drop(ACCOUNTS, (2,)) + put(ACCOUNTS, account(2, "eve")) + drop(ACCOUNTS, (2,)), POSITION)
        assert store.rows(0, "accounts", WHOLE) == []

    def test_rows_that_are_deleted_and_made_again_far_apart_in_one_commit(self, store: ReplicaStore) -> None:
        """Portions of a large commit meet the rows that portions before have changed."""
        first = put(ACCOUNTS, *(account(number) for number in range(3000)))
        store.apply(0, first, EMPTY)
        again = drop(ACCOUNTS, *((number,) for number in range(3000))) + put(ACCOUNTS, *(account(number, "y") for number in range(3000)))
        filler = put(PAIRS, *({"left": "a", "right": str(number), "value": ""} for number in range(12_000)))
        store.apply(0, again[:3000] + filler + again[3000:], POSITION)
        assert [row["owner"] for _, row in store.rows(0, "accounts", WHOLE)] == ["y"] * 3000

    def test_a_key_that_is_written_otherwise_is_that_of_one_row(self, store: ReplicaStore) -> None:
        """1.0 and 1.00 are equal, and different in the log: a source that changes one to the other deletes the first."""
        prices = Table("prices", {"price": "decimal", "what": "text"}, ("price",))
        store.prepare("bank", [*TABLES, prices])
        first, second = ({"price": Decimal(price), "what": price} for price in ("1.0", "1.00"))
        store.apply(0, put(prices, first), EMPTY)
        store.apply(0, drop(prices, (first["price"],)) + put(prices, second), POSITION)
        ((key, row),) = store.rows(0, "prices", WHOLE)
        assert (str(key[0]), str(row["price"]), row["what"]) == ("1.00", "1.00", "1.00")
        changes = [*drop(prices, (second["price"],)), *put(prices, first), *drop(prices, (first["price"],)), *put(prices, second)]
        store.apply(0, changes, POSITION)
        ((key, row),) = store.rows(0, "prices", WHOLE)
        assert (str(key[0]), row["what"]) == ("1.00", "1.00")

    def test_a_row_that_is_not_there_can_be_deleted(self, store: ReplicaStore) -> None:
        store.apply(0, drop(ACCOUNTS, (9,)) + drop(PAIRS, ("a", "b")), POSITION)
        assert store.positions() == {0: POSITION}

    def test_a_position_without_changes_is_kept(self, store: ReplicaStore) -> None:
        store.apply(0, [], EMPTY)
        store.apply(0, [], POSITION)
        assert store.positions() == {0: POSITION}

    def test_keys_of_several_columns_are_in_the_order_of_the_key(self, store: ReplicaStore) -> None:
        words = ["b", "a", "", "é", "z", "\U0001f600", "\uffff", "B"]
        rows = [{"left": left, "right": right, "value": left + right} for left in words for right in words]
        store.apply(0, put(PAIRS, *rows), POSITION)
        found = store.rows(0, PAIRS.name, WHOLE)
        assert [key for key, _ in found] == sorted((row["right"], row["left"]) for row in rows)
        store.apply(0, drop(PAIRS, *(key for key, _ in found[1:])), POSITION)
        assert [key for key, _ in store.rows(0, PAIRS.name, WHOLE)] == [("", "")]

    def test_shards_do_not_meet(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1, "zero")), POSITION)
        store.apply(7, put(ACCOUNTS, account(1, "seven"), account(2)), EMPTY)
        assert store.rows(0, "accounts", WHOLE) == [((1,), account(1, "zero"))]
        assert store.checksum(7, "accounts", WHOLE).rows == 2
        store.clear(7, EMPTY)
        assert [store.checksum(shard, "accounts", WHOLE).rows for shard in (0, 7)] == [1, 0]
        assert store.positions() == {0: POSITION, 7: EMPTY}

    def test_clear_removes_rows_of_all_tables_and_keeps_the_position(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1)) + put(TYPES, *ROWS), POSITION)
        store.clear(0, EMPTY)
        assert [store.checksum(0, table.name, WHOLE).rows for table in TABLES] == [0, 0, 0]
        assert store.positions() == {0: EMPTY}

    def test_what_fails_in_the_middle_leaves_rows_and_position(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1), account(2)), EMPTY)
        many = put(ACCOUNTS, *(account(number, "new") for number in range(1, 25_000))) + drop(ACCOUNTS, (2,))
        with pytest.raises(OSError, match="the disk failed"):
            store.apply(0, Broken(many), POSITION)
        assert store.rows(0, "accounts", WHOLE) == [((1,), account(1)), ((2,), account(2))]
        assert store.positions() == {0: EMPTY}
        store.apply(0, put(ACCOUNTS, account(3)), POSITION)
        assert store.checksum(0, "accounts", WHOLE).rows == 3

    def test_a_table_that_is_not_the_replicas_is_named(self, store: ReplicaStore) -> None:
        other = ACCOUNTS._replace(name="others")
        with pytest.raises(StoreError, match="table others"):
            store.apply(0, put(ACCOUNTS, account(1)) + put(other, account(1)), POSITION)
        assert (store.rows(0, "accounts", WHOLE), store.positions()) == ([], {})

    def test_a_value_that_a_column_cannot_hold_is_named_by_key(self, store: ReplicaStore) -> None:
        if not self.by_types:
            pytest.skip("it holds everything")
        with pytest.raises(StoreError, match=r"table accounts, key \(2,\)"):
            store.apply(0, put(ACCOUNTS, account(1), account(2, balance=2**70), account(3)), POSITION)
        assert (store.rows(0, "accounts", WHOLE), store.positions()) == ([], {})

    def test_columns_that_a_table_has_got_are_added(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1)), EMPTY)
        before = store.checksum(0, "accounts", WHOLE)
        wider = ACCOUNTS._replace(columns={**ACCOUNTS.columns, "opened": "date", "Note": "text"})
        store.prepare("bank", [wider, PAIRS, TYPES])
        assert store.checksum(0, "accounts", WHOLE) == before, "columns that are null change nothing"
        store.apply(0, put(wider, {**account(2), "opened": date(2026, 1, 2)}), POSITION)
        assert [row for _, row in store.rows(0, "accounts", WHOLE)] == [
            {**account(1), "opened": None, "Note": None},
            {**account(2), "opened": date(2026, 1, 2), "Note": None},
        ]

    def test_a_column_that_a_row_does_not_have_any_more_is_null(self, store: ReplicaStore) -> None:
        store.apply(0, put(ACCOUNTS, account(1, "ann", 5)), EMPTY)
        store.apply(0, put(ACCOUNTS, {"id": 1, "balance": 6}), POSITION)
        assert store.rows(0, "accounts", WHOLE) == [((1,), {"id": 1, "owner": None, "balance": 6})]

    def test_another_primary_key_is_refused(self, store: ReplicaStore) -> None:
        with pytest.raises(StoreError, match=r"accounts.*primary key"):
            store.prepare("bank", [ACCOUNTS._replace(key=("owner",))])

    def test_ranges_and_middles_divide_a_table(self, store: ReplicaStore) -> None:
        numbers = random.Random(1).sample(range(-10_000, 10_000), 101)
        store.apply(0, put(ACCOUNTS, *map(account, numbers)), POSITION)
        store.apply(1, put(ACCOUNTS, *map(account, range(50))), POSITION)
        middle = store.middle(0, "accounts", WHOLE)
        assert middle == (sorted(numbers)[50],)
        low, high = KeyRange(None, middle), KeyRange(middle, None)
        assert (store.checksum(0, "accounts", low).rows, store.checksum(0, "accounts", high).rows) == (50, 51)
        assert [key for key, _ in store.rows(0, "accounts", high)] == [(number,) for number in sorted(numbers)[50:]]
        assert store.middle(0, "accounts", KeyRange((sorted(numbers)[3],), (sorted(numbers)[4],))) is None
        assert store.middle(0, "accounts", KeyRange((20_000,), None)) is None

    def test_checksums_are_those_of_the_rows(self, store: ReplicaStore) -> None:
        store.apply(0, put(TYPES, *ROWS), POSITION)
        assert store.checksum(0, "types", WHOLE) == checksum_of(whole(TYPES, row) for row in ROWS)

    def test_ranges_of_pairs_are_compared_by_the_whole_key(self, store: ReplicaStore) -> None:
        rows = [{"left": left, "right": right, "value": "v"} for left in "abc" for right in "xyz"]
        store.apply(0, put(PAIRS, *rows), POSITION)
        found = [key for key, _ in store.rows(0, PAIRS.name, KeyRange(("x", "b"), ("z", "b")))]
        assert found == [("x", "b"), ("x", "c"), ("y", "a"), ("y", "b"), ("y", "c"), ("z", "a")]

    def test_differences_to_another_store_are_named(self, store: ReplicaStore) -> None:
        from moldau.changelog.stores.dictionary import DictionaryStore

        source = DictionaryStore()
        source.prepare("bank", TABLES)
        source.apply(0, put(ACCOUNTS, *map(account, range(500))), POSITION)
        store.apply(0, put(ACCOUNTS, *map(account, range(500))), POSITION)
        assert list(compare(source, store, 0, "accounts", rows_max=8)) == []
        store.apply(0, drop(ACCOUNTS, (3,)) + put(ACCOUNTS, account(499, "eve"), account(1000)), POSITION)
        found = [(each.kind, each.key, list(each.columns)) for each in compare(source, store, 0, "accounts", rows_max=8)]
        assert found == [(Kind.MISSING, (3,), []), (Kind.DIFFERENT, (499,), ["owner"]), (Kind.EXTRA, (1000,), [])]

    def test_a_store_that_is_opened_again_has_rows_and_position(self, place: Callable[[bool], ReplicaStore]) -> None:
        if not self.durable:
            pytest.skip("it is in memory")
        store = place(True)
        store.prepare("bank", TABLES)
        store.apply(0, put(TYPES, *ROWS), POSITION)
        store.close()
        store = place(True)
        store.prepare("bank", [])
        assert store.positions() == {0: POSITION}
        store.prepare("bank", TABLES)
        assert store.checksum(0, "types", WHOLE).rows == len(ROWS)
        store.prepare("other", TABLES)
        assert store.positions() == {}, "positions are those of one changelog"
        store.close()

    def test_a_store_of_one_shard_has_the_columns_of_the_source(self, place: Callable[[bool], ReplicaStore]) -> None:
        if not self.durable:
            pytest.skip("it is in memory")
        store = place(False)
        store.prepare("bank", TABLES)
        assert store.sharded is False
        store.apply(4, put(ACCOUNTS, account(1)) + put(TYPES, *ROWS), POSITION)
        store.apply(4, drop(ACCOUNTS, (1,)) + put(ACCOUNTS, account(2), account(3)), POSITION)
        assert [key for key, _ in store.rows(4, "accounts", KeyRange((3,), None))] == [(3,)]
        store.clear(4, EMPTY)
        assert store.checksum(4, "types", WHOLE).rows == 0
        store.close()
        sharded = place(True)
        with pytest.raises(StoreError, match="primary key"):
            sharded.prepare("bank", TABLES)
        sharded.close()
