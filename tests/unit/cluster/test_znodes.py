"""Nodes hold the JSON that Kafka's ZooKeeper-era tools write and read; what cannot be read is reported with its path."""

import json
from collections.abc import Callable

import pytest

from moldau.cluster import znodes
from moldau.cluster.snapshot import Endpoint
from moldau.cluster.znodes import BrokerNode, MalformedNodeError, PartitionState, ProducerIdBlock, TopicNode

TOPIC_ID = bytes(range(16))


def test_a_broker_is_written_in_format_5_and_read_in_all() -> None:
    endpoints = (Endpoint("PLAINTEXT", "h", 9092), Endpoint("EXTERNAL", "e", 9093))
    written = znodes.encode_broker(BrokerNode(endpoints, "rack-1", 1_700_000_000_000))
    assert json.loads(written) == {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": ["PLAINTEXT://h:9092", "EXTERNAL://e:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "EXTERNAL": "PLAINTEXT"},
        "features": {},
        "rack": "rack-1",
    }
    assert znodes.decode_broker("/x", written) == BrokerNode(endpoints, "rack-1", 1_700_000_000_000)
    oldest = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert znodes.decode_broker("/x", oldest) == BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), None, 2_233_345_666)


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ('"h"', 9092, ["INSIDE", "SSL", "OUTSIDE"]),
        ('"o"', 9094, ["OUTSIDE", "SSL", "INSIDE"]),
        ("null", -1, ["SSL", "INSIDE", "OUTSIDE"]),
    ],
)
def test_a_broker_that_kafka_wrote_has_all_its_endpoints_that_of_other_brokers_first(host: str, port: int, expected: list[str]) -> None:
    """Without an endpoint that speaks PLAINTEXT under its own name, Kafka's brokers write no host."""
    written = (
        f'{{"features":{{}},"listener_security_protocol_map":{{"SSL":"SSL","INSIDE":"PLAINTEXT","OUTSIDE":"PLAINTEXT"}},'
        f'"endpoints":["SSL://s:9093","INSIDE://h:9092","OUTSIDE://o:9094"],"jmx_port":-1,"port":{port},"host":{host},'
        f'"version":5,"timestamp":"1"}}'
    )
    assert [each.listener for each in znodes.decode_broker("/x", written.encode()).endpoints] == expected


def test_an_ipv6_endpoint_has_brackets() -> None:
    assert json.loads(znodes.encode_broker(BrokerNode((Endpoint("PLAINTEXT", "::1", 9092),), None, 0)))["endpoints"] == [
        "PLAINTEXT://[::1]:9092"
    ]


def test_the_registrations_before_are_named_only_by_a_broker_that_lost_nothing_since() -> None:
    node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), None, 0, (17, 20))
    assert json.loads(znodes.encode_broker(node))["previous_broker_epochs"] == [17, 20]
    assert znodes.decode_broker("/x", znodes.encode_broker(node)) == node
    assert b"previous" not in znodes.encode_broker(node._replace(previous_epochs=()))


def test_incarnations_and_notifications_of_leaders() -> None:
    assert znodes.encode_incarnations({0: 12, 5: 40}) == b'{"version":1,"brokers":{"0":12,"5":40}}'
    assert znodes.decode_incarnations("/x", znodes.encode_incarnations({0: 12, 5: 40})) == {0: 12, 5: 40}
    assert znodes.encode_isr_change([("t", 3)]) == b'{"version":1,"partitions":[{"topic":"t","partition":3}]}'
    assert znodes.decode_isr_change("/x", znodes.encode_isr_change([("t", 3), ("u", 0)])) == [("t", 3), ("u", 0)]


def test_a_topic_is_written_in_format_3_and_read_in_all() -> None:
    written = znodes.encode_topic(TOPIC_ID, [(0, 1), (1, 0)])
    assert json.loads(written) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [0, 1], "1": [1, 0]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert znodes.decode_topic("/x", written) == TopicNode(TOPIC_ID, ((0, 1), (1, 0)))
    assert znodes.decode_topic("/x", b'{"version":1,"partitions":{"1":[2],"0":[0,1,3]}}') == TopicNode(None, ((0, 1, 3), (2,)))


def test_a_partitions_state() -> None:
    state = PartitionState(0, 7, (0, 1), 3)
    written = znodes.encode_state(state)
    assert json.loads(written) == {"version": 1, "leader": 0, "leader_epoch": 7, "controller_epoch": 3, "isr": [0, 1]}
    assert znodes.decode_state("/x", written) == state


def test_eligible_leaders_are_keys_of_a_state_only_where_there_are_any() -> None:
    state = PartitionState(0, 7, (0,), 3, 40, (2, 1), (5,))
    written = znodes.encode_state(state)
    assert json.loads(written) == {
        "version": 1,
        "leader": 0,
        "leader_epoch": 7,
        "controller_epoch": 3,
        "isr": [0],
        "broker_epoch": 40,
        "elr": [2, 1],
        "last_known_elr": [5],
    }
    assert znodes.decode_state("/x", written) == state


@pytest.mark.parametrize("key", ["isr", "elr", "last_known_elr"])
@pytest.mark.parametrize("value", ["12", 1, None, {"1": 1}, ["x"], [None]])
def test_a_state_whose_lists_of_brokers_are_none_is_named(key: str, value: object) -> None:
    node = {"version": 1, "leader": 0, "leader_epoch": 7, "controller_epoch": 3, "isr": [0], key: value}
    with pytest.raises(MalformedNodeError, match="/state: cannot read"):
        znodes.decode_state("/state", json.dumps(node).encode())


def test_configurations_and_the_word_of_their_change() -> None:
    written = znodes.encode_config({"retention.ms": "5"})
    assert written == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert znodes.decode_config("/x", written) == {"retention.ms": "5"}
    assert znodes.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'


def test_a_block_of_producer_ids_has_its_numbers_as_text() -> None:
    block = ProducerIdBlock(0, 1000, 1999)
    written = znodes.encode_block(block)
    assert written == b'{"version":1,"broker":0,"block_start":"1000","block_end":"1999"}'
    assert znodes.decode_block("/x", written) == block
    assert znodes.decode_block("/x", b"") is None


def test_cluster_id_and_controller() -> None:
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.decode_cluster_id("/x", b'{"version":"1","id":"abc"}') == "abc"
    assert znodes.encode_controller(0, 5) == b'{"version":1,"brokerid":0,"timestamp":"5"}'
    assert znodes.decode_controller("/x", znodes.encode_controller(4, 5)) == 4
    assert znodes.decode_controller("/x", b"4") == 4
    assert znodes.decode_epoch("/x", b"15") == 15


DECODERS: list[Callable[[str, bytes], object]] = [
    znodes.decode_broker,
    znodes.decode_topic,
    znodes.decode_state,
    znodes.decode_config,
    znodes.decode_block,
    znodes.decode_cluster_id,
    znodes.decode_controller,
    znodes.decode_epoch,
    znodes.decode_incarnations,
    znodes.decode_isr_change,
    znodes.decode_preferred_election,
    znodes.decode_reassignment,
]
GARBAGE = [
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe",
    b'{"version":1}',
    b'{"partitions":{"0":[0],"2":[0]}}',
    b'{"topic_id":"short","partitions":{"0":[0]}}',
    b'{"partitions":{"x":[0]}}',
]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
def test_what_cannot_be_read_is_reported_with_its_path(decode: Callable[[str, bytes], object], garbage: bytes) -> None:
    with pytest.raises(MalformedNodeError, match="/the/path: cannot read") as malformed:
        decode("/the/path", garbage)
    assert malformed.value.path == "/the/path"
