"""No schema takes more than its bounds allow, however it is made: work is counted, and what would explode is judged once (F1).

Each of these took half a minute, gigabytes or for ever. The bound on time here is wide; what they take is hundredths of a second.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.registry.schemas.avro import language as avro_language
from moldau.registry.schemas.json_schema import language as json_language
from moldau.registry.schemas.language import (
    COMPARED_PAIRS_MAX,
    JSON_NODES_MAX,
    PROTOBUF_ELEMENTS_MAX,
    TEXT_CHARACTERS_MAX,
    InvalidSchemaError,
    ResolvedReference,
    SchemaTooLargeError,
    check_size,
)
from moldau.registry.schemas.languages import language
from moldau.registry.schemas.protobuf import language as protobuf_language

WITHIN_S = 10.0
"""Of processor time, on whatever machine: without the cure each case takes minutes, or longer than anybody waits."""


@contextmanager
def soon() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < WITHIN_S


def faults(name: str, new: object, old: object, new_refs: Any = (), old_refs: Any = ()) -> set[str]:
    """The types of what forbids `new` after `old`."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (new, old)]
    reader, writer = (language(name).parse(text, refs) for text, refs in zip(texts, (new_refs, old_refs), strict=True))
    return {each.type for each in reader.check(writer)}


@pytest.mark.parametrize("text", ["/**/" * 60 + "x", "/**/" * 50_000 + "x", "// a\n" * 50_000 + "x", "/*" * 50_000, " " * 200_000 + "x"])
def test_comments_before_the_syntax_of_protobuf_are_read_once(text: str) -> None:
    with soon(), pytest.raises(InvalidSchemaError):
        language("PROTOBUF").parse(text)


@pytest.mark.parametrize("before", ["", "/**/", "/* syntax */ // edition\n\t", "/*/ **/"])
def test_the_syntax_is_found_after_comments(before: str) -> None:
    assert language("PROTOBUF").parse(before + 'syntax = "proto3"; message A { int32 x = 1; }').canonical.startswith('syntax = "proto3"')


def _chain(depth: int, leaf: str, version: int) -> tuple[str, tuple[ResolvedReference, ...]]:
    """Files of which each imports the one before and names its message twice."""
    texts = [f'syntax = "proto3"; message M0 {{ {leaf} x = 1; }}']
    for each in range(1, depth):
        below = each - 1
        texts.append(f'syntax = "proto3"; import "m{below}.proto"; message M{each} {{ M{below} a = 1; M{below} b = 2; }}')
    root = f'syntax = "proto3"; import "m{depth - 1}.proto"; message Root {{ M{depth - 1} a = 1; M{depth - 1} b = 2; }}'
    return root, tuple(ResolvedReference(f"m{each}.proto", f"m{each}", version, text) for each, text in enumerate(texts))


def test_messages_of_imports_are_compared_once_however_many_ways_lead_to_them() -> None:
    new, new_refs = _chain(40, "int32", 1)
    old, old_refs = _chain(40, "string", 2)
    with soon():
        assert faults("PROTOBUF", new, old, new_refs, old_refs) == {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}
        assert faults("PROTOBUF", new, new, new_refs, new_refs) == set()


def test_thousands_of_messages_are_compared_in_time_that_grows_with_them() -> None:
    many = 'syntax = "proto3";' + "".join(f"message M{each} {{ int32 x = 1; }}" for each in range(5_000))
    with soon():
        assert faults("PROTOBUF", many, many.replace("message M7 ", "message N7 ")) == {"MESSAGE_REMOVED"}


def test_protobuf_with_too_many_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tenth of the elements, for the time that they take."""
    monkeypatch.setattr(protobuf_language, "PROTOBUF_ELEMENTS_MAX", PROTOBUF_ELEMENTS_MAX // 10)
    many = 'syntax = "proto3";' + "".join(f"message M{each} {{}}" for each in range(PROTOBUF_ELEMENTS_MAX // 10 + 1))
    with soon(), pytest.raises(InvalidSchemaError, match="2,000 messages"):
        language("PROTOBUF").parse(many)


OPEN_A = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}}


def test_patterns_are_searched_in_linear_time() -> None:
    name = "a" * 5_000 + "b"
    with soon():
        assert faults("JSON", {**OPEN_A, "properties": {name: {"type": "string"}}}, OPEN_A) == set()
        assert faults("JSON", {**OPEN_A, "properties": {"aa": {"type": "string"}}}, OPEN_A) == {
            "TYPE_CHANGED",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        }


@pytest.mark.parametrize("pattern", ["(?=a)", "(a)\\1", "a{1001}"])
def test_a_pattern_that_needs_backtracking_cannot_be_judged_where_it_decides(pattern: str) -> None:
    old = {"type": "object", "patternProperties": {pattern: {"type": "integer"}}}
    assert faults("JSON", old, old) == set(), "it is compared as text"
    with pytest.raises(InvalidSchemaError, match="cannot be checked"):
        faults("JSON", {**old, "properties": {"a": {"type": "string"}}}, old)


def test_javascripts_escapes_in_patterns_are_understood() -> None:
    old = {"type": "object", "patternProperties": {"^\\u0041\\\\u\\/": {"type": "integer"}}}
    assert "TYPE_CHANGED" in faults("JSON", {**old, "properties": {"A\\u/": {"type": "string"}}}, old)


def test_alternatives_are_not_all_compared_with_all_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundredth of the pairs, for the time that they take."""
    for module in (json_language, avro_language):
        monkeypatch.setattr(module, "COMPARED_PAIRS_MAX", COMPARED_PAIRS_MAX // 100)

    def one_of(letter: str, count: int) -> dict[str, Any]:
        return {"oneOf": [{"type": "object", "properties": {f"{letter}{each}": {"type": "string"}}} for each in range(count)]}

    with soon(), pytest.raises(InvalidSchemaError, match=f"{COMPARED_PAIRS_MAX:,} pairs"):
        faults("JSON", one_of("p", 200), one_of("q", 200))
    union = [[{"type": "record", "name": f"{letter}{each}", "fields": []} for each in range(200)] for letter in "UV"]
    with soon(), pytest.raises(InvalidSchemaError, match=f"{COMPARED_PAIRS_MAX:,} pairs"):
        faults("AVRO", *union)


@pytest.mark.parametrize("keyword", ["enum", "required"])
def test_values_of_a_list_are_found_different_in_one_pass(keyword: str) -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
    values: list[Any] = [{"a": each} for each in range(20_000)]
    with soon():
        if keyword == "enum":
            language("JSON").parse(json.dumps({**draft4, "enum": values}))
            values = [*values, {"a": 1.0}]
        with pytest.raises(InvalidSchemaError, match="non-unique" if keyword == "enum" else "not of type 'string'"):
            language("JSON").parse(json.dumps({**draft4, keyword: values}))


@pytest.mark.parametrize(
    ("values", "unique"),
    [
        ([1, True, "1", None, [1], {"a": 1}], True), ([1, 1.0], False), ([10, 1e1], False), ([0, -0.0], False), ([False, 0], True),
        ([{"a": 1, "b": 2}, {"b": 2.00, "a": 1}], False), ([10**34 + 1, 10**34], True),
    ],
)  # fmt: skip
def test_values_are_equal_as_json_schema_has_it(values: list[Any], unique: bool) -> None:
    text = json.dumps({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"x": {"enum": values}}})
    if unique:
        language("JSON").parse(text)
    else:
        with pytest.raises(InvalidSchemaError, match="non-unique"):
            language("JSON").parse(text)


def test_a_difference_below_many_references_is_not_reported_once_for_each_way() -> None:
    def doubling(leaf: str) -> dict[str, Any]:
        steps = {
            f"d{each}": {"type": "object", "properties": {side: {"$ref": f"#/definitions/d{each + 1}"} for side in "ab"}}
            for each in range(30)
        }
        return {"$ref": "#/definitions/d0", "definitions": {**steps, "d30": {"type": leaf}}}

    with soon():
        assert faults("JSON", doubling("string"), doubling("integer")) == {"TYPE_CHANGED"}


def test_avro_types_that_many_fields_name_are_reported_once() -> None:
    def doubling(leaf: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "record", "name": "R30", "fields": [{"name": "x", "type": leaf}]}
        for each in range(29, -1, -1):
            fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{each + 1}"}]
            found = {"type": "record", "name": f"R{each}", "fields": fields}
        return found

    with soon():
        assert faults("AVRO", doubling("int"), doubling("string")) == {"TYPE_MISMATCH"}


def test_a_default_of_unions_inside_unions_is_tried_once_for_each_type() -> None:
    value: Any = "x"
    for _ in range(60):
        value = {"f": value}
    branches = [{"type": "record", "name": name, "fields": [{"name": "f", "type": ["A", "B", "int"]}]} for name in "AB"]
    schema = {"type": "record", "name": "T", "fields": [{"name": "z", "type": branches, "default": value}]}
    with soon(), pytest.raises(InvalidSchemaError, match="Invalid default"):
        language("AVRO").parse(json.dumps(schema))


@pytest.mark.parametrize("name", ["AVRO", "JSON"])
def test_json_of_too_many_values_is_refused(name: str) -> None:
    with soon(), pytest.raises(InvalidSchemaError, match=f"{JSON_NODES_MAX:,} JSON values"):
        language(name).parse(json.dumps([[]] * (JSON_NODES_MAX + 1)))


def test_texts_have_a_largest_size() -> None:
    check_size("x" * TEXT_CHARACTERS_MAX)
    with pytest.raises(SchemaTooLargeError):
        check_size("x" * (TEXT_CHARACTERS_MAX + 1))
    with pytest.raises(InvalidSchemaError, match="501 others"):
        check_size("x", [ResolvedReference(f"{each}", "s", 1, "") for each in range(501)])
    with pytest.raises(SchemaTooLargeError):
        check_size("x", [ResolvedReference(f"{each}", "s", 1, "x" * TEXT_CHARACTERS_MAX) for each in range(4)])
