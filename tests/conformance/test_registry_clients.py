"""Confluent's own client, its serialisers and curl against our registry and broker (F1).

Java's client lives in Confluent's own Maven repository, not in Maven Central, and is not fetched here.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from moldau.registry.wire import unframe
from moldau.testing import Broker
from support.registry import V1, record

pytestmark = pytest.mark.system

_FIELD = descriptor_pb2.FieldDescriptorProto
TYPE_STRING, TYPE_INT32, TYPE_MESSAGE = _FIELD.TYPE_STRING, _FIELD.TYPE_INT32, _FIELD.TYPE_MESSAGE
LABEL_OPTIONAL = _FIELD.LABEL_OPTIONAL

FLIGHT = json.dumps(record("Flight", ("number", "int"), ("origin", "string")))
FLIGHT_2 = json.dumps(record("Flight", ("number", "int"), ("origin", "string"), ("gate", ["null", "string"], None)))
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Bag",
        "type": "object",
        "properties": {"tag": {"type": "string"}, "weight": {"type": "number", "minimum": 0}},
        "required": ["tag"],
    }
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry_url}) as made:
        yield made


def through(broker: Broker, topic: str, values: list[bytes]) -> list[bytes]:
    """Values sent to a topic and read from it."""
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < len(values):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            content = message.value()
            assert isinstance(content, bytes)
            found.append(content)
        return found
    finally:
        consumer.close()


def refused(status: int, code: int, act: Any) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        act()
    assert (caught.value.http_status_code, caught.value.error_code) == (status, code), caught.value


def test_avro_goes_through_with_two_versions_of_its_schema(broker: Broker, client: SchemaRegistryClient) -> None:
    """Two producers with two versions; one reader with the newer one reads both."""
    context = SerializationContext("flights", MessageField.VALUE)
    old, new = AvroSerializer(client, FLIGHT), AvroSerializer(client, FLIGHT_2)
    sent = [old({"number": 1, "origin": "EWR"}, context), new({"number": 2, "origin": "JFK", "gate": "B7"}, context)]
    assert all(isinstance(value, bytes) for value in sent)
    values = through(broker, "flights", [value for value in sent if value is not None])
    ids = [unframe(value)[0] for value in values]
    assert [client.get_schema(each).schema_type for each in ids] == ["AVRO", "AVRO"]
    assert client.get_versions("flights-value") == [1, 2]
    read = AvroDeserializer(client, FLIGHT_2)
    assert [read(value, context) for value in values] == [
        {"number": 1, "origin": "EWR", "gate": None},
        {"number": 2, "origin": "JFK", "gate": "B7"},
    ]


def test_avro_with_references_to_named_types(broker: Broker, client: SchemaRegistryClient) -> None:
    client.register_schema("airport", Schema(json.dumps(record("Airport", ("code", "string"))), "AVRO"))
    route = Schema(
        json.dumps(record("Route", ("from", "Airport"), ("to", "Airport"))),
        "AVRO",
        [SchemaReference("Airport", "airport", 1)],
    )
    context = SerializationContext("routes", MessageField.VALUE)
    write, read = AvroSerializer(client, route), AvroDeserializer(client)
    event = {"from": {"code": "EWR"}, "to": {"code": "LAX"}}
    value = write(event, context)
    assert value is not None
    assert [read(each, context) for each in through(broker, "routes", [value])] == [event]
    assert client.get_referenced_by("airport", 1) == [unframe(value)[0]]
    refused(422, 42206, lambda: client.delete_subject("airport"))


def test_json_schema_goes_through(broker: Broker, client: SchemaRegistryClient) -> None:
    context = SerializationContext("bags", MessageField.VALUE)
    write, read = JSONSerializer(JSON_SCHEMA, client), JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)
    value = write({"tag": "EWR-1", "weight": 12.5}, context)
    assert value is not None
    assert [read(each, context) for each in through(broker, "bags", [value])] == [{"tag": "EWR-1", "weight": 12.5}]
    assert client.get_latest_version("bags-value").schema.schema_type == "JSON"


def protobuf_message() -> Any:
    """A class as protoc makes it of a file that imports another."""
    pool = descriptor_pool.DescriptorPool()
    place = descriptor_pb2.FileDescriptorProto(name="registry_test/place.proto", package="registry_test", syntax="proto3")
    airport = place.message_type.add(name="Airport")
    airport.field.add(name="code", number=1, type=TYPE_STRING, label=LABEL_OPTIONAL)
    trip = descriptor_pb2.FileDescriptorProto(
        name="registry_test/trip.proto", package="registry_test", syntax="proto3", dependency=[place.name]
    )
    message = trip.message_type.add(name="Trip")
    message.field.add(name="number", number=1, type=TYPE_INT32, label=LABEL_OPTIONAL)
    message.field.add(name="origin", number=2, type=TYPE_MESSAGE, label=LABEL_OPTIONAL, type_name=".registry_test.Airport")
    pool.Add(place)
    pool.Add(trip)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("registry_test.Trip"))


def test_protobuf_goes_through(broker: Broker, client: SchemaRegistryClient) -> None:
    """The serialiser registers descriptors as base64, those of imports first; the deserialiser asks for them in that form."""
    made = protobuf_message()
    context = SerializationContext("trips", MessageField.VALUE)
    write, read = ProtobufSerializer(made, client), ProtobufDeserializer(made, schema_registry_client=client)
    event = made(number=7, origin={"code": "EWR"})
    value = write(event, context)
    assert value is not None
    assert [read(each, context) for each in through(broker, "trips", [value])] == [event]
    with SchemaRegistryClient({"url": broker.registry_url}) as other:
        latest = other.get_latest_version("trips-value").schema
        assert (latest.schema_type, len(latest.references)) == ("PROTOBUF", 1)
        assert latest.schema_str is not None
        assert "message Trip" in latest.schema_str
        assert ProtobufDeserializer(made, schema_registry_client=other)(value, context) == event


def test_every_method_of_the_client_that_is_served(client: SchemaRegistryClient) -> None:
    first = client.register_schema("m-value", Schema(FLIGHT, "AVRO"), normalize_schemas=True)
    full = client.register_schema_full_response("m-value", Schema(FLIGHT_2, "AVRO"))
    assert (full.schema_id, full.version) == (first + 1, 2) or full.version == 2
    assert full.guid is not None
    assert client.get_schema(first).schema_str == json.dumps(json.loads(FLIGHT), separators=(",", ":"))
    assert client.get_schema(first, subject_name="m-value") == client.get_schema(first)
    assert client.get_schema_by_guid(full.guid).schema_str == client.get_version("m-value", 2).schema.schema_str
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert client.get_subjects_by_schema_id(first) == client.get_subjects_by_schema_id(first, deleted=True)
    assert ("m-value", 1) in [(each.subject, each.version) for each in client.get_schema_versions(first)]
    assert client.lookup_schema("m-value", Schema(FLIGHT, "AVRO")).version == 1
    assert "m-value" in client.get_subjects()
    assert client.get_subjects(subject_prefix="m-") == ["m-value"]
    assert client.get_subjects(subject_prefix="m-", limit=1, offset=1) == []
    assert client.get_latest_version("m-value").version == 2
    assert client.get_versions("m-value") == [1, 2]
    assert client.get_referenced_by("m-value", 1) == []
    assert "." in client.get_contexts()
    assert client.test_compatibility("m-value", Schema(FLIGHT, "AVRO"))
    assert client.test_compatibility_all_versions("m-value", Schema(FLIGHT, "AVRO"))
    assert not client.test_compatibility("m-value", Schema(json.dumps(record("Flight", ("number", "string"))), "AVRO"))


def test_settings_through_the_client(client: SchemaRegistryClient) -> None:
    client.register_schema("s-value", Schema(FLIGHT, "AVRO"))
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("s-value", "FULL_TRANSITIVE")
    assert client.get_compatibility("s-value") == "FULL_TRANSITIVE"
    config = ServerConfig(
        compatibility=ConfigCompatibilityLevel.NONE,
        compatibility_group="major",
        default_metadata=Metadata(None, MetadataProperties({"team": "ops"}), None),
        override_rule_set=RuleSet(None, [Rule("r", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", [], None, "true", None, None, False)]),
    )
    client.set_config("s-value", config)
    kept = client.get_config("s-value")
    assert kept.compatibility_level is ConfigCompatibilityLevel.NONE
    assert kept.compatibility_group == "major"
    assert kept.default_metadata is not None
    assert kept.default_metadata.properties == MetadataProperties({"team": "ops"})
    client.delete_config("s-value")
    refused(404, 40408, lambda: client.get_config("s-value"))
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("s-value", "READONLY") == "READONLY"
    assert client.get_mode("s-value") == "READONLY"
    refused(422, 42205, lambda: client.register_schema("s-value", Schema(FLIGHT_2, "AVRO")))
    client.delete_mode("s-value")
    refused(404, 40409, lambda: client.get_mode("s-value"))
    assert client.update_global_mode("READWRITE") == "READWRITE"


def test_metadata_and_rules_through_the_client(client: SchemaRegistryClient) -> None:
    metadata = Metadata(None, MetadataProperties({"stage": "prod"}), None)
    client.register_schema("meta-value", Schema(FLIGHT, "AVRO", [], metadata))
    client.register_schema("meta-value", Schema(FLIGHT_2, "AVRO", [], Metadata(None, MetadataProperties({"stage": "test"}), None)))
    found = client.get_latest_with_metadata("meta-value", {"stage": "prod"})
    assert found.version == 1
    assert found.schema.metadata is not None
    assert found.schema.metadata.properties == metadata.properties


def test_deleting_through_the_client(client: SchemaRegistryClient) -> None:
    client.register_schema("d-value", Schema(FLIGHT, "AVRO"))
    client.register_schema("d-value", Schema(FLIGHT_2, "AVRO"))
    assert client.delete_version("d-value", 1) == 1
    assert client.delete_version("d-value", 1, permanent=True) == 1
    assert client.delete_subject("d-value") == [2]
    assert "d-value" in client.get_subjects(deleted=True)
    refused(404, 40401, lambda: client.get_latest_version("d-value"))
    assert client.delete_subject("d-value", permanent=True) == [2]
    assert "d-value" not in client.get_subjects(deleted=True)


def test_the_clients_errors(client: SchemaRegistryClient) -> None:
    refused(404, 40403, lambda: client.get_schema(987_654))
    refused(404, 40401, lambda: client.get_latest_version("nobody"))
    refused(422, 42201, lambda: client.register_schema("e-value", Schema('{"type": "recor"}', "AVRO")))
    client.register_schema("e-value", Schema(FLIGHT, "AVRO"))
    refused(404, 40402, lambda: client.get_version("e-value", 17))
    refused(409, 409, lambda: client.register_schema("e-value", Schema(json.dumps(record("Flight", ("number", "string"))), "AVRO")))


def test_curl_registers_and_reads(broker: Broker, tmp_path: Path) -> None:
    """The commands of Confluent's documentation."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not here")

    def run(*arguments: str) -> Any:
        done = subprocess.run([curl, "-sS", *arguments], check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    url = broker.registry_url
    body = json.dumps({"schema": '{"type": "string"}'})
    registered = run("-X", "POST", "-H", f"Content-Type: {V1}", "--data", body, f"{url}/subjects/Kafka-key/versions")
    assert run(f"{url}/schemas/ids/{registered['id']}")["schema"] == '"string"'
    assert run("-X", "GET", f"{url}/subjects/Kafka-key/versions") == [1]
    assert run("-X", "DELETE", f"{url}/subjects/Kafka-key/versions/1") == 1
    assert run("-X", "PUT", "-H", f"Content-Type: {V1}", "--data", '{"compatibility": "NONE"}', f"{url}/config/Kafka-key") == {
        "compatibility": "NONE"
    }
    assert "JSON" in run(f"{url}/schemas/types")
