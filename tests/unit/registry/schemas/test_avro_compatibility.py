"""Two Avro schemas are compatible when Avro's schema resolution can read with the one what was written with the other."""

import json
from typing import Any

import pytest

from moldau.registry.schemas.avro.language import AvroLanguage

AVRO = AvroLanguage()


def record(*fields: dict[str, Any], name: str = "R", **attributes: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def enum(*symbols: str, name: str = "E", **attributes: object) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def differences(reader: object, writer: object) -> list[tuple[str, str, str | None]]:
    found = AVRO.parse(json.dumps(reader)).check(AVRO.parse(json.dumps(writer)))
    return [(difference.type, difference.path, difference.additional) for difference in found]


X = {"name": "x", "type": "int"}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        *[(to, "int") for to in ("int", "long", "float", "double")],
        *[(to, "long") for to in ("float", "double")],
        ("double", "float"),
        ("string", "bytes"),
        ("bytes", "string"),
        (["null", "string"], "string"),
        (["null", "double"], "int"),
        ("long", ["int", "long"]),
        (["null", "long"], ["int", "null"]),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        (fixed(2), fixed(2)),
        (enum("A", "B"), enum("A")),
        (enum("A", default="A"), enum("A", "B")),
        (record(), record(X)),
        (record(X, {"name": "y", "type": "int", "default": 1}), record(X)),
        (record({"name": "y", "type": "long", "aliases": ["x"]}), record(X)),
        (record({"name": "x", "type": "int", "aliases": ["x"]}), record(X)),
        # Only the last part of a name counts; an alias is a full name.
        (record(X, namespace="new"), record(X, namespace="old")),
        (record(X, name="S", aliases=["R"]), record(X)),
        (enum("A", name="G", aliases=["old.E"]), enum("A", namespace="old")),
        # A list of itself.
        (record({"name": "next", "type": ["null", "R"]}), record({"name": "next", "type": ["null", "R"]})),
    ],
)
def test_the_reader_can_read(reader: object, writer: object) -> None:
    assert differences(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("int", "long", ("TYPE_MISMATCH", "/", "reader type: INT not compatible with writer type: LONG")),
        ("null", "int", ("TYPE_MISMATCH", "/", "reader type: NULL not compatible with writer type: INT")),
        (
            {"type": "array", "items": "int"},
            {"type": "map", "values": "int"},
            ("TYPE_MISMATCH", "/", "reader type: ARRAY not compatible with writer type: MAP"),
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "long"},
            ("TYPE_MISMATCH", "/items", "reader type: INT not compatible with writer type: LONG"),
        ),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": "null"},
            ("TYPE_MISMATCH", "/values", "reader type: INT not compatible with writer type: NULL"),
        ),
        ("int", ["int", "string"], ("TYPE_MISMATCH", "/1", "reader type: INT not compatible with writer type: STRING")),
        (["null", "int"], "string", ("MISSING_UNION_BRANCH", "/", "reader union lacking writer type: STRING")),
        (["null", "int"], ["null", "string"], ("MISSING_UNION_BRANCH", "/1", "reader union lacking writer type: STRING")),
        (fixed(2), fixed(3), ("FIXED_SIZE_MISMATCH", "/size", "expected: 3, found: 2")),
        (fixed(2, "G"), fixed(2), ("NAME_MISMATCH", "/name", "expected: F")),
        (enum("A"), enum("A", "C", "B"), ("MISSING_ENUM_SYMBOLS", "/symbols", "[B, C]")),
        (record(X, name="S"), record(X, namespace="a"), ("NAME_MISMATCH", "/name", "expected: a.R")),
        (record(X, {"name": "gate", "type": "int"}), record(X), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", "gate")),
        # A default symbol is for unknown symbols, not for a missing field.
        (record({"name": "e", "type": enum("A", default="A")}), record(), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "e")),
        (
            record(X, {"name": "n", "type": record({"name": "y", "type": "int"}, name="N")}),
            record(X, {"name": "n", "type": record({"name": "y", "type": "string"}, name="N")}),
            ("TYPE_MISMATCH", "/fields/1/type/fields/0/type", "reader type: INT not compatible with writer type: STRING"),
        ),
        # Two fields of the writer go by the names of one of the reader's.
        (
            record({"name": "x", "type": "int", "aliases": ["y"]}),
            record(X, {"name": "y", "type": "int"}),
            ("NAME_MISMATCH", "/fields/0", "expected one of: x, y"),
        ),
        # Deep in a circle.
        (
            record({"name": "next", "type": ["null", "R"]}, {"name": "x", "type": "int"}),
            record({"name": "next", "type": ["null", "R"]}, {"name": "x", "type": "string"}),
            ("TYPE_MISMATCH", "/fields/1/type", "reader type: INT not compatible with writer type: STRING"),
        ),
    ],
)
def test_the_reader_cannot_read_and_the_place_is_named(reader: object, writer: object, expected: tuple[str, str, str]) -> None:
    assert expected in differences(reader, writer)


def test_every_fault_is_reported() -> None:
    reader = record({"name": "a", "type": "int"}, {"name": "b", "type": "int"}, {"name": "c", "type": fixed(1)}, name="S")
    writer = record({"name": "a", "type": "string"}, {"name": "c", "type": fixed(2)})
    assert [difference[0] for difference in differences(reader, writer)] == [
        "NAME_MISMATCH",
        "TYPE_MISMATCH",
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "FIXED_SIZE_MISMATCH",
    ]


def test_what_was_concluded_from_a_circle_is_judged_again() -> None:
    """While the branch A is tried for the writer's C, B is judged readable because A and C are under way. A does not fit, C does: `u` is
    readable. `b` is not, since its A still has to read a C."""

    def schema(inside: str, u: object) -> dict[str, Any]:
        return record({"name": "u", "type": u}, {"name": "b", "type": record({"name": "c", "type": inside}, name="B")})

    holder = {"name": "b", "type": ["null", "B"]}
    reader = schema("A", [record(holder, name="A"), record(name="C")])
    writer = schema("C", record(holder, name="C"))
    assert differences(reader, writer) == [("NAME_MISMATCH", "/fields/0/type/name", "expected: C")]
