"""What Moldau says of two JSON Schemas is what validation shows: what fitted the older schema fits a newer one that is compatible.

The older schema is random and so is a value that fits it; the newer schema is the older with a few random changes. The converse does
not hold: the rules refuse some changes that would do no harm (a pattern that says more in other words).
"""

from decimal import Decimal
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.registry.schemas.json_schema.documents import read_json, write_json
from moldau.registry.schemas.json_schema.language import JsonLanguage, ParsedJsonSchema
from support.sizes import sized

JSON = JsonLanguage()
LIMITS = {
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.5, "", "a", "ab", "abc"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> Any:
    """Schemas with a type each, so that what they say of one type is said of that type alone."""
    kinds = ["string", "number", "integer", "boolean", "null", "enum", "types"]
    kind = draw(st.sampled_from(kinds if depth > 1 else [*kinds, "array", "object", "object", "anyOf", "allOf", "not"]))
    if kind == "enum":
        return {"enum": draw(st.lists(SCALARS, min_size=1, max_size=3))}
    if kind == "types":
        return {"type": draw(st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, max_size=3, unique=True))}
    if kind in ("anyOf", "allOf"):
        return {kind: draw(st.lists(schemas(depth + 1), min_size=1, max_size=3))}
    if kind == "not":
        return {"not": draw(schemas(depth + 1))}
    limits = (
        {limit: draw(st.integers(0, 3)) for limit in draw(st.sets(st.sampled_from(LIMITS[kind]), max_size=1))} if kind in LIMITS else {}
    )
    schema: dict[str, Any] = {"type": kind, **limits}
    if kind == "array":
        schema["items"] = draw(schemas(depth + 1))
    if kind == "object":
        schema["properties"] = draw(st.dictionaries(st.sampled_from("abc"), schemas(depth + 1), max_size=3))
        schema["required"] = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=2).filter(set(schema["properties"]).issuperset))
        schema["additionalProperties"] = draw(st.sampled_from([True, False, False]) | schemas(depth + 1))
    return schema


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with some changes of those that people make."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([{"anyOf": [schema, {"type": "null"}]}, {"allOf": [schema]}, {}]) | schemas(1))
    result = dict(schema)
    for keyword in ("anyOf", "allOf"):
        if keyword in schema:
            result[keyword] = [draw(changed(part)) for part in draw(st.permutations(schema[keyword]))][: draw(st.integers(1, 3))]
    for keyword in ("not", "items"):
        if keyword in schema:
            result[keyword] = draw(changed(schema[keyword]))
    if "enum" in schema:
        result["enum"] = [*schema["enum"], *draw(st.lists(SCALARS, max_size=1))]
    for limit in LIMITS.get(schema["type"], ()) if isinstance(schema.get("type"), str) else ():
        if limit in schema:
            result[limit] = schema[limit] + draw(st.integers(-1, 1))
    if "properties" in schema:
        kept = {name: draw(changed(part)) for name, part in schema["properties"].items() if draw(st.integers(0, 3))}
        result["properties"] = kept | draw(st.dictionaries(st.sampled_from("abc"), schemas(2), max_size=1))
        result["required"] = [name for name in schema["required"] if name in result["properties"]]
    if schema.get("type") == "integer":
        result["type"] = draw(st.sampled_from(["integer", "number"]))
    if any(value == -1 for value in result.values() if type(value) is int and result.get("type") not in ("number", "integer")):
        return schema
    return result


@settings(max_examples=sized(50, 1200), deadline=None)
@given(st.data())
def test_what_fitted_fits_after_a_change_that_is_called_compatible(source: st.DataObject) -> None:
    older = source.draw(schemas())
    newer = source.draw(changed(older))
    if parsed(newer).check(parsed(older)):
        return
    before, after = jsonschema.Draft7Validator(older), jsonschema.Draft7Validator(newer)
    for value in source.draw(st.lists(VALUES, min_size=3, max_size=8)):
        if before.is_valid(value):
            assert after.is_valid(value), f"{value} fits {older} but not {newer}"


def parsed(schema: Any) -> ParsedJsonSchema:
    """Taken as a stored one, since checking it by its draft costs more than all the rest."""
    return JSON.parse(write_json(plain(schema)), stored=True)


def plain(value: Any) -> Any:
    """With decimals for floats, as a text is read."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return Decimal(str(value)) if isinstance(value, float) else value


@settings(max_examples=sized(25, 600), deadline=None)
@given(schemas())
def test_a_schema_is_compatible_with_itself_and_with_its_normal_form(schema: Any) -> None:
    original = parsed(schema)
    assert original.check(JSON.parse(original.canonical)) == []
    assert original.check(original.normalized()) == []
    assert read_json(original.normalized().canonical, "the schema") == read_json(original.canonical, "the schema")
