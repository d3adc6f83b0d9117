"""Schemas of events: out of files that name each other's types, with the header in front; a clear line for each that cannot be."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from moldau.tracking import EventSchema, SchemaError, event_schema
from moldau.tracking.header import HEADER_SCHEMA, is_tracked_schema
from support.tracked_events import TEN_FIELDS, page_view

VISIT: dict[str, Any] = {"type": "record", "name": "Visit", "namespace": "shop", "fields": [{"name": "page", "type": "string"}]}


@dataclass
class Node:
    down: "Node | None" = None


@dataclass
class Forest:
    root: Node


def written(folder: Path, **files: Any) -> list[Path]:
    """Schema files of these contents."""
    paths = [folder / f"{name}.avsc" for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return paths


def decoded(schema: EventSchema, body: bytes) -> dict[str, Any]:
    """What fastavro reads of a body: the record without its header."""
    record = json.loads(schema.text)
    found = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema({**record, "fields": record["fields"][1:]}), None)
    assert isinstance(found, dict)
    return found


def test_the_header_is_put_in_front() -> None:
    schema = event_schema(VISIT)
    assert [field["name"] for field in schema.record["fields"]] == ["header", "page"]
    assert is_tracked_schema(json.loads(schema.text))
    assert (schema.name, schema.topic) == ("shop.Visit", "Visit")


def test_a_header_that_is_there_stays() -> None:
    for type_ in (HEADER_SCHEMA, "moldau.tracking.EventHeader"):
        schema = event_schema({**VISIT, "fields": [{"name": "header", "type": type_}, *VISIT["fields"]]})
        assert schema.text == event_schema(VISIT).text


def test_a_header_without_a_namespace_of_its_own_stands_in_that_of_the_record() -> None:
    """As registries write it where the two are one; elsewhere it is another type of that name."""
    bare = {name: value for name, value in HEADER_SCHEMA.items() if name != "namespace"}
    ours = {**VISIT, "namespace": "moldau.tracking"}
    schema = event_schema({**ours, "fields": [{"name": "header", "type": bare}, *VISIT["fields"]]})
    assert is_tracked_schema(json.loads(schema.text))
    assert schema.encode({"page": "/"}) == event_schema(ours).encode({"page": "/"})
    with pytest.raises(SchemaError, match="give this field another name"):
        event_schema({**VISIT, "fields": [{"name": "header", "type": bare}, *VISIT["fields"]]})


def test_a_field_called_header_that_is_something_else_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"^shop.Visit.header: is the header of tracked events .*give this field another name"):
        event_schema({**VISIT, "fields": [{"name": "header", "type": "string"}, *VISIT["fields"]]})
    with pytest.raises(SchemaError, match="the header is the first field"):
        event_schema({**VISIT, "fields": [*VISIT["fields"], {"name": "header", "type": HEADER_SCHEMA}]})


def test_files_that_name_types_of_each_other(tmp_path: Path) -> None:
    """Each type is defined where it is first used, later uses have its name, and namespaces are inherited."""
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "country", "type": "Country"}]}
    country = {"type": "enum", "name": "Country", "namespace": "shop", "symbols": ["CZ", "DE"]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "from", "type": "Address"},
            {"name": "to", "type": {"type": "array", "items": ["null", "shop.Address"]}},
            {"name": "others", "type": {"type": "map", "values": "Country"}},
        ],
    }
    files = written(tmp_path, order=order, address=address, country=country)
    schema = event_schema(*files)
    event = {"from": {"country": "CZ"}, "to": [None, {"country": "DE"}], "others": {"x": "CZ"}}
    assert decoded(schema, schema.encode(event)) == event
    assert schema.text.count('"symbols"') == 1
    fastavro.parse_schema(json.loads(schema.text))


def test_a_file_of_several_schemas_holds_the_event_last_unless_it_is_named(tmp_path: Path) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
    (path,) = written(tmp_path, both=[inner, outer])
    assert event_schema(path).name == "Outer"
    assert event_schema(str(path), name="Inner").name == "Inner"
    with pytest.raises(SchemaError, match="no record Other among Inner, Outer"):
        event_schema(path, name="Other")


def test_a_schema_as_text() -> None:
    assert event_schema(json.dumps(VISIT)).text == event_schema(VISIT).text
    assert event_schema(event_schema(VISIT)).name == "shop.Visit"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON"),
        ('"string"', "a file holds a record"),
        ({"type": "record", "fields": []}, "a file holds a record"),
        ({**VISIT, "fields": [{"name": "a", "type": "Nobody"}]}, "shop.Visit.a: type shop.Nobody is not defined"),
        ({**VISIT, "fields": [{"name": "a"}]}, "a field has a name and a type"),
        ({**VISIT, "fields": [{"name": "a", "type": {"type": "array"}}]}, "shop.Visit.a: no Avro type"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "an event is a record"),
        ({**VISIT, "fields": [*VISIT["fields"], *VISIT["fields"]]}, "shop.Visit has two fields of one name"),
        (
            {**VISIT, "fields": [{"name": "a", "type": "int", "default": "x"}]},
            "shop.Visit: .*Default value <x> must match",
        ),
    ],
    ids=["no JSON", "a primitive", "no name", "undefined", "no type", "no items", "an enum", "twice the field", "default"],
)
def test_a_file_that_is_no_schema_of_events(tmp_path: Path, content: Any, message: str) -> None:
    (path,) = written(tmp_path, bad=content)
    with pytest.raises(SchemaError, match=message):
        event_schema(path)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"none\.avsc: No such file"):
        event_schema(tmp_path / "none.avsc")


def test_one_name_for_two_types(tmp_path: Path) -> None:
    files = written(tmp_path, one=VISIT, two={**VISIT, "fields": []})
    with pytest.raises(SchemaError, match=r"two\.avsc: type shop\.Visit is already defined otherwise in .*one\.avsc"):
        event_schema(*files)


def test_a_type_that_holds_itself() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {
                "name": "root",
                "type": {
                    "type": "record",
                    "name": "Node",
                    "fields": [{"name": "n", "type": "int"}, {"name": "down", "type": {"type": "array", "items": "Node"}}],
                },
            }
        ],
    }
    schema, event = event_schema(tree), {"root": {"n": 1, "down": [{"n": 2, "down": []}]}}
    assert decoded(schema, schema.encode(event)) == event


def test_an_event_that_holds_events_of_its_own_type_is_refused() -> None:
    """The header would be part of the inner ones too, which get none: declared, and never tracked."""
    message = r"^{}: an event does not hold others of its type, which would each have a header; put it in a record"
    below = {"type": "record", "name": "Below", "fields": [{"name": "up", "type": {"type": "map", "values": "shop.Tree"}}]}
    for down in ({"type": "array", "items": "Tree"}, ["null", "shop.Tree"], below):
        tree = {"type": "record", "name": "Tree", "namespace": "shop", "fields": [{"name": "down", "type": down}]}
        with pytest.raises(SchemaError, match=message.format(r"shop\.Tree")):
            event_schema(tree)
    with pytest.raises(SchemaError, match=message.format("Node")):
        event_schema(Node)
    schema = event_schema(Forest)
    assert decoded(schema, schema.encode(Forest(Node(Node())))) == {"root": {"down": {"down": None}}}


def test_an_event_is_what_fastavro_writes() -> None:
    schema = event_schema(TEN_FIELDS)
    for number in range(4):
        assert decoded(schema, schema.encode(page_view(number))) == page_view(number)


def test_what_has_a_default_may_be_left_out() -> None:
    schema = event_schema(TEN_FIELDS)
    event = page_view(1)
    del event["referrer"]
    assert decoded(schema, schema.encode(event)) == {**event, "referrer": None}
