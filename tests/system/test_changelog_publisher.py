"""A publisher writes each commit whole, once and in order; it finds where the log ends, and fences the one before."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import count, pairwise
from random import Random

import pytest

from moldau.changelog.all_shards import PARTS, TRANSACTION, part_source, shard_of
from moldau.changelog.envelope import CommitRecord, key_bytes
from moldau.changelog.errors import ChangelogError, CommitTooLongError, PublisherFencedError, SequenceError, TopicError, ValueRefusedError
from moldau.changelog.publisher import Publisher
from moldau.changelog.values import ALL_SHARDS, Change, Commit, Op, Row, Table
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.testing.broker import Broker
from support.changelog_log import read_log
from support.interrupted_commit import interrupt_next_commit
from support.sizes import sized

pytestmark = pytest.mark.system

ITEMS = Table("items", {"id": "integer", "price": "decimal"}, ("id",))
TABLES = {"items": ITEMS}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def changelog(broker: Broker) -> str:
    return broker.unique_topic("shop")


def row(number: int) -> Row:
    return {"id": number, "price": Decimal("1.50")}


def commit(number: int, *changes: Change, shard: int = 0, epoch: int = 1) -> Commit:
    made = changes or (Change("items", Op.CREATE, (number,), None, row(number)),)
    return Commit(shard, epoch, number, 1_700_000_000_000 + number, made, {"place": number})


def test_commits_are_in_the_log_with_their_changes_and_their_tables(broker: Broker, changelog: str) -> None:
    deletion = Change("items", Op.DELETE, (1,), row(1), None)
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        publisher.publish([commit(1)], TABLES)
        publisher.publish([commit(2, deletion), commit(3)], TABLES)
        assert publisher.commit == 3
    found = read_log(broker.bootstrap_servers, changelog, "items")
    found.check()
    assert found.commits[1] == CommitRecord(0, 1, 2, 1_700_000_000_002, {"items": 1}, {"place": 2})
    assert found.of_commit(2) == [deletion]
    assert found.tombstones == 1
    assert found.tables == TABLES


def test_the_next_publisher_continues_after_the_last_commit_and_the_one_before_is_fenced(broker: Broker, changelog: str) -> None:
    first = Publisher(broker.bootstrap_servers, changelog, 1, shards=2)
    assert first.start() is None
    first.publish([commit(1, shard=1)], TABLES)
    with Publisher(broker.bootstrap_servers, changelog, 1, shards=2) as second:
        assert second.last == CommitRecord(1, 1, 1, 1_700_000_000_001, {"items": 1}, {"place": 1})
        second.publish([commit(2, shard=1)], TABLES)
        with pytest.raises(PublisherFencedError, match=f"changelog {changelog}, shard 1: fenced after commit 1: another publisher"):
            first.publish([commit(2, shard=1)], TABLES)
        second.publish([commit(3, shard=1)], TABLES)
    first.close()
    found = read_log(broker.bootstrap_servers, changelog, "items", shard=1)
    found.check()
    assert len(found.commits) == 3


def test_shards_are_published_beside_each_other(broker: Broker, changelog: str) -> None:
    with (
        Publisher(broker.bootstrap_servers, changelog, 0, shards=2) as one,
        Publisher(broker.bootstrap_servers, changelog, 1, shards=2) as two,
    ):
        one.publish([commit(1)], TABLES)
        two.publish([commit(1, shard=1), commit(2, shard=1)], TABLES)
        one.publish([commit(2)], TABLES)
    for shard in (0, 1):
        found = read_log(broker.bootstrap_servers, changelog, "items", shard=shard)
        found.check()
        assert [each.commit for each in found.commits] == [1, 2]


def test_publishers_of_one_shard_and_of_all_that_start_at_any_moment_write_each_commit_once(broker: Broker, changelog: str) -> None:
    """Each takes over from the others, again and again; one that is fenced writes nothing more."""
    shards, random = 2, Random(3)
    acknowledged: set[tuple[int, int]] = set()
    deadline = time.monotonic() + sized(8, 60)
    failures: list[BaseException] = []

    def publish(shard: int, seed: int) -> None:
        chosen, turns = Random(seed), count()
        try:
            while time.monotonic() < deadline:
                time.sleep(chosen.random())
                with Publisher(broker.bootstrap_servers, changelog, shard, shards=shards) as publisher, suppress(PublisherFencedError):
                    for _ in range(chosen.randrange(1, 30)):
                        number, epoch = publisher.commit + 1, 1 if publisher.last is None else publisher.last.epoch
                        keys = [chosen.randrange(1000) for _ in range(chosen.randrange(4))]
                        changes = [Change("items", Op.UPDATE, (key,), None, row(key)) for key in keys]
                        turn = next(turns)
                        publisher.publish([Commit(shard, epoch, number, 1, changes, {"seed": seed, "turn": turn})], TABLES)
                        acknowledged.add((seed, turn))
                        time.sleep(chosen.random() * 0.02)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=publish, args=(shard, random.getrandbits(30))) for shard in (ALL_SHARDS, ALL_SHARDS, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    written: set[tuple[int, int]] = set()
    for shard in range(shards):
        found = read_log(broker.bootstrap_servers, changelog, "items", shard=shard)
        found.check()
        writers = [(int(each.source["seed"]), int(each.source["turn"])) for each in found.commits]
        assert len(set(writers)) == len(writers), "none twice"
        assert len([None for one, other in pairwise(writers) if one[0] != other[0]]) > 3, "they take turns"
        written.update(writers)
    assert acknowledged <= written


def test_a_commit_of_all_shards_is_one_in_each_that_has_changes_of_it(broker: Broker, changelog: str) -> None:
    """The first one, before which the tables are described, and one without changes are in all."""
    changes = [Change("items", Op.CREATE, (number,), None, row(number)) for number in range(1, 9)]
    with Publisher(broker.bootstrap_servers, changelog, ALL_SHARDS, shards=3) as publisher:
        for number in range(1, 4):
            publisher.publish([commit(number, changes[number], shard=ALL_SHARDS)], TABLES)
        publisher.publish([Commit(ALL_SHARDS, 1, 4, 0, [])], {})
        assert (publisher.commit, publisher.divided_over) == (4, 3)
        with pytest.raises(SequenceError, match=f"changelog {changelog}, all shards: commit 9 of epoch 1 does not follow commit 4"):
            publisher.publish([commit(9, shard=ALL_SHARDS)], TABLES)
    found = [read_log(broker.bootstrap_servers, changelog, "items", shard=shard) for shard in range(3)]
    for shard, each in enumerate(found):
        each.check()
        assert each.tables == TABLES
        assert all(shard_of(key_bytes(["id"], change.change.key), 3) == shard for change in each.changes["items"])
    parts = [(commit.source[TRANSACTION], commit.source[PARTS]) for each in found for commit in each.commits]
    assert sorted(parts) == [(1, 3)] * 3 + [(2, 1), (3, 1)] + [(4, 3)] * 3
    with Publisher(broker.bootstrap_servers, changelog, ALL_SHARDS, shards=3) as publisher:
        assert publisher.commit == 4


def test_a_shard_of_several_that_has_lost_its_commits_is_named(broker: Broker, changelog: str) -> None:
    with Publisher(broker.bootstrap_servers, changelog, 0, shards=2) as publisher:
        publisher.publish([Commit(0, 1, 1, 0, [], part_source({}, 2, 1, 2))], {})
    with pytest.raises(SequenceError, match=f"changelog {changelog}, shard 1: the log has no commit of it, and other shards have"):
        Publisher(broker.bootstrap_servers, changelog, ALL_SHARDS, shards=2).start()


@pytest.mark.parametrize("bad", [commit(3), commit(1), commit(2, epoch=0), commit(2, shard=1)], ids=["gap", "again", "epoch", "shard"])
def test_a_commit_that_does_not_follow_is_refused(broker: Broker, changelog: str, bad: Commit) -> None:
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        publisher.publish([commit(1)], TABLES)
        with pytest.raises(SequenceError, match=f"changelog {changelog}, shard 0: commit"):
            publisher.publish([bad], TABLES)
        publisher.publish([commit(2)], TABLES)


def test_nothing_is_published_of_a_commit_that_cannot_be_written(broker: Broker, changelog: str) -> None:
    good = Change("items", Op.CREATE, (1,), None, row(1))
    bad = Change("items", Op.CREATE, (2,), None, {"id": 2, "price": [1]})  # type: ignore[dict-item]
    large = Change("items", Op.CREATE, (3,), None, {"id": 3, "price": b"x" * 2_000_000})
    unknown = Change("others", Op.CREATE, (4,), None, row(4))
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        with pytest.raises(ValueRefusedError, match=r"commit 1: table items, key \(2,\): column price"):
            publisher.publish([commit(1, good, bad)], TABLES)
        with pytest.raises(ChangelogError, match=r"shard 0, commit 1 cannot be published: .*message\.max\.bytes"):
            publisher.publish([commit(1, good, large)], TABLES)
        with pytest.raises(ChangelogError, match="a change of table others, which is not known"):
            publisher.publish([commit(1, good, unknown)], TABLES)
        publisher.publish([commit(1, good)], TABLES)
    found = read_log(broker.bootstrap_servers, changelog, "items")
    found.check()
    assert found.all_changes() == [good]


def test_a_record_that_the_brokers_refuse_ends_its_commit_at_once(broker: Broker, changelog: str) -> None:
    large = Change("items", Op.CREATE, (3,), None, {"id": 3, "price": secrets.token_bytes(50_000)})
    with Publisher(broker.bootstrap_servers, changelog, topic_configs={"max.message.bytes": "10000"}) as publisher:
        with pytest.raises(ChangelogError, match=r"shard 0, commit 1 cannot be published: .*MSG_SIZE_TOO_LARGE"):
            publisher.publish([commit(1, large)], TABLES)
        publisher.publish([commit(1, Change("items", Op.CREATE, (1,), None, row(1)))], TABLES)
    read_log(broker.bootstrap_servers, changelog, "items").check()


def test_the_last_commit_is_found_before_much_that_was_aborted(broker: Broker, changelog: str) -> None:
    bad = Change("items", Op.CREATE, (2,), None, {"id": 2, "price": [1]})  # type: ignore[dict-item]
    many = [commit(number) for number in range(2, 700)]
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        publisher.publish([commit(1)], TABLES)
        for _ in range(2):
            with pytest.raises(ValueRefusedError):
                publisher.publish([*many, commit(700, bad)], TABLES)
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        assert publisher.commit == 1
        publisher.publish([commit(2)], TABLES)


def test_a_commit_of_100_000_changes_fits_through_a_small_queue(broker: Broker, changelog: str) -> None:
    class Many(list[Change]):
        def __iter__(self) -> Iterator[Change]:
            return (Change("items", Op.CREATE, (number,), None, row(number)) for number in range(100_000))

    settings = {"queue.buffering.max.messages": 2_000}
    with Publisher(broker.bootstrap_servers, changelog, settings=settings) as publisher:
        publisher.publish([commit(1)._replace(changes=Many())], TABLES)
        publisher.publish([commit(2)], TABLES)
    found = read_log(broker.bootstrap_servers, changelog, "items")
    found.check()
    assert [each.counts for each in found.commits] == [{"items": 100_000}, {"items": 1}]


def test_topics_are_compacted_and_have_a_partition_for_each_shard(broker: Broker, changelog: str) -> None:
    with Publisher(broker.bootstrap_servers, changelog, shards=3) as publisher:
        publisher.publish([commit(1)], TABLES)
    with pytest.raises(TopicError, match=f"topic {changelog}._commits has 3 partitions, and changelog {changelog} has 2 shards"):
        Publisher(broker.bootstrap_servers, changelog, shards=2).start()


def test_a_topic_that_is_not_compacted_is_refused_before_anything_is_written(broker: Broker, changelog: str) -> None:
    broker.create_topic(f"{changelog}.items", config={"cleanup.policy": "delete"})
    publisher = Publisher(broker.bootstrap_servers, changelog)
    with publisher, pytest.raises(TopicError, match=rf"topic {changelog}\.items has cleanup\.policy=delete"):
        publisher.publish([commit(1)], TABLES)
    assert read_log(broker.bootstrap_servers, changelog).commits == []


def test_the_topic_of_a_table_that_was_deleted_is_not_made_again(broker: Broker, changelog: str) -> None:
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        publisher.publish([commit(1)], TABLES)
    broker.delete_topic(f"{changelog}.items")
    others = ITEMS._replace(name="others")
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        with pytest.raises(SequenceError, match=rf"topic {changelog}\.items does not exist, and the log has published table items in it"):
            publisher.publish([commit(2)], TABLES)
        publisher.publish([commit(2, Change("others", Op.CREATE, (1,), None, row(1)))], {"others": others})
    with Cluster(broker.bootstrap_servers) as cluster, pytest.raises(RequestFailedError):
        cluster.topic(f"{changelog}.items")


def test_a_commit_that_takes_longer_than_its_transaction_may_is_named_and_can_be_published_with_more_time() -> None:
    timeout_ms = 1_000

    class Slow(list[Change]):
        """It ends when the brokers have had the time to abort the transaction."""

        def __iter__(self) -> Iterator[Change]:
            for number in range(3):
                yield Change("items", Op.CREATE, (number,), None, row(number))
                time.sleep(timeout_ms / 1000)

    slow = commit(1)._replace(changes=Slow())
    with Broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as broker:
        publisher = Publisher(broker.bootstrap_servers, "shop", transaction_timeout_ms=timeout_ms)
        with publisher, pytest.raises(CommitTooLongError, match=r"shard 0, commit 1 cannot be published: .* transaction_timeout_ms=1000"):
            publisher.publish([slow], TABLES)
        with Publisher(broker.bootstrap_servers, "shop") as patient:
            patient.publish([slow], TABLES)
        found = read_log(broker.bootstrap_servers, "shop", "items")
        found.check()
        assert len(found.all_changes()) == 3


def test_a_publisher_that_was_interrupted_has_to_start_before_it_publishes_again(broker: Broker, changelog: str) -> None:
    with Publisher(broker.bootstrap_servers, changelog) as publisher:
        publisher.publish([commit(1)], TABLES)
        interrupt_next_commit(publisher)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish([commit(2)], TABLES)
        with pytest.raises(
            RuntimeError, match="shard 0, commit 2: the transaction was interrupted, and may be in the log: start comes first"
        ):
            publisher.publish([commit(2)], TABLES)
        publisher.start()
        assert publisher.commit == 2
        publisher.publish([commit(3)], TABLES)
    found = read_log(broker.bootstrap_servers, changelog, "items")
    found.check()
    assert len(found.commits) == 3
