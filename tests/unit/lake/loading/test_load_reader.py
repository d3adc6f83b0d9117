"""One reader's schema says everything that any version of a subject says."""

import io
import json
from typing import Any

import fastavro
import pytest

from moldau.lake.avro.schemas import AvroSchemaError, AvroText
from moldau.lake.loading.schema import expanded, merged, reader_text


def record(*fields: Any, name: str = "Event") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each[0], "type": each[1], **(each[2] if len(each) > 2 else {})} for each in fields],
    }


def reader_of(*versions: Any) -> Any:
    """The reader's schema of versions, oldest first, as JSON."""
    whole: Any = None
    for version in versions:
        schema = expanded(AvroText(json.dumps(version)))
        whole = schema if whole is None else merged(whole, schema)
    return json.loads(reader_text(whole).text)


def read(event: dict[str, Any], writer: Any, reader: Any) -> Any:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(writer), event)
    buffer.seek(0)
    return fastavro.schemaless_reader(buffer, fastavro.parse_schema(writer), fastavro.parse_schema(reader))


def test_a_field_that_a_version_removed_is_still_read_from_older_events() -> None:
    one, two = record(("a", "int"), ("gone", "string")), record(("a", "int"), ("new", "int", {"default": 7}))
    reader = reader_of(one, two)
    assert read({"a": 1, "gone": "x"}, one, reader) == {"a": 1, "gone": "x", "new": 7}
    assert read({"a": 1, "new": 2}, two, reader) == {"a": 1, "gone": None, "new": 2}


def test_a_field_that_was_renamed_by_an_alias_stays_one_field() -> None:
    one, two = record(("old", "int")), record(("new", "int", {"aliases": ["old"]}))
    reader = reader_of(one, two)
    assert [each["name"] for each in reader["fields"]] == ["new"]
    assert read({"old": 3}, one, reader) == {"new": 3}


@pytest.mark.parametrize(
    ("old", "new", "then"),
    [
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("double", "float", "double"),
        (["null", "int"], "long", ["long", "null"]),
        ("int", ["null", "long"], ["null", "long"]),
        (["null", "long"], ["int", "null"], ["long", "null"]),
        ("string", "int", "int"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"type": "map", "values": "long"}),
    ],
)
def test_the_wider_of_two_types_counts(old: Any, new: Any, then: Any) -> None:
    assert reader_of(record(("a", old)), record(("a", new)))["fields"][0]["type"] == then


def test_enums_keep_all_symbols_and_nested_records_all_fields() -> None:
    def version(symbols: list[str], *fields: Any) -> dict[str, Any]:
        return record(("e", {"type": "enum", "name": "E", "symbols": symbols}), ("n", ["null", record(*fields, name="N")]))

    one, two = version(["A", "B"], ("x", "int")), version(["B", "C"], ("y", "int", {"default": 0}))
    reader = reader_of(one, two)
    assert reader["fields"][0]["type"]["symbols"] == ["B", "C", "A"]
    assert read({"e": "A", "n": {"x": 5}}, one, reader) == {"e": "A", "n": {"x": 5, "y": 0}}
    assert read({"e": "C", "n": {"y": 6}}, two, reader) == {"e": "C", "n": {"x": None, "y": 6}}


def test_a_named_type_is_written_out_once() -> None:
    guid = {"type": "fixed", "name": "Guid", "size": 2}
    one, two = record(("a", guid), ("b", "Guid")), record(("c", guid))
    reader = reader_of(one, two)
    assert json.dumps(reader).count('"size"') == 1
    assert read({"a": b"xy", "b": b"zz"}, one, reader_of(one, record(("a", guid)))) == {"a": b"xy", "b": b"zz"}


def test_references_are_resolved_and_nonsense_is_named() -> None:
    part = json.dumps(record(("x", "int"), name="ns.Part"))
    whole = expanded(AvroText(json.dumps(record(("p", "ns.Part"))), (part,)))
    assert whole["fields"][0]["type"]["fields"] == [{"name": "x", "type": "int"}]
    with pytest.raises(AvroSchemaError, match="not an Avro schema"):
        expanded(AvroText('{"type": "record"}'))
