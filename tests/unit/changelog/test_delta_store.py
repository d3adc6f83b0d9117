"""A replica in Delta tables: several tables, and one commit that decides for all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from moldau.changelog.store import WHOLE, StoreError
from moldau.changelog.stores import delta
from moldau.changelog.stores.delta import DeltaStore
from moldau.changelog.stores.delta_table import folder_of
from moldau.changelog.values import Row, Table
from moldau.lake.doctor.examination import examine
from moldau.lake.doctor.facts import Limits
from moldau.lake.doctor.rules import findings
from support.replica_stores import ACCOUNTS, EMPTY, POSITION, account, drop, put

ORDERS = Table("orders", {"id": "integer", "item": "text"}, ("id",))


class Killed(BaseException):
    """Instead of a signal: nothing of the process runs after it."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def opened(path: Path) -> DeltaStore:
    store = DeltaStore(path)
    store.prepare("bank", [ACCOUNTS, ORDERS])
    return store


def order(number: int, item: str) -> Row:
    return {"id": number, "item": item}


def rows(path: Path, table: str, version: int | None = None) -> list[dict[str, Any]]:
    """As another program reads them."""
    return sorted(DeltaTable(path / table, version=version).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def versions(path: Path) -> dict[str, int]:
    newest = max(DeltaTable(path / "_moldau_positions").to_pyarrow_table().to_pylist(), key=lambda row: row["batch"])
    return {table: each["version"] for table, each in json.loads(newest["versions"]).items()}


def test_a_batch_that_was_not_written_to_its_end_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the rows of both tables and before the position: a reader of versions has the commit before, and the next start undoes
    the batch.
    """
    store = opened(tmp_path)
    store.apply(0, put(ACCOUNTS, account(1, "ann")) + put(ORDERS, order(1, "tea")), EMPTY)
    changes = put(ACCOUNTS, account(1, "bob")) + drop(ORDERS, (1,)) + put(ORDERS, order(2, "rice"))
    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_deltalake", killed)
        with pytest.raises(Killed):
            store.apply(0, changes, POSITION)
    assert [row["owner"] for row in rows(tmp_path, "accounts")] == ["bob"], "what reads the newest version is ahead"
    named = versions(tmp_path)
    assert [row["owner"] for row in rows(tmp_path, "accounts", named["accounts"])] == ["ann"]
    assert [row["item"] for row in rows(tmp_path, "orders", named["orders"])] == ["tea"]
    looking = DeltaStore(tmp_path)
    assert looking.look("bank", [ACCOUNTS, ORDERS]) == {0: EMPTY}
    assert [row["item"] for _, row in looking.rows(0, "orders", WHOLE)] == ["tea"]
    again = opened(tmp_path)
    assert again.positions() == {0: EMPTY}
    assert [row["owner"] for row in rows(tmp_path, "accounts")] == ["ann"]
    assert [row["item"] for row in rows(tmp_path, "orders")] == ["tea"]
    again.apply(0, put(ORDERS, order(3, "salt")), POSITION)
    assert opened(tmp_path).positions() == {0: POSITION}
    assert [row["item"] for row in rows(tmp_path, "orders")] == ["tea", "salt"]


def test_a_table_that_was_made_in_a_batch_without_end_is_empty_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_deltalake", killed)
        with pytest.raises(Killed):
            store.apply(0, put(ACCOUNTS, account(1)), POSITION)
    again = opened(tmp_path)
    assert (again.positions(), again.checksum(0, "accounts", WHOLE).rows) == ({}, 0)


def test_tables_that_others_have_compacted_are_those_of_the_last_batch(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(5):
        store.apply(0, put(ACCOUNTS, account(number)), POSITION)
    DeltaTable(tmp_path / "accounts").optimize.compact()
    again = opened(tmp_path)
    before = DeltaTable(tmp_path / "accounts").version()
    assert again.checksum(0, "accounts", WHOLE).rows == 5
    assert DeltaTable(tmp_path / "accounts").version() == before, "nothing is put back"
    again.apply(0, put(ACCOUNTS, account(9)) + drop(ACCOUNTS, (1,)), POSITION)
    assert [row["id"] for row in rows(tmp_path, "accounts")] == [0, 2, 3, 4, 9]


def test_a_store_keeps_its_tables_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch leaves one; those that are named by a position stay readable."""
    monkeypatch.setattr(DeltaStore, "maintained_every", 4)
    store = opened(tmp_path)
    for number in range(10):
        store.apply(0, put(ACCOUNTS, account(number)), POSITION)
        assert len(DeltaTable(tmp_path / "accounts").file_uris()) <= 4
        assert [row["id"] for row in rows(tmp_path, "accounts", versions(tmp_path)["accounts"])] == [*range(number + 1)]
    again = opened(tmp_path)
    assert again.checksum(0, "accounts", WHOLE).rows == 10


def test_a_second_process_that_writes_the_store_ends(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.apply(0, put(ACCOUNTS, account(1, "ann")), POSITION)
    with pytest.raises(StoreError, match="another process writes it"):
        second.apply(0, put(ACCOUNTS, account(1, "bob")), EMPTY)
    assert opened(tmp_path).positions() == {0: POSITION}
    assert [row["owner"] for row in rows(tmp_path, "accounts")] == ["ann"]


def test_a_table_that_another_process_has_put_back_is_that_of_the_position_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process starts between the rows and the position of the first one."""
    store, write = opened(tmp_path), write_deltalake

    def interleaved(*arguments: Any, **options: Any) -> None:
        opened(tmp_path)
        write(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_deltalake", interleaved)
        store.apply(0, put(ACCOUNTS, account(1, "ann")), POSITION)
    assert rows(tmp_path, "accounts") == []
    assert opened(tmp_path).positions() == {0: POSITION}
    assert [row["owner"] for row in rows(tmp_path, "accounts")] == ["ann"]


def test_a_batch_whose_position_was_stored_counts_though_writing_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta writes checkpoints after a commit, which may fail when that is durable."""
    store, write = opened(tmp_path), write_deltalake

    def failing(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_deltalake", failing)
        with pytest.raises(StoreError, match=r"_moldau_positions: no space left"):
            store.apply(0, put(ACCOUNTS, account(1, "ann")), POSITION)
    store.prepare("bank", [ACCOUNTS, ORDERS])
    assert store.positions() == {0: POSITION}
    assert [row["owner"] for row in rows(tmp_path, "accounts")] == ["ann"]


def test_a_file_that_is_missing_is_an_error_of_the_store(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.apply(0, put(ACCOUNTS, account(1)), POSITION)
    for file in (tmp_path / "accounts").glob("*.parquet"):
        file.unlink()
    with pytest.raises(StoreError, match=r"Delta store .*, table accounts: .*\.parquet"):
        store.rows(0, "accounts", WHOLE)


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    DeltaTable.create(tmp_path / "accounts", pa.schema([pa.field("id", pa.int64())]))
    with pytest.raises(StoreError, match=r"table accounts: it has no primary key of a replica, and the replica needs .*\[\"id\"\]"):
        opened(tmp_path)


def test_a_store_of_several_shards_can_be_looked_at(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path, sharded=True)
    store.prepare("bank", [ACCOUNTS])
    for shard in (0, 1):
        store.apply(shard, put(ACCOUNTS, account(1, f"of shard {shard}")), POSITION)
    looking = DeltaStore(tmp_path)
    assert looking.look("bank", [ACCOUNTS]) == {0: POSITION, 1: POSITION}
    assert looking.rows(1, "accounts", WHOLE) == [((1,), account(1, "of shard 1"))]
    assert looking.checksum(0, "accounts", WHOLE) == store.checksum(0, "accounts", WHOLE)


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("orders", "orders"),
        ("sales.items", "sales.items"),
        ('pairs of "words"', "pairs~20of~20~22words~22"),
        ("..", "~2E."),
        ("a/b", "a~2Fb"),
    ],
)
def test_directories_have_the_names_of_tables(table: str, folder: str) -> None:
    assert folder_of(table) == folder


def test_a_store_that_is_looked_at_is_not_made(tmp_path: Path) -> None:
    assert DeltaStore(tmp_path / "none").look("bank") == {}
    assert not (tmp_path / "none").exists()


def test_the_doctor_finds_nothing_wrong(tmp_path: Path) -> None:
    """deltalake writes texts and bytes as views, which are no other type of a column."""
    store = opened(tmp_path)
    store.apply(0, put(ACCOUNTS, account(1, "ann")) + put(ORDERS, order(1, "tea")), POSITION)
    for table in ("accounts", "orders", "_moldau_positions"):
        facts = examine(str(tmp_path / table))
        assert (facts.rows, facts.footers.read, findings(facts, Limits())) == (1, 1, [])
