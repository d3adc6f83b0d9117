"""All replicas of a mirror's partition have the batches of its source as they are, also after elections. A promotion truncates them."""

from typing import Any

import pytest

from moldau.broker.metadata.mirror_epochs import MirrorEpochs
from moldau.broker.replicas.hosted import HostedPartition
from moldau.cluster import znodes
from moldau.cluster.controller.mirrors import EPOCHS_APART
from moldau.cluster.znodes import PartitionState, decode_config, decode_state
from moldau.model.errors import ErrorCode
from moldau.model.identity import LogCut, TopicPartition
from moldau.ports.coordination import Data, GetData
from moldau.protocol.messages.alter_mirror import AlterMirrorPartition, AlterMirrorRequest, AlterMirrorTopic
from moldau.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.transaction_admin import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.protocol.records.header import HEADER_SIZE, read_header, stamp
from support.broker_world import BrokerWorld, produce_request
from support.cluster_world import ClusterWorld

IDS = (1, 2, 3)
SOURCE = "cluster/topic-id"
TOPIC, SET, DELETE = 2, 0, 1
LATEST = -1


def batch(base_offset: int, epoch: int, *values: bytes, gap: int = 0, **options: Any) -> bytes:
    """A batch as a source has it, each record ten seconds after the one before; `gap` offsets at its end were compacted."""
    builder = RecordBatchBuilder(base_offset=base_offset, leader_epoch=epoch, **options)
    for number, value in enumerate(values):
        builder.append(1_000_000 + 10_000 * (base_offset + number), None, value, (), base_offset + number)
    data = bytearray(builder.build())
    if gap:
        header = read_header(data)
        data = assemble(header._replace(last_offset_delta=header.last_offset_delta + gap), data[HEADER_SIZE:])
    return bytes(data)


def marker(base_offset: int, epoch: int, producer_id: int, type_: ControlType) -> bytes:
    data = bytearray(encode_end_txn_marker(EndTxnMarker(type_, 3), producer_id=producer_id, producer_epoch=0, timestamp=1_000_000))
    stamp(data, base_offset, epoch)
    return bytes(data)


class Story:
    """Three brokers and the topic `m`, which a mirror writes to."""

    def __init__(self, *, partitions: int = 1, source: str = SOURCE, **settings: Any) -> None:
        self.cluster = ClusterWorld(*IDS, replica_lag_time_max_ms=1000, **settings)
        configs = {"mirror.source": source} if source else {}
        self.topic_id = self.cluster.create_topic("m", partitions, 3, **configs)
        self.cluster.settle()

    @property
    def leader(self) -> int:
        return self.state().leader

    def state(self, index: int = 0) -> PartitionState:
        return decode_state("", self.node(znodes.partition_state("m", index)))

    def config(self) -> dict[str, str]:
        return decode_config("", self.node(znodes.topic_config("m")))

    def node(self, path: str) -> bytes:
        found: list[object] = []
        self.cluster.tree.session().submit(GetData(path), found.append)
        (data,) = found
        assert isinstance(data, Data)
        return data.data

    def hosted(self, broker_id: int, index: int = 0) -> HostedPartition:
        return self.cluster.broker(broker_id).replicas.hosted[TopicPartition("m", index)]

    def send(
        self,
        *batches: bytes,
        mirror: str | None = "a",
        acks: int = -1,
        index: int = 0,
        transactional_id: str | None = None,
        known_end: int | None = None,
    ) -> Any:
        """A Produce to the leader; its answer for the partition, once it has come."""
        return self.answer(
            self.send_later(*batches, mirror=mirror, acks=acks, index=index, transactional_id=transactional_id, known_end=known_end)
        )

    def answer(self, call: Any) -> Any:
        self.cluster.until(lambda: call.response is not None)
        return call.response.responses[0].partition_responses[0]

    def send_later(
        self,
        *batches: bytes,
        mirror: str | None = "a",
        acks: int = -1,
        index: int = 0,
        transactional_id: str | None = None,
        known_end: int | None = None,
    ) -> Any:
        data = [TopicProduceData(topic_id=self.topic_id, partition_data=[PartitionProduceData(index, b"".join(batches) or None)])]
        known_ends = [] if known_end is None else [known_end]
        return self.cluster.send(self.state(index).leader, ProduceRequest(transactional_id, acks, 10_000, data, mirror, known_ends), 13)

    def produce(self, *values: bytes) -> ErrorCode:
        """As a client."""
        return ErrorCode(self.send(batch(0, -1, *values), mirror=None).error_code)

    def alter(
        self, *, is_mirror: bool = False, cut: tuple[int, int] = (-1, -1), source: str = "", index: int = 0, on: int | None = None
    ) -> Any:
        request = AlterMirrorRequest(topics=[AlterMirrorTopic("m", source, [AlterMirrorPartition(index, is_mirror, *cut)])])
        answer = self.cluster.ask(self.cluster.controller_id if on is None else on, request, 0)
        self.cluster.settle()
        return answer

    def promote(self, epoch: int, offset: int) -> None:
        answer = self.alter(cut=(epoch, offset))
        assert answer.error_code == answer.topics[0].partitions[0].error_code == 0

    def bytes_of(self, broker_id: int) -> bytes:
        """All that a replica's log has."""
        log = self.hosted(broker_id).log
        found, offset = b"", log.start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
            assert read.records is not None
            data = read.records.file.pread(read.records.length, read.records.position)
            read.records.release()
            found += data
            position = 0
            while position < len(data):
                header = read_header(data, position)
                position, offset = position + header.size, header.last_offset + 1
        return found

    def headers(self, broker_id: int) -> list[tuple[int, int, int]]:
        """First and last offset and leader epoch of each batch of a replica."""
        data, position, found = self.bytes_of(broker_id), 0, []
        while position < len(data):
            header = read_header(data, position)
            found.append((header.base_offset, header.last_offset, header.partition_leader_epoch))
            position += header.size
        return found

    def until_in_sync(self) -> None:
        self.cluster.until(lambda: sorted(self.state().isr) == list(IDS))
        self.cluster.until(lambda: len({self.hosted(each).log.log_end_offset for each in IDS}) == 1)
        assert len({self.bytes_of(each) for each in IDS}) == 1

    def start(self, *broker_ids: int) -> None:
        for each in broker_ids:
            self.cluster.start(each)
        self.cluster.until(lambda: all(process.is_serving for process in self.cluster.processes.values()) and self.cluster.agrees())
        self.until_in_sync()

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """What a consumer's validation gets for the epoch of its last batch."""
        self.cluster.settle()
        wanted = OffsetForLeaderPartition(0, self.state().leader_epoch, epoch)
        answer = self.cluster.ask(self.leader, OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic("m", [wanted])]), 4)
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.end_offset

    def latest(self) -> tuple[int, int]:
        wanted = ListOffsetsTopic("m", [ListOffsetsPartition(0, -1, LATEST)])
        found = self.cluster.ask(self.leader, ListOffsetsRequest(-1, 0, [wanted]), 6).topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.offset


def test_a_topic_with_a_source_is_a_mirror_and_so_are_partitions_that_are_added() -> None:
    story = Story(partitions=2)
    assert [story.state(index).is_mirror for index in (0, 1)] == [True, True]
    answer = story.cluster.ask(story.cluster.controller_id, CreatePartitionsRequest([CreatePartitionsTopic("m", 3, None)], 10_000), 3)
    assert answer.results[0].error_code == 0
    story.cluster.settle()
    assert story.state(2).is_mirror
    assert story.send(batch(0, 5, b"a"), index=2).error_code == 0
    assert not Story(source="").state().is_mirror


def test_clients_can_neither_produce_nor_delete_records() -> None:
    story = Story()
    assert story.send(batch(0, 5, b"a")).error_code == 0
    for _ in range(2):
        answer = story.send(batch(0, -1, b"x"), mirror=None)
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert "m-0" in answer.error_message
        assert "mirror.source" in answer.error_message
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("m", [DeleteRecordsPartition(0, 1)])], 1000)
    assert story.cluster.ask(story.leader, deletion, 2).topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION
    assert story.headers(story.leader) == [(0, 0, 5)]


@pytest.mark.parametrize("acks", [1, -1])
def test_the_shortest_way_of_a_connection_does_not_lead_to_a_mirror(acks: int) -> None:
    """A client's request is like the mirror's before it but for the tagged field at its end. And a way that was known ends."""
    world = BrokerWorld()
    world.create_topic("m", mirror_source=SOURCE)
    world.create_topic("t")
    client = world.connect()
    mirrors = produce_request("m", batch(0, 5, b"a"), acks=acks)
    mirrors.mirror = "a"

    def codes(request: ProduceRequest) -> list[int]:
        return [client.ask(request, 9).responses[0].partition_responses[0].error_code for _ in range(2)]

    assert codes(mirrors) == [0, 0]
    assert codes(produce_request("m", batch(0, -1, b"x"), acks=acks)) == [ErrorCode.POLICY_VIOLATION] * 2
    assert codes(produce_request("t", batch(0, -1, b"x"), acks=acks)) == [0, 0]
    request = AlterMirrorRequest(topics=[AlterMirrorTopic("t", SOURCE, [AlterMirrorPartition(0, True)])])
    assert client.ask(request, 0).topics[0].partitions[0].error_code == 0
    world.clock.settle()
    assert codes(produce_request("t", batch(0, -1, b"x"), acks=acks)) == [ErrorCode.POLICY_VIOLATION] * 2
    assert (world.partition("m").log.log_end_offset, world.partition("t").log.log_end_offset) == (1, 2)


def test_batches_are_stored_as_they_are_in_all_replicas() -> None:
    """Epochs far above that of the partition, offsets that compaction left out, transactions with their markers, any first offset."""
    story = Story()
    sent = [
        batch(100, 50, b"a", b"b"),
        batch(102, 50, b"c", gap=7),
        batch(200, 57, b"t", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
        marker(201, 57, 9, ControlType.ABORT),
        batch(202, 58, b"u", producer_id=11, producer_epoch=0, base_sequence=4, transactional=True),
        batch(203, 58, b"d"),
    ]
    answer = story.send(*sent[:2])
    assert (answer.error_code, answer.base_offset) == (0, 110)
    answer = story.send(*sent[2:])
    assert (answer.error_code, answer.base_offset) == (0, 204)
    story.until_in_sync()
    assert story.bytes_of(1) == b"".join(sent)
    story.cluster.until(lambda: all(story.hosted(each).log.high_watermark == 204 for each in IDS))
    for each in IDS:
        log = story.hosted(each).log
        assert log.last_stable_offset == 202, "the transaction of producer 11 is open"
        assert log.aborted_transactions(0, 204) == [(9, 200)]
    assert story.latest() == (58, 204)
    assert [story.epoch_end(epoch) for epoch in (50, 55, 57, 58, 60)] == [(50, 200), (50, 200), (57, 202), (58, 204), (58, 204)]
    assert story.send(marker(204, 58, 11, ControlType.COMMIT)).error_code == 0
    story.cluster.until(lambda: all(story.hosted(each).log.last_stable_offset == 205 for each in IDS))


def test_what_the_log_has_is_left_out_and_what_does_not_fit_is_refused() -> None:
    story = Story()
    first, second, third = batch(0, 5, b"a", b"b"), batch(2, 5, b"c", b"d"), batch(4, 6, b"e")
    for sent, end in (((first, second), 4), ((first,), 4), ((first, second, third), 5), ((second, third), 5)):
        answer = story.send(*sent)
        assert (answer.error_code, answer.base_offset) == (0, end)
    stored = first + second + third
    for refused, code in (
        ((batch(4, 6, b"e", b"f"),), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((third, batch(5, 6, b"f")[:-1]), ErrorCode.CORRUPT_MESSAGE),
        ((batch(5, 6, b"f"), batch(6, 6, b"damaged")[:-1] + b"X"), ErrorCode.CORRUPT_MESSAGE),
        ((batch(5, 5, b"f"),), ErrorCode.CORRUPT_MESSAGE),
        ((b"",), ErrorCode.INVALID_RECORD),
    ):
        assert story.send(*refused).error_code == code, code
        assert story.bytes_of(story.leader) == stored
    assert story.send(batch(5, 6, b"f"), transactional_id="t").error_code == ErrorCode.INVALID_REQUEST
    story.until_in_sync()


def test_a_log_that_has_lost_what_its_mirror_stored_takes_nothing_after_it() -> None:
    """An unclean election: the mirror has had the answer that the log ends at 2, and the new leader has one record. What comes next would
    leave a hole that looks like one of compaction. A request without records finds it, too: the partition may be idle.
    """
    story = Story(unclean_leader_election_enable="true")
    assert story.send(batch(0, 5, b"a"), known_end=0).base_offset == 1
    story.until_in_sync()
    late = next(each for each in IDS if each not in (story.leader, story.cluster.controller_id))
    story.cluster.kill(late)
    story.cluster.until(lambda: late not in story.state().isr)
    assert story.send(batch(1, 5, b"b"), known_end=1).base_offset == 2
    for each in IDS:
        if each != late:
            story.cluster.kill(each)
    story.cluster.start(late)
    story.cluster.until(lambda: story.leader == late and story.cluster.processes[late].is_serving and story.cluster.agrees())
    for records in ((batch(2, 5, b"c"),), ()):
        answer = story.send(*records, known_end=2)
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "m-0: the log ends at 1" in answer.error_message
    assert story.send(batch(1, 5, b"b"), batch(2, 5, b"c"), known_end=1).base_offset == 3
    assert story.send(batch(7, 5, b"h"), known_end=3).base_offset == 8, "the source was compacted"


@pytest.mark.parametrize("count", [3, 70])
def test_each_partition_of_a_request_has_its_own_end(count: int) -> None:
    world = BrokerWorld()
    world.create_topic("m", partitions=count, mirror_source=SOURCE)
    parts = [PartitionProduceData(each, batch(0, 5, b"a")) for each in range(count)]
    ends = [each % 2 for each in range(count)]
    topics = [TopicProduceData("m", partition_data=parts[:2]), TopicProduceData("m", partition_data=parts[2:])]
    answers = world.connect().ask(ProduceRequest(None, -1, 10_000, topics, "a", ends), 9).responses
    codes = [each.error_code for topic in answers for each in topic.partition_responses]
    assert codes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if end else 0 for end in ends]


def test_other_partitions_of_a_request_take_theirs_where_one_is_damaged() -> None:
    story = Story(partitions=70)
    led = [index for index in range(70) if story.state(index).leader == 1]
    damaged = led[1]
    for count in (3, len(led)):
        parts = [PartitionProduceData(each, batch(0, 5, b"a") if each != damaged else batch(0, 5, b"a")[:-1]) for each in led[:count]]
        request = ProduceRequest(None, -1, 10_000, [TopicProduceData(topic_id=story.topic_id, partition_data=parts)], "a")
        answers = story.cluster.ask(1, request, 13).responses[0].partition_responses
        codes = {each.index: each.error_code for each in answers}
        assert codes == {each: ErrorCode.CORRUPT_MESSAGE if each == damaged else 0 for each in led[:count]}
        assert all(each.base_offset == 1 for each in answers if not each.error_code)


def test_a_partition_that_is_no_mirror_takes_nothing_of_one() -> None:
    story = Story(source="")
    assert story.send(batch(0, 5, b"a")).error_code == ErrorCode.INVALID_REQUEST
    assert story.produce(b"a") is ErrorCode.NONE


def test_acknowledgement_waits_for_the_replicas_in_sync() -> None:
    story = Story()
    others = [each for each in IDS if each != story.leader]
    for each in others:
        story.cluster.processes[each].hang()
    call = story.send_later(batch(0, 5, b"a"))
    story.cluster.advance(0.2)
    assert call.response is None
    assert story.hosted(story.leader).log.log_end_offset == 1
    assert story.send(batch(0, 5, b"a"), acks=1).base_offset == 1
    for each in others:
        story.cluster.processes[each].resume()
    assert story.answer(call).error_code == 0


def test_with_too_few_replicas_in_sync_nothing_is_taken() -> None:
    story = Story(min_insync_replicas="3")
    away = next(each for each in IDS if each not in (story.leader, story.cluster.controller_id))
    story.cluster.kill(away)
    story.cluster.until(lambda: away not in story.state().isr)
    assert story.send(batch(0, 5, b"a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert story.send(batch(0, 5, b"a"), acks=1).base_offset == 1
    story.start(away)
    assert story.send(batch(0, 5, b"a")).base_offset == 1


@pytest.mark.parametrize("room", range(0, 2600, 200))
def test_what_a_full_disk_leaves_of_a_request_is_in_the_log_and_the_rest_is_sent_again(room: int) -> None:
    """Each batch begins a segment, before which those that came first are written."""
    world = BrokerWorld()
    world.create_topic("m", mirror_source=SOURCE, segment_ms=1000)
    client = world.connect()
    sent = [batch(number, 5 + number, b"%d" % number * 700) for number in range(3)]
    request = produce_request("m", b"".join(sent))
    request.mirror = "a"
    world.disk.capacity = world.disk.used() + room
    first = client.ask(request, 9).responses[0].partition_responses[0]
    partition = world.partition("m")
    assert partition.log.log_end_offset == partition.machine.log_end_offset == partition.log.high_watermark
    assert first.error_code == (0 if partition.log.log_end_offset == 3 else ErrorCode.KAFKA_STORAGE_ERROR)
    world.disk.capacity = None
    again = client.ask(request, 9).responses[0].partition_responses[0]
    assert (again.error_code, again.base_offset) == (0, 3)
    assert [client.values("m", number)[0] for number in range(3)] == [b"%d" % number * 700 for number in range(3)]


def test_replicas_agree_after_an_election_by_the_epochs_of_the_source() -> None:
    """What only the leader had, of a later epoch than its successor has, is cut off, and sent again."""
    story = Story()
    first = story.leader
    assert story.send(batch(0, 5, b"a"), batch(1, 6, b"b")).error_code == 0
    followers = [each for each in IDS if each != first]
    for each in followers:
        story.cluster.processes[each].hang()
    story.cluster.advance(0.6)
    assert story.send(batch(2, 6, b"c"), batch(3, 9, b"lost", b"too"), acks=1).base_offset == 5
    epoch = story.state().leader_epoch
    story.cluster.kill(first)
    for each in followers:
        story.cluster.processes[each].resume()
    story.cluster.until(lambda: story.state().leader_epoch > epoch and story.leader in followers)
    story.cluster.settle()
    end = story.hosted(story.leader).log.log_end_offset
    assert story.state().is_mirror
    story.start(first)
    assert story.hosted(first).log.log_end_offset == end
    assert story.epoch_end(9) == (story.hosted(story.leader).log.latest_epoch, end)
    assert story.send(batch(2, 6, b"c"), batch(3, 9, b"lost", b"too")).base_offset == 5
    story.until_in_sync()
    assert story.headers(first) == [(0, 0, 5), (1, 1, 6), (2, 2, 6), (3, 4, 9)]


def test_a_promotion_cuts_every_replica_and_clients_produce_after_it() -> None:
    story = Story()
    sent = [batch(0, 50, b"a", b"b"), batch(2, 51, b"c", b"d"), batch(4, 51, b"t", producer_id=9, producer_epoch=0, base_sequence=0)]
    assert story.send(*sent).error_code == 0
    story.until_in_sync()
    away = next(each for each in IDS if each not in (story.leader, story.cluster.controller_id))
    story.cluster.kill(away)
    story.cluster.until(lambda: away not in story.state().isr)
    own = story.state().leader_epoch + EPOCHS_APART
    story.promote(51, 4)
    assert (story.state().leader_epoch, story.state().is_mirror, story.state().cut) == (own, False, LogCut(own - 1, 4))
    assert "mirror.source" not in story.config()
    assert story.hosted(story.leader).log.log_end_offset == 4
    assert story.send(batch(4, 51, b"late")).error_code == ErrorCode.INVALID_REQUEST
    assert story.produce(b"x") is ErrorCode.NONE
    assert story.produce(b"y") is ErrorCode.NONE
    story.start(away)
    assert story.headers(away) == [(0, 1, 50), (2, 3, 51), (4, 4, own), (5, 5, own)]
    assert [story.epoch_end(each) for each in (50, 51, 52, own)] == [(50, 2), (51, 4), (51, 4), (own, 6)]


def test_later_terms_obey_the_cut_again_and_lose_nothing() -> None:
    """Also where all brokers start over their disks, and where a replica leads that was never cut."""
    story = Story()
    assert story.send(batch(0, 5, b"a"), batch(1, 5, b"dropped")).error_code == 0
    story.until_in_sync()
    story.promote(5, 1)
    assert story.produce(b"x") is ErrorCode.NONE
    story.until_in_sync()
    for each in IDS:
        story.cluster.kill(each)
    for each in IDS:
        story.cluster.start(each)
    story.cluster.until(lambda: all(process.is_serving for process in story.cluster.processes.values()) and story.cluster.agrees())
    story.until_in_sync()
    assert story.state().cut == LogCut(5 + EPOCHS_APART, 1)
    assert [each[:2] for each in story.headers(1)] == [(0, 0), (1, 1)]
    assert story.produce(b"y") is ErrorCode.NONE


def test_a_replica_that_was_away_at_the_promotion_obeys_the_cut_when_it_leads() -> None:
    """By an unclean election, before it has followed."""
    story = Story(unclean_leader_election_enable="true")
    assert story.send(batch(0, 5, b"a"), batch(1, 5, b"dropped"), batch(2, 6, b"dropped")).error_code == 0
    story.until_in_sync()
    away = next(each for each in IDS if each not in (story.leader, story.cluster.controller_id))
    story.cluster.kill(away)
    story.cluster.until(lambda: away not in story.state().isr)
    story.promote(6, 1)
    assert story.produce(b"x") is ErrorCode.NONE
    for each in list(story.cluster.processes):
        story.cluster.kill(each)
    story.cluster.start(away)
    story.cluster.until(lambda: story.cluster.processes[away].is_serving and story.leader == away)
    story.cluster.settle()
    assert [each[:2] for each in story.headers(away)] == [(0, 0)]
    assert story.hosted(away).log.high_watermark == 1
    assert story.produce(b"y") is ErrorCode.NONE


@pytest.mark.parametrize("moved", [False, True])
def test_a_former_source_becomes_the_mirror(moved: bool) -> None:
    """What its successor does not have is cut, its own term ends in the log, and the successor's batches follow. `moved`: another leads."""
    story = Story(source="")
    for value in (b"a", b"b", b"only here"):
        assert story.produce(value) is ErrorCode.NONE
    story.until_in_sync()
    answer = story.alter(is_mirror=True, cut=(0, 2))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST, "without a source"
    answer = story.alter(is_mirror=True, cut=(0, 2), source=SOURCE)
    assert answer.topics[0].partitions[0].error_code == 0
    assert story.config()["mirror.source"] == SOURCE
    assert story.produce(b"x") is ErrorCode.POLICY_VIOLATION
    if moved:
        before = story.leader
        story.cluster.kill(before)
        story.cluster.until(lambda: story.leader != before)
        story.cluster.settle()
        story.start(before)
    assert story.send(batch(2, 1, b"c"), batch(3, 7, b"d")).base_offset == 4
    story.until_in_sync()
    assert story.headers(1) == [(0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 7)]
    assert [story.epoch_end(each) for each in (0, 1, 5, 7)] == [(0, 2), (1, 3), (1, 3), (7, 4)]
    story.promote(7, 4)
    assert story.produce(b"e") is ErrorCode.NONE
    assert story.headers(story.leader)[-1][:2] == (4, 4)
    assert story.headers(story.leader)[-1][2] > 7


def test_a_leader_epoch_that_is_too_low_for_the_log_is_raised_before_clients_produce(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion whose cut names a much earlier epoch than the log has: records must not go back in epochs."""
    monkeypatch.setattr(MirrorEpochs, "look", lambda *_: None)
    story = Story()
    assert story.send(batch(0, 5, b"a"), batch(1, 200_000, b"b")).error_code == 0
    story.until_in_sync()
    story.promote(5, 1)
    story.cluster.until(lambda: story.state().leader_epoch > 200_000)
    story.cluster.settle()
    assert story.produce(b"x") is ErrorCode.NONE
    story.until_in_sync()
    assert story.headers(1)[-1] == (2, 2, story.state().leader_epoch)


def test_a_promotion_that_is_repeated_changes_nothing() -> None:
    story = Story()
    assert story.send(batch(0, 5, b"a")).error_code == 0
    story.promote(5, 1)
    assert story.produce(b"x") is ErrorCode.NONE
    state = story.state()
    story.promote(5, 1)
    assert story.state() == state
    assert story.alter(cut=(2**31 - 1, 1)).topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_marker_of_a_transaction_here_is_not_written() -> None:
    """A client may have added the partition to its transaction, and its records were refused."""
    story = Story()
    assert story.send(batch(0, 5, b"a")).error_code == 0
    topics = [WritableTxnMarkerTopic("m", [0])]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, topics, 0)])
    answer = story.cluster.ask(story.leader, request, 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert story.headers(story.leader) == [(0, 0, 5)]


@pytest.mark.parametrize("leader", IDS)
def test_the_leader_epoch_of_a_mirror_is_raised_above_those_of_its_source(leader: int) -> None:
    """Java's consumers take no leader from metadata with an earlier epoch than a batch that they have read. Wherever the controller is."""
    story = Story(partitions=3)
    index = next(each for each in range(3) if story.state(each).leader == leader)
    assert story.send(batch(0, 50, b"a"), index=index).error_code == 0
    story.cluster.until(lambda: story.state(index).leader_epoch == 51)
    story.cluster.settle()
    assert (story.state(index).leader_epoch, story.state(index).is_mirror, story.state(index).cut) == (51, True, None)
    assert story.send(batch(1, 51, b"a"), index=index).error_code == 0
    story.cluster.settle()
    assert story.state(index).leader_epoch == 51, "which a batch of that epoch does not pass"
    assert story.send(batch(2, 52, b"a"), index=index).error_code == 0
    story.cluster.until(lambda: story.state(index).leader_epoch == 53)


def test_a_leader_that_asks_for_a_later_epoch_makes_no_mirror() -> None:
    """The partition may be promoted meanwhile; its configuration may still be there for others."""
    story = Story(partitions=2)
    story.alter(index=1)
    assert story.alter(is_mirror=True, cut=(50, -1), index=1).topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert not story.state(1).is_mirror


def test_a_mirror_begins_no_term_in_its_log() -> None:
    story = Story()
    assert story.send(batch(0, 50, b"a")).error_code == 0
    story.cluster.until(lambda: story.state().leader_epoch == 51)
    story.cluster.settle()
    assert story.config()["mirror.source"] == SOURCE
    assert story.epoch_end(51) == (50, 1), "that epoch is none of the log"
    assert story.send(batch(1, 50, b"b")).base_offset == 2
    assert story.epoch_end(50) == (50, 2), "it began no term, which would end epoch 50 at offset 1"


def test_the_source_can_be_neither_altered_nor_removed() -> None:
    story = Story()
    broker = story.cluster.controller_id

    def incremental(operation: int, value: str | None) -> Any:
        resource = IncrementalAlterConfigsResource(TOPIC, "m", [IncrementalAlterableConfig("mirror.source", operation, value)])
        return story.cluster.ask(broker, IncrementalAlterConfigsRequest([resource]), 1).responses[0]

    def whole(**values: str) -> Any:
        configs = [AlterableConfig(name.replace("_", "."), value) for name, value in values.items()]
        return story.cluster.ask(broker, AlterConfigsRequest([AlterConfigsResource(TOPIC, "m", configs)]), 2).responses[0]

    for answer in (incremental(SET, "another"), incremental(SET, ""), incremental(DELETE, None), whole(retention_ms="1000")):
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "moldau mirror promote" in answer.error_message
    assert whole(retention_ms="1000", mirror_source=SOURCE).error_code == 0
    assert story.config() == {"mirror.source": SOURCE, "retention.ms": "1000"}
    plain = Story(source="")
    resource = IncrementalAlterConfigsResource(TOPIC, "m", [IncrementalAlterableConfig("mirror.source", SET, SOURCE)])
    answer = plain.cluster.ask(plain.cluster.controller_id, IncrementalAlterConfigsRequest([resource]), 1).responses[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_the_configuration_stays_as_long_as_a_partition_is_a_mirrors() -> None:
    story = Story(partitions=2)
    story.alter(index=1)
    assert [story.state(index).is_mirror for index in (0, 1)] == [True, False]
    assert story.config() == {"mirror.source": SOURCE}
    story.alter(index=0)
    assert story.config() == {}


def test_only_the_controller_takes_the_request_and_each_partition_has_its_error() -> None:
    story = Story()
    other = next(each for each in IDS if each != story.cluster.controller_id)
    assert story.alter(on=other).error_code == ErrorCode.NOT_CONTROLLER
    for index, cut, code in ((1, (-1, -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, (-1, 5), ErrorCode.INVALID_REQUEST)):
        assert story.alter(index=index, cut=cut).topics[0].partitions[0].error_code == code
    assert story.state().is_mirror


def test_a_replica_with_later_epochs_of_the_source_than_the_promoted_leader_agrees_with_it() -> None:
    """Epochs of the leader's own must not be among those that other replicas may have of the source."""
    story = Story()
    first = story.leader
    assert story.send(batch(0, 5, b"a")).error_code == 0
    followers = [each for each in IDS if each != first]
    for each in followers:
        story.cluster.processes[each].hang()
    story.cluster.advance(0.6)
    assert story.send(batch(1, 6, b"sent"), batch(2, 6, b"only"), batch(3, 6, b"here"), batch(4, 7, b"too"), acks=1).base_offset == 5
    story.cluster.kill(first)
    for each in followers:
        story.cluster.processes[each].resume()
    story.cluster.until(lambda: story.leader in followers)
    story.cluster.settle()
    assert story.hosted(story.leader).log.log_end_offset == 1
    story.promote(5, 1)
    for value in (b"w", b"x", b"y", b"z", b"zz"):
        assert story.produce(value) is ErrorCode.NONE
    story.start(first)
    assert [each[:2] for each in story.headers(first)] == [(each, each) for each in range(6)]
