"""Pairs of Avro schemas, and events of the first, for properties: a writer's, and what a reader may have made of it since."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Schema = Any
Event = Any
_PROMOTIONS = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
_LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.integers(0, 63).map(lambda bits: (1 << bits) - 1)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70),
    "long": _LONGS,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=8) | st.sampled_from(["", "x" * 70, "é" * 40]),
}
_LOGICAL: dict[str, list[Any]] = {
    "int": ["date", "time-millis"],
    "long": ["timestamp-millis", "timestamp-micros", "local-timestamp-millis", "time-micros", "timestamp-nanos"],
    "string": ["uuid"],
    "bytes": [{"logicalType": "decimal", "precision": 12, "scale": 3}, {"logicalType": "decimal", "precision": 30, "scale": 0}],
}


@dataclass(frozen=True)
class Kind:
    """A type of the writer's, values of it, and what the reader may have instead."""

    writer: Schema
    reader: Schema
    values: st.SearchStrategy[Any]
    takes_no_bytes: bool = False
    """Arrays of it are refused."""


@st.composite
def kinds(draw: st.DrawFn, counter: list[int], depth: int) -> Kind:
    """Any type, the fast decoder's mostly."""
    choice = draw(st.integers(0, 23))
    if choice < 9 or depth == 0:
        return draw(_primitives())
    counter[0] += 1
    name = f"N{counter[0]}"
    if choice == 9:
        size = draw(st.integers(1, 20))
        fixed = {"type": "fixed", "name": name, "size": size}
        return Kind(fixed, fixed, st.binary(min_size=size, max_size=size))
    if choice == 10:
        symbols = ["A", "B", "C"][: draw(st.integers(1, 3))]
        known = draw(st.sampled_from([symbols, ["C", "B", "A"], ["A"]]))
        default = {"default": known[0]} if draw(st.booleans()) else {}
        return Kind(
            {"type": "enum", "name": name, "symbols": symbols},
            {"type": "enum", "name": name, "symbols": known, **default},
            st.sampled_from(symbols),
        )
    if choice < 15:
        inner = draw(kinds(counter, depth - 1).filter(lambda kind: not isinstance(kind.writer, list) and kind.writer != "null"))
        if isinstance(inner.reader, list):
            inner = Kind(inner.writer, inner.writer, inner.values)
        order = draw(st.booleans())
        writer = ["null", inner.writer] if order else [inner.writer, "null"]
        reader = draw(st.sampled_from([["null", inner.reader], [inner.reader, "null"], inner.reader]))
        return Kind(writer, reader, st.none() | inner.values)
    if choice < 18:
        return draw(records(counter, depth - 1, name))
    items = draw(kinds(counter, depth - 1).filter(lambda kind: not kind.takes_no_bytes))
    most = draw(st.sampled_from([1, 3, 3, 12]))
    if choice < 21:
        lists = st.lists(items.values, max_size=most)
        return Kind({"type": "array", "items": items.writer}, {"type": "array", "items": items.reader}, lists)
    maps = st.dictionaries(st.text(max_size=3), items.values, max_size=most)
    return Kind({"type": "map", "values": items.writer}, {"type": "map", "values": items.reader}, maps)


@st.composite
def _primitives(draw: st.DrawFn) -> Kind:
    name = draw(st.sampled_from(sorted(_VALUES)))
    promoted = draw(st.sampled_from([name, name, *_PROMOTIONS.get(name, [])]))
    reader: Schema = promoted
    if promoted in _LOGICAL and draw(st.booleans()):
        logical = draw(st.sampled_from(_LOGICAL[promoted]))
        reader = {"type": promoted, **(logical if isinstance(logical, dict) else {"logicalType": logical})}
    if name != "null" and draw(st.integers(0, 5)) == 0:
        reader = ["null", reader]
    return Kind(name, reader, _VALUES[name], takes_no_bytes=name == "null")


@st.composite
def records(draw: st.DrawFn, counter: list[int], depth: int, name: str) -> Kind:
    """A record; the reader may lack fields, have others with defaults, in another order and under other names."""
    fields = draw(st.lists(kinds(counter, depth), min_size=1, max_size=5))
    writer = [{"name": f"f{number}", "type": kind.writer} for number, kind in enumerate(fields)]
    reader = []
    for number, kind in enumerate(fields):
        fate = draw(st.integers(0, 9))
        if fate == 0 and len(fields) > 1:
            continue
        if fate == 1:
            reader.append({"name": f"g{number}", "aliases": [f"f{number}"], "type": kind.reader})
        else:
            reader.append({"name": f"f{number}", "type": kind.reader})
    if not reader:
        reader = [{"name": "f0", "type": fields[0].reader}]
    if draw(st.integers(0, 3)) == 0:
        added: list[tuple[Any, Any]] = [("long", 7), ("bytes", "\u00ff\u0001"), (["null", "string"], None), ("float", 1)]
        new, default = draw(st.sampled_from(added))
        reader.append({"name": "added", "type": new, "default": default})
    if draw(st.booleans()):
        reader = draw(st.permutations(reader))
    values = st.fixed_dictionaries({f"f{number}": kind.values for number, kind in enumerate(fields)})
    others: list[dict[str, Any]] = [{"name": name}, {"name": name, "namespace": "elsewhere"}, {"name": f"{name}New", "aliases": [name]}]
    other = draw(st.sampled_from(others))
    return Kind(
        {"type": "record", "name": name, "fields": writer},
        {"type": "record", **other, "fields": list(reader)},
        values,
        takes_no_bytes=all(kind.takes_no_bytes for kind in fields),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Schema, Schema, list[Event]]:
    """Writer's and reader's schema, and events."""
    kind = draw(records([0], 2, "Event"))
    return kind.writer, kind.reader, draw(st.lists(kind.values, min_size=1, max_size=12))
