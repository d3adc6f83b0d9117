"""Reading from followers (KIP-392): leaders name an in-sync replica in the consumer's rack, which gives what is committed."""

from typing import Any

import pytest

from moldau.broker.handlers.fetch.read_replicas import RACK_AWARE
from moldau.broker.replicas.append_batch import AppendBatch
from moldau.cluster.snapshot import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import check_batch
from support.broker_world import Client, fetch_request, values_of
from support.replica_world import TOPIC_ID, ReplicaWorld, produced

LONG_MS = 1_000_000
RACKS = {1: "a", 2: "b", 3: "c"}


def know(world: ReplicaWorld, racks: dict[int, str], listener: str = "PLAINTEXT") -> None:
    """All brokers have these as live, and the topic."""
    infos = [BrokerInfo(each, (Endpoint(listener, f"10.0.0.{each}", 9092),), rack) for each, rack in racks.items()]
    topic = TopicInfo("t", TOPIC_ID, (PartitionInfo(0, 1, world.epoch, world.ids, world.ids, 0),))
    for each, running in world.worlds.items():
        running.broker.cache.snapshot = running.broker.cache.snapshot.updated(infos, each, (topic,), (), {})


def world_of(count: int = 3, **settings: Any) -> ReplicaWorld:
    world = ReplicaWorld(count, **{"replica_selector_class": RACK_AWARE, **settings})
    world.lead(1)
    know(world, RACKS)
    world.run()
    return world


def commit(world: ReplicaWorld, *values: bytes) -> None:
    """Records that all have and show."""
    client = world.append(1, *values)
    world.run(1.0)
    assert produced(client)[0][0] == 0


def request(offset: int, rack: str = "b", *, max_wait_ms: int = 0, isolation_level: int = 0, **fields: Any) -> Any:
    made = fetch_request(TOPIC_ID, offset, max_wait_ms=max_wait_ms, **fields)
    made.rack_id, made.isolation_level = rack, isolation_level
    return made


def fetch(world: ReplicaWorld, broker_id: int, offset: int, rack: str = "b", *, version: int = 13, **fields: Any) -> Any:
    return world.client(broker_id).ask(request(offset, rack, **fields), version).responses[0].partitions[0]


def waiting(world: ReplicaWorld, broker_id: int, offset: int, **fields: Any) -> Client:
    client = world.client(broker_id)
    client.send(request(offset, max_wait_ms=LONG_MS, **fields), 13)
    assert client.answers() == []
    return client


# The leader


def test_a_leader_names_the_replica_in_the_consumers_rack_and_gives_no_records() -> None:
    world = world_of()
    commit(world, b"x")
    answer = fetch(world, 1, 0)
    assert (answer.error_code, answer.preferred_read_replica, bytes(answer.records)) == (0, 2, b"")
    assert (answer.high_watermark, answer.log_start_offset) == (1, 0)


@pytest.mark.parametrize("version", [11, 12])
def test_versions_by_name_too(version: int) -> None:
    world = world_of()
    commit(world, b"x")
    made = request(0)
    made.topics[0].topic = "t"
    assert world.client(1).ask(made, version).responses[0].partitions[0].preferred_read_replica == 2
    assert values_of(world.client(2).ask(made, version).responses[0].partitions[0].records) == [b"x"]


def test_it_is_named_at_once_and_not_after_a_wait() -> None:
    world = world_of()
    client = world.client(1)
    client.send(request(0, max_wait_ms=LONG_MS), 13)
    (answer,) = client.answers()
    assert answer.body.responses[0].partitions[0].preferred_read_replica == 2


@pytest.mark.parametrize("rack", ["", "a", "somewhere"])
def test_without_a_replica_in_the_rack_or_with_the_leader_there_it_gives_records(rack: str) -> None:
    world = world_of()
    commit(world, b"x")
    answer = fetch(world, 1, 0, rack)
    assert (answer.preferred_read_replica, values_of(answer.records)) == (-1, [b"x"])


@pytest.mark.parametrize("selector", [None, "org.apache.kafka.common.replica.LeaderSelector"])
def test_by_default_and_by_the_other_class_the_leader_is_read_from(selector: str | None) -> None:
    settings: dict[str, Any] = {} if selector is None else {"replica_selector_class": selector}
    world = ReplicaWorld(3, **settings)
    world.lead(1)
    know(world, RACKS)
    world.run()
    commit(world, b"x")
    assert fetch(world, 1, 0).preferred_read_replica == -1


def test_w1_a_replica_outside_the_in_sync_set_or_not_live_or_not_reached_is_not_named() -> None:
    world = world_of()
    commit(world, b"x")
    know(world, {1: "a", 3: "c"})
    assert fetch(world, 1, 0).preferred_read_replica == -1, "not live"
    know(world, RACKS, listener="OTHER")
    assert fetch(world, 1, 0).preferred_read_replica == -1, "not reached by the listener that the consumer came by"
    know(world, RACKS)
    assert fetch(world, 1, 0).preferred_read_replica == 2
    world.lead(1, isr=(1, 3), followers=[3])
    world.run()
    assert fetch(world, 1, 0).preferred_read_replica == -1, "not in sync"


def test_w1_one_that_does_not_have_the_records_is_not_named() -> None:
    world = world_of()
    commit(world, b"x")
    progress = world.machine(1).followers[2]
    progress.log_end_offset = 0
    assert fetch(world, 1, 1).preferred_read_replica == -1
    progress.log_end_offset, progress.log_start_offset = 1, 1
    assert fetch(world, 1, 0).preferred_read_replica == -1


def test_of_several_in_the_rack_the_one_that_has_most_is_named() -> None:
    world = world_of()
    commit(world, b"x", b"y")
    know(world, {1: "a", 2: "b", 3: "b"})
    world.machine(1).followers[2].log_end_offset = 1
    assert fetch(world, 1, 0).preferred_read_replica == 3
    assert fetch(world, 1, 2).preferred_read_replica == 3


def test_what_is_out_of_range_at_the_leader_is_so_for_those_with_a_rack() -> None:
    world = world_of()
    assert fetch(world, 1, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(world, 1, 0, current_leader_epoch=world.epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_session_names_it_each_time() -> None:
    world = world_of()
    client, made = world.client(1), request(0)
    made.session_epoch = 0
    first = client.ask(made, 13)
    made.session_id, made.session_epoch, made.topics = first.session_id, 1, []
    assert client.ask(made, 13).responses[0].partitions[0].preferred_read_replica == 2


# The follower


def test_a_follower_gives_what_is_committed() -> None:
    world = world_of()
    commit(world, b"x")
    world.append(1, b"not yet", acks=1)
    world.run()
    assert (world.hosted(2).log.log_end_offset, world.machine(2).high_watermark) == (2, 1)
    answer = fetch(world, 2, 0, current_leader_epoch=world.epoch)
    assert (answer.error_code, answer.high_watermark, answer.preferred_read_replica) == (0, 1, -1)
    assert values_of(answer.records) == [b"x"]


def test_a_fetch_that_waits_at_a_follower_wakes_when_its_high_watermark_moves() -> None:
    world = world_of()
    commit(world, b"x")
    client = waiting(world, 2, 1)
    world.append(1, b"y")
    world.run()
    assert client.answers() == [], "the follower has it, and does not know that it is committed"
    world.run(0.7)
    (answer,) = client.answers()
    assert values_of(answer.body.responses[0].partitions[0].records) == [b"y"]


def test_w2_what_the_leader_has_shown_and_the_follower_does_not_show_yet_is_waited_for() -> None:
    world = world_of()
    world.append(1, b"x")
    world.run()
    assert (world.machine(1).high_watermark, world.machine(2).high_watermark) == (1, 0)
    client = waiting(world, 2, 1)
    world.append(1, b"y")
    world.run(1.2)
    (answer,) = client.answers()
    assert values_of(answer.body.responses[0].partitions[0].records) == [b"y"]


@pytest.mark.parametrize("offset", [5, -3])
def test_w2_an_offset_that_a_follower_does_not_have_is_not_available_and_never_out_of_range(offset: int) -> None:
    world = world_of()
    commit(world, b"x")
    assert fetch(world, 2, offset).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_w2_a_follower_that_lags_does_not_call_a_consumer_diverged() -> None:
    world = world_of()
    commit(world, b"x")
    known = world.epoch
    assert fetch(world, 2, 3, last_fetched_epoch=known).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    world.lead(1)
    world.run(1.0)
    assert fetch(world, 2, 1, last_fetched_epoch=world.epoch).error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "no record of it is there yet"
    commit(world, b"y")
    answer = fetch(world, 2, 2, last_fetched_epoch=known)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (known, 1), "what is committed proves it"


def test_w2_consumers_of_committed_records_read_up_to_the_followers_last_stable_offset() -> None:
    world = world_of()
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(world.clock.time_ms(), None, b"open")
    records = memoryview(bytearray(builder.build()))
    world.worlds[1].append(AppendBatch(world.hosted(1), records, check_batch(records)))
    world.run(0.7)
    commit(world, b"after")
    plain, committed = fetch(world, 2, 0), fetch(world, 2, 0, isolation_level=1)
    assert (values_of(plain.records), plain.last_stable_offset) == ([b"open", b"after"], 0)
    assert (bytes(committed.records), committed.last_stable_offset, committed.high_watermark) == (b"", 0, 2)


def test_epochs_are_compared_at_followers() -> None:
    world = world_of()
    for epoch, code in ((world.epoch - 1, ErrorCode.FENCED_LEADER_EPOCH), (world.epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert fetch(world, 2, 0, current_leader_epoch=epoch).error_code == code


def test_a_consumer_without_a_rack_has_old_metadata() -> None:
    world = world_of()
    assert fetch(world, 2, 0, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_that_has_no_replica_or_no_leader_is_no_follower() -> None:
    world = world_of()
    world.worlds[2].broker.replicas.stop([world.hosted(2).topic_partition], delete=False)
    assert fetch(world, 2, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.machine(3).leader_id = -1
    assert fetch(world, 3, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_followers_do_not_fetch_from_followers() -> None:
    world = world_of()
    made = request(0)
    made.replica_id = 3
    assert world.client(2).ask(made, 13).responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_that_waits_at_a_follower_is_answered_when_it_is_one_no_more() -> None:
    world = world_of()
    commit(world, b"x")
    client = waiting(world, 2, 1)
    world.worlds[2].broker.replicas.stop([world.hosted(2).topic_partition], delete=False)
    (answer,) = client.answers()
    assert answer.body.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_that_waits_at_a_follower_which_begins_to_lead_goes_on_there() -> None:
    world = world_of()
    commit(world, b"x")
    client = waiting(world, 2, 1)
    world.lead(2)
    world.run(0.1)
    world.append(2, b"y")
    world.run(0.7)
    (answer,) = client.answers()
    found = answer.body.responses[0].partitions[0]
    assert (found.error_code, values_of(found.records)) == (0, [b"y"])


def test_offsets_are_looked_up_at_the_leader_only() -> None:
    world = world_of()
    wanted = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(partition_index=0, timestamp=-1)])])
    assert world.client(2).ask(wanted, 6).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_is_read_at_a_follower_is_counted_for_the_topic() -> None:
    world = world_of()
    commit(world, b"x")
    before = world.hosted(2).traffic.bytes_out
    size = len(fetch(world, 2, 0).records)
    assert world.hosted(2).traffic.bytes_out - before == size > 0
