"""Hashes of rows are equal where rows are, and comparisons name each row that differs with few rows in memory."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

from moldau.changelog.checksums import Difference, Kind, compare
from moldau.changelog.row_hash import checksum_of, row_hash
from moldau.changelog.store import Checksum, KeyRange
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Key, Row, Table, Value
from support.replica_stores import ACCOUNTS, POSITION, account, put


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, Decimal(1), Decimal("1.00"), Decimal("10E-1")],
        [0, 0.0, -0.0, Decimal("-0.00")],
        [0.1, Decimal("0.1"), Decimal("0.100")],
        [1e22, 10**22, Decimal("1E+22")],
        [float("nan"), Decimal("NaN")],
        [float("-inf"), Decimal("-Infinity")],
        [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
    ],
)
def test_what_is_equal_to_a_reader_has_one_hash(equal: list[Value]) -> None:
    assert len({row_hash({"column": value}) for value in equal}) == 1


def test_what_differs_has_different_hashes() -> None:
    plain = datetime(2026, 1, 1)  # noqa: DTZ001
    values: list[Value] = ["1", 1, True, b"1", "", b"", 2, Decimal("1.5"), 2.5, plain, plain.replace(tzinfo=UTC), date(2026, 1, 1), time(1)]
    values += [Decimal("1E+500"), Decimal("1E+501"), 2**63, 2**63 + 1, "true", None]
    assert len({row_hash({"column": value}) for value in values}) == len(values)
    assert row_hash({"a": "bc"}) != row_hash({"ab": "c"})
    assert row_hash({"a": 1, "b": 2}) != row_hash({"a": 2, "b": 1})


def test_a_null_is_as_if_the_column_were_not_there() -> None:
    assert row_hash({"a": 1, "b": None}) == row_hash({"a": 1})


def test_sums_do_not_depend_on_the_order_and_see_rows_that_are_twice_there() -> None:
    rows: list[Row] = [account(number) for number in range(10)]
    assert checksum_of(rows) == checksum_of(reversed(rows))
    assert checksum_of([*rows, rows[0]]) != checksum_of(rows)
    assert checksum_of([]) == (0, 0)


def test_the_hash_does_not_change() -> None:
    """Replicas of different versions are compared."""
    row: Row = {"id": 1, "name": "ann", "price": Decimal("9.90"), "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "blob": b"\x00", "ok": True}
    assert row_hash(row) == 8910455585008321256


class Counted(DictionaryStore):
    """Notes how many rows a comparison reads."""

    most = 0
    checksums = 0

    def rows(self, shard: int, table: str, rows: KeyRange) -> list[tuple[Key, Row]]:
        found = list(super().rows(shard, table, rows))
        self.most = max(self.most, len(found))
        return found

    def checksum(self, shard: int, table: str, rows: KeyRange) -> Checksum:
        self.checksums += 1
        return super().checksum(shard, table, rows)


def counted(rows: list[Row]) -> Counted:
    store = Counted()
    store.prepare("bank", [ACCOUNTS])
    store.apply(0, put(ACCOUNTS, *rows), POSITION)
    return store


@pytest.mark.parametrize("seed", range(20))
def test_a_comparison_finds_what_a_plain_one_finds(seed: int) -> None:
    random = Random(seed)
    left = {number: account(number, "x", random.randrange(3)) for number in random.sample(range(3000), random.choice([0, 5, 900]))}
    right = dict(left)
    for number in random.sample(range(3000), random.choice([0, 3, 60])):
        right.pop(number, None) if random.random() < 0.5 else right.update({number: account(number, "y")})
    ours, theirs = counted(list(left.values())), counted(list(right.values()))
    found = [(each.key[0], each.left, each.right) for each in compare(ours, theirs, 0, "accounts", rows_max=10)]
    wanted = [(number, left.get(number), right.get(number)) for number in sorted(left.keys() | right.keys())]
    assert found == [each for each in wanted if each[1] != each[2]]
    assert max(ours.most, theirs.most) <= 10


def test_one_difference_among_many_rows_takes_few_checksums() -> None:
    ours, theirs = (counted([account(number) for number in range(4096)]) for _ in range(2))
    theirs.apply(0, put(ACCOUNTS, account(1000, "eve")), POSITION)
    assert [each.key for each in compare(ours, theirs, 0, "accounts", rows_max=4)] == [(1000,)]
    assert ours.checksums <= 2 * 12


def test_a_difference_is_one_line_that_names_shard_table_key_and_columns() -> None:
    different = Difference(Kind.DIFFERENT, 2, "accounts", (7,), account(7, "ann", 5), account(7, "ann", 6))
    assert str(different) == "shard 2, table accounts, key 7: balance is 5 in the source, 6 in the replica"
    assert str(Difference(Kind.MISSING, 2, "accounts", ("a", 1), {}, None)) == "shard 2, table accounts, key 'a', 1: missing in the replica"
    assert str(Difference(Kind.EXTRA, 0, "accounts", (1,), None, {})) == "shard 0, table accounts, key 1: only in the replica"


def test_keys_of_several_types_are_named_too(tmp_path: Path) -> None:
    """SQLite has numbers and texts in one column, and a copy of an earlier version has made texts of the numbers."""
    days = Table("days", {"day": "any", "what": "text"}, ("day",))
    stores = SqliteStore(tmp_path / "left.db"), SqliteStore(tmp_path / "right.db")
    keys: tuple[Value, Value] = 5, "5"
    for store, first in zip(stores, keys, strict=True):
        store.prepare("shop", [days])
        store.apply(0, put(days, {"day": first, "what": "a"}, {"day": "2026-01-02", "what": "b"}, {"day": 2.5, "what": "c"}), POSITION)
    found = [(each.kind, each.key) for each in compare(*stores, 0, "days")]
    assert found == [(Kind.MISSING, (5,)), (Kind.EXTRA, ("5",))]
    for store in stores:
        store.close()
