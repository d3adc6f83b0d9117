"""`moldau schema` keeps the schemas of a registry: listed, read, registered, checked with reasons by name, deleted softly and for good."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from moldau.testing import Broker
from support.console import ConsoleInside

pytestmark = pytest.mark.system


def avro(**types: object) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": name, "type": type_} for name, type_ in types.items()]})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(directory=tmp_path_factory.mktemp("data"), registry=True) as running:
        yield running


@pytest.fixture
def moldau(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> ConsoleInside:
    console = ConsoleInside(broker.bootstrap_servers)
    console.environment["MOLDAU_REGISTRY"] = broker.registry_url
    return console


def test_a_schema_from_registration_to_its_end(moldau: ConsoleInside, tmp_path: Path) -> None:
    first, second = tmp_path / "order.avsc", tmp_path / "order2.avsc"
    first.write_text(avro(id="int"))
    second.write_text(avro(id="int", note=["null", "string"]).replace('["null", "string"]', '["null", "string"], "default": null'))
    assert moldau.ok("schema", "register", "orders-value", str(first)).out.startswith("orders-value version 1, id ")
    again = moldau.ok("schema", "register", "orders-value", str(first)).out
    assert again.startswith("orders-value version 1, id "), "it is one already"
    assert moldau.ok("schema", "check", "orders-value", str(second)).out == f"orders-value: {second} is compatible (BACKWARD)\n"
    misspelt = moldau.ok("schema", "check", "order-value", str(second))
    assert "order-value has no version to compare it with, did you mean 'orders-value'?\n" in misspelt.out
    assert moldau.ok("schema", "register", "orders-value", str(second)).out.startswith("orders-value version 2, id ")
    for arguments, told in [
        (["get", "order-value"], "Error: Subject 'order-value' not found, did you mean 'orders-value'? (status 404, code 40401)\n"),
        (["get", "orders-value", "--version", "7"], "Error: subject orders-value: Version 7 not found (status 404, code 40402)\n"),
        (
            ["get", "1"],
            (
                "Error: Subject '1' not found (subjects go by name; for the schema with this id: moldau schema get --id 1) "
                "(status 404, code 40401)\n"
            ),
        ),
    ]:
        assert moldau("schema", *arguments).err == told
    assert json.loads(moldau.ok("schema", "get", "orders-value").out) == json.loads(second.read_text())
    assert json.loads(moldau.ok("schema", "get", "orders-value", "--version", "1").out) == json.loads(first.read_text())
    shown = moldau.ok("schema", "get", "orders-value", "--json").json
    assert (shown["subject"], shown["version"], shown["type"], shown["references"]) == ("orders-value", 2, "AVRO", [])
    assert moldau.ok("schema", "get", "--id", str(shown["id"])).out == shown["schema"] + "\n"
    assert ["orders-value", "1-2"] in [line.split() for line in moldau.ok("schema", "list").lines]
    assert [row["version"] for row in moldau.ok("schema", "list", "orders-value", "--json").json] == [1, 2]

    assert moldau.ok("schema", "delete", "orders-value", "--version", "latest").out.startswith("deleted orders-value version 2 (softly")
    assert [row["version"] for row in moldau.ok("schema", "list", "orders-value", "--json").json] == [1]
    assert [row["version"] for row in moldau.ok("schema", "list", "orders-value", "--deleted", "--json").json] == [1, 2]
    refused = moldau("schema", "delete", "orders-value", "--version", "latest", "--permanent")
    assert refused.code == 2, "the latest one is version 1 by now, which nobody has named"
    assert moldau.ok("schema", "delete", "orders-value", "--permanent").out == "deleted orders-value versions 1-2 (for good)\n"
    assert "orders-value" not in moldau.ok("schema", "list", "--deleted").out


def test_what_was_deleted_softly_before_is_told_with_the_command_that_deletes_it_for_good(moldau: ConsoleInside, tmp_path: Path) -> None:
    """The registry's own message names `permanent=true`, which no command takes."""
    file = tmp_path / "a.avsc"
    file.write_text(avro(id="int"))
    moldau.ok("schema", "register", "twice", str(file))
    moldau.ok("schema", "delete", "twice")
    for arguments, said in (
        (("twice",), "subject twice was deleted softly before; to delete it for good: moldau schema delete twice --permanent"),
        (
            ("twice", "--version", "1"),
            "subject twice: version 1 was deleted softly before; to delete it for good: moldau schema delete twice --version 1 --permanent",
        ),
    ):
        refused = moldau("schema", "delete", *arguments)
        assert (refused.code, refused.err.startswith(f"Error: {said}")) == (1, True), refused.err
    moldau.ok("schema", "delete", "twice", "--permanent")


def test_why_a_schema_is_refused_is_told_by_the_field(moldau: ConsoleInside, tmp_path: Path) -> None:
    first, second = tmp_path / "a.avsc", tmp_path / "b.avsc"
    first.write_text(avro(id="int"))
    second.write_text(avro(id="string", price="double"))
    moldau.ok("schema", "register", "refused", str(first))
    for command in ("register", "check"):
        done = moldau("schema", command, "refused", str(second))
        assert (done.code, done.out) == (1, "")
        assert "is not compatible" in done.err.splitlines()[0]
        assert [line.strip().split(" at ")[0].split(":")[0] for line in done.err.splitlines()[1:]] == ["field 'id'", "The field 'price'"]
    assert "errorType" in moldau("schema", "register", "refused", str(second), "--verbose").err
    assert [row["version"] for row in moldau.ok("schema", "list", "refused", "--json").json] == [1]


def test_other_languages_and_references(moldau: ConsoleInside, tmp_path: Path) -> None:
    money, order, rules = tmp_path / "money.proto", tmp_path / "order.proto", tmp_path / "rules.json"
    money.write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
    order.write_text('syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }')
    rules.write_text('{"type": "object"}')
    moldau.ok("schema", "register", "money", str(money))
    assert moldau("schema", "register", "order", str(order)).code == 1, "without its reference it cannot be read"
    moldau.ok("schema", "register", "order", str(order), "--reference", "money.proto=money:1")
    (row,) = moldau.ok("schema", "list", "order", "--json").json
    assert (row["type"], row["references"]) == ("PROTOBUF", [{"name": "money.proto", "subject": "money", "version": 1}])
    assert moldau.ok("schema", "register", "rules", "-", "--type", "json", text=rules.read_bytes()).out.startswith("rules version 1")
    refused = moldau("schema", "delete", "money")
    assert (refused.code, "42206" in refused.err) == (1, True), "others refer to it"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["get", "nobody"], 1, "Subject 'nobody' not found"),
        (["get", "--id", "99999"], 1, "99999"),
        (["get"], 2, "give either SUBJECT or --id"),
        (["get", "a", "--version", "0"], 2, "neither latest nor a number from 1"),
        (["delete", "nobody"], 1, "Subject 'nobody' not found"),
        (["list", "--registry", "http://127.0.0.1:1"], 1, "no answer from the schema registry at http://127.0.0.1:1"),
        (["list", "--registry", "ftp://x"], 2, "is not a registry's URL"),
        (["register", "s", "pyproject.toml"], 2, "--type is needed"),
        (["register", "s", "pyproject.toml", "--type", "avro"], 1, "Invalid schema"),
        (["register", "s", "pyproject.toml", "--type", "avro", "--reference", "a=b"], 2, "is not NAME=SUBJECT:VERSION"),
    ],
)
def test_what_cannot_be_done_is_one_line(moldau: ConsoleInside, arguments: list[str], code: int, told: str) -> None:
    done = moldau("schema", *arguments)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


@pytest.fixture
def topic(moldau: ConsoleInside, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    moldau.ok("topic", "create", name, "--partitions", "1")
    return str(name)


def send_orders(broker: Broker, topic: str, *values: object) -> None:
    """By Confluent's own serialiser; bytes as they are."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with SchemaRegistryClient({"url": broker.registry_url}) as registry:
        serialize = AvroSerializer(registry, avro(id="int", name="string"))
        for value in values:
            data = value if isinstance(value, bytes) else serialize(value, SerializationContext(topic, MessageField.VALUE))
            producer.produce(topic, data, b"k")
    assert not producer.flush(30)


def test_what_confluents_serialiser_wrote_is_printed_as_json(moldau: ConsoleInside, broker: Broker, topic: str) -> None:
    send_orders(broker, topic, {"id": 1, "name": "one"}, {"id": 2, "name": "zwölf"})
    url = ["--registry", broker.registry_url, "--until-end"]
    assert moldau.ok("consume", topic, *url).lines == ['{"id":1,"name":"one"}', '{"id":2,"name":"zwölf"}']
    first, _ = moldau.ok("consume", topic, *url, "--format", "json").json_lines
    assert (first["key"], first["value"]) == ("k", {"id": 1, "name": "one"})
    assert moldau.ok("consume", topic, "--decode", "value", "--until-end", "--max", "1").lines == ['{"id":1,"name":"one"}']
    assert moldau.ok("consume", topic, "--until-end").raw.startswith(b"\0"), "the variable alone does not decode"
    refused = moldau("consume", topic, *url, "--decode", "both")
    assert (refused.code, "at offset 0: the key cannot be decoded" in refused.err) == (1, True)
    del moldau.environment["MOLDAU_REGISTRY"]
    assert moldau("consume", topic, "--decode", "value").code == 2


def test_what_cannot_be_decoded_ends_it_or_is_counted(moldau: ConsoleInside, broker: Broker, topic: str) -> None:
    send_orders(broker, topic, {"id": 1, "name": "one"}, b"plain text", {"id": 3, "name": "three"})
    arguments = ["consume", topic, "--registry", broker.registry_url, "--until-end", "--group", f"{topic}-g"]
    stopped = moldau(*arguments)
    assert (stopped.code, stopped.lines) == (1, ['{"id":1,"name":"one"}'])
    assert f"Error: partition {topic}-0 at offset 1: the value cannot be decoded: the first byte is 0x70" in stopped.err
    skipped = moldau.ok(*arguments, "--on-error", "skip")
    assert skipped.lines == ['{"id":3,"name":"three"}'], "the group goes on at the one that ended it"
    assert skipped.err.splitlines()[-1] == "1 record not decoded, skipped"
