"""A JSON Schema is stored as it was sent, less the spaces, if it is one of its draft and each of its references leads somewhere."""

import json
from typing import Any

import pytest

from moldau.registry.schemas.json_schema.language import JsonLanguage
from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference

JSON = JsonLanguage()
DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def test_order_and_digits_are_kept_and_names_sorted_only_when_normalised() -> None:
    schema = JSON.parse('{ "type": "number", "maximum": 1.50, "b": [1e2, "é"],\n "a": {"d": 1, "c": null} }')
    assert schema.canonical == '{"type":"number","maximum":1.50,"b":[1E+2,"é"],"a":{"d":1,"c":null}}'
    assert schema.normalized().canonical == '{"a":{"c":null,"d":1},"b":[1E+2,"é"],"maximum":1.50,"type":"number"}'
    assert schema.formatted("resolved") == schema.canonical


def test_a_schema_may_be_a_boolean_and_its_name_is_its_title() -> None:
    assert JSON.parse("true").canonical == "true"
    assert JSON.parse("true").name is None
    assert JSON.parse('{"title": "Airport"}').name == "Airport"
    assert JSON.parse('{"title": "Airport"}').language == "JSON"


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_draft_is_checked_by_its_own_rules(draft: str) -> None:
    JSON.parse(json.dumps({"$schema": draft, "type": "object", "properties": {"x": {"type": "integer"}}}))
    for wrong, place in [({"type": "text"}, "#/properties/x/type"), ({"minLength": -1}, "#/properties/x/minLength")]:
        text = json.dumps({"$schema": draft, "properties": {"x": wrong}})
        with pytest.raises(InvalidSchemaError) as refused:
            JSON.parse(text)
        assert f"at {place}:" in str(refused.value)
    exclusive = json.dumps({"$schema": draft, "minimum": 1, "exclusiveMinimum": True})
    if "draft-04" in draft:
        JSON.parse(exclusive)
    else:
        with pytest.raises(InvalidSchemaError, match="at #/exclusiveMinimum:"):
            JSON.parse(exclusive)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no JSON"),
        ('{"maximum": NaN}', "no JSON"),
        ("[]", "an object or a boolean, not []"),
        ("3", "an object or a boolean, not 3"),
        ("[" * 100_000, "nested too deeply"),
        ('{"$ref": "#/definitions/nothing"}', "'#/definitions/nothing' of the JSON schema cannot be resolved"),
        ('{"properties": {"x": {"items": {"$ref": "airport.json"}}}}', "'airport.json' of the JSON schema cannot be resolved"),
        ('{"$ref": "http://example.com/schema.json"}', "cannot be resolved"),
        ('{"title": "x", "properties": {"x": {"$ref": "#/title"}}}', "does not refer to a schema"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        JSON.parse(text)
    assert fault in str(refused.value)


def test_a_reference_that_leads_to_itself_is_refused_and_a_stored_one_is_found_when_it_is_followed() -> None:
    for text in ('{"properties": {"x": {"$ref": "#/properties/x"}}}', '{"$ref": "#"}'):
        with pytest.raises(InvalidSchemaError, match="leads to itself"):
            JSON.parse(text)
        stored = JSON.parse(text, stored=True)
        with pytest.raises(InvalidSchemaError, match="leads to itself"):
            stored.check(stored)


def airport(text: dict[str, Any], name: str = "airport.json") -> ResolvedReference:
    return ResolvedReference(name, "airport", 1, json.dumps(text))


def differences(newer: Any, older: Any) -> list[tuple[str, str]]:
    return [(difference.type, difference.path) for difference in newer.check(older)]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("root", "reference"),
    [
        ({}, "airport.json"),
        ({}, "./airport.json"),
        ({}, "airport.json#/definitions/code"),
        ({"$id": "http://example.com/flights/flight.json"}, "airport.json"),
        ({"$id": "http://example.com/flights/flight.json"}, "http://example.com/flights/airport.json"),
    ],
)
def test_a_reference_goes_by_its_name_from_where_it_stands(draft: str, root: dict[str, Any], reference: str) -> None:
    def flight(code: dict[str, Any]) -> Any:
        target = airport({"$schema": draft, **code, "definitions": {"code": code}})
        text = {"$schema": draft, **root, "properties": {"from": {"$ref": reference}}}
        if "draft-04" in draft:
            text = {("id" if name == "$id" else name): value for name, value in text.items()}
        return JSON.parse(json.dumps(text), [target])

    assert differences(flight({"type": "number"}), flight({"type": "number"})) == []
    assert differences(flight({"type": "number"}), flight({"type": "string"})) == [("TYPE_CHANGED", "#/properties/from")]


def test_a_reference_within_a_reference_is_found_and_a_fault_in_one_is_named() -> None:
    code = ResolvedReference("code.json", "code", 1, '{"type": "string"}')
    JSON.parse('{"$ref": "airport.json"}', [code, airport({"properties": {"code": {"$ref": "code.json"}}})])
    with pytest.raises(InvalidSchemaError, match=r"Reference airport.json \(airport 2\) is no JSON"):
        JSON.parse("{}", [ResolvedReference("airport.json", "airport", 2, "{")])


def test_the_drafts_themselves_can_be_referred_to() -> None:
    for draft in DRAFTS:
        JSON.parse(json.dumps({"$schema": draft, "properties": {"schema": {"$ref": draft}}}))


def test_a_stored_schema_is_taken_though_its_draft_refuses_it_but_not_compared() -> None:
    stored = JSON.parse('{"minLength": -1, "$ref": "#/nowhere"}', stored=True)
    assert stored.canonical == '{"minLength":-1,"$ref":"#/nowhere"}'
    with pytest.raises(InvalidSchemaError, match="at #/minLength"):
        stored.check(JSON.parse("{}"))


def test_half_a_surrogate_pair_stays_an_escape() -> None:
    assert JSON.parse(r'{"title": "\ud800é"}').canonical == r'{"title":"\ud800\u00e9"}'
