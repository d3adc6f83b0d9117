"""The text of an Avro schema is stored as Avro's Java library prints it, since Confluent's registry does so and clients compare texts."""

import json

import pytest

from moldau.registry.schemas.avro.language import AvroLanguage
from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference

AVRO = AvroLanguage()


def record(*fields: dict[str, object], **attributes: object) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **attributes})


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('"string"', '"string"'),
        ('{"type": "string"}', '"string"'),
        ("[]", "[]"),
        # Attributes come in a set order, unknown ones after the known, aliases last, and the order of the fields only if it is odd.
        (
            (
                '{"fields":[{"type":{"type":"string","avro.java.string":"String"},"name":"x","aliases":["y"],"doc":"d","default":"q",'
                '"order":"ignore","zz":{"b":1,"a":2}}],"aliases":["Old","p.Q"],"doc":"héllo","name":"R","type":"record",'
                '"namespace":"a.b","custom":[1,2.50,1e10,1e-5]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"a.b","doc":"héllo","fields":[{"name":"x","type":{"type":"string",'
                '"avro.java.string":"String"},"doc":"d","default":"q","order":"ignore","aliases":["y"],"zz":{"b":1,"a":2}}],'
                '"custom":[1,2.5,1.0E10,1.0E-5],"aliases":["Old","p.Q"]}'
            ),
        ),
        # A dot in the name beats the namespace, and names within a namespace are short.
        (
            '{"type":"record","name":"a.b.R","namespace":"x.y","aliases":["S"],"fields":[{"name":"s","type":["null","R"]}]}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"s","type":["null","R"]}],"aliases":["S"]}',
        ),
        # Out of a namespace and back.
        (
            (
                '{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"enum","name":"E","namespace":"","symbols":["A"],'
                '"default":"A","doc":"d"}},{"name":"y","type":["null","E",{"type":"array","items":"R"}],"default":null}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":{"type":"enum","name":"E","namespace":"",'
                '"doc":"d","symbols":["A"],"default":"A"}},{"name":"y","type":["null","E",{"type":"array","items":"R"}],"default":null}]}'
            ),
        ),
        # A name used before its definition: the definition moves to the first use.
        (
            '{"type":"record","name":"A","fields":[{"name":"b","type":"B"},{"name":"c","type":{"type":"record","name":"B","fields":[]}}]}',
            '{"type":"record","name":"A","fields":[{"name":"b","type":{"type":"record","name":"B","fields":[]}},{"name":"c","type":"B"}]}',
        ),
        # The same definition twice is one definition.
        (
            record(
                {"name": "b", "type": {"type": "fixed", "name": "F", "size": 3}},
                {"name": "c", "type": {"type": "fixed", "name": "F", "size": 3}},
            ),
            '{"type":"record","name":"R","fields":[{"name":"b","type":{"type":"fixed","name":"F","size":3}},{"name":"c","type":"F"}]}',
        ),
        # Logical types are properties like others; one that is wrong is ignored by readers, and kept.
        (
            record({"name": "x", "type": {"scale": 4, "precision": 2, "logicalType": "decimal", "type": "bytes"}}),
            '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"bytes","scale":4,"precision":2,"logicalType":"decimal"}}]}',
        ),
        ('{"type":"error","name":"X","fields":[]}', '{"type":"error","name":"X","fields":[]}'),
        (
            record({"name": "x", "type": {"type": "map", "values": "long"}}),
            '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"map","values":"long"}}]}',
        ),
    ],
)
def test_a_schema_is_stored_in_the_words_of_avro(text: str, stored: str) -> None:
    schema = AVRO.parse(text)
    assert schema.canonical == stored
    assert AVRO.parse(stored).canonical == stored


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("string", "no JSON"),
        ('"int" x', "no JSON"),
        ("[NaN]", "NaN is no JSON number"),
        ("3", "at /: a schema is a name, an object or a list, not 3"),
        ('"airport"', "at /: unknown type 'airport'"),
        ("{}", "at /: a schema object needs a 'type'"),
        ('{"type": {"type": "string"}}', "at /: a schema object needs a 'type'"),
        ('{"type": "record", "name": "A"}', "at /: a record needs 'fields'"),
        ('{"type": "record", "fields": []}', "at /: a named type (record) needs a 'name'"),
        ('["null", ["int"]]', "at /1: a union may not hold a union"),
        ('["null", "null"]', "at /1: a union may not hold 'null' twice"),
        ('{"type": "array"}', "at /: an array needs 'items'"),
        ('{"type": "map"}', "at /: a map needs 'values'"),
        ('{"type": "fixed", "name": "F", "size": -1}', "at /: a fixed needs a 'size'"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "at /: an enum's symbols must differ"),
        ('{"type": "enum", "name": "E", "symbols": "A"}', "at /: an enum needs 'symbols'"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "at /: the default 'B' is no symbol"),
        ('{"type": "enum", "name": "E", "symbols": ["A b"]}', "at /: 'A b' is no name"),
        (record(namespace="a-b"), "at /: 'a-b' is no name"),
        (record(name="string"), "at /: a type may not be called 'string'"),
        (record({"name": "x"}), "at /fields/0: field 'x' needs a 'type'"),
        (record({"type": "int"}), "at /fields/0: a field needs a 'name'"),
        ('{"type": "record", "name": "R", "fields": [3]}', "at /fields/0: a field is an object"),
        (record({"name": "x-1", "type": "int"}), "at /fields/0: 'x-1' is no name"),
        (record({"name": "x", "type": "int", "order": "up"}), "at /fields/0: the order of field 'x'"),
        (record({"name": "x", "type": "int", "aliases": "y"}), "at /fields/0: 'aliases' is a list"),
        (record({"name": "x", "type": "int"}, {"name": "x", "type": "int"}), "at /fields/1: duplicate field 'x'"),
        (record({"name": "x", "type": {"type": "array", "items": ["null", "Gate"]}}), "Unknown type 'Gate' at /fields/0/type/items/1"),
        (
            record(
                {"name": "b", "type": {"type": "fixed", "name": "F", "size": 3}},
                {"name": "c", "type": {"type": "fixed", "name": "F", "size": 4}},
            ),
            "at /fields/1/type: the name 'F' is defined twice",
        ),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"type":"array","items":' * 300 + '"int"' + "}" * 300, "nested too deeply: more than 250 steps"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        AVRO.parse(text)
    assert fault in str(refused.value)


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("null", [None], [0]),
        ("boolean", [True], [0, "true"]),
        ("int", [0, -(2**31)], [2**31, 1.0, "1", True, None]),
        ("long", [2**63 - 1], [2**63]),
        ("float", [1, 1.5, "NaN"], ["1", None]),
        ("string", ["", "é"], [1, None]),
        ("bytes", ["ÿ"], ["Ā", 1]),
        ({"type": "fixed", "name": "F", "size": 2}, ["ab"], ["abc"]),
        (ENUM, ["B"], ["C", None]),
        ({"type": "array", "items": "int"}, [[], [1, 2]], [[1, "a"], {}]),
        ({"type": "map", "values": "int"}, [{}, {"a": 1}], [{"a": "b"}, []]),
        (["null", "string"], [None, "any branch will do"], [1]),
        (POINT, [{"x": 1}, {"x": 1, "y": 2}], [{}, {"y": 2}, {"x": "1"}, 3]),
    ],
)
def test_a_default_value_must_be_of_its_type(kind: object, good: list[object], bad: list[object]) -> None:
    for value in good:
        AVRO.parse(record({"name": "f", "type": kind, "default": value}))
    for value in bad:
        text = record({"name": "f", "type": kind, "default": value})
        with pytest.raises(InvalidSchemaError, match="Invalid default for field 'f' at /fields/0"):
            AVRO.parse(text)
        AVRO.parse(text, stored=True)


def test_a_schema_of_an_older_registry_is_taken_with_its_odd_names() -> None:
    assert AVRO.parse(record({"name": "x-1", "type": "int"}), stored=True).name == "R"


def test_references_are_stored_as_names_and_put_in_when_resolved() -> None:
    airport = ResolvedReference("geo.Airport", "airport", 1, '{"type":"record","name":"Airport","namespace":"geo","fields":[]}')
    schema = AVRO.parse(record({"name": "from", "type": "geo.Airport"}, {"name": "to", "type": "geo.Airport"}), [airport])
    assert schema.canonical == (
        '{"type":"record","name":"R","fields":[{"name":"from","type":"geo.Airport"},{"name":"to","type":"geo.Airport"}]}'
    )
    assert schema.formatted("resolved") == (
        '{"type":"record","name":"R","fields":[{"name":"from","type":{"type":"record","name":"Airport","namespace":"geo","fields":[]}},'
        '{"name":"to","type":"geo.Airport"}]}'
    )
    assert schema.formatted("") == schema.formatted("no such form") == schema.canonical


def test_a_fault_in_a_reference_names_the_reference() -> None:
    broken = ResolvedReference("geo.Airport", "airport", 3, '"nothing"')
    with pytest.raises(InvalidSchemaError, match=r"In reference geo.Airport \(airport 3\): .*unknown type 'nothing'"):
        AVRO.parse('"int"', [broken])


def test_normal_form_irons_out_what_means_nothing() -> None:
    one = record(
        {"name": "x", "type": {"type": "bytes", "team": 1, "scale": 2, "logicalType": "decimal", "precision": 9, "area": {"b": 1, "a": 2}}},
        {"name": "y", "type": {"type": "array", "items": {"type": "int", "b": 1, "a": 2}}, "aliases": ["q", "p"]},
        {"name": "z", "type": [{"type": "long", "b": 1, "a": 2}, "null"], "default": None},
        {"name": "m", "type": {"type": "map", "values": "int"}, "default": {"b": 1, "a": 2}},
        doc="",
        aliases=["Z", "A"],
    )
    normal = AVRO.parse(one).normalized()
    assert normal.canonical == (
        '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,'
        '"area":{"a":2,"b":1},"team":1}},{"name":"y","type":{"type":"array","items":{"type":"int","a":2,"b":1}},"aliases":["p","q"]},'
        '{"name":"z","type":[{"type":"long","a":2,"b":1},"null"],"default":null},'
        '{"name":"m","type":{"type":"map","values":"int"},"default":{"a":2,"b":1}}],"aliases":["A","Z"]}'
    )
    assert normal.normalized().canonical == normal.canonical
    assert AVRO.parse(one).canonical != normal.canonical


def test_a_scale_of_zero_stands_among_the_other_properties() -> None:
    schema = AVRO.parse('{"type": "bytes", "scale": 0, "logicalType": "decimal", "precision": 9}').normalized()
    assert schema.canonical == '{"type":"bytes","logicalType":"decimal","precision":9,"scale":0}'


def test_the_name_of_a_schema_is_that_of_its_record() -> None:
    assert AVRO.parse(record(namespace="a")).name == "a.R"
    assert AVRO.parse('"int"').name is None
