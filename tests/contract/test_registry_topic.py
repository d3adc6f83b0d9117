"""The topic `_schemas`: one that Confluent's registry wrote is taken over, one that would lose schemas is refused (F1).

The records are those that Confluent's sources and documentation show, byte by byte, not made by our own encoder.
"""

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate_log
from moldau.registry.schemas_topic import UnfitTopicError
from moldau.registry.server import RegistryServer
from moldau.testing import Broker
from support.registry import Rest, running_registry

RECORDS: list[tuple[bytes, bytes | None]] = [
    (b'{"keytype":"NOOP","magic":0}', None),
    (
        b'{"keytype":"SCHEMA","subject":"pay-value","version":1,"magic":1}',
        rb'{"subject":"pay-value","version":1,"id":1,"schema":"{\"type\":\"record\",\"name\":\"Pay\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"}]}","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"pay-value","version":2,"magic":1}',
        rb'{"subject":"pay-value","version":2,"id":2,"md5":"AAAAAAAAAAAAAAAAAAAAAA==","schemaType":"AVRO","schema":"{\"type\":\"record\",\"name\":\"Pay\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"},{\"name\":\"note\",\"type\":\"string\",\"default\":\"\"}]}","deleted":false,"offset":2,"ts":1700000000000}',
    ),
    (b'{"keytype":"CONFIG","subject":"pay-value","magic":0}', b'{"subject":"pay-value","compatibilityLevel":"FULL"}'),
    (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"FORWARD_TRANSITIVE"}'),
    (b'{"keytype":"MODE","subject":"frozen-value","magic":0}', b'{"subject":"frozen-value","mode":"READONLY"}'),
    (
        b'{"keytype":"SCHEMA","subject":"json-value","version":1,"magic":1}',
        rb'{"subject":"json-value","version":1,"id":3,"schemaType":"JSON","schema":"{\"type\":\"object\"}","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":0}',
        rb'{"subject":"gone-value","version":1,"id":4,"schema":"\"long\"","deleted":false}',
    ),
    (b'{"keytype":"DELETE_SUBJECT","subject":"gone-value","magic":0}', b'{"subject":"gone-value","version":1}'),
    (b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}', b'{"tenant":"default","context":".eu"}'),
    (
        b'{"keytype":"SCHEMA","subject":":.eu:pay-value","version":1,"magic":1}',
        rb'{"subject":":.eu:pay-value","version":1,"id":1,"schemaType":"AVRO","references":[{"name":"Ref","subject":"ref","version":1}],"schema":"\"int\"","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"dead-value","version":1,"magic":1}',
        rb'{"subject":"dead-value","version":1,"id":9,"schema":"\"bytes\"","deleted":true}',
    ),
    (b'{"keytype":"SCHEMA","subject":"dead-value","version":1,"magic":1}', None),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def publish(broker: Broker, topic: str, records: list[tuple[bytes, bytes | None]], policy: str = "compact") -> None:
    broker.create_topic(topic, 1, {"cleanup.policy": policy})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def all_records(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with Cluster(broker.bootstrap_servers) as cluster:
        where = TopicPartition(topic, 0)
        end = cluster.list_offsets({where: LATEST})[where].offset
        found: list[tuple[bytes | None, bytes | None]] = []
        offset: int = cluster.list_offsets({where: EARLIEST})[where].offset
        while offset < end:
            for record in iterate_log(cluster.fetch(topic, 0, offset).records, max_decompressed_bytes=1 << 20):
                if record.offset >= offset:
                    found.append((record.key, record.value))
                    offset = record.offset + 1
        return found


def test_a_topic_that_confluents_registry_wrote_is_taken_over(broker: Broker) -> None:
    """Everything in it is answered; what is registered next follows on."""
    publish(broker, "theirs", RECORDS)
    with running_registry(broker.bootstrap_servers, topic="theirs", group="theirs") as registry:
        rest = Rest(registry.url)
        assert rest.ok("GET", "/subjects") == [":.eu:pay-value", "json-value", "pay-value"]
        assert rest.ok("GET", "/subjects?deletedOnly=true") == ["gone-value"]
        assert rest.ok("GET", "/subjects/pay-value/versions") == [1, 2]
        assert rest.ok("GET", "/schemas/ids/2")["schema"].endswith('"default":""}]}')
        assert rest.ok("GET", "/schemas/ids/3")["schemaType"] == "JSON"
        assert rest.ok("GET", "/schemas/ids/4")["schema"] == '"long"'
        assert rest("GET", "/schemas/ids/9").code == 40403
        assert rest.ok("GET", "/config") == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
        assert rest.ok("GET", "/config/pay-value") == {"compatibilityLevel": "FULL"}
        assert rest.ok("GET", "/mode/frozen-value") == {"mode": "READONLY"}
        assert rest.ok("GET", "/contexts") == [".", ".eu"]
        assert rest.ok("GET", "/contexts/.eu/schemas/ids/1")["references"] == [{"name": "Ref", "subject": "ref", "version": 1}]
        assert rest.ok("POST", "/subjects/pay-value", {"schema": rest.ok("GET", "/schemas/ids/1")["schema"]})["version"] == 1
        assert rest.ok("POST", "/subjects/new-value/versions", {"schema": '"boolean"'})["id"] == 10, (
            "behind the highest that was ever given"
        )


def test_what_is_written_is_what_confluents_registry_would_read(broker: Broker) -> None:
    """Keys and values byte by byte: a registry of theirs can take the topic over."""
    with running_registry(broker.bootstrap_servers, topic="ours", group="ours") as registry:
        rest = Rest(registry.url)
        rest.ok("POST", "/subjects/a/versions", {"schema": '"string"'})
        rest.ok("PUT", "/config/a", {"compatibility": "NONE", "normalize": True})
        rest.ok("PUT", "/mode", {"mode": "READWRITE"})
        rest.ok("DELETE", "/subjects/a")
        rest.ok("DELETE", "/subjects/a?permanent=true")
    assert all_records(broker, "ours") == [
        (b'{"keytype":"NOOP","magic":0}', None),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            rb'{"subject":"a","version":1,"id":1,"schemaType":"AVRO","schema":"\"string\"","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":"a","magic":0}', b'{"subject":"a","normalize":true,"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"READWRITE"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":1}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', None),
        (b'{"keytype":"CONFIG","subject":"a","magic":0}', None),
    ]


def test_a_registry_that_starts_again_says_the_same(broker: Broker) -> None:
    options = {"topic": "again", "group": "again"}
    with running_registry(broker.bootstrap_servers, **options) as registry:
        rest = Rest(registry.url)
        for number in range(30):
            rest.ok(
                "POST", f"/subjects/s{number % 7}/versions", {"schema": f'{{"type":"fixed","name":"F{number}","size":{number + 1}}}'} | {}
            )
            rest.ok("PUT", f"/config/s{number % 7}", {"compatibility": "NONE"})
        before = rest.ok("GET", "/schemas")
    with running_registry(broker.bootstrap_servers, **options) as registry:
        rest = Rest(registry.url)
        assert rest.ok("GET", "/schemas") == before
        assert rest.ok("POST", "/subjects/s1/versions", {"schema": '"null"'})["id"] == 31


def test_a_topic_whose_beginning_was_cut_off_is_read_from_where_it_begins(broker: Broker) -> None:
    """Retention had its way before somebody made the topic a compacted one."""
    publish(broker, "cut", RECORDS[:3], policy="delete")
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition("cut", 0): 2})
        Admin(cluster).alter_configs(AdminResource(AdminResourceType.TOPIC, "cut"), ConfigUpdate({"cleanup.policy": "compact"}))
    with running_registry(broker.bootstrap_servers, topic="cut", group="cut") as registry:
        assert Rest(registry.url).ok("GET", "/subjects/pay-value/versions") == [2]


def test_records_that_make_no_sense_are_skipped_with_a_line_each(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    publish(broker, "odd", [(b"\xff", b"x"), (b'{"keytype":"ASSOC","magic":0}', b"{}"), RECORDS[1], (RECORDS[2][0], b"{")])
    with caplog.at_level(logging.ERROR), running_registry(broker.bootstrap_servers, topic="odd", group="odd") as registry:
        assert Rest(registry.url).ok("GET", "/subjects/pay-value/versions") == [1]
    for offset in (0, 1, 3):
        assert f"registry record skipped: offset={offset}" in caplog.text


@pytest.mark.parametrize(
    ("name", "partitions", "policy", "says"),
    [
        ("deleting", 1, "delete", "cleanup.policy=delete"),
        ("both", 1, "compact,delete", "cleanup.policy=compact,delete"),
        ("wide", 3, "compact", "3 partitions"),
    ],
)
def test_a_topic_that_would_lose_schemas_is_refused(broker: Broker, name: str, partitions: int, policy: str, says: str) -> None:
    broker.create_topic(name, partitions, {"cleanup.policy": policy})
    registry = RegistryServer(broker.bootstrap_servers, "127.0.0.1:0", topic=name)
    with pytest.raises(UnfitTopicError, match=says):
        registry.start()


def test_a_port_that_is_taken_is_named(broker: Broker) -> None:
    with running_registry(broker.bootstrap_servers, topic="port", group="port") as registry:
        taken = registry.url.removeprefix("http://")
        with pytest.raises(OSError, match=taken):
            RegistryServer(broker.bootstrap_servers, taken).start()


def test_a_broker_with_a_registry_keeps_both_over_a_restart() -> None:
    with Broker(registry=True) as both:
        url = both.registry_url
        Rest(url).ok("POST", "/subjects/a/versions", {"schema": '"string"'})
        both.restart()
        assert both.registry_url == url
        assert Rest(url).ok("GET", "/subjects") == ["a"]
        assert Rest(url).ok("POST", "/subjects/a/versions", {"schema": '{"type": "string"}'})["id"] == 1
