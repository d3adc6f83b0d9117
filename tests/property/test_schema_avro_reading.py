"""What Moldau says of two Avro schemas is what fastavro does with data: compatible data is read, and a fault is a fault for some datum.

The writer's schema is random, the reader's is the writer's with a few random changes. If they are judged compatible, a random datum
written with the one is read with the other. If not, fastavro refuses the pair, or one of some data that reach every branch and
every symbol.
"""

import io
import json
from typing import Any

import fastavro
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moldau.registry.schemas.avro.language import AvroLanguage
from support.sizes import sized

AVRO = AvroLanguage()
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
VALUES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True],
    "int": [7],
    "long": [2**40],
    "float": [1.5],
    "double": [2.5],
    "bytes": [b"ab"],
    "string": ["cd"],
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0, names: list[str] | None = None, in_union: bool = False) -> Any:
    """A schema whose names are new each time, so that no name is defined twice."""
    names = [] if names is None else names
    kinds = ["primitive"] * 3 if depth > 2 else ["primitive", "array", "map", "fixed", "enum", "record", "record"]
    kind = draw(st.sampled_from(kinds if in_union or depth > 2 else [*kinds, "union"]))
    match kind:
        case "array":
            return {"type": "array", "items": draw(schemas(depth + 1, names))}
        case "map":
            return {"type": "map", "values": draw(schemas(depth + 1, names))}
        case "union":
            branches = draw(st.lists(schemas(depth + 1, names, True), min_size=1, max_size=3))
            return list({branch_key(branch): branch for branch in branches}.values())
        case "primitive":
            return draw(st.sampled_from(PRIMITIVES))
    names.append(f"N{len(names)}")
    name = names[-1]
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 2))}
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": draw(st.permutations(["X", "Y", "Z"]))[: draw(st.integers(1, 3))]}
    fields = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
    return {"type": "record", "name": name, "fields": [{"name": field, "type": draw(schemas(depth + 1, names))} for field in fields]}


def branch_key(branch: Any) -> str:
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with some changes of those that people make."""
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, schema, schema, *PRIMITIVES[2:]]))
    if isinstance(schema, list):
        branches = [draw(changed(branch)) for branch in schema] if draw(st.booleans()) else schema[draw(st.integers(0, 1)) :] or schema
        return list({branch_key(branch): branch for branch in branches}.values())
    match schema["type"]:
        case "array":
            return {**schema, "items": draw(changed(schema["items"]))}
        case "map":
            return {**schema, "values": draw(changed(schema["values"]))}
        case "fixed":
            return {**schema, "size": draw(st.sampled_from([schema["size"], schema["size"], 3]))}
        case "enum":
            symbols = draw(st.sampled_from([schema["symbols"], schema["symbols"][1:] or ["W"], [*schema["symbols"], "W"]]))
            return {**schema, "symbols": symbols, **draw(st.sampled_from([{}, {"default": symbols[0]}]))}
    fields = [{"name": field["name"], "type": draw(changed(field["type"]))} for field in schema["fields"]]
    added: list[Any] = [[], [{"name": "new", "type": "int", "default": 3}], [{"name": "new", "type": "int"}]]
    kept = fields[draw(st.integers(0, 1)) :] + draw(st.sampled_from(added))
    return {**schema, "fields": kept, "name": draw(st.sampled_from([schema["name"]] * 5 + [schema["name"] + "renamed"]))}


def data(schema: Any) -> list[Any]:
    """Some data of the schema, among them one for each branch and each symbol."""
    if isinstance(schema, str):
        return VALUES[schema]
    if isinstance(schema, list):
        return [(branch_key(branch), datum) for branch in schema for datum in data(branch)]
    match schema["type"]:
        case "array":
            return [[datum] for datum in data(schema["items"])]
        case "map":
            return [{"key": datum} for datum in data(schema["values"])]
        case "fixed":
            return [b"x" * schema["size"]]
        case "enum":
            return list(schema["symbols"])
    each = {field["name"]: data(field["type"]) for field in schema["fields"]}
    most = max((len(values) for values in each.values()), default=1)
    if any(not values for values in each.values()):
        return []
    return [{name: values[index % len(values)] for name, values in each.items()} for index in range(most)]


def is_read(reader: Any, writer: Any, datum: Any) -> bool:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(writer), datum)
    written.seek(0)
    try:
        fastavro.schemaless_reader(written, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    except (fastavro.read.SchemaResolutionError, ValueError, KeyError, TypeError):
        return False
    return True


@settings(max_examples=sized(80, 2500), deadline=None)
@given(st.data())
def test_the_verdict_is_what_reading_shows(source: st.DataObject) -> None:
    writer = source.draw(schemas())
    reader = source.draw(changed(writer))
    written = data(writer)
    assume(written)
    found = AVRO.parse(json.dumps(reader)).check(AVRO.parse(json.dumps(writer)))
    reads = [is_read(reader, writer, datum) for datum in written]
    if found:
        assert not all(reads), f"{found} but fastavro reads {written} of {writer} with {reader}"
    else:
        assert all(reads), f"no fault found, but fastavro does not read {written} of {writer} with {reader}"


@settings(max_examples=sized(80, 2000), deadline=None)
@given(schemas())
def test_the_stored_text_says_the_same_as_the_text_given(schema: Any) -> None:
    parsed = AVRO.parse(json.dumps(schema))
    again = AVRO.parse(parsed.canonical)
    assert again.canonical == parsed.canonical
    assert parsed.normalized().normalized().canonical == parsed.normalized().canonical
    assert not parsed.check(again)
    assert not again.check(parsed)
    canonical = fastavro.schema.to_parsing_canonical_form
    assert canonical(json.loads(parsed.canonical)) == canonical(schema)
