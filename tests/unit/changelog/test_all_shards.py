"""Of several shards that one source fills: the last transaction is found by the last commits of all of them, whatever each has."""

from collections.abc import Mapping

import pytest

from moldau.changelog.all_shards import PARTS, SHARDS, TRANSACTION, last_transaction, part_source, shard_of
from moldau.changelog.commit_parts import CommitParts
from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import ChangelogError
from moldau.changelog.naming import check_shard, transactional_id
from moldau.changelog.values import ALL_SHARDS, Change, Commit, Op, Table

ITEMS = Table("items", {"id": "integer"}, ("id",))


def last(shard: int, commit: int, transaction: int, epoch: int = 1, **source: str | int) -> CommitRecord:
    return CommitRecord(shard, epoch, commit, transaction * 10, {}, part_source(source, 3, transaction, 2))


def test_the_last_transaction_is_the_newest_of_all_shards() -> None:
    found = last_transaction([last(0, 9, 20, lsn="0/20"), last(1, 3, 21, lsn="0/21"), last(2, 30, 4, lsn="0/4")], 3)
    assert found is not None
    assert (found.shard, found.epoch, found.commit, found.time_ms, found.source["lsn"]) == (ALL_SHARDS, 1, 21, 210, "0/21")
    assert last_transaction([], 3) is None


def test_a_higher_epoch_is_newer_whatever_its_transactions_are_numbered() -> None:
    found = last_transaction([last(0, 9, 20), last(1, 3, 2, epoch=2), last(2, 30, 4)], 3)
    assert found is not None
    assert (found.epoch, found.commit) == (2, 2)


@pytest.mark.parametrize("source", [{"store": "6f0c"}, {"lsn": "0/30"}, {"lsn": "0/30", SHARDS: 2, TRANSACTION: 50}])
def test_a_commit_of_another_source_is_not_passed_over(source: Mapping[str, str | int]) -> None:
    """Though another shard has a newer one."""
    other = CommitRecord(1, 2, 40, 5, {}, source)
    found = last_transaction([last(0, 9, 20), other, last(2, 30, 21, epoch=2)], 3)
    assert found is not None
    assert (found.epoch, found.commit, found.source) == (2, 21, source)


def test_a_row_is_where_kafka_clients_would_put_its_key() -> None:
    """The values of Java's client for keys as bytes."""
    assert [shard_of(key, 100) for key in (b"21", b"foobar", b"abc")] == [
        (number & 0x7FFFFFFF) % 100 for number in (-973932308, -790332482, 479470107)
    ]


def test_changes_are_numbered_in_each_shard_and_every_part_has_the_number_of_the_transaction() -> None:
    posted: list[tuple[str, int, bytes | None, bytes | None]] = []
    commit = Commit(
        ALL_SHARDS, 1, 7, 0, [Change("items", Op.CREATE, (number,), None, {"id": number}) for number in range(40)], {"lsn": "0/1"}
    )
    parts = CommitParts("shop", commit, 3, {0: 4, 1: 9}, {"items": "shop.items"}, {"items": ITEMS}, lambda *record: posted.append(record))
    for change in commit.changes:
        parts.send(change)
    records = parts.end("shop._commits", 7)
    assert [(each.shard, each.commit, each.source) for each in records] == [
        (shard, number, {"lsn": "0/1", SHARDS: 3, TRANSACTION: 7, PARTS: 3}) for shard, number in [(0, 5), (1, 10), (2, 1)]
    ]
    for record in records:
        mine = [(key, value) for topic, shard, key, value in posted if (topic, shard) == ("shop.items", record.shard)]
        assert len(mine) == record.counts["items"]
        for place, (key, value) in enumerate(mine):
            assert key is not None
            assert shard_of(key, 3) == record.shard
            assert value is not None
            assert f'"transaction":{{"id":"{record.shard}:{record.commit}","total_order":{place + 1}}}'.encode() in value


def test_a_table_that_is_not_known_is_named() -> None:
    commit = Commit(ALL_SHARDS, 1, 7, 0, [Change("others", Op.CREATE, (1,), None, {"id": 1})])
    parts = CommitParts("shop", commit, 3, {}, {}, {"items": ITEMS}, lambda *_: None)
    with pytest.raises(ChangelogError, match="changelog shop, all shards, transaction 7: a change of table others, which is not known"):
        parts.send(commit.changes[0])


def test_all_shards_are_two_or_more() -> None:
    assert check_shard(ALL_SHARDS, 2) == ALL_SHARDS
    assert transactional_id("shop", ALL_SHARDS) == "changelog-shop-all"
    with pytest.raises(ChangelogError, match="2 shards or more"):
        check_shard(ALL_SHARDS, 1)
