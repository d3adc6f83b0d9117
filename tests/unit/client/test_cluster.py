"""The client of a cluster finds leaders, tries again what may pass and nothing else, and names topic and partition when it gives up."""

import time
from collections.abc import Callable

import pytest

from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.errors import ConnectionLostError, RequestFailedError, TruncationError, UnreachableError
from moldau.client.fetched_batches import checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, FetchLimits
from moldau.model.config.definition import ConfigSource
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import configs, fetch, offset_lookups, topics
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.records.builder import RecordBatchBuilder
from support.scripted_broker import HANG_UP, Request, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


class Scene:
    """Two scripted brokers, 1 and 2; broker 1 answers Metadata. `leaders` maps partitions of topic t to brokers."""

    def __init__(self, one: ScriptedBroker, two: ScriptedBroker) -> None:
        self.one, self.two = one, two
        self.leaders = {0: 1, 1: 2}
        self.topic_error = ErrorCode.NONE
        self.topic_id = ID
        self.controller = 1
        self.pauses: list[float] = []
        self.metadata_asked = 0
        self.on_pause: Callable[[], object] = lambda: None

    def cluster(self, timeout_s: float = 5.0) -> Cluster:
        def sleep(pause_s: float) -> None:
            self.pauses.append(pause_s)
            self.on_pause()

        return Cluster(self.one.bootstrap, timeout_s=timeout_s, sleep=sleep)

    def metadata(self) -> MetadataResponse:
        self.metadata_asked += 1
        brokers = [MetadataResponseBroker(1, "127.0.0.1", self.one.port), MetadataResponseBroker(2, "127.0.0.1", self.two.port)]
        partitions = [MetadataResponsePartition(0, index, leader, 3, [1, 2], [leader]) for index, leader in self.leaders.items()]
        topic = MetadataResponseTopic(self.topic_error, "t", self.topic_id, False, [] if self.topic_error else partitions)
        return MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=self.controller, topics=[topic])

    def script(self, other: Callable[[Request], object]) -> None:
        """Both brokers tell metadata and leave the rest to `other`."""
        self.one.script = self.two.script = lambda request: self.metadata() if request.api_key is ApiKey.METADATA else other(request)


@pytest.fixture
def scene() -> object:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        yield Scene(one, two)


def offsets(request: Request, error: ErrorCode = ErrorCode.NONE) -> offset_lookups.ListOffsetsResponse:
    """Every partition asked for has offset 100 + its number."""
    (topic,) = request.message.topics
    answers = [
        offset_lookups.ListOffsetsPartitionResponse(p.partition_index, error, 5, 100 + p.partition_index, 3) for p in topic.partitions
    ]
    return offset_lookups.ListOffsetsResponse(topics=[offset_lookups.ListOffsetsTopicResponse(topic.name, answers)])


def test_each_leader_is_asked_for_its_own_partitions(scene: Scene) -> None:
    scene.script(offsets)
    with scene.cluster() as cluster:
        found = cluster.list_offsets({T0: EARLIEST, T1: LATEST})
        cluster.list_offsets({T0: EARLIEST})
    assert {where: listed.offset for where, listed in found.items()} == {T0: 100, T1: 101}
    asked = [(p.partition_index, p.timestamp) for r in scene.two.requests for p in r.message.topics[0].partitions]
    assert asked == [(1, LATEST)]
    assert scene.metadata_asked == 1, "leaders are remembered"


def test_a_leader_that_moved_is_looked_up_again(scene: Scene) -> None:
    def other(request: Request) -> object:
        if scene.leaders[0] == 1:
            scene.leaders[0] = 2
            return offsets(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return offsets(request)

    scene.script(other)
    with scene.cluster() as cluster:
        assert cluster.list_offsets({T0: LATEST})[T0].offset == 100
    assert scene.pauses == [0.02]
    assert [request.api_key for request in scene.two.requests] == [ApiKey.LIST_OFFSETS]


def test_a_leader_that_hangs_up_is_tried_again(scene: Scene) -> None:
    answers = [HANG_UP]
    scene.script(lambda request: answers.pop() if answers else offsets(request))
    with scene.cluster() as cluster:
        assert cluster.list_offsets({T0: LATEST, T1: LATEST})[T1].offset == 101
    assert len(scene.pauses) == 1


def test_a_partition_that_stays_without_leader_is_given_up_by_name(scene: Scene) -> None:
    scene.leaders[0] = -1
    scene.script(offsets)
    scene.on_pause = lambda: time.sleep(scene.pauses[-1])
    with scene.cluster(timeout_s=1.0) as cluster, pytest.raises(RequestFailedError, match="partition t-0") as caught:
        cluster.list_offsets({T0: LATEST})
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert caught.value.subject == T0


def test_a_new_topic_is_waited_for_a_moment(scene: Scene) -> None:
    scene.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scene.on_pause = lambda: setattr(scene, "topic_error", ErrorCode.NONE)
    scene.script(offsets)
    with scene.cluster() as cluster:
        assert cluster.list_offsets({T0: LATEST})[T0].offset == 100


def test_an_error_that_cannot_pass_is_raised_at_once(scene: Scene) -> None:
    scene.script(lambda request: offsets(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with scene.cluster() as cluster, pytest.raises(RequestFailedError) as caught:
        cluster.list_offsets({T0: LATEST})
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert scene.pauses == []


def test_without_a_broker_at_the_first_contact_the_error_comes_at_once() -> None:
    with ScriptedBroker() as gone:
        pass
    pauses: list[float] = []
    with Cluster(gone.bootstrap, sleep=pauses.append) as cluster, pytest.raises(UnreachableError):
        cluster.topics()
    assert pauses == []


def test_a_later_address_of_the_list_will_do(scene: Scene) -> None:
    with ScriptedBroker() as gone:
        pass
    scene.script(offsets)
    with Cluster(f"{gone.bootstrap},{scene.one.bootstrap}") as cluster:
        assert [topic.name for topic in cluster.topics()] == ["t"]


def test_an_answer_without_a_partition_is_the_brokers_fault_and_the_other_connection_stays_usable(scene: Scene) -> None:
    scene.script(lambda request: offset_lookups.ListOffsetsResponse())
    with scene.cluster() as cluster:
        with pytest.raises(ProtocolError, match="list_offsets left out partition t-0"):
            cluster.list_offsets({T0: LATEST, T1: LATEST})
        scene.script(offsets)
        assert cluster.list_offsets({T0: LATEST, T1: LATEST})[T1].offset == 101


def fetched(request: Request, records: bytes = b"batches", error: ErrorCode = ErrorCode.NONE) -> fetch.FetchResponse:
    (topic,) = request.message.topics
    partitions = [fetch.PartitionData(p.partition, error, 50, 49, 7, records=None if error else records) for p in topic.partitions]
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic.topic, topic.topic_id, partitions)])


def test_fetch_gives_the_batches_as_they_are(scene: Scene) -> None:
    scene.script(fetched)
    with scene.cluster() as cluster:
        got = cluster.fetch("t", 1, 42, FetchLimits(max_wait_ms=10, partition_max_bytes=1000))
    assert (bytes(got.records), got.high_watermark, got.last_stable_offset, got.log_start_offset) == (b"batches", 50, 49, 7)
    (request,) = scene.two.requests
    assert request.version == 18
    (topic,) = request.message.topics
    assert (topic.topic_id, topic.partitions[0].fetch_offset, topic.partitions[0].partition_max_bytes) == (ID, 42, 1000)
    assert request.message.max_wait_ms == 10


def test_an_offset_that_does_not_exist_is_named(scene: Scene) -> None:
    scene.script(lambda request: fetched(request, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    with scene.cluster() as cluster, pytest.raises(RequestFailedError, match=r"partition t-0: .*offset 42") as caught:
        cluster.fetch("t", 0, 42)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(scene: Scene) -> None:
    def other(request: Request) -> object:
        (topic,) = request.message.topics
        return fetched(request, error=ErrorCode.NONE if topic.topic_id == scene.topic_id else ErrorCode.UNKNOWN_TOPIC_ID)

    scene.script(other)
    with scene.cluster(timeout_s=0.1) as cluster:
        cluster.fetch("t", 0, 10)
        scene.topic_id = OTHER_ID
        scene.on_pause = lambda: time.sleep(scene.pauses[-1])
        with pytest.raises(RequestFailedError) as caught:
            cluster.fetch("t", 0, 11)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        cluster.forget_topic("t")
        assert bytes(cluster.fetch("t", 0, 0).records) == b"batches"


def created(error: ErrorCode) -> topics.CreateTopicsResponse:
    return topics.CreateTopicsResponse(topics=[topics.CreatableTopicResult("n", ID, error, "said the broker", 0, 6, 1)])


def test_a_controller_that_moved_is_asked_at_its_new_place(scene: Scene) -> None:
    def other(request: Request) -> object:
        if scene.controller == 1:
            scene.controller = 2
            return created(ErrorCode.NOT_CONTROLLER)
        return created(ErrorCode.NONE)

    scene.script(other)
    with scene.cluster() as cluster:
        topic = Admin(cluster).create_topic("n", partitions=6, configs={"retention.ms": "-1"})
    assert (topic.id, topic.partitions, topic.replication_factor) == (ID, 6, 1)
    (request,) = [request for request in scene.two.requests if request.api_key is ApiKey.CREATE_TOPICS]
    (asked,) = request.message.topics
    assert (asked.num_partitions, asked.replication_factor, asked.configs[0].name, asked.configs[0].value) == (6, -1, "retention.ms", "-1")


def test_a_creation_whose_answer_was_lost_is_not_repeated(scene: Scene) -> None:
    scene.script(lambda request: HANG_UP)
    with scene.cluster() as cluster, pytest.raises(ConnectionLostError):
        Admin(cluster).create_topic("n")
    assert [request.api_key for request in scene.one.requests].count(ApiKey.CREATE_TOPICS) == 1


def test_the_brokers_own_words_are_kept(scene: Scene) -> None:
    scene.script(lambda request: created(ErrorCode.INVALID_CONFIG))
    with scene.cluster() as cluster, pytest.raises(RequestFailedError, match="topic n: said the broker") as caught:
        Admin(cluster).create_topic("n")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_records_are_deleted_at_the_leaders(scene: Scene) -> None:
    def other(request: Request) -> object:
        (topic,) = request.message.topics
        results = [topics.DeleteRecordsPartitionResult(p.partition_index, p.offset + 1) for p in topic.partitions]
        return topics.DeleteRecordsResponse(topics=[topics.DeleteRecordsTopicResult("t", results)])

    scene.script(other)
    with scene.cluster() as cluster:
        assert Admin(cluster).delete_records({T0: 9, T1: 19}) == {T0: 10, T1: 20}


def test_configs_of_a_broker_are_asked_there_and_those_of_a_topic_anywhere(scene: Scene) -> None:
    def other(request: Request) -> object:
        if request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
            answer = configs.AlterConfigsResourceResponse(0, None, 2, "t")
            return configs.IncrementalAlterConfigsResponse(responses=[answer])
        (resource,) = request.message.resources
        entries = [
            configs.DescribeConfigsResourceResult("b", "2", False, 5, False),
            configs.DescribeConfigsResourceResult("a", None, True, 99, True),
        ]
        result = configs.DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name, entries)
        return configs.DescribeConfigsResponse(results=[result])

    scene.script(other)
    with scene.cluster() as cluster:
        admin = Admin(cluster)
        of_broker = admin.describe_configs(AdminResource(AdminResourceType.BROKER, "2"))
        admin.alter_configs(AdminResource(AdminResourceType.TOPIC, "t"), ConfigUpdate({"retention.ms": "5"}, ["segment.ms"]))
        with pytest.raises(RequestFailedError, match="broker 7"):
            admin.describe_configs(AdminResource(AdminResourceType.BROKER, "7"))
    assert [(e.name, e.value, e.source, e.sensitive) for e in of_broker] == [
        ("a", None, None, True),
        ("b", "2", ConfigSource.DEFAULT, False),
    ]
    assert [request.api_key for request in scene.two.requests] == [ApiKey.DESCRIBE_CONFIGS]
    (altered,) = [r for r in scene.one.requests if r.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS]
    assert [(c.name, c.config_operation, c.value) for c in altered.message.resources[0].configs] == [
        ("retention.ms", 0, "5"),
        ("segment.ms", 1, None),
    ]


def batch_of(offset: int, epoch: int) -> bytes:
    """A batch of one record at an offset, written in a leader epoch."""
    builder = RecordBatchBuilder(base_offset=offset, leader_epoch=epoch)
    builder.append(1, None, b"v")
    return builder.build()


def wanted(request: Request) -> tuple[int, int, int]:
    """Offset, leader epoch, and epoch of what was read, of the one partition of a Fetch."""
    ((partition,),) = [topic.partitions for topic in request.message.topics]
    return partition.fetch_offset, partition.current_leader_epoch, partition.last_fetched_epoch


def read(cluster: Cluster, offset: int) -> list[int]:
    found = cluster.fetch("t", 0, offset)
    return [header.base_offset for header, _ in checked_batches(TopicPartition("t", 0), found, offset)]


def test_a_fetch_that_continues_says_in_which_epoch_the_last_record_was_written(scene: Scene) -> None:
    """Only one that continues: from anywhere else nothing is known of the record before."""
    seen: list[tuple[int, int, int]] = []

    def answer(request: Request) -> fetch.FetchResponse:
        seen.append(wanted(request))
        return fetched(request, batch_of(wanted(request)[0], 3))

    scene.script(answer)
    with scene.cluster() as cluster:
        for offset in (42, 43, 44, 7, 8):
            assert read(cluster, offset) == [offset]
        cluster.forget_topic("t")
        assert read(cluster, 9) == [9]
    epoch = seen[0][1]
    assert epoch >= 0
    assert seen == [(42, epoch, -1), (43, epoch, 3), (44, epoch, 3), (7, epoch, -1), (8, epoch, 3), (9, epoch, -1)]


def test_a_log_that_no_longer_has_what_was_read_is_an_error_once(scene: Scene) -> None:
    """R13: it names partition and offsets; nothing is reset. Who reads on nevertheless gets what is there."""

    def answer(request: Request) -> fetch.FetchResponse:
        offset, _, last_epoch = wanted(request)
        response = fetched(request, batch_of(offset, 3))
        if last_epoch >= 0:
            partition = response.responses[0].partitions[0]
            partition.records, partition.diverging_epoch = None, fetch.EpochEndOffset(2, 40)
        return response

    scene.script(answer)
    with scene.cluster() as cluster:
        assert read(cluster, 42) == [42]
        with pytest.raises(TruncationError, match="partition t-0: log truncated: records from offset 40 up to 43 were read") as caught:
            read(cluster, 43)
        assert (caught.value.position, caught.value.end_offset, caught.value.subject) == (43, 40, TopicPartition("t", 0))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert read(cluster, 43) == [43]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_a_leader_of_another_epoch_is_asked_again_with_new_metadata(scene: Scene, code: ErrorCode) -> None:
    codes = [code, ErrorCode.NONE]
    scene.script(lambda request: fetched(request, batch_of(42, 3), codes.pop(0)))
    with scene.cluster() as cluster:
        assert read(cluster, 42) == [42]
    assert codes == []
