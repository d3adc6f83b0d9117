"""A scripted run of which every number is known: what the broker counts of it, through all ways that a request can take."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.collector import collect, not_ready
from moldau.broker.metrics.families import Family
from moldau.model.errors import ErrorCode
from moldau.model.steps import drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request

REQUESTS = "kafka_network_requestmetrics_requests"
ERRORS = "kafka_network_requestmetrics_errors"
TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture
def world() -> Iterator[BrokerWorld]:
    world = BrokerWorld()
    world.create_topic("t", partitions=2)
    yield world
    world.stop()


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def collected(world: BrokerWorld) -> dict[str, Family]:
    return {family.name: family for family in drain(collect(world.broker))}


def values(world: BrokerWorld, name: str, *labels: str) -> dict[Any, float]:
    """The values of a family by those labels; without labels under ()."""
    found = {}
    family = collected(world)[name]
    for _, those, value in family.samples:
        key = tuple(those[family.labels.index(label)] for label in labels)
        found[key[0] if len(key) == 1 else key] = value
    return found


def traffic(world: BrokerWorld, what: str) -> dict[Any, float]:
    return values(world, TOPICS + what, "topic")


def test_produce_by_the_general_way_and_the_shortest(world: BrokerWorld, client: Client) -> None:
    """Claim: a request counts once and a batch with its records and bytes, whichever way it takes."""
    records = batch(world, b"a", b"b")
    frames = [client.frame(produce_request("t", records), 9) for _ in range(4)]
    for frame in (frames[0], b"".join(frames[1:])):
        client.peer.send(frame)
    assert len(client.answers()) == 4
    assert values(world, REQUESTS, "request") == {"Produce": 4}
    assert traffic(world, "messagesin") == {"t": 8}
    assert traffic(world, "bytesin") == {"t": 4 * len(records)}
    assert values(world, ERRORS) == {}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_with_each_kind_of_acknowledgement(world: BrokerWorld, client: Client, acks: int) -> None:
    for _ in range(3):
        client.send(produce_request("t", batch(world, b"a"), acks=acks), 9, answered=acks != 0)
    client.answers()
    assert values(world, REQUESTS, "request") == {"Produce": 3}
    assert traffic(world, "messagesin") == {"t": 3}


def test_produce_of_many_partitions_in_steps(world: BrokerWorld, client: Client) -> None:
    world.create_topic("wide", partitions=200)
    data = [PartitionProduceData(index, batch(world, b"a")) for index in range(201)]
    client.ask(ProduceRequest(None, 1, 1000, [TopicProduceData("wide", partition_data=data)]), 9)
    assert values(world, REQUESTS, "request") == {"Produce": 1}
    assert traffic(world, "messagesin") == {"t": 0, "wide": 200}
    assert values(world, ERRORS, "request", "error") == {("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1}
    assert traffic(world, "failedproducerequests") == {"t": 0, "wide": 1}


def test_produce_that_is_refused(world: BrokerWorld, client: Client) -> None:
    damaged = bytearray(batch(world, b"a"))
    damaged[-1] ^= 1
    client.ask(produce_request("t", bytes(damaged)), 9)
    client.ask(produce_request("nothing", batch(world, b"a")), 9)
    assert values(world, REQUESTS, "request") == {"Produce": 2}
    assert values(world, ERRORS, "request", "error") == {
        ("Produce", "CORRUPT_MESSAGE"): 1,
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
    }
    assert traffic(world, "failedproducerequests") == {"t": 1}
    assert traffic(world, "messagesin") == {"t": 0}


def test_a_write_that_fails(world: BrokerWorld, client: Client) -> None:
    """Claim: it counts as an error of requests of the shortest way too, and its bytes do not count."""
    records = batch(world, b"a")
    client.ask(produce_request("t", records), 9)
    client.ask(produce_request("t", records), 9)
    world.disk.capacity = world.disk.used()
    client.ask(produce_request("t", records), 9)
    assert values(world, ERRORS, "request", "error") == {("Produce", "KAFKA_STORAGE_ERROR"): 1}
    assert values(world, REQUESTS, "request") == {"Produce": 3}
    assert traffic(world, "bytesin") == {"t": 2 * len(records)}


def test_fetches_at_once_and_in_steps(world: BrokerWorld, client: Client) -> None:
    """Claim: bytes out are those of the records that the answers carry."""
    records = batch(world, b"a", b"b")
    client.produce("t", b"a", b"b")
    assert len(client.fetch("t", 0).records) == len(records)
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(200)]
    client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("t", partitions=wanted)]), 12)
    assert values(world, REQUESTS, "request") == {"Produce": 1, "Fetch": 2}
    assert traffic(world, "bytesout") == {"t": 2 * len(records)}
    assert values(world, ERRORS, "request", "error") == {("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"): 198}
    assert traffic(world, "failedfetchrequests") == {"t": 198}


def test_a_fetch_that_waits_counts_when_it_is_answered_with_the_time_that_it_waited(world: BrokerWorld, client: Client) -> None:
    client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    assert client.answers() == []
    assert REQUESTS in collected(world)
    assert values(world, REQUESTS) == {}
    assert values(world, "kafka_server_delayedoperationpurgatory_purgatorysize", "delayedoperation") == {"Fetch": 1}
    world.clock.advance(0.2)
    world.connect().produce("t", b"a")
    assert len(client.answers()) == 1
    samples = collected(world)["kafka_network_requestmetrics_totaltimems"].samples
    assert [value for suffix, labels, value in samples if (suffix, labels) == ("_sum", ("Fetch",))] == [pytest.approx(200, abs=1)]
    assert values(world, REQUESTS, "request") == {"Produce": 1, "Fetch": 1}


def test_other_requests_with_their_errors(world: BrokerWorld, client: Client) -> None:
    client.ask(MetadataRequest(), 9)
    client.ask(CreateTopicsRequest([CreatableTopic("new", 1, 1), CreatableTopic("t", 1, 1)]), 5)
    assert values(world, REQUESTS, "request") == {"Metadata": 1, "CreateTopics": 1}
    assert values(world, ERRORS, "request", "error") == {("CreateTopics", "TOPIC_ALREADY_EXISTS"): 1}


def test_a_request_whose_handler_answers_at_once(world: BrokerWorld, client: Client) -> None:
    client.ask(ApiVersionsRequest(), 0)
    assert values(world, REQUESTS, "request") == {"ApiVersions": 1}


def test_a_version_that_is_not_known(world: BrokerWorld, client: Client) -> None:
    """Claim: ApiVersions of the future, which is answered as version 0, counts with its error."""
    frame = bytearray(client.frame(ApiVersionsRequest(), 0))
    frame[6:8] = (99).to_bytes(2, "big")
    client.peer.send(bytes(frame))
    (answer,) = client.answers()
    assert answer.body.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert values(world, ERRORS, "request", "error") == {("ApiVersions", "UNSUPPORTED_VERSION"): 1}


def test_produce_of_a_version_that_is_only_refused(world: BrokerWorld, client: Client) -> None:
    body = struct.pack(">hii", 1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 0)
    payload = struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1) + body
    client.peer.send(struct.pack(">i", len(payload)) + payload)
    assert client.peer.receive()
    assert values(world, REQUESTS, "request") == {"Produce": 1}
    assert values(world, ERRORS, "request", "error") == {("Produce", "UNSUPPORTED_VERSION"): 1}


def test_what_a_coordinator_writes_counts_as_traffic_of_its_topic(world: BrokerWorld, client: Client) -> None:
    client.ask(FindCoordinatorRequest(key="g"), 0)
    commit = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 7)])
    answer = client.ask(OffsetCommitRequest("g", topics=[commit]), 2)
    assert answer.topics[0].partitions[0].error_code == 0
    assert traffic(world, "messagesin")["__consumer_offsets"] == 1
    sizes = values(world, "kafka_log_log_size", "topic", "partition")
    written = [size for (topic, _), size in sizes.items() if topic == "__consumer_offsets"]
    assert traffic(world, "bytesin")["__consumer_offsets"] == sum(written) > 0
    assert values(world, "kafka_coordinator_group_groupmetadatamanager_numgroups") == {(): 1}
    assert values(world, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == {(): 1}


def sums_ms(world: BrokerWorld, name: str) -> dict[str, float]:
    """Milliseconds by API."""
    return {
        labels[0]: value for suffix, labels, value in collected(world)[f"kafka_network_requestmetrics_{name}"].samples if suffix == "_sum"
    }


def test_times_begin_when_a_request_is_received(world: BrokerWorld, client: Client) -> None:
    """Claim: what was before does not count, by whichever way a request goes."""
    world.clock.advance(1000)
    records = batch(world, b"a")
    for _ in range(2):
        client.ask(produce_request("t", records), 9)
    client.fetch("t", 0)
    client.ask(ApiVersionsRequest(), 0)
    for name in ("totaltimems", "requestqueuetimems"):
        assert sums_ms(world, name) == {"Produce": 0, "Fetch": 0, "ApiVersions": 0}


def test_a_request_waits_in_the_queue_while_its_connection_is_at_a_bound() -> None:
    world = BrokerWorld(connection_max_in_flight_requests=1)
    world.create_topic("t")
    client = world.connect()
    client.produce("t", b"a")
    again = produce_request("t", batch(world, b"a"))
    client.peer.send(client.frame(fetch_request("t", 1, max_wait_ms=500), 12) + client.frame(again, 9))
    world.clock.advance(0.2)
    assert client.answers() == []
    world.connect().produce("t", b"a")
    found = client.answers()
    world.clock.advance(0)
    found += client.answers()
    assert len(found) == 2
    assert sums_ms(world, "requestqueuetimems") == {"Produce": pytest.approx(200, abs=1), "Fetch": 0}
    assert sums_ms(world, "totaltimems") == {"Produce": pytest.approx(200, abs=1), "Fetch": pytest.approx(200, abs=1)}
    world.stop()


def test_logs_and_partitions(world: BrokerWorld, client: Client) -> None:
    records = batch(world, b"a", b"b")
    client.produce("t", b"a", b"b", partition=1)
    assert values(world, "kafka_log_log_size", "topic", "partition") == {("t", "0"): 0, ("t", "1"): len(records)}
    assert values(world, "kafka_log_log_logendoffset", "topic", "partition") == {("t", "0"): 0, ("t", "1"): 2}
    assert values(world, "kafka_log_log_logstartoffset", "topic", "partition") == {("t", "0"): 0, ("t", "1"): 0}
    assert values(world, "kafka_log_log_numlogsegments", "topic", "partition") == {("t", "0"): 1, ("t", "1"): 1}
    assert values(world, "kafka_server_replicamanager_leadercount") == {(): 2}
    assert values(world, "kafka_server_replicamanager_underreplicatedpartitions") == {(): 0}
    assert values(world, "kafka_controller_kafkacontroller_offlinepartitionscount") == {(): 0}


def test_connections_are_counted_by_listener(world: BrokerWorld, client: Client) -> None:
    assert values(world, "kafka_server_socketservermetrics_connection_count", "listener") == {"PLAINTEXT": 1}
    for _ in range(2):
        world.connect(listener="OUTSIDE")
    assert values(world, "kafka_server_socketservermetrics_connection_count", "listener") == {"PLAINTEXT": 1, "OUTSIDE": 2}
    client.peer.disconnect()
    world.clock.settle()
    assert values(world, "kafka_server_socketservermetrics_connection_count", "listener") == {"PLAINTEXT": 0, "OUTSIDE": 2}


def test_a_partition_that_is_closed_keeps_its_count_and_is_offline(world: BrokerWorld, client: Client) -> None:
    client.produce("t", b"a", b"b")
    world.broker.replicas.stop([world.partition("t").topic_partition], delete=False)
    assert traffic(world, "messagesin") == {"t": 2}
    assert values(world, "kafka_controller_kafkacontroller_offlinepartitionscount") == {(): 1}
    assert values(world, "kafka_server_replicamanager_leadercount") == {(): 1}


def test_records_of_an_earlier_process_do_not_count_as_received(tmp_path: Path) -> None:
    world = BrokerWorld(store=str(tmp_path / "store"))
    world.create_topic("t")
    world.connect().produce("t", b"a", b"b")
    world.restart()
    assert traffic(world, "messagesin") == {"t": 0}
    assert values(world, "kafka_log_log_logendoffset", "topic", "partition") == {("t", "0"): 2}
    world.stop()


def test_a_topic_that_is_deleted_is_forgotten(world: BrokerWorld, client: Client) -> None:
    client.produce("t", b"a")
    client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert world.broker.counters.topics == {}, "also where nobody scrapes"
    assert values(world, REQUESTS, "request") == {"Produce": 1, "DeleteTopics": 1}
    assert traffic(world, "messagesin") == {}
    assert values(world, "kafka_log_log_size") == {}


def test_a_registered_broker_is_ready(world: BrokerWorld) -> None:
    assert not_ready(world.broker) == []


def test_no_step_looks_at_more_than_a_hundred_partitions(world: BrokerWorld) -> None:
    world.create_topic("wide", partitions=998)
    pauses = sum(1 for _ in collect(world.broker))
    assert pauses >= 2 * 10
