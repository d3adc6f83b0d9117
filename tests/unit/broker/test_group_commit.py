"""With `flush.messages` reached an acknowledgement waits for the disk, and those that come meanwhile share the next sync."""

import pytest

from moldau.broker.configs import Change, IncrementalChange, Resource, ResourceType
from moldau.broker.replicas.flusher import SYNCS_MAX
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import ErrorCode, PeerError, StorageError
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request, values_of


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(immediate=False)
    made.create_topic("safe", flush_messages=1)
    made.background.run_all()
    return made


def send(client: Client, *values: bytes, acks: int = -1, topic: str = "safe") -> None:
    request = produce_request(topic, batch(client.world, *values), acks=acks)
    client.send(request, 9, answered=acks != 0)


def offsets(client: Client) -> list[int]:
    return [answer.body.responses[0].partition_responses[0].base_offset for answer in client.answers()]


def test_an_acknowledgement_waits_for_its_sync(world: BrokerWorld) -> None:
    client = world.connect()
    send(client, b"a")
    assert offsets(client) == []
    assert (world.partition("safe").log.log_end_offset, world.partition("safe").log.flushed_offset) == (1, 0)
    world.background.run_next()
    assert offsets(client) == [0]
    assert world.partition("safe").log.flushed_offset == 1


def test_appends_during_a_sync_share_the_next(world: BrokerWorld) -> None:
    clients = [world.connect() for _ in range(4)]
    send(clients[0], b"a")
    assert len(world.background.jobs) == 1, "the first sync runs"
    for client in clients[1:]:
        send(client, b"b", b"c")
    send(clients[0], b"d")
    assert len(world.background.jobs) == 1, "no other sync of this log meanwhile"
    world.background.run_next()
    assert [offsets(client) for client in clients] == [[0], [], [], []]
    assert len(world.background.jobs) == 1, "one sync for all that came"
    world.background.run_next()
    assert [offsets(client) for client in clients] == [[7], [1], [3], [5]]
    assert not world.background.jobs
    assert not world.broker.flusher.busy


def test_acks_1_waits_too_and_acks_0_for_nothing(world: BrokerWorld) -> None:
    client = world.connect()
    send(client, b"a", acks=1)
    assert offsets(client) == []
    world.background.run_all()
    assert offsets(client) == [0]
    send(client, b"b", acks=0)
    assert len(world.background.jobs) == 1
    world.background.run_all()
    assert world.partition("safe").log.flushed_offset == 2


def test_only_the_append_that_reaches_the_number_waits(world: BrokerWorld) -> None:
    world.create_topic("every-third", flush_messages=3)
    client = world.connect()
    send(client, b"a", topic="every-third")
    send(client, b"b", topic="every-third")
    assert offsets(client) == [0, 1]
    send(client, b"c", topic="every-third")
    assert offsets(client) == []
    world.background.run_all()
    assert offsets(client) == [2]


def test_a_failed_sync_is_told_to_all_that_wait_and_takes_the_directory_offline(world: BrokerWorld) -> None:
    first, second = world.connect(), world.connect()
    send(first, b"a")
    send(second, b"b")
    world.disk.fail = lambda operation, path: operation == "sync" and path.endswith(".log")
    world.background.run_all()
    for client in (first, second):
        (answer,) = client.answers()
        assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.produce("safe", b"c").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.fetch("safe", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_bug_in_a_sync_fails_who_waits_and_the_next_sync_runs(world: BrokerWorld) -> None:
    client, bug = world.connect(), MemoryError()
    send(client, b"a")
    (_, done), *_ = world.background.jobs
    world.background.jobs.clear()
    with pytest.raises(MemoryError):
        done(None, bug)
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.broker.flusher.busy
    send(client, b"b")
    world.background.run_all()
    assert offsets(client) == [1]
    assert world.partition("safe").log.flushed_offset == 2


def test_a_topic_deleted_under_a_sync_answers_who_waits_and_harms_no_other_of_its_name(world: BrokerWorld) -> None:
    client = world.connect()
    send(client, b"a")
    world.delete_topics("safe")
    world.create_topic("safe", flush_messages=1)
    world.disk.fail = lambda operation, path: operation == "sync" and path.endswith(".log")
    world.background.run_next()
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.fail = None
    send(client, b"b")
    world.background.run_all()
    assert offsets(client) == [0]


def test_a_topic_deleted_under_a_sync_that_succeeds(world: BrokerWorld) -> None:
    client = world.connect()
    send(client, b"a")
    world.delete_topics("safe")
    world.background.run_all()
    assert len(client.answers()) == 1
    assert not world.broker.flusher.busy


def test_on_a_full_disk_acknowledgements_fail_and_come_again_with_the_space(world: BrokerWorld) -> None:
    """The leader epoch of the first append has to be written beside the log, and there is no room for it."""
    client = world.connect()
    send(client, b"a")
    world.disk.capacity = 0
    world.background.run_all()
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.capacity = None
    send(client, b"b")
    world.background.run_all()
    assert offsets(client) == [1]
    assert world.partition("safe").log.flushed_offset == 2


def test_files_that_cannot_be_opened_for_a_sync_are_told_to_who_waits(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.connect()
    monkeypatch.setattr(PartitionLog, "flush_job", _no_files)
    send(client, b"a")
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not client.closed
    assert not world.broker.flusher.busy


def _no_files(_log: PartitionLog) -> None:
    raise StorageError("too many open files", path="/data/safe-0", no_space=True)


def test_a_client_that_left_is_not_missed(world: BrokerWorld) -> None:
    client = world.connect()
    send(client, b"a")
    client.peer.disconnect()
    world.clock.settle()
    world.background.run_all()
    assert world.partition("safe").log.flushed_offset == 1


def test_a_repeated_batch_of_an_idempotent_producer_is_acknowledged_only_when_on_disk(world: BrokerWorld) -> None:
    client, again = world.connect(), world.connect()
    records = batch(world, b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    client.send(produce_request("safe", records, acks=-1), 9)
    again.send(produce_request("safe", records, acks=-1), 9)
    assert offsets(client) == offsets(again) == []
    world.background.run_all()
    assert offsets(client) == offsets(again) == [0]
    assert world.partition("safe").log.log_end_offset == 1


def test_visibility_flushed_shows_only_what_is_on_disk(world: BrokerWorld) -> None:
    world.create_topic("shown-late", visibility="flushed")
    world.background.run_all()
    producer, consumer = world.connect(), world.connect()
    assert producer.produce("shown-late", b"a").base_offset == 0
    answer = consumer.fetch("shown-late", 0)
    assert (answer.high_watermark, values_of(answer.records)) == (0, [])
    world.broker.flusher.request(world.partition("shown-late"))
    world.background.run_all()
    answer = consumer.fetch("shown-late", 0)
    assert (answer.high_watermark, values_of(answer.records)) == (1, [b"a"])


def test_a_waiting_fetch_is_completed_by_the_sync_that_shows_its_records(world: BrokerWorld) -> None:
    world.create_topic("shown-late", visibility="flushed", flush_messages=1)
    world.background.run_all()
    producer, consumer = world.connect(), world.connect()
    consumer.send(fetch_request("shown-late", 0), 12)
    producer.send(produce_request("shown-late", batch(world, b"a")), 9)
    assert consumer.answers() == []
    world.background.run_all()
    (answer,) = consumer.answers()
    assert values_of(answer.body.responses[0].partitions[0].records) == [b"a"]


def test_flush_ms_brings_to_disk_what_nobody_waits_for(world: BrokerWorld) -> None:
    world.create_topic("timed", flush_ms=50)
    world.background.run_all()
    client = world.connect()
    client.produce("timed", b"a")
    assert world.partition("timed").log.flushed_offset == 0
    world.clock.advance(0.2)
    world.background.run_all()
    assert world.partition("timed").log.flushed_offset == 1


def test_flush_ms_holds_also_for_what_was_written_before_it_was_set(world: BrokerWorld) -> None:
    world.create_topic("timed")
    world.background.run_all()
    world.connect().produce("timed", b"a")
    world.finish(world.broker.configs.edit(Resource(ResourceType.TOPIC, "timed"), [IncrementalChange("flush.ms", Change.SET, "50")]))
    world.clock.advance(0.2)
    world.background.run_all()
    assert world.partition("timed").log.flushed_offset == 1


def test_no_more_syncs_hold_files_open_than_the_background_is_kept_busy_with(world: BrokerWorld) -> None:
    topics = [f"safe-{number}" for number in range(3 * SYNCS_MAX)]
    for topic in topics:
        world.create_topic(topic, flush_messages=1)
    world.background.run_all()
    clients = [world.connect() for _ in topics]
    for client, topic in zip(clients, topics, strict=True):
        send(client, b"a", topic=topic)
    send(clients[-1], b"b", topic=topics[-1])
    for count in range(3 * SYNCS_MAX):
        assert len(world.background.jobs) == min(SYNCS_MAX, 3 * SYNCS_MAX - count)
        world.background.run_next()
    assert [offsets(client) for client in clients] == [[0]] * (len(topics) - 1) + [[0, 1]]
    assert not world.background.jobs
    assert not world.broker.flusher.busy


def test_a_stop_waits_only_for_the_syncs_that_run_and_then_brings_all_logs_to_disk(world: BrokerWorld) -> None:
    """Thousands of logs may wait in line, for which a stop has no time."""
    topics = [f"safe-{number}" for number in range(3 * SYNCS_MAX)]
    for topic in topics:
        world.create_topic(topic, flush_messages=1)
    world.background.run_all()
    for topic in topics:
        send(world.connect(), b"a", topic=topic)
    world.broker.flusher.stop()
    for _ in range(SYNCS_MAX):
        world.background.run_next()
    assert not world.background.jobs
    world.stop()
    assert world.disk.exists("/data/.kafka_cleanshutdown")
    assert {world.partition(topic).log.flushed_offset for topic in topics} == {1}


def test_no_sync_begins_after_a_stop_was_asked_for(world: BrokerWorld) -> None:
    """What runs in turns may ask then: the look at flushes over all partitions, or a Produce request of many. The stop waits for syncs."""
    client = world.connect()
    send(client, b"a")
    world.broker.flusher.stop()
    send(client, b"b")
    world.broker.flusher.request(world.partition("safe"))
    world.background.run_next()
    assert not world.background.jobs
    world.stop()
    assert world.disk.exists("/data/.kafka_cleanshutdown")
    assert world.partition("safe").log.flushed_offset == 2


def test_what_a_coordinator_has_read_is_served_when_it_is_on_disk() -> None:
    """Claim: also a record that was not acknowledged, which a process that was killed has left to the system. What a coordinator decides by
    it would be acknowledged without it.
    """
    world = BrokerWorld(immediate=False, log_flush_interval_messages=1)
    world.create_topic("__consumer_offsets")
    topic = world.broker.coordinators.offsets_topic
    stored: list[PeerError | None] = []
    served: list[PeerError | None] = []
    topic.append(0, [(b"key", b"value")], stored.append)
    topic.settled(0, served.append)
    assert (stored, served) == ([], [])
    world.background.run_all()
    assert (stored, served) == ([None], [None])
    topic.settled(0, served.append)
    assert served == [None, None], "at once"
