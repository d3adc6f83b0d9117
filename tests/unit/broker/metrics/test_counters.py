"""A scripted run of which every number is known: what the broker counts of it, through all ways that a request can take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.metrics.collect import collect, not_ready
from moldau.broker.metrics.families import Family
from moldau.model.steps import drain
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
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
    assert values(world, "kafka_server_socketservermetrics_connection_count", "listener") == {"PLAINTEXT": 1}


def test_a_partition_that_is_closed_keeps_its_count_and_is_offline(world: BrokerWorld, client: Client) -> None:
    client.produce("t", b"a", b"b")
    world.broker.leading.close_partitions([world.partition("t").topic_partition])
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
    assert values(world, REQUESTS, "request") == {"Produce": 1, "DeleteTopics": 1}
    assert traffic(world, "messagesin") == {}
    assert values(world, "kafka_log_log_size") == {}


def test_a_registered_broker_is_ready(world: BrokerWorld) -> None:
    assert not_ready(world.broker) == []


def test_no_step_looks_at_more_than_a_hundred_partitions(world: BrokerWorld) -> None:
    world.create_topic("wide", partitions=998)
    pauses = sum(1 for _ in collect(world.broker))
    assert pauses >= 2 * 10
