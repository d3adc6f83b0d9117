"""Metadata on the coordination tree: what a change writes, what a restart finds, and that nothing is ever half there."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from moldau.adapters.sqlite_file import MEMORY
from moldau.cluster import paths
from moldau.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from moldau.cluster.registry import CHANGES_KEPT_MS, CHANGES_MAX, CHANGES_PURGED_MAX, PARTITIONS_PER_STEP, NewTopic, Registry
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.cluster.znodes import ProducerIdBlock, decode_controller, decode_state, encode_block
from moldau.model.errors import CoordinationError
from moldau.model.steps import drain
from moldau.ports.coordination import Create, Done, Multi, NodeExistsError, NoNodeError, Request
from moldau.testing.clock import FakeClock
from support.trees import AskedTree

ME = BrokerInfo(0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))


def counted_bytes() -> Callable[[int], bytes]:
    """Random bytes that are not: 1, 2, 3, ..."""
    numbers = itertools.count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


class KeptTree(AskedTree):
    """A tree that a session's end leaves in memory, as a file would be, without its ephemeral nodes."""

    fail_next = False

    def end_session(self) -> None:
        for path in (paths.CONTROLLER, *(f"{paths.BROKER_IDS}/{name}" for name in self.children(paths.BROKER_IDS))):
            if self.exists(path) is not None:
                self.delete(path)

    def submit(self, request: Request, done: Done) -> None:
        if self.fail_next and isinstance(request, Multi):
            self.fail_next = False
            request = Multi((*request.writes, Create("/no/parent")))
        super().submit(request, done)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tree(clock: FakeClock) -> Iterator[KeptTree]:
    tree = KeptTree(MEMORY, clock.time_ms)
    yield tree
    tree.close()


@pytest.fixture
def start(tree: KeptTree, clock: FakeClock) -> Callable[..., Registry]:
    """Start a broker's registry on the tree; a second call is a restart."""
    random_bytes = counted_bytes()

    def start(*, broker_id: int = 0, cluster_id: str | None = None) -> Registry:
        if tree.exists(paths.CONTROLLER) is not None:
            tree.end_session()
        registry = Registry(tree, broker_id=broker_id, time_ms=clock.time_ms, random_bytes=random_bytes)
        registry.start(cluster_id=cluster_id, broker=BrokerInfo(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))
        return registry

    return start


def topic(name: str, number: int, partitions: int = 1, **configs: str) -> NewTopic:
    return NewTopic(name, number.to_bytes(16, "little"), [(0,)] * partitions, configs)


def test_a_first_start_makes_the_fixed_paths_and_a_cluster_id(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    assert all(tree.exists(path) is not None for path in paths.ROOTS)
    assert registry.snapshot.cluster_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert tree.get(paths.CONTROLLER_EPOCH)[0] == b"1"
    assert decode_controller(paths.CONTROLLER, tree.get(paths.CONTROLLER)[0]) == 0
    assert tree.get(paths.CONTROLLER)[1].is_ephemeral
    assert tree.get(paths.broker(0))[1].is_ephemeral
    assert registry.snapshot.brokers == {0: ME}
    assert registry.snapshot.controller_id == 0


def test_a_restart_keeps_the_cluster_id_and_counts_a_controller_epoch(start: Callable[..., Registry], tree: KeptTree) -> None:
    first = start().snapshot.cluster_id
    assert start().snapshot.cluster_id == first
    assert tree.get(paths.CONTROLLER_EPOCH)[0] == b"2"


def test_log_directories_of_a_cluster_bring_its_id_along_once(start: Callable[..., Registry]) -> None:
    assert start(cluster_id="from-the-folders").snapshot.cluster_id == "from-the-folders"
    assert start(cluster_id="from-the-folders").snapshot.cluster_id == "from-the-folders"
    with pytest.raises(CoordinationError, match="belongs to cluster from-the-folders, not to another"):
        start(cluster_id="another")


def test_a_broker_that_registers_later_is_seen_from_then_on(tree: KeptTree, clock: FakeClock) -> None:
    registry = Registry(tree, broker_id=0, time_ms=clock.time_ms, random_bytes=counted_bytes())
    registry.start()
    assert registry.snapshot.brokers == {}
    registry.register(ME)
    assert registry.snapshot.brokers == {0: ME}


def test_an_id_that_a_live_broker_has_is_refused(start: Callable[..., Registry], tree: KeptTree, clock: FakeClock) -> None:
    start()
    twin = Registry(tree, broker_id=0, time_ms=clock.time_ms, random_bytes=counted_bytes())
    with pytest.raises(CoordinationError, match="a live broker has registered there"):
        twin.start(broker=ME)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}', (Endpoint("PLAINTEXT", "h", 9092),)),
        (
            b'{"version":3,"host":"h","port":9092,"endpoints":["SSL://h:9093","PLAINTEXT://h:9092"],"rack":null,"timestamp":"1"}',
            (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "h", 9093)),
        ),
    ],
)
def test_a_broker_that_registered_in_an_older_format_is_read(
    tree: KeptTree, clock: FakeClock, written: bytes, expected: tuple[Endpoint, ...]
) -> None:
    registry = Registry(tree, broker_id=0, time_ms=clock.time_ms, random_bytes=counted_bytes())
    registry.start(broker=ME)
    tree.multi([Create(paths.broker(7), written, ephemeral=True)])
    tree.delete(paths.CONTROLLER)
    tree.delete(paths.broker(0))
    registry.start(broker=ME)
    assert registry.snapshot.brokers == {0: ME, 7: BrokerInfo(7, expected)}


def test_a_created_topic_is_on_the_tree_whole_and_in_the_snapshot(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    before = registry.snapshot
    drain(registry.create_topics([topic("t", 7, 2, **{"retention.ms": "5"})]))
    info = registry.snapshot.topics["t"]
    assert registry.snapshot.topics_by_id[info.topic_id] is info
    assert [(each.partition, each.leader, each.leader_epoch, each.isr, each.replicas) for each in info.partitions] == [
        (0, 0, 0, (0,), (0,)),
        (1, 0, 0, (0,), (0,)),
    ]
    assert registry.snapshot.topic_config("t") == {"retention.ms": "5"}
    assert registry.snapshot.partition_count == 2
    assert tree.children(paths.partitions("t")) == ["0", "1"]
    assert decode_state("", tree.get(paths.partition_state("t", 1))[0]).controller_epoch == 1
    assert before.topics == {}, "a snapshot that a request holds never changes"


def test_topics_are_created_together_or_not_at_all(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    drain(registry.create_topics([topic("there", 1)]))
    with pytest.raises(NodeExistsError):
        drain(registry.create_topics([topic("new", 2), topic("there", 3)]))
    assert list(registry.snapshot.topics) == ["there"]
    assert tree.children(paths.TOPICS) == ["there"]
    assert tree.children(paths.CONFIG_TOPICS) == ["there"]


def test_a_restart_finds_everything_and_raises_every_leader_epoch_in_one_step(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    drain(registry.create_topics([topic("a", 1, 3), topic("b", 2, 1, **{"cleanup.policy": "compact"})]))
    drain(registry.create_partitions("b", [(0,)]))
    drain(registry.set_broker_config(0, {"log.segment.bytes": "2000000"}))
    drain(registry.set_broker_config(None, {"log.retention.ms": "9"}))
    for epoch in (1, 2):
        found = start().snapshot
        assert {name: len(each.partitions) for name, each in found.topics.items()} == {"a": 3, "b": 2}
        assert {each.leader_epoch for info in found.topics.values() for each in info.partitions} == {epoch}
        assert decode_state("", tree.get(paths.partition_state("b", 1))[0]).leader_epoch == epoch
        assert found.topics["a"].topic_id == (1).to_bytes(16, "little")
        assert found.topic_config("b") == {"cleanup.policy": "compact"}
        assert found.broker_config(0) == {"log.segment.bytes": "2000000"}
        assert found.broker_config(None) == {"log.retention.ms": "9"}


def test_a_start_that_fails_has_raised_nothing(start: Callable[..., Registry], tree: KeptTree) -> None:
    drain(start().create_topics([topic("a", 1, 2)]))
    tree.fail_next = True
    with pytest.raises(CoordinationError):
        start()
    assert {each.leader_epoch for each in start().snapshot.topics["a"].partitions} == {1}


def test_the_state_versions_in_the_snapshot_are_those_on_the_tree(start: Callable[..., Registry], tree: KeptTree) -> None:
    drain(start().create_topics([topic("a", 1)]))
    for _ in range(2):
        (info,) = start().snapshot.topics["a"].partitions
        assert tree.get(paths.partition_state("a", 0))[1].version == info.state_version


def test_a_topic_written_before_topic_ids_gets_one_and_keeps_it(start: Callable[..., Registry], tree: KeptTree) -> None:
    drain(start().create_topics([topic("a", 1)]))
    tree.set(paths.topic("a"), b'{"version":1,"partitions":{"0":[0]}}')
    given = start().snapshot.topics["a"].topic_id
    assert given not in (bytes(16), (1).to_bytes(16, "little"))
    assert start().snapshot.topics["a"].topic_id == given


def test_an_id_is_never_a_reserved_one(tree: KeptTree, clock: FakeClock) -> None:
    drawn = iter([bytes(16), bytes(15) + b"\x01", b"x" * 16])
    registry = Registry(tree, broker_id=0, time_ms=clock.time_ms, random_bytes=lambda _size: next(drawn))
    assert registry.new_topic_id() == b"x" * 16


def test_partitions_are_added_after_those_that_are_there(start: Callable[..., Registry]) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1, 2)]))
    topic_id = registry.snapshot.topics["t"].topic_id
    drain(registry.create_partitions("t", [(0,), (0,)]))
    info = registry.snapshot.topics["t"]
    assert [each.partition for each in info.partitions] == [0, 1, 2, 3]
    assert info.topic_id == topic_id
    assert [each.leader_epoch for each in start().snapshot.topics["t"].partitions] == [1, 1, 1, 1]


def test_a_deletion_goes_on_after_a_crash_wherever_it_was(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1, 2, **{"retention.ms": "5"}), topic("kept", 2)]))
    drain(registry.mark_deleted(["t"]))
    assert list(registry.snapshot.topics) == ["kept"]
    again = start()
    assert list(again.snapshot.topics) == ["kept"]
    assert again.deleting == {"t"}
    drain(again.finish_deletion(["t"]))
    assert again.deleting == set()
    assert tree.children(paths.DELETE_TOPICS) == []
    assert tree.children(paths.TOPICS) == ["kept"]
    assert tree.children(paths.CONFIG_TOPICS) == ["kept"]
    assert start().deleting == set()


def test_a_mark_on_a_topic_that_is_not_there_is_cleared(start: Callable[..., Registry], tree: KeptTree) -> None:
    start()
    tree.create(paths.delete_topic("ghost"))
    registry = start()
    assert registry.deleting == {"ghost"}
    drain(registry.finish_deletion(["ghost"]))
    assert tree.children(paths.DELETE_TOPICS) == []


def test_a_topic_made_again_has_another_id_and_no_old_configuration(start: Callable[..., Registry]) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1, 1, **{"retention.ms": "5"})]))
    drain(registry.mark_deleted(["t"]))
    drain(registry.finish_deletion(["t"]))
    drain(registry.create_topics([topic("t", 2)]))
    assert registry.snapshot.topic_config("t") == {}
    assert (1).to_bytes(16, "little") not in registry.snapshot.topics_by_id


def test_a_changed_configuration_and_the_word_of_it_are_one_change(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1)]))
    drain(registry.set_topic_config("t", {"retention.ms": "7"}))
    drain(registry.set_broker_config(None, {"log.retention.ms": "8"}))
    changes = [tree.get(f"{paths.CONFIG_CHANGES}/{name}")[0] for name in tree.children(paths.CONFIG_CHANGES)]
    assert changes == [b'{"version":2,"entity_path":"topics/t"}', b'{"version":2,"entity_path":"brokers/<default>"}']
    tree.fail_next = True
    with pytest.raises(CoordinationError):
        drain(registry.set_topic_config("t", {"retention.ms": "9"}))
    assert registry.snapshot.topic_config("t") == {"retention.ms": "7"}
    assert len(tree.children(paths.CONFIG_CHANGES)) == 2
    assert start().snapshot.topic_config("t") == {"retention.ms": "7"}


def test_old_notifications_are_purged(start: Callable[..., Registry], tree: KeptTree, clock: FakeClock) -> None:
    registry = start()
    drain(registry.set_broker_config(None, {"log.retention.ms": "1"}))
    drain(registry.set_broker_config(None, {"log.retention.ms": "2"}))
    clock.advance(CHANGES_KEPT_MS / 1000)
    drain(registry.set_broker_config(None, {"log.retention.ms": "3"}))
    assert len(tree.children(paths.CONFIG_CHANGES)) == 3, "exactly that old is still kept"
    clock.advance(1)
    drain(registry.set_broker_config(None, {"log.retention.ms": "4"}))
    assert tree.children(paths.CONFIG_CHANGES) == ["config_change_0000000002", "config_change_0000000003"]


def test_producer_ids_are_given_out_once_in_the_life_of_a_cluster(start: Callable[..., Registry], tree: KeptTree) -> None:
    start()
    first, second = ProducerIds(tree, 0), ProducerIds(tree, 1)
    taken = [first.next() for _ in range(BLOCK_SIZE + 1)] + [second.next()]
    assert taken == [*range(BLOCK_SIZE), 2 * BLOCK_SIZE - BLOCK_SIZE, 2 * BLOCK_SIZE]
    assert ProducerIds(tree, 0).next() == 3 * BLOCK_SIZE, "the rest of a block is lost with its broker"


def test_producer_ids_that_others_have_are_passed_over(start: Callable[..., Registry], tree: KeptTree) -> None:
    start()
    ids = ProducerIds(tree, 0)
    ids.pass_over(4711)
    assert ids.next() == 4712
    ids.pass_over(4720)
    assert ids.next() == 4721
    ids.pass_over(100)
    assert ids.next() == 4722
    later = ProducerIds(tree, 0)
    written = tree.get(paths.PRODUCER_ID_BLOCK)
    later.pass_over(4722)
    assert tree.get(paths.PRODUCER_ID_BLOCK) == written, "what was given out here needs no writing down"
    assert later.next() == 4712 + BLOCK_SIZE


def test_producer_ids_end_some_time(start: Callable[..., Registry], tree: KeptTree) -> None:
    start()
    tree.set(paths.PRODUCER_ID_BLOCK, encode_block(ProducerIdBlock(0, 2**63 - 2000, 2**63 - 1001)))
    with pytest.raises(CoordinationError, match="no producer ids are left"):
        ProducerIds(tree, 0).next()


def test_two_thousand_topics(start: Callable[..., Registry]) -> None:
    registry = start()
    drain(registry.create_topics([topic(f"t{number}", number + 1, 2) for number in range(2000)]))
    found = start()
    assert found.snapshot.partition_count == 4000
    assert {each.leader_epoch for info in found.snapshot.topics.values() for each in info.partitions} == {1}
    drain(found.create_topics([topic("one-more", 5000)]))
    assert len(found.snapshot.topics) == 2001


LARGE = 2 * PARTITIONS_PER_STEP + 50


def test_a_large_topic_is_there_whole_after_the_last_step_and_not_before(start: Callable[..., Registry]) -> None:
    registry = start()
    steps = registry.create_large_topic(topic("t", 1, LARGE))
    assert [pause for pause in steps if "t" in registry.snapshot.topics] == []
    assert len(registry.snapshot.topics["t"].partitions) == LARGE
    assert len(start().snapshot.topics["t"].partitions) == LARGE


@pytest.mark.parametrize("steps_done", [1, 2, 3])
def test_of_a_large_topic_whose_creation_was_interrupted_nothing_is_left(
    start: Callable[..., Registry], tree: KeptTree, steps_done: int
) -> None:
    steps = start().create_large_topic(topic("t", 1, LARGE, **{"retention.ms": "5"}))
    for _ in range(steps_done):
        next(steps)
    registry = start()
    assert (list(registry.snapshot.topics), registry.deleting) == ([], {"t"})
    drain(registry.finish_deletion(["t"]))
    assert (tree.children(paths.TOPICS), tree.children(paths.CONFIG_TOPICS), registry.deleting) == ([], [], set())


def test_partitions_that_an_interrupted_change_left_do_not_count_and_are_no_hindrance(
    start: Callable[..., Registry], tree: KeptTree
) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1, 2)]))
    steps = registry.create_partitions("t", [(0,)] * LARGE)
    next(steps)
    assert len(tree.children(paths.partitions("t"))) == 2 + PARTITIONS_PER_STEP
    registry = start()
    assert len(registry.snapshot.topics["t"].partitions) == 2
    drain(registry.create_partitions("t", [(0,)]))
    assert len(tree.children(paths.partitions("t"))) == len(start().snapshot.topics["t"].partitions) == 3


def test_a_topic_that_is_deleted_while_it_grows_stays_deleted(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    drain(registry.create_topics([topic("t", 1, 2)]))
    steps = registry.create_partitions("t", [(0,)] * LARGE)
    next(steps)
    drain(registry.mark_deleted(["t"]))
    with pytest.raises(NoNodeError):
        drain(steps)
    drain(registry.finish_deletion(["t"]))
    assert tree.children(paths.TOPICS) == []


@pytest.mark.parametrize("steps_done", [0, 1, 2, 3])
def test_a_large_deletion_goes_on_after_a_crash_wherever_it_was(start: Callable[..., Registry], tree: KeptTree, steps_done: int) -> None:
    registry = start()
    drain(registry.create_large_topic(topic("t", 1, LARGE)))
    drain(registry.mark_deleted(["t"]))
    steps = registry.finish_deletion(["t"])
    for _ in range(steps_done):
        next(steps, None)
    registry = start()
    assert list(registry.snapshot.topics) == []
    drain(registry.finish_deletion(registry.deleting.copy()))
    assert (tree.children(paths.TOPICS), tree.children(paths.DELETE_TOPICS)) == ([], [])


def test_notifications_are_few_however_fast_configurations_change(start: Callable[..., Registry], tree: KeptTree) -> None:
    registry = start()
    for number in range(CHANGES_MAX + 500):
        drain(registry.set_broker_config(None, {"log.retention.ms": str(number)}))
    assert len(tree.children(paths.CONFIG_CHANGES)) <= CHANGES_MAX + CHANGES_PURGED_MAX
