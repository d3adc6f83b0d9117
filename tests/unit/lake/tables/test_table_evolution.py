"""A table follows its events: it gains columns and widens numbers, and refuses the rest by name."""

import json
from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.tables.format import TableMismatchError
from moldau.lake.tables.rewriting import fit
from moldau.lake.tables.schemas import evolve, from_json, storable, storable_schema, to_json

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def struct(**fields: Any) -> Any:
    return pa.struct(list(fields.items()))


def listed(kind: Any) -> Any:
    return pa.list_(pa.field("element", kind))


def mapped(kind: Any) -> Any:
    return pa.map_(TEXT, kind)


@pytest.mark.parametrize(
    ("table", "events", "then", "added", "widened"),
    [
        ({"a": INT}, {"a": INT}, {"a": INT}, (), ()),
        ({"a": INT}, {"b": TEXT, "a": INT}, {"a": INT, "b": TEXT}, ("b",), ()),
        ({"a": INT, "b": TEXT}, {"b": TEXT}, {"a": INT, "b": TEXT}, (), ()),
        ({"a": INT}, {"a": LONG}, {"a": LONG}, (), ("a",)),
        ({"a": LONG}, {"a": INT}, {"a": LONG}, (), ()),
        ({"a": pa.float32()}, {"a": pa.float64()}, {"a": pa.float64()}, (), ("a",)),
        ({"a": struct(x=INT)}, {"a": struct(y=TEXT, x=LONG)}, {"a": struct(x=LONG, y=TEXT)}, ("a.y",), ("a.x",)),
        ({"a": listed(INT)}, {"a": listed(LONG)}, {"a": listed(LONG)}, (), ("a.element",)),
        ({"a": mapped(struct(x=INT))}, {"a": mapped(struct(z=INT))}, {"a": mapped(struct(x=INT, z=INT))}, ("a.value.z",), ()),
    ],
)  # fmt: skip
def test_what_a_table_becomes(table: dict[str, Any], events: dict[str, Any], then: dict[str, Any], added: Any, widened: Any) -> None:
    found = evolve("t", pa.schema(list(table.items())), pa.schema(list(events.items())))
    assert (found.schema, found.added, found.widened) == (pa.schema(list(then.items())), added, widened)
    assert found.changes == bool(added or widened)


@pytest.mark.parametrize(
    ("table", "events", "message"),
    [
        ({"a": INT}, {"a": TEXT}, "t: column a is int32 in the table and string in the events"),
        ({"a": LONG}, {"a": pa.float64()}, "t: column a is int64 in the table and double in the events"),
        ({"a": struct(x=INT)}, {"a": struct(x=TEXT)}, "t: column a.x is int32"),
        ({"a": listed(INT)}, {"a": INT}, "t: column a is list<element: int32>"),
        ({"a": INT}, {"A": INT}, "t: column A differs from column a in capital letters only"),
    ],
)
def test_what_a_table_refuses(table: dict[str, Any], events: dict[str, Any], message: str) -> None:
    with pytest.raises(TableMismatchError, match=message):
        evolve("t", pa.schema(list(table.items())), pa.schema(list(events.items())))


def test_rows_fit_into_the_columns_of_a_table() -> None:
    """Whatever is missing is null, whatever is narrower becomes wider, at any depth."""
    rows: list[dict[str, Any]] = [
        {"a": 1, "s": {"x": 1}, "l": [1, 2], "m": [("k", {"x": 5})]},
        {"a": None, "s": None, "l": None, "m": None},
        {"a": 3, "s": {"x": None}, "l": [], "m": []},
        {"a": 4, "s": {"x": 4}, "l": [None, 7], "m": [("p", None), ("q", {"x": 6})]},
    ]
    old = pa.schema([("a", INT), ("s", struct(x=INT)), ("l", listed(INT)), ("m", pa.map_(TEXT, struct(x=INT)))])
    structs = [("m", mapped(struct(y=TEXT, x=LONG))), ("s", struct(x=LONG, y=listed(INT)))]
    new = pa.schema([("new", TEXT), *structs, ("l", listed(LONG)), ("a", LONG)])
    table = pa.Table.from_pylist(rows, schema=old)
    for view, expected in ((table, rows), (table.slice(1, 3), rows[1:]), (table.slice(0, 0), [])):
        found = fit(view, new)
        assert found.schema == new
        found.validate(full=True)
        for row, was in zip(found.to_pylist(), expected, strict=True):
            entries = was["m"] if was["m"] is None else [(k, None if v is None else {"y": None, **v}) for k, v in was["m"]]
            inner = None if was["s"] is None else {**was["s"], "y": None}
            assert row == {"new": None, "m": entries, "l": was["l"], "s": inner, "a": was["a"]}


def test_types_without_a_word_in_spark_are_stored_as_the_next_one() -> None:
    assert storable(pa.binary(16)) == pa.binary()
    assert storable(pa.dictionary(pa.int8(), TEXT)) == TEXT
    assert storable(pa.timestamp("ns")) == pa.timestamp("us", tz="UTC")
    assert storable(pa.null()) == TEXT
    assert storable(pa.uint32()) == LONG
    assert storable(pa.large_list(pa.time64("us"))) == listed(LONG)
    with pytest.raises(ValueError, match="column u: a table cannot hold values of type dense_union"):
        storable_schema(pa.schema([("u", pa.dense_union([pa.field("x", INT)]))]))
    ids = pa.table({"guid": pa.array([b"x" * 16, None], pa.binary(16)), "e": pa.array(["a", "b"]).dictionary_encode()})
    assert fit(ids, storable_schema(ids.schema)).to_pylist() == ids.to_pylist()


def test_a_schema_comes_back_from_its_json_and_delta_reads_it() -> None:
    from deltalake import Schema

    plain = [INT, LONG, TEXT, pa.binary(), pa.bool_(), pa.date32(), pa.int8(), pa.int16(), pa.float32(), pa.float64()]
    others = [pa.decimal128(12, 3), pa.timestamp("us", tz="UTC"), struct(x=listed(mapped(LONG)))]
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate([*plain, *others])])
    assert from_json(to_json(schema)) == schema

    assert json.loads(Schema.from_json(json.dumps(to_json(schema))).to_json())["fields"] == to_json(schema)["fields"]
    with pytest.raises(
        ValueError,
        match=r"a column of type variant is not known here; there are byte, short, integer, long, .*, struct; and .*int for integer",
    ):
        from_json({"fields": [{"name": "v", "type": "variant"}]})
