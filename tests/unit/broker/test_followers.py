"""Replica 1 of [0, 1] follows this broker: acks all wait for its fetches, and consumers see nothing that it does not have."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.replicas.appends import COMPLETED_PER_TURN
from moldau.broker.replicas.early_batches import KEPT_MS, LIMIT
from moldau.broker.replicas.manager import FollowerState, LeaderState
from moldau.model.errors import ErrorCode
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request, values_of

FOLLOWER = 1


class Story:
    """A topic of one partition, which this broker leads with one follower in sync."""

    def __init__(self, **configs: int) -> None:
        self.world = BrokerWorld()
        self.world.create_topic("t", **configs)
        self.producer, self.follower, self.consumer = (self.world.connect() for _ in range(3))
        self.partition = self.world.partition("t")
        self.become_leader((0, FOLLOWER))

    def become_leader(self, isr: tuple[int, ...], epochs: int = 0) -> None:
        """The next state that a controller sends."""
        machine, settings = self.partition.machine, self.world.broker.topic_settings.of(self.world.broker.metadata.topic_config("t"))
        state = LeaderState(machine.leader_epoch + epochs, machine.state_version + 1, (0, FOLLOWER), isr)
        self.world.broker.replicas.become_leader(self.partition.topic_partition, state, self.partition.topic_id, settings)

    def become_follower(self) -> None:
        machine, settings = self.partition.machine, self.world.broker.topic_settings.of(self.world.broker.metadata.topic_config("t"))
        state = FollowerState(machine.leader_epoch + 1, machine.state_version + 1, (0, FOLLOWER), FOLLOWER)
        self.world.broker.replicas.become_follower(self.partition.topic_partition, state, self.partition.topic_id, settings)

    def produce(self, value: bytes, acks: int = -1, timeout_ms: int = 1000) -> None:
        request = produce_request("t", batch(self.world, value), acks=acks)
        request.timeout_ms = timeout_ms
        self.producer.send(request, 9)

    def produced(self) -> list[tuple[int, int]]:
        """Codes and base offsets that the producer has received."""
        found = (each.body.responses[0].partition_responses[0] for each in self.producer.answers())
        return [(each.error_code, each.base_offset) for each in found]

    def fetch(self, offset: int, *, max_wait_ms: int = 0, replica_id: int = FOLLOWER, epochs: int = 0, last_epoch: int = -1) -> None:
        request = fetch_request("t", offset, max_wait_ms=max_wait_ms, last_fetched_epoch=last_epoch)
        request.replica_id = replica_id
        request.topics[0].partitions[0].current_leader_epoch = self.partition.machine.leader_epoch + epochs
        self.follower.send(request, 12)

    def fetched(self) -> Any:
        (answer,) = self.follower.answers()
        return answer.body.responses[0].partitions[0]


@pytest.fixture
def story() -> Story:
    return Story()


def seen(client: Client) -> tuple[int, list[bytes | None]]:
    """High watermark and values."""
    found = client.fetch("t", 0, max_wait_ms=0)
    return found.high_watermark, values_of(found.records)


def test_acks_all_opens_by_the_fetch_that_has_the_record_and_shows_it(story: Story) -> None:
    story.produce(b"a")
    assert story.produced() == []
    assert seen(story.consumer) == (0, [])
    story.fetch(0)
    found = story.fetched()
    assert (found.error_code, found.high_watermark, values_of(found.records)) == (0, 0, [b"a"])
    assert story.produced() == [], "the follower has asked for it, and may not have it"
    story.fetch(1)
    assert story.fetched().high_watermark == 1
    assert story.produced() == [(0, 0)]
    assert seen(story.consumer) == (1, [b"a"])


def test_what_is_on_disk_and_waits_for_the_follower_wants_no_more_syncs() -> None:
    story = Story(flush_messages=1)
    story.world.background.immediate = False
    story.produce(b"a")
    assert len(story.world.background.jobs) == 1
    story.world.background.run_all()
    assert story.partition.log.flushed_offset == 1
    assert not story.world.broker.flusher.busy
    assert story.produced() == []
    story.fetch(1)
    assert story.produced() == [(0, 0)]


def test_a_coordinator_hears_of_each_new_term_of_its_partition_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrokerWorld(offsets_topic_num_partitions=1)
    world.create_topic("__consumer_offsets")
    partition, replicas = world.partition("__consumer_offsets"), world.broker.replicas
    machine, settings, elected = partition.machine, world.broker.topic_settings.of({}), []
    monkeypatch.setattr(world.broker.coordinators, "epoch_raised", lambda _: elected.append(machine.leader_epoch))
    before = machine.leader_epoch
    for epoch in (before, before + 1, before + 1):
        state = LeaderState(epoch, machine.state_version + 1, machine.replicas, machine.isr)
        replicas.become_leader(partition.topic_partition, state, partition.topic_id, settings)
    assert elected == [before + 1]


def test_acks_1_does_not_wait_and_is_not_shown_either(story: Story) -> None:
    for number in range(3):  # the third goes the shortest way
        story.produce(b"%d" % number, acks=1)
        assert story.produced() == [(0, number)]
    assert seen(story.consumer) == (0, [])
    story.fetch(2)
    assert seen(story.consumer)[0] == 2


def test_what_was_sent_the_shortest_way_waits_once_there_is_a_follower() -> None:
    story = Story()
    story.become_leader((0,))
    for number in range(3):
        story.produce(b"%d" % number)
    assert story.produced() == [(0, 0), (0, 1), (0, 2)]
    story.become_leader((0, FOLLOWER))
    story.produce(b"3")
    assert story.produced() == []
    story.fetch(4)
    assert story.produced() == [(0, 3)]


def test_without_a_fetch_it_times_out_and_the_record_stays(story: Story) -> None:
    story.produce(b"a", timeout_ms=1000)
    story.produce(b"b", timeout_ms=3000)
    story.world.clock.advance(0.999)
    assert story.produced() == []
    story.world.clock.advance(0.002)
    assert story.produced() == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    story.fetch(2)
    assert story.produced() == [(0, 1)]
    assert seen(story.consumer) == (2, [b"a", b"b"])


def test_another_leader_fails_what_waits(story: Story) -> None:
    story.produce(b"a")
    story.become_follower()
    assert story.produced() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert story.producer.produce("t", b"b").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def numbered(story: Story, sequence: int, producer_epoch: int = 0, producer_id: int = 5) -> tuple[int, int]:
    """Code and base offset of a batch of an idempotent producer."""
    records = batch(story.world, b"x", producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
    answer = story.producer.ask(produce_request("t", records, acks=1), 9).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
TOO_EARLY = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_no_batch_of_a_new_producer_overtakes_one_that_came_before_this_broker_led(story: Story) -> None:
    """Its client knew of the new leader first: the batches in flight reach the broker on both sides of its election."""
    story.become_follower()
    assert [numbered(story, sequence) for sequence in (1, 0)] == [NOT_YET, NOT_YET]
    story.become_leader((0, FOLLOWER), epochs=1)
    assert [numbered(story, sequence) for sequence in (1, 2)] == [TOO_EARLY, TOO_EARLY]
    assert [numbered(story, sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_that_came_too_early_binds_its_producer_until_the_next_epoch(story: Story) -> None:
    story.become_follower()
    assert numbered(story, 0) == NOT_YET
    story.become_leader((0, FOLLOWER), epochs=1)
    assert numbered(story, 4) == TOO_EARLY
    assert numbered(story, 0, producer_epoch=1) == (0, 0)


@pytest.mark.parametrize("later", [(), (9,)])
def test_a_batch_that_came_too_early_is_forgotten_when_none_can_be_in_flight_with_it(story: Story, later: tuple[int, ...]) -> None:
    """Its producer may have found the leader elsewhere. Later batches that come here too do not keep it."""
    story.become_follower()
    assert numbered(story, 0) == NOT_YET
    story.world.clock.advance(KEPT_MS / 2000)
    assert [numbered(story, sequence) for sequence in later] == [NOT_YET for _ in later]
    story.world.clock.advance(KEPT_MS / 2000)
    story.become_leader((0, FOLLOWER), epochs=1)
    assert numbered(story, 7) == (0, 0)


def test_no_more_than_so_many_producers_are_remembered_for_what_came_too_early_the_last_ones(story: Story) -> None:
    story.become_follower()
    assert numbered(story, 0) == NOT_YET
    for producer_id in range(LIMIT):
        records = batch(story.world, b"x", producer_id=6 + producer_id, producer_epoch=0, base_sequence=0)
        story.producer.ask(produce_request("unknown" if producer_id % 2 else "t", records), 9)
    story.become_leader((0, FOLLOWER), epochs=1)
    assert numbered(story, 7) == (0, 0), "the first is forgotten"
    assert numbered(story, 7, producer_id=6) == TOO_EARLY


def test_a_new_epoch_forgets_what_the_follower_had(story: Story) -> None:
    story.fetch(0)
    story.become_leader((0, FOLLOWER), epochs=1)
    story.produce(b"a")
    story.world.clock.settle()
    assert story.produced() == []
    story.fetch(1)
    assert story.produced() == [(0, 0)]


def test_too_few_in_sync_fail_what_waits_and_refuse_what_comes() -> None:
    story = Story(min_insync_replicas=2)
    story.produce(b"a")
    story.become_leader((0,))
    assert story.produced() == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert story.producer.produce("t", b"b", acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert story.partition.log.log_end_offset == 1


def test_a_fetch_that_waits_counts_when_it_comes_and_not_when_it_is_read_again(story: Story) -> None:
    """The follower lost its log meanwhile, and came back on another connection."""
    story.produce(b"a")
    story.fetch(1, max_wait_ms=60_000)
    assert story.produced() == [(0, 0)]
    story.become_leader((0,))
    story.follower = story.world.connect()
    story.fetch(0)
    story.produce(b"b", acks=1)
    assert story.partition.machine.followers[FOLLOWER].log_end_offset == 0


@pytest.mark.parametrize(("offset", "epochs", "last_epoch"), [(0, 0, -1), (5, 0, -1), (0, 1, -1), (0, 0, 99)])
def test_a_replica_that_is_not_assigned_hears_that_before_anything_else(story: Story, offset: int, epochs: int, last_epoch: int) -> None:
    story.fetch(offset, replica_id=5, epochs=epochs, last_epoch=last_epoch)
    assert story.fetched().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_waits_for_what_is_written_and_a_consumer_for_what_is_committed(story: Story) -> None:
    story.consumer.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
    story.fetch(0, max_wait_ms=60_000)
    assert story.follower.answers() == []
    story.produce(b"a", acks=1)
    assert values_of(story.fetched().records) == [b"a"]
    assert story.consumer.answers() == []
    story.fetch(1, max_wait_ms=60_000)
    (answer,) = story.consumer.answers()
    assert values_of(answer.body.responses[0].partitions[0].records) == [b"a"]


def shrink(story: Story) -> None:
    """The follower leaves the in-sync replicas."""
    story.become_leader((0,))


OPENINGS: dict[str, Callable[[Story], object]] = {
    "a fetch of the follower": lambda story: story.fetch(story.partition.log.log_end_offset),
    "fewer in-sync replicas": shrink,
    "their deadline": lambda story: story.world.clock.advance_within(30.0),
    "another leader": Story.become_follower,
}


@pytest.mark.parametrize("name", OPENINGS)
def test_many_appends_are_completed_in_turns_whatever_opens_them(story: Story, name: str) -> None:
    """Also when others produce meanwhile, whose writes complete their own and no more than a turn's of the rest."""
    clients = [story.world.connect() for _ in range(6 * COMPLETED_PER_TURN)]
    for client in clients:
        client.send(produce_request("t", batch(story.world, b"v"), acks=-1), 9)
    story.world.create_topic("u")
    other = story.world.connect()
    opened: list[int] = []

    def turn() -> None:
        opened.append(sum(bool(client.answers()) for client in clients))
        if sum(opened) < len(clients):
            story.world.clock.call_later(0.0, turn)

    OPENINGS[name](story)
    turn()
    other.send(produce_request("u", batch(story.world, b"x")), 9)
    turn()
    for _ in range(10):
        story.world.clock.settle()
    assert (sum(opened), len(other.answers())) == (len(clients), 1)
    assert max(opened) <= COMPLETED_PER_TURN + 1


def test_appends_of_connections_that_are_lost_do_not_gather_at_the_gate(story: Story) -> None:
    """Whatever timeout they ask for: the bound of requests in flight ends with the connection."""
    story.produce(b"waits", timeout_ms=2**31 - 1)
    for _ in range(100):
        client = story.world.connect()
        request = produce_request("t", batch(story.world, b"v"), acks=-1)
        request.timeout_ms = 2**31 - 1
        client.send(request, 9)
        client.send(request, 9)
        client.peer.transport.abort()
        story.world.clock.settle()
    assert story.partition.gate is not None
    assert len(story.partition.gate) <= 4
    story.fetch(201)
    assert story.produced() == [(0, 0)]
    assert len(story.partition.gate) == 0
