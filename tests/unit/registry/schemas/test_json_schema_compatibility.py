"""What may change in a JSON Schema, by the rules that Confluent's registry publishes: each rule by its name, harmless or not."""

import json
from typing import Any

import pytest

from moldau.registry.schemas.json_schema.differences import HARMLESS
from moldau.registry.schemas.json_schema.language import JsonLanguage, ParsedJsonSchema, differences

JSON = JsonLanguage()
OLD_DRAFT = "http://json-schema.org/draft-04/schema#"
NEW_DRAFT = "https://json-schema.org/draft/2020-12/schema"
STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def schema(document: Any) -> ParsedJsonSchema:
    return JSON.parse(json.dumps(document))


def found(original: Any, update: Any) -> set[str]:
    """Every difference as `TYPE path`, harmless ones with a plus in front."""
    every = differences(schema(original).root, schema(update).root)
    return {f"{'+' if kind in HARMLESS else ''}{kind} #/{'/'.join(path)}" for kind, path in every}


def of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return of(properties, additionalProperties=False, **more)


def same(original: Any, update: Any, expected: str) -> tuple[Any, Any, set[str]]:
    return original, update, {expected} if expected else set()


@pytest.mark.parametrize(
    ("keyword", "less", "more", "name", "upper"),
    [
        ("maxLength", 1, 2, "MAX_LENGTH", True),
        ("minLength", 1, 2, "MIN_LENGTH", False),
        ("maximum", 1, 1.5, "MAXIMUM", True),
        ("minimum", 1, 1.5, "MINIMUM", False),
        ("exclusiveMaximum", 1, 2, "EXCLUSIVE_MAXIMUM", True),
        ("exclusiveMinimum", 1, 2, "EXCLUSIVE_MINIMUM", False),
        ("maxItems", 1, 2, "MAX_ITEMS", True),
        ("minItems", 1, 2, "MIN_ITEMS", False),
        ("maxContains", 1, 2, "MAX_CONTAINS", True),
        ("minContains", 1, 2, "MIN_CONTAINS", False),
        ("maxProperties", 1, 2, "MAX_PROPERTIES", True),
        ("minProperties", 1, 2, "MIN_PROPERTIES", False),
    ],
)
def test_a_limit_may_be_loosened_or_go_but_not_be_tightened_or_come(keyword: str, less: Any, more: Any, name: str, upper: bool) -> None:
    kinds = {"Length": "string", "imum": "number", "Items": "array", "Contains": "array", "Properties": "object"}
    plain = {"type": next(kind for ending, kind in kinds.items() if keyword.endswith(ending))}
    low, high = {**plain, keyword: less}, {**plain, keyword: more}
    assert found(low, low) == set()
    assert found(plain, low) == {f"{name}_ADDED #/{keyword}"}
    assert found(low, plain) == {f"+{name}_REMOVED #/{keyword}"}
    assert found(low, high) == {f"{'+' if upper else ''}{name}_INCREASED #/{keyword}"}
    assert found(high, low) == {f"{'' if upper else '+'}{name}_DECREASED #/{keyword}"}


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        # Anything may become what takes everything, and what takes nothing may become anything.
        same(STRING, {}, ""),
        same(STRING, True, ""),
        same(False, STRING, ""),
        same({}, STRING, "TYPE_CHANGED #/"),
        same(STRING, False, "TYPE_CHANGED #/"),
        same(STRING, NUMBER, "TYPE_CHANGED #/"),
        same(INTEGER, NUMBER, "+TYPE_EXTENDED #/"),
        same(NUMBER, INTEGER, "TYPE_NARROWED #/"),
        same({**STRING, "connect.type": "bytes"}, {**NUMBER, "connect.type": "bytes"}, ""),
        # Words about the schema.
        same({**STRING, "title": "a"}, {**STRING, "title": "b"}, "+TITLE_CHANGED #/"),
        same({**STRING, "description": "a"}, STRING, "+DESCRIPTION_CHANGED #/"),
        same(STRING, {**STRING, "default": "a"}, "+DEFAULT_CHANGED #/"),
        same({"$id": "a", **STRING}, {"$id": "b", **STRING}, "+ID_CHANGED #/"),
        # Patterns, multiples, listed values.
        same(STRING, {**STRING, "pattern": "a"}, "PATTERN_ADDED #/pattern"),
        same({**STRING, "pattern": "a"}, STRING, "+PATTERN_REMOVED #/pattern"),
        same({**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, "PATTERN_CHANGED #/pattern"),
        same(NUMBER, {**NUMBER, "multipleOf": 2}, "MULTIPLE_OF_ADDED #/multipleOf"),
        same({**NUMBER, "multipleOf": 2}, NUMBER, "+MULTIPLE_OF_REMOVED #/multipleOf"),
        same({**NUMBER, "multipleOf": 0.5}, {**NUMBER, "multipleOf": 10}, "MULTIPLE_OF_EXPANDED #/multipleOf"),
        same({**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 3}, "+MULTIPLE_OF_REDUCED #/multipleOf"),
        same({**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 4}, "MULTIPLE_OF_CHANGED #/multipleOf"),
        same({"enum": [1, "a"]}, {"enum": ["a", 1]}, ""),
        same({"enum": [1]}, {"enum": [1, {"x": 2}]}, "+ENUM_ARRAY_EXTENDED #/enum"),
        same({"enum": [1, 2]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED #/enum"),
        same({"enum": [1, 2]}, {"enum": [1, 3]}, "ENUM_ARRAY_CHANGED #/enum"),
        same({"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, ""),
        same({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED #/const"),
        same({"not": STRING}, {"not": {**STRING, "maxLength": 3}}, "+NOT_TYPE_NARROWED #/not"),
        same({"not": {**STRING, "maxLength": 3}}, {"not": STRING}, "NOT_TYPE_EXTENDED #/not"),
        same({"if": STRING, "then": {"minLength": 1}}, {"if": STRING, "then": {"minLength": 2}}, ""),
        # In draft 4 an exclusive limit is a word beside the limit.
        same(
            {"$schema": OLD_DRAFT, **NUMBER, "minimum": 1},
            {"$schema": OLD_DRAFT, **NUMBER, "minimum": 1, "exclusiveMinimum": True},
            "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum",
        ),
        same(
            {"$schema": OLD_DRAFT, **NUMBER, "maximum": 1, "exclusiveMaximum": True},
            {"$schema": OLD_DRAFT, **NUMBER, "maximum": 1, "exclusiveMaximum": False},
            "+EXCLUSIVE_MAXIMUM_REMOVED #/exclusiveMaximum",
        ),
    ],
)
def test_values(original: Any, update: Any, expected: set[str]) -> None:
    assert found(original, update) == expected


X = {"x": STRING}
XY = {"x": STRING, "y": NUMBER}


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        same(of(X), of({"x": NUMBER}), "TYPE_CHANGED #/properties/x"),
        same(of(X), of({"x": {**STRING, "maxLength": 3}}), "MAX_LENGTH_ADDED #/properties/x/maxLength"),
        # Required.
        same(of(X), of(X, required=["x"]), "REQUIRED_ATTRIBUTE_ADDED #/required/x"),
        same(of(X, required=["x"]), of(X), "+REQUIRED_ATTRIBUTE_REMOVED #/required/x"),
        # Open: others may be there and hold anything.
        same(of(XY), of(X), "+PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/y"),
        same(of(X), of(XY), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y"),
        same(of(X), of(XY, required=["y"]), "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y"),
        same(of(X), of({**X, "y": {}}), "+PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y"),
        same(
            of(X),
            of({**X, "y": {**NUMBER, "default": 1}}, required=["y"]),
            "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y",
        ),
        # Closed: others are refused.
        same(closed(X), closed(XY), "+OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y"),
        same(closed(X), closed(XY, required=["y"]), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y"),
        same(
            closed(X),
            closed({**X, "y": {**NUMBER, "default": 1}}, required=["y"]),
            "+REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y",
        ),
        same(closed(XY), closed(X), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/y"),
        same(closed({**X, "y": False}), closed(X), "+PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/y"),
        # The rest itself.
        same(closed(X), of(X), "+ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"),
        same(of(X), closed(X), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
        same(of(X), of(X, additionalProperties=STRING), "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"),
        same(of(X, additionalProperties=STRING), of(X), "+ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties"),
        same(of(X, additionalProperties=STRING), of(X, additionalProperties=NUMBER), "TYPE_CHANGED #/additionalProperties"),
        # Dependencies.
        same(of(X), of(X, dependencies={"x": ["y"]}), "DEPENDENCY_ARRAY_ADDED #/dependencies/x"),
        same(of(X, dependencies={"x": ["y"]}), of(X), "+DEPENDENCY_ARRAY_REMOVED #/dependencies/x"),
        same(of(X, dependencies={"x": ["y"]}), of(X, dependencies={"x": ["y", "z"]}), "DEPENDENCY_ARRAY_EXTENDED #/dependencies/x"),
        same(of(X, dependencies={"x": ["y", "z"]}), of(X, dependencies={"x": ["y"]}), "+DEPENDENCY_ARRAY_NARROWED #/dependencies/x"),
        same(of(X, dependencies={"x": ["y"]}), of(X, dependencies={"x": ["z"]}), "DEPENDENCY_ARRAY_CHANGED #/dependencies/x"),
        same(of(X), of(X, dependencies={"x": of(X)}), "DEPENDENCY_SCHEMA_ADDED #/dependencies/x"),
        same(of(X, dependencies={"x": of(X)}), of(X), "+DEPENDENCY_SCHEMA_REMOVED #/dependencies/x"),
        same(of(X, dependencies={"x": STRING}), of(X, dependencies={"x": NUMBER}), "TYPE_CHANGED #/dependencies/x"),
        same(of(X, dependentRequired={"x": ["y"]}), of(X), "+DEPENDENCY_ARRAY_REMOVED #/dependencies/x"),
        same(of(X, dependentSchemas={"x": of(X)}), of(X), "+DEPENDENCY_SCHEMA_REMOVED #/dependencies/x"),
    ],
)
def test_objects(original: Any, update: Any, expected: set[str]) -> None:
    assert found(original, update) == expected


def test_required_with_a_default_may_come() -> None:
    with_default = of({"x": {**STRING, "default": "a"}})
    assert found(with_default, {**with_default, "required": ["x"]}) == {"+REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/x"}


@pytest.mark.parametrize("rest", [{"additionalProperties": NUMBER}, {"patternProperties": {"^y": NUMBER, "(": STRING}}])
def test_a_partly_open_model_takes_what_its_rule_covers(rest: dict[str, Any]) -> None:
    half = of(X, **rest)
    covered, uncovered = of({**X, "y": INTEGER}, **rest), of({**X, "y": STRING}, **rest)
    assert found(covered, half) == {
        "+PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y",
        "+TYPE_EXTENDED #/properties/y",
    }
    assert found(uncovered, half) == {
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y",
        "TYPE_CHANGED #/properties/y",
    }
    assert found(half, of({**X, "y": NUMBER}, **rest)) == {
        "+PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y",
        "+OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y",
    }
    assert "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y" in found(half, uncovered)


def test_unevaluated_properties_close_a_model_in_late_drafts_only() -> None:
    def late(**more: Any) -> dict[str, Any]:
        return {"$schema": NEW_DRAFT, **of(X, **more)}

    place = "#/unevaluatedProperties"
    assert found(late(), late(unevaluatedProperties=False)) == {f"UNEVALUATED_PROPERTIES_REMOVED {place}"}
    assert found(late(unevaluatedProperties=False), late()) == {f"+UNEVALUATED_PROPERTIES_ADDED {place}"}
    assert found(late(), late(unevaluatedProperties=STRING)) == {f"UNEVALUATED_PROPERTIES_NARROWED {place}"}
    assert found(late(unevaluatedProperties=STRING), late()) == {f"+UNEVALUATED_PROPERTIES_EXTENDED {place}"}
    assert found(late(unevaluatedProperties=STRING), late(unevaluatedProperties=NUMBER)) == {f"TYPE_CHANGED {place}"}
    added = {"$schema": NEW_DRAFT, **of(XY, unevaluatedProperties=NUMBER)}
    assert "+PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y" in found(late(unevaluatedProperties=NUMBER), added)
    assert found(of(X), of(X, unevaluatedProperties=False)) == set()


def tuple_of(*items: Any, late: bool = False, **more: Any) -> dict[str, Any]:
    if not late:
        return {"type": "array", "items": list(items), **more}
    renamed = {("items" if name == "additionalItems" else name): value for name, value in more.items()}
    return {"$schema": NEW_DRAFT, "type": "array", "prefixItems": list(items), **renamed}


@pytest.mark.parametrize("late", [False, True])
def test_items_by_their_place(late: bool) -> None:
    def tuples(*items: Any, **more: Any) -> dict[str, Any]:
        return tuple_of(*items, late=late, **more)

    assert found(tuples(STRING), tuples(NUMBER)) == {"TYPE_CHANGED #/items/0"}
    assert found(tuples(STRING, NUMBER), tuples(STRING)) == {"+ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1"}
    assert found(tuples(STRING), tuples(STRING, NUMBER)) == {"ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"}
    assert found(tuples(STRING), tuples(STRING, True)) == {"+ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"}
    no = {"additionalItems": False}
    assert found(tuples(STRING, **no), tuples(STRING, NUMBER, **no)) == {"+ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"}
    assert found(tuples(STRING, NUMBER, **no), tuples(STRING, **no)) == {"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"}
    assert found(tuples(STRING, False, **no), tuples(STRING, **no)) == {"+ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"}
    numbers = {"additionalItems": NUMBER}
    assert found(tuples(STRING, **numbers), tuples(STRING, NUMBER, **numbers)) == {
        "+ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"
    }
    assert "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1" in found(
        tuples(STRING, **numbers), tuples(STRING, STRING, **numbers)
    )
    assert found(tuples(STRING, NUMBER, **numbers), tuples(STRING, **numbers)) == {
        "+ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"
    }
    assert "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1" in found(
        tuples(STRING, STRING, **numbers), tuples(STRING, **numbers)
    )
    assert found(tuples(STRING), tuples(STRING, **no)) == {"ADDITIONAL_ITEMS_REMOVED #/additionalItems"}
    assert found(tuples(STRING, **no), tuples(STRING)) == {"+ADDITIONAL_ITEMS_ADDED #/additionalItems"}
    assert found(tuples(STRING), tuples(STRING, **numbers)) == {"ADDITIONAL_ITEMS_NARROWED #/additionalItems"}
    assert found(tuples(STRING, **numbers), tuples(STRING)) == {"+ADDITIONAL_ITEMS_EXTENDED #/additionalItems"}


def test_items_of_one_kind() -> None:
    def array(**more: Any) -> dict[str, Any]:
        return {"type": "array", **more}

    assert found(array(items=STRING), array(items=NUMBER)) == {"TYPE_CHANGED #/items"}
    assert found(array(), array(items=NUMBER)) == {"SCHEMA_ADDED #/items"}
    assert found(array(items=NUMBER), array()) == {"+SCHEMA_REMOVED #/items"}
    assert found(array(), array(uniqueItems=True)) == {"UNIQUE_ITEMS_ADDED #/uniqueItems"}
    assert found(array(uniqueItems=True), array()) == {"+UNIQUE_ITEMS_REMOVED #/uniqueItems"}
    late = {"$schema": NEW_DRAFT}
    assert found({**late, **array(items=STRING)}, {**late, **array(items=False)}) == {
        "+SCHEMA_REMOVED #/items",
        "ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    }
    assert found({**late, **array(items=True)}, {**late, **array()}) == set()
    assert found({**late, **array()}, {**late, **array(unevaluatedItems=False)}) == {"UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"}
    assert found({**late, **array()}, {**late, **array(contains=STRING)}) == {"MIN_CONTAINS_ADDED #/minContains"}


SHORT = {"type": "string", "maxLength": 3}


@pytest.mark.parametrize(
    ("original", "update", "expected"),
    [
        # Any of, one of: more to choose from is fine.
        (STRING, {"anyOf": [NUMBER, STRING]}, {"+SUM_TYPE_EXTENDED #/"}),
        (STRING, {"oneOf": [NUMBER, STRING]}, {"+SUM_TYPE_EXTENDED #/"}),
        (STRING, {"oneOf": [STRING]}, set()),
        (STRING, {"oneOf": [NUMBER]}, {"TYPE_CHANGED #/"}),
        ({"oneOf": [STRING]}, {"oneOf": [NUMBER, STRING]}, {"+SUM_TYPE_EXTENDED #/"}),
        ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING]}, {"SUM_TYPE_NARROWED #/"}),
        ({"oneOf": [STRING]}, {"oneOf": [NUMBER]}, {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"}),
        ({"oneOf": [SHORT, NUMBER]}, {"oneOf": [NUMBER, STRING]}, {"+MAX_LENGTH_REMOVED #/oneOf/0/maxLength"}),
        # Each part needs a partner of its own, whatever the order: SHORT fits STRING only, SHORT in lower case fits both.
        (
            {"oneOf": [SHORT, {**SHORT, "pattern": "[a-z]"}]},
            {"oneOf": [{**SHORT, "pattern": "[a-z]"}, STRING]},
            {"+MAX_LENGTH_REMOVED #/oneOf/0/maxLength"},
        ),
        # All of: fewer demands are fine.
        ({"allOf": [STRING, {"enum": ["a"]}]}, {"allOf": [STRING]}, {"+PRODUCT_TYPE_NARROWED #/"}),
        ({"allOf": [STRING]}, {"allOf": [STRING, {"enum": ["a"]}]}, {"PRODUCT_TYPE_EXTENDED #/"}),
        ({"allOf": [STRING, {"enum": ["a"]}]}, STRING, {"+PRODUCT_TYPE_NARROWED #/"}),
        ({"allOf": [STRING, STRING]}, {"allOf": [STRING]}, set()),
        # From one to another.
        ({"allOf": [STRING]}, {"anyOf": [STRING, NUMBER]}, {"+COMBINED_TYPE_EXTENDED #/", "+SUM_TYPE_EXTENDED #/"}),
        ({"oneOf": [STRING]}, {"allOf": [STRING]}, {"+COMBINED_TYPE_EXTENDED #/"}),
        ({"anyOf": [STRING, NUMBER]}, {"oneOf": [STRING]}, {"COMBINED_TYPE_CHANGED #/"}),
        # Several types, several things said at once.
        ({"type": "string"}, {"type": ["string", "null"]}, {"+SUM_TYPE_EXTENDED #/"}),
        ({"type": ["string", "null"]}, {"type": "string"}, {"TYPE_CHANGED #/"}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}, {"+ENUM_ARRAY_EXTENDED #/allOf/0/enum"}),
        ({"type": "string", "enum": ["a"]}, {"type": "string"}, {"+PRODUCT_TYPE_NARROWED #/"}),
        ({"maxLength": 3, "maximum": 1}, {"maxLength": 3}, {"+PRODUCT_TYPE_NARROWED #/"}),
    ],
)
def test_schemas_of_several_parts(original: Any, update: Any, expected: set[str]) -> None:
    assert found(original, update) == expected


def tree(value: dict[str, Any]) -> dict[str, Any]:
    return {"$ref": "#/definitions/tree", "definitions": {"tree": closed({"value": value, "left": {"$ref": "#"}, "right": {"$ref": "#"}})}}


def test_circles_end_and_a_difference_inside_one_is_found() -> None:
    assert found(tree(STRING), tree(STRING)) == set()
    assert "TYPE_CHANGED #/properties/value" in found(tree(STRING), tree(NUMBER))


def test_what_was_concluded_from_a_circle_is_judged_again() -> None:
    """Inside the comparison of A with A, B fits B because A is taken to fit; A does not, so B does not fit B in the second branch."""

    def both(value: dict[str, Any]) -> dict[str, Any]:
        definitions = {
            "A": closed({"b": {"anyOf": [{"$ref": "#/definitions/B"}, {"type": "null"}]}, "v": value}),
            "B": closed({"a": {"$ref": "#/definitions/A"}}),
        }
        return {**closed({"first": {"$ref": "#/definitions/A"}, "second": {"$ref": "#/definitions/B"}}), "definitions": definitions}

    result = found(both(STRING), both(NUMBER))
    assert "TYPE_CHANGED #/properties/first/properties/v" in result
    assert "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/first/properties/b" in result
    assert "TYPE_CHANGED #/properties/second/properties/a/properties/v" in result


def test_a_reference_beside_other_words_counts_from_2019_on() -> None:
    def beside(draft: str) -> Any:
        return {"$schema": draft, "properties": {"x": {"$ref": "#/definitions/s", "maxLength": 3}}, "definitions": {"s": STRING}}

    early = "http://json-schema.org/draft-07/schema#"
    assert found(beside(early), {**beside(early), "properties": {"x": {"$ref": "#/definitions/s"}}}) == set()
    assert found(beside(NEW_DRAFT), {**beside(NEW_DRAFT), "properties": {"x": {"$ref": "#/definitions/s"}}}) == {
        "+MAX_LENGTH_REMOVED #/properties/x/maxLength",
        "+PRODUCT_TYPE_NARROWED #/properties/x",
    }


def test_only_what_does_harm_is_reported_in_the_words_of_the_registry() -> None:
    older, newer = of({"x": STRING, "y": STRING}), of({"x": {**STRING, "title": "t"}, "z": NUMBER})
    (incompatibility,) = schema(newer).check(schema(older))
    assert incompatibility.message("new", "old") == (
        '{errorType:"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The new schema has an open content model and has a '
        "property or item at path '#/properties/z' which is missing in the old schema\"}"
    )
    assert schema(older).check(schema(older)) == []
