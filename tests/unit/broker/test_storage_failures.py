"""A full disk passes, a broken one takes its partitions offline, and neither ends the process (rules of the house 5)."""

import pytest

from moldau.broker.handlers.produce.fast_path import ProduceFastPath
from moldau.broker.replicas.append_batch import AppendBatch
from moldau.broker.replicas.hosted import HostedPartition
from moldau.cluster.controller.requests import GrowthSpec, TopicChoice, TopicSpec
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.steps import drain
from moldau.protocol.records.header import check_batch
from support.broker_world import BrokerWorld, batch, fetch_request, produce_request, values_of


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t")
    made.create_topic("other")
    return made


def full(world: BrokerWorld) -> None:
    world.disk.capacity = 0


def test_on_a_full_disk_appends_fail_reads_go_on_and_writes_resume(world: BrokerWorld) -> None:
    client = world.connect()
    assert client.produce("t", b"before").base_offset == 0
    full(world)
    for _ in range(3):
        failed = client.produce("t", b"lost")
        assert (failed.error_code, failed.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert client.values("t") == [b"before"]
    world.disk.capacity = None
    assert client.produce("t", b"after").base_offset == 1
    assert client.values("t") == [b"before", b"after"]


def test_a_topic_created_on_a_full_disk_is_served_once_there_is_space(world: BrokerWorld) -> None:
    world.disk.capacity = world.disk.used() + 10
    world.create_topic("new")
    client = world.connect()
    assert client.produce("new", b"a").error_code != ErrorCode.NONE
    world.clock.advance(10)
    assert client.produce("new", b"a").error_code != ErrorCode.NONE
    world.disk.capacity = None
    world.clock.advance(10)
    assert client.produce("new", b"a").base_offset == 0


@pytest.mark.parametrize("room", range(0, 1000, 40))
def test_however_much_room_is_left_each_answer_says_what_has_become_of_its_batch(room: int) -> None:
    """Half of the batches of one read need a new segment, before which those that came first are written to the old one."""
    world = BrokerWorld()
    world.create_topic("t", segment_ms=1000)
    client = world.connect(piece=1 << 20)
    client.produce("t", b"0")
    client.produce("t", b"1")  # from here on the shortest way is taken
    frames = []
    for number in range(6):
        world.clock.advance(0.5)
        frames.append(client.frame(produce_request("t", batch(world, b"%d" % number * 50)), 9))
    world.disk.capacity = world.disk.used() + room
    client.peer.send(b"".join(frames))
    answers = [answer.body.responses[0].partition_responses[0] for answer in client.answers()]
    world.disk.capacity = None
    offsets = [answer.base_offset for answer in answers if answer.error_code == 0]
    assert {answer.error_code for answer in answers} <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
    assert offsets == list(range(2, world.partition("t").log.log_end_offset))
    assert [client.values("t", offset)[0] for offset in offsets] == [b"%d" % number * 50 for number in range(len(offsets))]


def test_every_answer_of_the_read_that_could_not_be_written_is_put_right(world: BrokerWorld) -> None:
    client = world.connect(piece=1 << 20)
    client.produce("t", b"0")
    client.produce("t", b"1")  # from here on the shortest way is taken
    topics = ["t", "t", "missing", "t", "t", "t"]
    frames = [client.frame(produce_request(topic, batch(world, b"x")), 9) for topic in topics]
    full(world)
    client.peer.send(b"".join(frames))
    codes = [answer.body.responses[0].partition_responses[0].error_code for answer in client.answers()]
    storage, unknown = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [storage, storage, unknown, storage, storage, storage]
    assert client.values("t") == [b"0", b"1"]


def test_answers_behind_a_waiting_fetch_are_put_right_too(world: BrokerWorld) -> None:
    client = world.connect(piece=1 << 20)
    client.produce("t", b"0")
    client.produce("t", b"1")
    stream = client.frame(fetch_request("other", 0, max_wait_ms=1000), 12)
    full(world)
    client.peer.send(stream + b"".join(client.frame(produce_request("t", batch(world, b"x")), 9) for _ in range(2)))
    world.clock.advance(1.001)
    _, *produced = (answer.body for answer in client.answers())
    assert [body.responses[0].partition_responses[0].error_code for body in produced] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_one_partition_of_a_request_fails_alone(world: BrokerWorld) -> None:
    client = world.connect()
    request = produce_request("t", batch(world, b"a"))
    request.topic_data += produce_request("other", batch(world, b"b")).topic_data
    world.disk.fail = lambda operation, path: operation == "append" and "/t-0/" in path
    first, second = client.ask(request, 9).responses
    assert first.partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert second.partition_responses[0].error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)


def test_acks_0_that_cannot_be_written_closes_the_connection(world: BrokerWorld) -> None:
    client = world.connect()
    client.produce("t", b"0")
    full(world)
    client.send(produce_request("t", batch(world, b"x"), acks=0), 9, answered=False)
    assert client.closed


def test_a_broken_disk_takes_its_partitions_offline(world: BrokerWorld) -> None:
    client, waiting = world.connect(), world.connect()
    client.produce("t", b"a")
    waiting.send(fetch_request("other", 0, max_wait_ms=10_000), 12)
    world.disk.fail = lambda operation, path: operation == "append"
    assert client.produce("t", b"b").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (answer,) = waiting.answers()
    assert answer.body.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.fail = None
    assert client.produce("t", b"c").error_code == ErrorCode.KAFKA_STORAGE_ERROR, "until somebody starts the broker again"
    assert client.fetch("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not client.closed


def test_without_a_log_directory_no_topic_is_made_grown_or_deleted(world: BrokerWorld) -> None:
    """Also for the request that finds the disk broken, the answer is no success."""
    world.disk.fail = lambda operation, path: True
    topics, storage = world.broker.admin, ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.broker.logs.all_failed
    for name in ("first", "second"):
        outcome = drain(topics.create([TopicSpec(name, 1, 1)]))[name]
        assert isinstance(outcome, PeerError)
        assert outcome.code == storage
        assert world.broker.logs.all_failed
    assert "second" not in world.broker.metadata.topics
    grown, deleted = drain(topics.grow([GrowthSpec("t", 2)]))["t"], drain(topics.delete([TopicChoice("t")]))[TopicChoice("t")]
    assert grown is not None
    assert isinstance(deleted, PeerError)
    assert (grown.code, deleted.code) == (storage, storage)
    assert len(world.broker.metadata.topics["t"].partitions) == 1


def test_a_waiting_fetch_that_finds_the_disk_broken_is_answered_once(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Its partitions go offline while it is attempted, and that attempts whatever waits for them."""
    client, waiting = world.connect(), world.connect()
    for _ in range(3):
        client.produce("t", b"a")
    request = fetch_request("t", 0, max_wait_ms=1000, min_bytes=1000)
    request.topics += fetch_request("other", 0).topics
    waiting.send(request, 12)
    assert waiting.answers() == []
    world.broker.logs._cache.close()
    world.disk.fail = lambda operation, path: "/t-0/" in path
    world.clock.advance(1.1)
    (answer,) = waiting.answers()
    assert [each.partitions[0].error_code for each in answer.body.responses] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert "bug" not in caplog.text
    assert not waiting.closed


def test_housekeeping_survives_a_broken_disk(world: BrokerWorld) -> None:
    client = world.connect()
    client.produce("t", b"a")
    world.disk.fail = lambda operation, path: True
    world.clock.advance(3600)
    assert client.fetch("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not client.closed


def test_a_broken_batch_is_answered_as_corrupt_once_found(world: BrokerWorld) -> None:
    client = world.connect()
    client.produce("t", b"a")
    client.produce("t", b"b")
    world.partition("t").log.remember_bad_batch(1, 1)
    assert values_of(client.fetch("t", 0).records) == [b"a"]
    assert client.fetch("t", 1).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_bug_in_the_write_of_one_log_leaves_nothing_staged_in_the_others(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that stayed staged took the offsets of those that were acknowledged next."""
    client, other = world.connect(piece=1 << 20), world.partition("other")

    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(world.partition("t").log, "write_staged", fail)
    client.peer.send(b"".join(client.frame(produce_request(topic, batch(world, b"x")), 9) for topic in ("t", "other")))
    answers = [answer.body.responses[0].partition_responses[0] for answer in client.answers()]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0)]
    assert (other.log.log_end_offset, other.log.has_staged, other.staged_bytes) == (1, False, 0)
    assert world.partition("other") is other, "the directory is sound"
    assert client.produce("t", b"y").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.advance(3600)
    assert client.fetch("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "its log may not be what memory says"


@pytest.mark.parametrize("is_pipelined", [False, True], ids=["alone", "before another request"])
def test_requests_that_a_bug_leaves_without_an_answer_lose_their_connection_and_no_other(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, is_pipelined: bool
) -> None:
    client, other = world.connect(piece=1 << 20), world.connect()
    for each in (client, other):
        for _ in range(3):
            each.produce("t", b"a")
    frames = [client.frame(produce_request("t", batch(world, b"b")), 9) for _ in range(2)]
    if is_pipelined:
        frames.append(client.frame(fetch_request("t", 0), 12))

    def fail(*_arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(ProduceFastPath, "settle", fail)
        client.peer.send(b"".join(frames))
    assert client.closed
    assert not other.closed
    assert other.produce("t", b"c").base_offset == 8, "what was written stays, and no row of it is answered to another"


def test_a_bug_after_the_write_fails_its_append_and_no_other(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create_topic("synced", flush_messages=1)
    client = world.connect(piece=1 << 20)

    def fail(partition: HostedPartition) -> None:
        raise MemoryError

    monkeypatch.setattr(HostedPartition, "open_gate", fail)
    client.peer.send(b"".join(client.frame(produce_request(topic, batch(world, b"x")), 9) for topic in ("synced", "other")))
    answers = [answer.body.responses[0].partition_responses[0] for answer in client.answers()]
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert client.values("other") == [b"x"]


def test_a_bug_in_a_write_by_itself_takes_the_log_offline(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays staged is not written with the next append."""

    def fail() -> None:
        raise MemoryError

    partition, other = world.partition("t"), world.partition("other")
    records = memoryview(bytearray(batch(world, b"x")))
    monkeypatch.setattr(partition.log, "write_staged", fail)
    appended = AppendBatch(partition, records, check_batch(records))
    world.broker.replicas.append_at_once(appended, world.clock.time_ms())
    assert isinstance(appended.error, StorageError)
    assert (appended.in_log, partition.is_open, other.is_open) == (False, False, True), "the directory they share is sound"
    assert world.connect().produce("other", b"x").error_code == 0
    assert world.connect().produce("t", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
