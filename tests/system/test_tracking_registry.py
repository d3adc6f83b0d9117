"""The same dialogue with the registry in memory that tests use and with the real one; and the refusals that only the real one knows."""

import gc
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from moldau.audit.schemas import TrackedSchemas
from moldau.client import Producer
from moldau.client.settings import ConsumerOptions
from moldau.model.identity import TopicPartition
from moldau.registry.client import RegistryClient
from moldau.registry.client_errors import IncompatibleSchemaError, RegistryError, RegistryUnavailableError, UnknownSchemaError
from moldau.testing.broker import Broker
from moldau.tracking import EventDecodeError, TrackedConsumer, TrackerProducer, event_schema
from moldau.tracking.consumer import EventDecoder, WriterSchemas
from moldau.tracking.header import is_tracked_schema
from moldau.tracking.metrics import MetricsEmitter
from moldau.tracking.routes import SchemaRegistry
from support.tracked_events import LIMIT_S, TEN_FIELDS, MemoryRegistry, audit_records, page_view, whole_topic

pytestmark = pytest.mark.system

QUICK = ConsumerOptions(settings={"fetch.wait.max.ms": 20})


@dataclass
class View:
    page: str
    member: int


@pytest.fixture(params=["memory", "real"])
def registry(request: pytest.FixtureRequest, broker: Broker) -> Iterator[SchemaRegistry]:
    if request.param == "memory":
        yield MemoryRegistry()
    else:
        with RegistryClient(broker.registry_url) as client:
            yield client


def test_what_producers_and_consumers_ask_a_registry(registry: SchemaRegistry) -> None:
    text = event_schema(TEN_FIELDS).text
    with pytest.raises(RegistryError):
        registry.lookup("asked-value", text)
    schema_id = registry.register("asked-value", text)
    assert registry.register("asked-value", text) == schema_id
    assert registry.register("other-value", text) == schema_id, "the id is the schema's, not the subject's"
    assert registry.lookup("asked-value", text).id == schema_id
    found = registry.schema(schema_id)
    assert found.type == "AVRO"
    assert is_tracked_schema(json.loads(found.text))
    assert list(registry.referenced(found)) == []
    with pytest.raises(UnknownSchemaError, match=r"9999|not found"):
        registry.schema(9_999)


def test_an_event_through_either_registry(broker: Broker, registry: SchemaRegistry) -> None:
    topic = broker.create_topic(broker.unique_topic("views"))
    with TrackerProducer(
        service="shop", bootstrap_servers=broker.bootstrap_servers, registry=registry, schemas={topic: TEN_FIELDS}
    ) as producer:
        producer.track(page_view(3), topic=topic)
    with TrackedConsumer(broker.bootstrap_servers, registry, readers={topic: View}, **QUICK) as consumer:
        consumer.messages.assign([TopicPartition(topic, 0)])
        assert next(consumer).value == View("/product/3", 100_003)


def test_our_own_kinds_of_events_are_tracked(broker: Broker) -> None:
    """The registry leaves a namespace out where it is that of the record around: the header of a metric is still the header."""
    topic = broker.create_topic(broker.unique_topic("metrics"))
    with TrackerProducer(service="shop", bootstrap_servers=broker.bootstrap_servers, registry=broker.registry_url) as producer:
        metrics = MetricsEmitter(producer, topic)
        metrics.counter("orders").add(3)
        metrics.close()
    with TrackedConsumer(broker.bootstrap_servers, broker.registry_url, **QUICK) as consumer, RegistryClient(broker.registry_url) as client:
        consumer.messages.assign([TopicPartition(topic, 0)])
        event = next(consumer)
        assert (event.header.service, event.value["name"], event.value["value"]) == ("shop", "orders", 3.0)
        assert TrackedSchemas(client)(event.schema_id), "the audit counts it as tracked"
        (header, *_) = json.loads(client.schema(event.schema_id).text)["fields"]
        assert "namespace" not in header["type"]


def test_a_producer_closes_the_registry_that_it_has_opened(broker: Broker) -> None:
    """Every connection: one that is garbage while it is open is a ResourceWarning. A client that it was given stays as it is."""
    gc.collect()
    topic = broker.create_topic(broker.unique_topic("views"))
    for registry in (broker.registry_url, RegistryClient(broker.registry_url)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with TrackerProducer(
                service="shop", bootstrap_servers=broker.bootstrap_servers, registry=registry, schemas={topic: TEN_FIELDS}
            ) as it:
                it.track(page_view(), topic=topic)
            del it
            gc.collect()
            if isinstance(registry, RegistryClient):
                registry.close()
        port = broker.registry_url.rpartition(":")[2]
        assert [each for each in caught if f"raddr=('127.0.0.1', {port})" in str(each.message)] == []


def test_a_schema_that_changes(broker: Broker) -> None:
    """A field with a default comes in July: old and new events are read by the old reader and by the new one."""
    topic = broker.create_topic(broker.unique_topic("views"))
    newer = {**TEN_FIELDS, "fields": [*TEN_FIELDS["fields"], {"name": "theme", "type": "string", "default": "light"}]}
    for schema, event in ((TEN_FIELDS, page_view(1)), (newer, {**page_view(2), "theme": "dark"})):
        with TrackerProducer(
            service="shop", bootstrap_servers=broker.bootstrap_servers, registry=broker.registry_url, schemas={topic: schema}
        ) as producer:
            producer.track(event, topic=topic)
    for reader, expected in (
        (TEN_FIELDS, [page_view(1), page_view(2)]),
        (newer, [{**page_view(1), "theme": "light"}, {**page_view(2), "theme": "dark"}]),
    ):
        with TrackedConsumer(broker.bootstrap_servers, broker.registry_url, reader=reader, **QUICK) as consumer:
            consumer.messages.assign([TopicPartition(topic, 0)])
            assert [next(consumer).value for _ in expected] == expected


def test_a_schema_that_breaks_its_readers_is_refused_before_anything_is_sent(broker: Broker) -> None:
    topic = broker.create_topic(broker.unique_topic("views"))
    with RegistryClient(broker.registry_url) as client:
        client.register(f"{topic}-value", event_schema(TEN_FIELDS).text)
    broken = {**TEN_FIELDS, "fields": [*TEN_FIELDS["fields"], {"name": "theme", "type": "string"}]}
    producer = TrackerProducer(
        service="shop", bootstrap_servers=broker.bootstrap_servers, registry=broker.registry_url, schemas={topic: broken}
    )
    with producer, pytest.raises(IncompatibleSchemaError, match="theme"):
        producer.track({**page_view(), "theme": "dark"}, topic=topic)
    assert not [record for record in audit_records(broker.bootstrap_servers) if record.key.instance == producer.instance]


def test_a_registry_that_is_away_stops_the_reader_and_loses_nothing(broker: Broker) -> None:
    """The event that could not be decoded for want of its schema is the next one when the registry is back."""
    topic = broker.create_topic(broker.unique_topic("views"))
    url = broker.registry_url
    with TrackerProducer(service="shop", bootstrap_servers=broker.bootstrap_servers, registry=url, schemas={topic: TEN_FIELDS}) as producer:
        for number in range(3):
            producer.track(page_view(number), topic=topic)

    class Away(RegistryClient):
        there = False

        def schema(self, schema_id: int) -> object:  # type: ignore[override]
            if not self.there:
                raise RegistryUnavailableError("http://nowhere: connection refused")
            return super().schema(schema_id)

    with Away(url) as away, TrackedConsumer(broker.bootstrap_servers, away, **QUICK) as consumer:
        consumer.messages.assign([TopicPartition(topic, 0)])
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError):
                consumer.poll(LIMIT_S)
        assert consumer.messages.positions() == {TopicPartition(topic, 0): 0}, "a commit now would stop before it"
        away.there = True
        assert [next(consumer).value for _ in range(3)] == [page_view(number) for number in range(3)]
        consumer.messages.seek(TopicPartition(topic, 0), 0)
        consumer._general._writers._parsed.clear()
        away.there = False
        with pytest.raises(RegistryUnavailableError):
            consumer.poll(LIMIT_S)
        away.there = True
        consumer.messages.seek(TopicPartition(topic, 0), 2)
        assert next(consumer).value == page_view(2), "where the seek went, and not what could not be decoded before"


def test_a_record_that_its_handler_could_not_take_comes_again(broker: Broker) -> None:
    """The handler writes what cannot be decoded somewhere; while it cannot, nothing is passed over."""
    topic = broker.create_topic(broker.unique_topic("views"))
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"no event")
    taken: list[int] = []

    def put_aside(error: EventDecodeError, _: object) -> None:
        taken.append(error.offset)
        if len(taken) == 1:
            raise ConnectionError("no room for it")

    with TrackedConsumer(broker.bootstrap_servers, MemoryRegistry(), on_error=put_aside, **QUICK) as consumer:
        consumer.messages.assign([TopicPartition(topic, 0)])
        with pytest.raises(ConnectionError):
            consumer.poll(LIMIT_S)
        assert (consumer.undecodable, consumer.messages.positions()) == (0, {TopicPartition(topic, 0): 0})
        while not consumer.undecodable:
            assert consumer.poll(0.1) is None
        assert taken == [0, 0]


def test_confluents_deserialiser_reads_tracked_events_and_ours_what_its_serialiser_writes(broker: Broker) -> None:
    """The wire format, the subject and the header are plain Avro for everybody."""
    topic = broker.create_topic(broker.unique_topic("views"))
    with TrackerProducer(
        service="shop", bootstrap_servers=broker.bootstrap_servers, registry=broker.registry_url, schemas={topic: TEN_FIELDS}
    ) as producer:
        producer.track(page_view(3), 1_372_636_800_000, topic)
    (message,) = whole_topic(broker.bootstrap_servers, topic)
    field = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": broker.registry_url}) as theirs, RegistryClient(broker.registry_url) as ours:
        found: Any = AvroDeserializer(theirs)(message.value, field)
        header = found.pop("header")
        assert (header["service"], header["time"].isoformat(), found) == ("shop", "2013-07-01T00:00:00+00:00", page_view(3))
        written: Any = AvroSerializer(theirs, event_schema(TEN_FIELDS).text)({"header": header, **found}, field)
        assert written == message.value
        assert EventDecoder(WriterSchemas(ours), None).decode(written)[2] == page_view(3)
