"""Replicas of a changelog in a real broker, which compacts it meanwhile (mission I5)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.changelog import DictionaryStore, DuckdbStore, Replica, SqliteStore, compare
from moldau.changelog.effects import Apply
from moldau.changelog.machine import Limits
from moldau.changelog.replica_errors import MissingTopicError, NoReplicaError, NotAppliedError, RecreatedTopicError, TruncatedLogError
from moldau.changelog.store import WHOLE, Phase, ReplicaStore
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import END_OF_LOG
from moldau.model.identity import TopicPartition
from moldau.testing import Broker
from support.changelog_source import BANK, COMPACTING, TABLES, RandomSource

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def compacting() -> Iterator[Broker]:
    with Broker(settings=COMPACTING) as broker:
        yield broker


@pytest.fixture
def source(compacting: Broker, request: pytest.FixtureRequest) -> Iterator[RandomSource]:
    name = compacting.unique_topic(request.node.name)[5:65].replace("[", "-").replace("]", "-").replace(".", "-").strip("_-")
    with RandomSource(compacting.bootstrap_servers, name) as source:
        source.fill()
        yield source


def equal(source: RandomSource, store: ReplicaStore, shard: int) -> None:
    for table in TABLES:
        assert [str(each) for each in compare(source.model, store, shard, table.name)] == []


def test_replicas_of_all_stores_are_what_the_source_is(source: RandomSource, tmp_path: Path) -> None:
    for _ in range(100):
        source.commit()
    stores: list[ReplicaStore] = [
        DictionaryStore(),
        SqliteStore(tmp_path / "a.db", sharded=True),
        DuckdbStore(tmp_path / "b.db", sharded=True),
    ]
    replicas = [Replica(source.bootstrap_servers, source.changelog, store) for store in stores]
    for _ in range(2):
        for replica, store in zip(replicas, stores, strict=True):
            for shard, number in source.numbers.items():
                position = replica.wait_for(shard, number)
                assert (position.phase, position.commit) == (Phase.FOLLOWING, number)
                equal(source, store, shard)
                assert replica.lag(shard) == (0, 0.0)
        for _ in range(50):
            source.commit()
    for replica in replicas:
        replica.close()


def test_a_reader_sees_its_own_write_while_another_thread_runs_the_replica(source: RandomSource) -> None:
    replica = Replica(source.bootstrap_servers, source.changelog, store := DictionaryStore())
    runner = threading.Thread(target=replica.run)
    runner.start()
    try:
        for _ in range(50):
            shard, number = source.commit()
            assert replica.wait_for(shard, number).commit >= number
            equal(source, store, shard)
        with pytest.raises(NotAppliedError, match=r"shard 0: commit 1000 was not applied within 0\.1 s: it is following, at commit"):
            replica.wait_for(0, 1000, 0.1)
    finally:
        replica.stop()
        runner.join()
        replica.close()


def test_a_commit_larger_than_memory_is_applied_as_a_whole(source: RandomSource, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", sharded=True)
    with Replica(source.bootstrap_servers, source.changelog, store, limits=Limits(memory_changes_max=500)) as replica:
        replica.wait_for(0, source.numbers[0])
        replica.wait_for(1, source.numbers[1])
        held, sizes, apply = [], [], store.apply

        def watched(shard: int, changes: object, position: object) -> None:
            sizes.append(len(changes))  # type: ignore[arg-type]
            apply(shard, changes, position)  # type: ignore[arg-type]

        store.apply = watched  # type: ignore[method-assign]
        number = source.large_commit(0, 20_000)
        while (position := replica.position(0)) is None or position.commit < number:
            assert position is not None
            assert position.phase is Phase.FOLLOWING
            replica.step()
            held += [each["held"] for each in replica.statistics().values()]
        assert max(sizes) == 20_000
        assert max(map(int, held)) < 15_000, "what one fetch brings, at most, beside the limit"
        equal(source, store, 0)


def test_a_replica_that_was_away_loads_what_compaction_has_left(source: RandomSource, compacting: Broker, tmp_path: Path) -> None:
    for _ in range(20):
        store = SqliteStore(tmp_path / "a.db", sharded=True)
    with Replica(source.bootstrap_servers, source.changelog, store) as replica:
        replica.wait_for(0, source.numbers[0])
    source.commit_until_compacted()
    store = SqliteStore(tmp_path / "a.db", sharded=True)
    phases = []
    with Replica(source.bootstrap_servers, source.changelog, store) as replica:
        apply = replica._apply

        def watched(shard: int, here: object, effect: Apply) -> None:
            phases.append(effect.position.phase)
            apply(shard, here, effect)  # type: ignore[arg-type]

        replica._apply = watched  # type: ignore[method-assign]
        for shard, number in source.numbers.items():
            replica.wait_for(shard, number)
            equal(source, store, shard)
    assert Phase.LOADING in phases, "compaction has passed it"


def test_a_changelog_that_does_not_exist_is_named(compacting: Broker) -> None:
    with (
        Replica(compacting.bootstrap_servers, "no-such", DictionaryStore()) as replica,
        pytest.raises(MissingTopicError, match=r"changelog no-such: nothing is published: topic no-such\._commits"),
    ):
        replica.step()


def test_a_topic_that_was_created_again_stops_the_replica(source: RandomSource, compacting: Broker, tmp_path: Path) -> None:
    topic = f"{source.changelog}.accounts"
    with Replica(source.bootstrap_servers, source.changelog, store := SqliteStore(tmp_path / "a.db", sharded=True)) as replica:
        for shard, number in source.numbers.items():
            replica.wait_for(shard, number)
        rows = store.checksum(0, "accounts", WHOLE)
        compacting.delete_topic(topic)
        compacting.create_topic(topic, 2, COMPACTED)
        with pytest.raises(RecreatedTopicError, match=rf"partition {topic}-\d: the topic was deleted and created again"):
            replica.run()
        assert store.checksum(0, "accounts", WHOLE) == rows
    with (
        Replica(source.bootstrap_servers, source.changelog, SqliteStore(tmp_path / "a.db", sharded=True)) as replica,
        pytest.raises(RecreatedTopicError),
    ):
        replica.step()
    store = SqliteStore(tmp_path / "a.db", sharded=True)
    with Replica(source.bootstrap_servers, source.changelog, store, begin_again=True) as replica:
        replica.wait_for(0, source.numbers[0])
        assert store.checksum(0, "accounts", WHOLE).rows == 0


COMPACTED = {"cleanup.policy": "compact"}


def test_records_that_were_deleted_stop_a_replica_that_has_not_read_them(source: RandomSource, tmp_path: Path) -> None:
    with Replica(source.bootstrap_servers, source.changelog, SqliteStore(tmp_path / "a.db", sharded=True)) as replica:
        replica.wait_for(0, source.numbers[0])
    number = source.large_commit(0, 50)
    where = TopicPartition(f"{source.changelog}.accounts", 0)
    with Cluster(source.bootstrap_servers) as cluster:
        topic = AdminResource(AdminResourceType.TOPIC, where.topic)
        Admin(cluster).alter_configs(topic, ConfigUpdate({"cleanup.policy": "compact,delete"}))
        Admin(cluster).delete_records({where: END_OF_LOG})
    with (
        Replica(source.bootstrap_servers, source.changelog, SqliteStore(tmp_path / "a.db", sharded=True)) as replica,
        pytest.raises(TruncatedLogError, match=rf"partition {where}: records from offset \d+ up to \d+ were deleted before they were read"),
    ):
        replica.wait_for(0, number)


def test_a_store_with_rows_and_no_position_is_not_emptied_unless_it_is_wanted(source: RandomSource, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", sharded=True)
    store.prepare("another", TABLES)
    store.apply(0, source.changes_of_rows(3), BANK)
    with Replica(source.bootstrap_servers, source.changelog, store) as replica, pytest.raises(NoReplicaError, match="has 3 rows"):
        replica.step()
    store = SqliteStore(tmp_path / "a.db", sharded=True)
    with Replica(source.bootstrap_servers, source.changelog, store, begin_again=True) as replica:
        replica.wait_for(0, source.numbers[0])
        equal(source, store, 0)
