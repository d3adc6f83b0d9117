"""Incremental fetch sessions: a client names what has changed, and is answered what it does not know; bounded, and at no cost to others."""

from random import Random
from typing import Any

import pytest

from moldau.broker.handlers.fetch.sessions import EVICTION_S, SEARCH_S
from moldau.model.errors import ErrorCode
from moldau.protocol.fast.fetch import EPOCH_MAX, next_epoch
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from support.broker_world import BrokerWorld, values_of
from support.turns import slow_down

LONG_MS = 1_000_000
MANY = 200
"""Partitions of a session whose requests are handled in steps."""


@pytest.fixture
def world() -> BrokerWorld:
    return world_with()


def world_with(**settings: Any) -> BrokerWorld:
    made = BrokerWorld(**settings)
    made.create_topic("t", partitions=MANY)
    return made


class Consumer:
    """A client with a session, as far as it wants one: `ask` has the answer, or None while it waits."""

    def __init__(self, world: BrokerWorld, *, version: int = 12, **fields: Any) -> None:
        self.world = world
        self.client = world.connect()
        self.version = version
        self.fields = fields
        self.session_id = 0
        self.epoch = 0

    def send(self, offsets: dict[int, int], *, forget: tuple[int, ...] = (), wait_ms: int = 0, **fields: Any) -> None:
        topic = {"topic": "t"} if self.version < 13 else {"topic_id": self.world.partition("t").topic_id}
        wanted = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in offsets.items()]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 24,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(**topic, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(**topic, partitions=list(forget))] if forget else [],
        )
        for name, value in {**self.fields, **fields}.items():
            setattr(request, name, value)
        self.client.send(request, self.version)
        self.epoch = next_epoch(self.epoch)

    def answers(self) -> list[Any]:
        for _ in range(300):
            self.world.clock.settle()
        found = [answer.body for answer in self.client.answers()]
        for body in found:
            if body.error_code == 0:
                self.session_id = body.session_id
        return found

    def ask(self, offsets: dict[int, int], **fields: Any) -> Any:
        self.send(offsets, **fields)
        (body,) = self.answers()
        return body


def named(body: Any) -> list[int]:
    """The partitions of an answer, in its order."""
    return [each.partition_index for topic in body.responses for each in topic.partitions]


def found(body: Any) -> dict[int, list[bytes | None]]:
    return {each.partition_index: values_of(each.records) for topic in body.responses for each in topic.partitions}


def sessions(world: BrokerWorld) -> tuple[int, int]:
    """How many there are, and their partitions."""
    return len(world.broker.fetch_sessions), world.broker.fetch_sessions.partitions


def some(count: int) -> dict[int, int]:
    return dict.fromkeys(range(count), 0)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("count", [3, MANY])
def test_after_the_first_answer_only_what_is_new_is_named(world: BrokerWorld, version: int, count: int) -> None:
    consumer = Consumer(world, version=version)
    first = consumer.ask(some(count))
    assert (first.error_code, named(first)) == (0, list(range(count)))
    assert first.session_id > 0
    assert named(consumer.ask({})) == []
    world.connect().produce("t", b"a", partition=2)
    assert found(consumer.ask({})) == {2: [b"a"]}
    assert found(consumer.ask({2: 1})) == {}
    assert consumer.session_id == first.session_id
    assert sessions(world) == (1, count)


@pytest.mark.parametrize("count", [3, MANY])
def test_a_request_of_a_session_waits_for_any_of_its_partitions(world: BrokerWorld, count: int) -> None:
    consumer = Consumer(world)
    consumer.ask(some(count))
    consumer.send({}, wait_ms=LONG_MS)
    assert consumer.answers() == []
    world.connect().produce("t", b"a", partition=count - 1)
    (body,) = consumer.answers()
    assert found(body) == {count - 1: [b"a"]}


def test_the_answer_to_a_request_that_has_waited_in_vain_names_nothing(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask(some(3))
    consumer.send({}, wait_ms=100)
    world.clock.advance(0.101)
    (body,) = consumer.answers()
    assert (body.error_code, body.session_id, named(body)) == (0, consumer.session_id, [])


def test_another_log_start_is_news_once(world: BrokerWorld) -> None:
    world.connect().produce("t", b"a", b"b")
    consumer = Consumer(world)
    consumer.ask({0: 2, 1: 0})
    world.partition("t").log.delete_records(1)
    (each,) = consumer.ask({}).responses[0].partitions
    assert (each.partition_index, each.log_start_offset, bytes(each.records)) == (0, 1, b"")
    assert named(consumer.ask({})) == []


def test_another_high_watermark_is_news_though_the_limit_leaves_no_records(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask(some(2))
    producer = world.connect()
    producer.produce("t", b"x" * 500, partition=0)
    producer.produce("t", b"x" * 500, partition=1)
    first, second = consumer.ask({}, max_bytes=100).responses[0].partitions
    assert (len(values_of(first.records)), bytes(second.records), second.high_watermark) == (1, b"", 1)


def test_errors_are_named_each_time_and_their_end_too(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0, 1: 0})
    for _ in range(2):
        (each,) = consumer.ask({1: 9}).responses[0].partitions
        assert (each.partition_index, each.error_code) == (1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert named(consumer.ask({1: 0})) == [1], "the client does not know that it is well again"
    assert named(consumer.ask({})) == []


def test_a_diverging_epoch_is_named(world: BrokerWorld) -> None:
    partition = world.partition("t")
    partition.log.lead_epoch(3)
    world.connect().produce("t", b"a", b"b")
    partition.log.lead_epoch(7)
    consumer = Consumer(world)
    consumer.ask({0: 0})
    wanted = FetchPartition(partition=0, fetch_offset=2, last_fetched_epoch=5, partition_max_bytes=1 << 20)
    body = consumer.ask({}, topics=[FetchTopic("t", partitions=[wanted])])
    assert body.responses[0].partitions[0].diverging_epoch.epoch == 3
    assert named(consumer.ask({})) == [0], "as long as it asks for it"
    assert named(consumer.ask({0: 2})) == [0], "it has taken nothing else of those answers"
    assert named(consumer.ask({})) == []


def test_a_partition_that_is_named_without_having_been_read_on_is_answered_once_more(world: BrokerWorld) -> None:
    """Its client may have ignored the answer, as a follower does that backs off."""
    consumer = Consumer(world)
    consumer.ask(some(2))
    assert named(consumer.ask({1: 0})) == [1]
    assert named(consumer.ask({})) == []


def test_of_two_answers_with_the_same_records_the_client_may_have_taken_the_first_only(world: BrokerWorld) -> None:
    """Seed 3259: a follower had two requests out, took the first answer, and did not learn the high watermark in the second."""
    consumer = Consumer(world)
    consumer.ask(some(2))
    world.connect().produce("t", b"a", partition=1)
    assert named(consumer.ask({})) == [1]
    assert named(consumer.ask({})) == [1], "from the same offset"
    assert named(consumer.ask({1: 1})) == [1]
    assert named(consumer.ask({})) == []
    world.connect().produce("t", b"b", partition=1)
    assert named(consumer.ask({})) == [1]
    assert named(consumer.ask({1: 2})) == [], "there was one answer"


def test_what_is_forgotten_is_not_read(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask(some(3))
    producer = world.connect()
    for index in range(3):
        producer.produce("t", b"a", partition=index)
    assert named(consumer.ask({}, forget=(1, 77))) == [0, 2]
    assert sessions(world) == (1, 2)


def test_a_session_without_partitions_is_closed(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask(some(2))
    body = consumer.ask({}, forget=(0, 1), wait_ms=LONG_MS)
    assert (body.error_code, body.session_id, named(body)) == (0, 0, [])
    assert sessions(world) == (0, 0)


def test_partitions_are_added(world: BrokerWorld) -> None:
    world.connect().produce("t", b"a", partition=5)
    consumer = Consumer(world)
    consumer.ask(some(2))
    assert found(consumer.ask({5: 0, 6: 0})) == {5: [b"a"], 6: []}
    assert named(consumer.ask({5: 1})) == []
    assert sessions(world) == (1, 4)


def test_a_session_that_is_not_known(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.session_id, consumer.epoch = 77, 3
    body = consumer.ask({0: 0}, wait_ms=LONG_MS)
    assert (body.error_code, body.session_id, named(body)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


def test_another_epoch_than_the_next_is_refused_and_the_session_stays(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    for epoch in (2, 77):
        consumer.epoch = epoch
        assert consumer.ask({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = 1
    assert consumer.ask({}).error_code == 0


def test_the_epoch_after_the_greatest_is_one(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask({0: 0})
    session = world.broker.fetch_sessions.get(consumer.session_id)
    assert session is not None
    session.epoch = consumer.epoch = EPOCH_MAX
    assert [consumer.ask({}).error_code, consumer.epoch, consumer.ask({}).error_code] == [0, 1, 0]


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12)])
def test_names_and_ids_of_topics_are_not_mixed(world: BrokerWorld, first: int, second: int) -> None:
    consumer = Consumer(world, version=first)
    consumer.ask({0: 0})
    consumer.version = second
    assert consumer.ask({}).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    consumer.version, consumer.epoch = first, 1
    assert consumer.ask({}).error_code == 0, "it has the epoch that it had"


@pytest.mark.parametrize("count", [2, MANY])
def test_a_full_request_that_names_a_session_closes_it(world: BrokerWorld, count: int) -> None:
    consumer = Consumer(world)
    first = consumer.ask(some(count))
    consumer.epoch = 0
    second = consumer.ask(some(count))
    assert second.session_id not in (0, first.session_id)
    assert sessions(world) == (1, count)
    consumer.epoch = -1
    last = consumer.ask(some(count))
    assert (last.error_code, last.session_id, named(last)) == (0, 0, list(range(count)))
    assert sessions(world) == (0, 0)


def test_a_request_without_a_session_does_not_touch_them(world: BrokerWorld) -> None:
    for count in (1, 3, MANY):
        consumer = Consumer(world)
        consumer.epoch = -1
        assert consumer.ask(some(count)).session_id == 0
    assert world.broker._fetch_sessions is None


def test_partitions_with_records_take_turns_where_the_limit_is_small(world: BrokerWorld) -> None:
    producer = world.connect()
    for index in range(4):
        for _ in range(3):
            producer.produce("t", b"x" * 500, partition=index)
    consumer, offsets, turns = Consumer(world), some(4), []
    body = consumer.ask(offsets, max_bytes=100)
    for _ in range(8):
        (read,) = [index for index, values in found(body).items() if values]
        turns.append(read)
        offsets[read] += 1
        body = consumer.ask({read: offsets[read]}, max_bytes=100)
    assert turns == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("count", [2, MANY - 1])
def test_the_next_request_ends_the_wait_of_the_one_before(world: BrokerWorld, count: int) -> None:
    """A follower that begins to fetch one more partition sends it at once."""
    world.connect().produce("t", b"a", partition=count)
    consumer = Consumer(world)
    consumer.ask(some(count))
    consumer.send({}, wait_ms=LONG_MS)
    assert consumer.answers() == []
    consumer.send({count: 0}, wait_ms=LONG_MS)
    before, after = consumer.answers()
    assert (named(before), found(after)) == ([], {count: [b"a"]})


@pytest.mark.parametrize("count", [2, MANY])
def test_a_request_that_comes_while_others_wait_is_answered_in_its_turn(world: BrokerWorld, count: int) -> None:
    consumer = Consumer(world)
    consumer.ask(some(count))
    for _ in range(5):
        consumer.send({}, wait_ms=LONG_MS)
    assert [named(body) for body in consumer.answers()] == [[]] * 4
    world.connect().produce("t", b"a")
    (last,) = consumer.answers()
    assert found(last) == {0: [b"a"]}


@pytest.mark.parametrize("count", [2, MANY])
def test_a_session_outlives_a_connection_that_is_lost_while_its_request_waits(world: BrokerWorld, count: int) -> None:
    consumer = Consumer(world)
    consumer.ask(some(count))
    consumer.send({}, wait_ms=LONG_MS)
    assert consumer.answers() == []
    consumer.client.peer.disconnect()
    world.clock.settle()
    assert world.broker.purgatory.waiting == 0
    consumer.client = world.connect()
    world.connect().produce("t", b"a")
    assert found(consumer.ask({})) == {0: [b"a"]}


def test_a_connection_that_is_lost_while_its_request_is_read_frees_the_session(world: BrokerWorld) -> None:
    consumer = Consumer(world)
    consumer.ask(some(MANY))
    slow_down(world.clock)
    consumer.send({}, wait_ms=LONG_MS)
    assert world.broker.slices.running == 1
    consumer.client.peer.disconnect()
    for _ in range(300):
        world.clock.settle()
    consumer.client = world.connect()
    assert consumer.ask({}).error_code == 0


# Bounds


def opened(world: BrokerWorld, count: int = 1, **fields: Any) -> bool:
    """Whether a new consumer of so many partitions gets a session."""
    body = Consumer(world, **fields).ask(some(count))
    assert body.error_code == 0
    assert named(body) == list(range(count))
    return bool(body.session_id > 0)


def test_without_room_there_are_no_more_sessions() -> None:
    world = world_with(max_incremental_fetch_session_cache_slots=2)
    assert [opened(world) for _ in range(4)] == [True, True, False, False]
    world = world_with(max_incremental_fetch_session_cache_slots=0)
    assert not opened(world)


def test_one_that_was_not_used_for_long_is_evicted() -> None:
    world = world_with(max_incremental_fetch_session_cache_slots=2)
    used, unused = Consumer(world), Consumer(world)
    used.ask({0: 0})
    unused.ask({0: 0})
    world.clock.advance(EVICTION_S)
    assert used.ask({}).error_code == 0
    world.clock.advance(1)
    assert opened(world)
    assert used.ask({}).error_code == 0
    assert unused.ask({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.broker.fetch_sessions.evictions == 1


def test_one_with_more_partitions_evicts_the_least_that_is_not_new() -> None:
    world = world_with(max_incremental_fetch_session_cache_slots=2)
    small, large = Consumer(world), Consumer(world)
    small.ask(some(1))
    large.ask(some(3))
    assert not opened(world, 5), "both are new"
    world.clock.advance(EVICTION_S - SEARCH_S)
    small.ask({})
    large.ask({})
    world.clock.advance(2 * SEARCH_S)
    assert not opened(world, 1), "none has less"
    world.clock.advance(SEARCH_S)
    assert opened(world, 2)
    assert small.ask({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert large.ask({}).error_code == 0


def test_one_of_a_follower_evicts_any_of_a_consumer_and_no_consumer_evicts_it() -> None:
    world = world_with(max_incremental_fetch_session_cache_slots=1)
    assert opened(world, 9)
    assert opened(world, 1, replica_id=7)
    world.clock.advance(EVICTION_S - 1)
    assert not opened(world, 9)
    assert not opened(world, 9, replica_id=8), "the other one is a follower's, and new"


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    world = world_with(fetch_session_partitions_max=100)
    first = Consumer(world)
    assert first.ask(some(80)).session_id > 0
    assert not opened(world, 20), "a tenth is kept for sessions that are there"
    assert opened(world, 10)
    assert sessions(world) == (2, 90)
    assert next(each for each in world.broker.admission.state if each.setting == "fetch.session.partitions.max").refusals == 1
    assert first.ask(dict.fromkeys(range(80, 90), 0)).error_code == 0
    body = first.ask({90: 0})
    assert (body.error_code, body.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert sessions(world) == (1, 10)


def test_one_that_can_never_have_room_evicts_none() -> None:
    world = world_with(fetch_session_partitions_max=100)
    first = Consumer(world)
    first.ask(some(10))
    world.clock.advance(EVICTION_S + 1)
    assert not opened(world, 150)
    assert first.ask({}).error_code == 0


def test_what_consumers_read_is_what_was_written(world: BrokerWorld) -> None:
    """At random: appends, small limits, partitions added and forgotten, sessions lost; each partition is read once, in its order."""
    random = Random(17)
    consumer, producer = Consumer(world), world.connect()
    written: dict[int, list[bytes]] = {index: [] for index in range(8)}
    read: dict[int, list[bytes | None]] = {index: [] for index in range(8)}
    wanted, known = set(range(5)), dict[int, int]()
    for number in range(600):
        for _ in range(random.randrange(3)):
            index, value = random.randrange(8), b"%d-" % number + b"x" * random.randrange(300)
            producer.produce("t", value, partition=index)
            written[index].append(value)
        if number % 10 == 0:
            wanted ^= {random.randrange(8)}
        if number % 97 == 0:
            consumer.session_id, consumer.epoch, known = random.choice([0, consumer.session_id]), 0, {}
        if not wanted:
            continue
        offsets = {index: len(read[index]) for index in sorted(wanted)}
        forget = tuple(index for index in sorted(known) if index not in wanted)
        body = consumer.ask(
            {index: offset for index, offset in offsets.items() if known.get(index) != offset},
            forget=forget,
            max_bytes=random.choice([100, 1500]),
        )
        assert body.error_code == 0
        known = offsets
        for index, values in found(body).items():
            read[index] += values
    for index in range(8):
        assert written[index][: len(read[index])] == read[index]
    assert sum(map(len, read.values())) > 300
