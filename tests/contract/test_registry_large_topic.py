"""A topic with more in it than the registry may keep: what fits is served, nothing is registered, and the way out is a setting (F1)."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.registry.records import ConfigKey, SchemaKey, SchemaVersion, encode_config, encode_key, encode_schema
from moldau.testing import Broker
from support.registry import Rest, running_registry

pytestmark = pytest.mark.system

MOST = 100_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def publish(broker: Broker, topic: str, numbers: range) -> None:
    """Schemas that do not come by way of the registry."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        schema = SchemaVersion(f"s{number}", 1, number, json.dumps({"type": "string", "doc": "x" * 2000 + str(number)}))
        producer.produce(topic, encode_schema(schema), encode_key(SchemaKey(schema.subject, 1)), partition=0)
    assert producer.flush(30) == 0


def test_a_start_over_a_topic_that_is_larger_than_the_bound_serves_what_fits_until_the_bound_is_raised(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("large", 1, {"cleanup.policy": "compact"})
    publish(broker, "large", range(1, 101))
    with running_registry(broker.bootstrap_servers, topic="large", group="large", memory_bytes_max=MOST) as registry:
        rest = Rest(registry.url)
        assert 10 < len(rest.ok("GET", "/subjects")) < 40
        assert rest.ok("GET", "/schemas/ids/1")["schema"].endswith('x1"}')
        for path in ("/schemas/ids/100", "/subjects/s100/versions", "/subjects/s1/versions/2"):
            answer = rest("GET", path)
            assert (answer.status, answer.code) == (500, 50001), answer
            assert "larger registry.memory.max.bytes" in answer.body["message"]
        answer = rest("POST", "/subjects/new/versions", {"schema": '"string"'})
        assert (answer.status, answer.code) == (422, 42209), answer
        assert "left out" in answer.body["message"]
        for path in ("/subjects/s100/versions/latest", "/compatibility/subjects/s100/versions/latest"):
            answer = rest("GET" if path.startswith("/subjects") else "POST", path, {"schema": '"int"'})
            assert (answer.status, answer.code) == (500, 50001), answer
        rest.ok("DELETE", "/subjects/s1")
        answer = rest("DELETE", "/subjects/s1?permanent=true")
        assert (answer.status, answer.code) == (422, 42209), answer
        assert registry.state.held_bytes <= MOST
        assert caplog.text.count("registry records left out") == 1
    with running_registry(broker.bootstrap_servers, topic="large", group="large") as registry:
        rest = Rest(registry.url)
        assert len(rest.ok("GET", "/subjects")) == 99
        assert rest("GET", "/schemas/ids/101").code == 40403
        assert rest.ok("POST", "/subjects/new/versions", {"schema": '"string"'})["id"] == 101


def test_what_others_write_beyond_the_bound_while_it_runs_is_left_out(broker: Broker) -> None:
    broker.create_topic("grows", 1, {"cleanup.policy": "compact"})
    with running_registry(broker.bootstrap_servers, topic="grows", group="grows", memory_bytes_max=MOST) as registry:
        rest = Rest(registry.url)
        assert rest.ok("POST", "/subjects/mine/versions", {"schema": '"string"'})["id"] == 1
        publish(broker, "grows", range(2, 102))
        assert rest("POST", "/subjects/other/versions", {"schema": '"int"'}).code == 42209
        assert rest.ok("POST", "/subjects/mine/versions", {"schema": '"string"'})["id"] == 1, "an existing schema is returned"
        assert rest("GET", "/subjects/absent/versions").code == 50001
        assert registry.state.held_bytes <= MOST


def test_a_long_configuration_that_does_not_fit_is_not_a_reason_not_to_start(broker: Broker) -> None:
    broker.create_topic("wide", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("wide", encode_config(None, {"compatibilityGroup": "x" * 900_000}), encode_key(ConfigKey(None)), partition=0)
    assert producer.flush(30) == 0
    with running_registry(broker.bootstrap_servers, topic="wide", group="wide", memory_bytes_max=MOST) as registry:
        rest = Rest(registry.url)
        assert rest.ok("GET", "/subjects") == []
        assert rest("GET", "/config").code == 50001, "not the default: it says something else"
