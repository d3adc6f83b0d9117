"""The reason for an incompatible schema is one line that names the field, whichever registry it comes from."""

import json

import pytest

from moldau.registry.client_errors import LENGTH_MAX, reasons

NEW = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "mail", "type": "string"}]}},
        ],
    }
)
OLD = NEW.replace('"id"', '"number"')
PROTO = 'syntax = "proto3"; message Other { string no = 1; } message Order { string id = 1; repeated int32 items = 12; }'


def mismatch(path: str, first: str = "new", second: str = "old", quote: str = "'") -> str:
    sentence = f"The type (path '{path}') of a field in the {first} schema does not match with the {second} schema"
    more = "reader type: INT not compatible with writer type: STRING"
    return f"{{errorType:{quote}TYPE_MISMATCH{quote}, description:{quote}{sentence}{quote}, additionalInfo:{quote}{more}{quote}}}"


@pytest.mark.parametrize(
    ("path", "field"), [("/fields/0/type", "id"), ("/fields/1/type/fields/0/type", "buyer.mail"), ("/fields/0/type/1", "id")]
)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_field_that_is_counted_is_named(path: str, field: str, quote: str) -> None:
    told = f"{mismatch(path, quote=quote)}, {{oldSchemaVersion: 3}}, {{oldSchema: '{OLD}'}}, {{compatibility: 'BACKWARD'}}"
    (reason,) = reasons(told, NEW)
    assert reason.startswith(f"field '{field}': The type (path '{path}') of a field in the new schema")
    assert reason.endswith("the old schema (version 3) (reader type: INT not compatible with writer type: STRING)")


def test_where_the_old_schema_reads_the_field_is_one_of_it() -> None:
    told = f"{mismatch('/fields/0/type', 'old', 'new')}, {{oldSchemaVersion: 1}}, {{oldSchema: '{OLD}'}}"
    assert reasons(told, NEW)[0].startswith("field 'number': ")


def test_a_field_of_protobuf_is_named_by_its_number() -> None:
    told = (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/Order/12\' in the new schema differs"}'
    )
    assert reasons(told, PROTO) == ["field 'items': The kind of a SCALAR field at path '#/Order/12' in the new schema differs"]


def test_all_reasons_are_reported_once_and_those_that_name_their_field_stay_as_they_are() -> None:
    other = "{errorType:'X', description:'The field 'x' at path '/fields/0' in the new schema has no default', additionalInfo:'x'}"
    refused = f"Schema being registered is incompatible, details: [{other}, {other}, {mismatch('/fields/9')}, {{oldSchemaVersion: 1}}]"
    first, second = reasons(refused, NEW)
    assert first == "The field 'x' at path '/fields/0' in the new schema has no default"
    assert second.startswith("The type (path '/fields/9')")


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "7", "null"])
def test_a_text_that_is_no_schema_does_no_harm(text: str) -> None:
    assert reasons(mismatch("/fields/0/type"), text)[0].startswith("The type")


def test_other_texts_are_shown_from_their_beginning() -> None:
    assert reasons("Something\n  else", NEW) == ["Something else"]
    assert len(reasons("long " * 1000, NEW)[0]) == LENGTH_MAX + 3
