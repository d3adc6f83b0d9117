"""The internal topic of a coordinator: what cannot be appended, what is damaged and left out, and that reading it makes nobody wait."""

import logging
from collections.abc import Callable

import pytest

from moldau.broker.coordinators.state_log import EncodedRecords, KeyValue, LoadedBatch
from moldau.broker.coordinators.state_topic import StateTopic, java_hash
from moldau.broker.replicas.partition_events import Level
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import read_header, stamp_crc
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld, batch

NAME = "__consumer_offsets"
LOG = f"/data/{NAME}-0/00000000000000000000.log"


class TickingClock(FakeClock):
    """Every look at it takes a millisecond."""

    def monotonic(self) -> float:
        self._now += 0.001
        return super().monotonic()


def make_topic(world: BrokerWorld) -> StateTopic:
    topic = world.broker.coordinators.offsets_topic
    world.finish(topic.ensured())
    return topic


def append(topic: StateTopic, *records: KeyValue) -> ErrorCode:
    outcomes: list[PeerError | None] = []
    topic.append(0, records, outcomes.append)
    (error,) = outcomes
    return ErrorCode.NONE if error is None else error.code


def test_records_that_were_encoded_before_make_the_same_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[KeyValue] = [(b"key-%d" % number, None if number % 3 == 0 else b"v" * number) for number in range(200)]
    encoded = EncodedRecords()
    for key, value in records:
        encoded.add(key, value)
    files = []
    for some in (records, encoded):
        world = BrokerWorld(offsets_topic_num_partitions=1)
        topic = make_topic(world)
        if some is encoded:
            monkeypatch.setattr(RecordBatchBuilder, "append", None)
        topic.append(0, some, lambda _: None)
        files.append(world.disk.read(LOG))
    assert files[0] == files[1]


def start_loading(topic: StateTopic) -> tuple[list[bytes], list[PeerError | None]]:
    """Keys and the outcome, as they come."""
    keys: list[bytes] = []
    ends: list[PeerError | None] = []

    def take(loaded: LoadedBatch) -> None:
        keys.extend(record.key for record in loaded.records if record.key is not None)

    topic.load(0, take, ends.append)
    return keys, ends


def loaded(world: BrokerWorld, topic: StateTopic) -> list[bytes]:
    keys, ends = start_loading(topic)
    world.clock.settle()
    assert ends == [None]
    return keys


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("group", 98_629_247), ("consumer-group-7", 147_483_026), ("é😀", 1_996_812), ("polygenelubricants", 0)],
)
def test_the_hash_is_that_of_java_without_its_sign(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_no_client_writes_to_it_and_every_client_may_read_it() -> None:
    world = BrokerWorld()
    append(make_topic(world), (b"k", b"v"))
    client = world.connect()
    assert client.produce(NAME, b"mine").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    delete = DeleteRecordsRequest([DeleteRecordsTopic(NAME, [DeleteRecordsPartition(0, 1)])])
    assert client.ask(delete, 2).topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.values(NAME) == [b"v"]


# What cannot be appended


def test_a_batch_that_is_too_large_is_refused_and_the_next_is_not() -> None:
    topic = make_topic(BrokerWorld(message_max_bytes=1000))
    assert append(topic, (b"k", bytes(1000))) is ErrorCode.MESSAGE_TOO_LARGE
    assert append(topic, (b"k", bytes(100))) is ErrorCode.NONE


def test_a_bug_in_what_follows_a_load_holds_up_no_other_load(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld(offsets_topic_num_partitions=1)
    topic = make_topic(world)
    append(topic, (b"k", b"v"))
    topic.load(0, lambda _: None, lambda _: 1 / 0)
    keys, ends = start_loading(topic)
    world.clock.settle()
    assert "not dealt with by a bug" in caplog.text
    assert (keys, ends) == ([b"k"], [None])
    assert loaded(world, topic) == [b"k"]


def test_what_fits_because_it_is_compressed_is_read_again() -> None:
    """Clients cannot write here: the bound on what they may have us unpack does not count."""
    world = BrokerWorld(offsets_topic_compression_codec=int(Compression.ZSTD))
    topic = make_topic(world)
    assert append(topic, (b"group", bytes(20 << 20))) == ErrorCode.NONE
    assert loaded(world, topic) == [b"group"]


def test_too_few_replicas_are_no_coordinator() -> None:
    world = BrokerWorld(min_insync_replicas=2)
    topic = make_topic(world)
    assert append(topic, (b"k", b"v")) is ErrorCode.NONE
    world.lack_replicas(NAME)
    assert append(topic, (b"k", b"v")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_full_disk_is_no_coordinator_until_there_is_space() -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    assert append(topic, (b"a", b"1")) is ErrorCode.NONE
    world.disk.capacity = 0
    assert append(topic, (b"b", b"2")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.disk.capacity = None
    assert append(topic, (b"c", b"3")) is ErrorCode.NONE
    assert loaded(world, topic) == [b"a", b"c"]


def test_a_broken_disk_ends_the_coordination_of_its_partitions() -> None:
    world = BrokerWorld(offsets_topic_num_partitions=2)
    topic = make_topic(world)
    assert append(topic, (b"a", b"1")) is ErrorCode.NONE
    world.disk.fail = lambda operation, path: operation == "append" and path.endswith(".log")
    assert append(topic, (b"b", b"2")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert append(topic, (b"c", b"3")) is ErrorCode.NOT_COORDINATOR
    assert world.broker.groups.partitions() == []


def test_where_every_message_is_synced_the_answer_waits_for_that() -> None:
    world = BrokerWorld(immediate=False, log_flush_interval_messages=1)
    topic = make_topic(world)
    outcomes: list[PeerError | None] = []
    topic.append(0, [(b"k", b"v")], outcomes.append)
    assert outcomes == []
    world.background.run_all()
    assert outcomes == [None]
    world.disk.fail = lambda operation, _: operation == "sync"
    topic.append(0, [(b"k", b"v")], outcomes.append)
    world.background.run_all()
    assert outcomes[1] is not None
    assert outcomes[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_is_in_the_log_but_not_on_the_disk_yet_is_answered_when_it_is() -> None:
    """A sync that finds no room for what goes with it undoes nothing: an error would deny a record that a restart reads."""
    world = BrokerWorld(immediate=False, log_flush_interval_messages=1)
    topic = make_topic(world)
    full = [True]

    def fail(operation: str, path: str) -> bool:
        if full[0] and operation == "write_atomically" and "leader-epoch" in path:
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    world.disk.fail = fail
    outcomes: list[PeerError | None] = []
    topic.append(0, [(b"k", b"v")], outcomes.append)
    for _ in range(3):
        world.background.run_all()
        world.clock.advance(1)
    assert outcomes == [], "neither stored for good nor refused"
    full[0] = False
    world.clock.advance(1)
    world.background.run_all()
    assert outcomes == [None]
    assert loaded(world, topic) == [b"k"]


def test_what_is_in_the_log_when_replicas_begin_to_miss_is_answered_when_it_is_safe() -> None:
    """An error would make the coordinator resign, and its groups would have none until the next election."""
    world = BrokerWorld(immediate=False, log_flush_interval_messages=1)
    topic = make_topic(world)
    outcomes: list[PeerError | None] = []
    topic.append(0, [(b"k", b"v")], outcomes.append)
    gate = world.partition(NAME).gate
    assert gate is not None
    gate.fail(PeerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "1 replica in sync"), Level.FLUSHED)
    world.broker.replicas.appends.complete()
    assert outcomes == []
    world.clock.advance(1)
    world.background.run_all()
    assert outcomes == [None]


# What is damaged


def overwrite(world: BrokerWorld, position: int, data: bytes) -> None:
    file = world.disk.open(LOG, writable=True)
    file.pwrite(data, position)
    file.release()


def position_of(world: BrokerWorld, key: bytes) -> int:
    """Where the batch with that key starts."""
    data = world.disk.read(LOG)
    position = 0
    while key not in data[position : (end := position + read_header(memoryview(data), position).size)]:
        position = end
    return position


@pytest.mark.parametrize(
    ("name", "at", "byte"),
    [
        ("its value", 70, 0xFF),
        ("its format", 16, 3),
        ("an old format", 16, 1),
        ("its length, to more than there is", 8, 0x7F),
        ("its length, to less than a header", 11, 1),
        ("its length, into the next batch", 11, 0xA0),
        ("its offset, to an earlier one", 7, 0),
        ("its offset, to one behind the end", 6, 1),
    ],
)
def test_a_damaged_batch_is_left_out_loudly_and_the_rest_is_read(name: str, at: int, byte: int, caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    for number in range(6):
        append(topic, (b"key-%d" % number, b"\2" * 50))
    overwrite(world, position_of(world, b"key-2") + at, bytes([byte]))
    assert loaded(world, topic) == [b"key-0", b"key-1", b"key-3", b"key-4", b"key-5"]
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"partition={NAME}-0 offset=2 " in line.message


def test_damage_to_the_end_of_a_segment_costs_that_end_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld(offsets_topic_segment_bytes=1_048_576)
    topic = make_topic(world)
    for number in range(4):
        append(topic, (b"key-%d" % number, bytes(400_000)))
    assert len([name for name in world.disk.list(f"/data/{NAME}-0") if name.endswith(".log")]) == 2
    start = position_of(world, b"key-1")
    overwrite(world, start, bytes(world.disk.size(LOG) - start))
    assert loaded(world, topic) == [b"key-0", b"key-2", b"key-3"]
    assert f"partition={NAME}-0 offset=1 " in caplog.text


def test_nothing_but_noise_reads_as_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    for number in range(3):
        append(topic, (b"key-%d" % number, bytes(500_000)))
    overwrite(world, 0, b"\0\0\2" * (world.disk.size(LOG) // 3 + 1))
    assert loaded(world, topic) == []
    assert f"partition={NAME}-0 offset=0 " in caplog.text


def stage(world: BrokerWorld, data: bytearray) -> None:
    log = world.partition(NAME).log
    log.append_as_leader(memoryview(data), read_header(memoryview(data)), world.clock.time_ms())
    log.write_staged()


def malformed(_: BrokerWorld) -> bytearray:
    builder = RecordBatchBuilder()
    for key in (b"bad", b"worse"):
        builder.append(0, key, b"v")
    data = bytearray(builder.build())
    data[61] = 0x7E  # the first record's size
    stamp_crc(data)
    return data


def broken_compression(world: BrokerWorld) -> bytearray:
    data = bytearray(batch(world, b"x" * 1000))
    data[22] |= 4  # zstd, it says
    stamp_crc(data)
    return data


def foreign_marker(_: BrokerWorld) -> bytearray:
    builder = RecordBatchBuilder(control=True, transactional=True, producer_id=9, producer_epoch=0)
    builder.append(0, b"\0", b"")
    return bytearray(builder.build())


@pytest.mark.parametrize("make", [malformed, broken_compression, foreign_marker])
def test_records_that_cannot_be_read_are_left_out_loudly(
    make: Callable[[BrokerWorld], bytearray], caplog: pytest.LogCaptureFixture
) -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    append(topic, (b"before", b""))
    stage(world, make(world))
    append(topic, (b"after", b""))
    assert loaded(world, topic) == [b"before", b"after"]
    assert f"partition={NAME}-0 offset=1 " in caplog.text


# Reading takes its time


def test_a_partition_without_records_is_read_at_once() -> None:
    world = BrokerWorld(transaction_state_log_num_partitions=2)
    topic = world.broker.coordinators.transactions_topic
    world.finish(topic.ensured())
    told: list[PeerError | None] = []
    topic.load(0, lambda batch: None, told.append)
    assert told == [None]


def test_a_long_partition_is_read_in_slices_between_which_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.broker_world.FakeClock", TickingClock)
    world = BrokerWorld()
    world.create_topic("t")
    topic = make_topic(world)
    for number in range(100):
        append(topic, (b"%d" % number, b""))
    client = world.connect()
    keys, ends = start_loading(topic)
    seen = []
    while not ends:
        world.clock.advance(0.0005)
        seen.append(len(keys))
        assert client.produce("t", b"x").error_code == 0
    assert ends == [None]
    assert keys == [b"%d" % number for number in range(100)]
    assert len(set(seen)) >= 10


def test_a_load_that_is_dropped_reads_no_more_and_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.broker_world.FakeClock", TickingClock)
    world = BrokerWorld()
    topic = make_topic(world)
    for number in range(100):
        append(topic, (b"%d" % number, b""))
    read: list[LoadedBatch] = []
    ends: list[object] = []
    drops = [topic.load(0, read.append, ends.append) for _ in range(2)]
    world.clock.advance(0.0005)
    count = len(read)
    assert 0 < count < 100
    for drop in drops:
        drop()
    keys, others = start_loading(topic)
    world.clock.advance(1)
    assert (len(read), ends) == (count, [])
    assert (len(keys), others) == (100, [None])


def test_a_partition_that_closes_while_it_is_read_is_coordinated_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.broker_world.FakeClock", TickingClock)
    world = BrokerWorld()
    topic = make_topic(world)
    for number in range(100):
        append(topic, (b"%d" % number, b""))
    keys, ends = start_loading(topic)
    world.clock.advance(0.0005)
    assert keys
    world.broker.replicas.directory_offline("/data", [world.partition(NAME).topic_partition])
    world.clock.advance(1)
    (error,) = ends
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert len(keys) < 100


def test_a_disk_that_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    append(topic, (b"a", b""))
    world.disk.fail = lambda operation, _: operation == "pread"
    keys, ends = start_loading(topic)
    world.clock.settle()
    assert keys == []
    assert ends[0] is not None
    assert ends[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_bug_in_a_coordinator_costs_it_one_partition(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld()
    topic = make_topic(world)
    append(topic, (b"a", b""))
    ends: list[PeerError | None] = []

    def take(_: LoadedBatch) -> None:
        raise ZeroDivisionError

    topic.load(0, take, ends.append)
    keys, others = start_loading(topic)
    world.clock.settle()
    assert ends[0] is not None
    assert ends[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert (keys, others) == ([b"a"], [None])
