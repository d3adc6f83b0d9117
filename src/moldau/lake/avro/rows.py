"""Avro bodies row by row through fastavro: every shape there is, and the judge of what the fast decoder doubts.

fastavro skips such fields without checking that they are complete: an event that was cut off in one of them would be taken for
whole, and the more so the fewer columns are read. So the reader's schema gets them as well. They are read as what takes least:
text as bytes, symbols as numbers; they are not used.

What is stricter than fastavro: bytes left after an event are an error (they are what a wrong schema id looks like), and so are
numbers that do not fit their type, numbers below 0 of symbols and branches, and dates and times outside of the years 1 to 9999.
"""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from moldau.lake.avro.conversions import YearError, conversion, has_named_choice
from moldau.lake.avro.schemas import (
    ArrayNode,
    EnumNode,
    FieldNode,
    MapNode,
    Node,
    PrimitiveNode,
    RecordNode,
    SchemaTree,
    UnionNode,
    check_sizes,
    not_null,
    physical,
)
from moldau.lake.avro.types import arrow_schema
from moldau.registry.untrusted_avro import NegativeNumberError, checked_numbers

Pair = tuple[Any, Any]


def fastavro_pair(writer: SchemaTree, reader: SchemaTree) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The two schemas; None for a reader's that is the writer's."""
    parsed: dict[str, Any] = {"__fastavro_parsed": True, "__named_schemas": {}}
    same = physical(writer.record)
    if same == physical(reader.record):
        return {**same, **parsed}, None
    given, wanted = _records(writer.record, reader.record)
    return {**given, **parsed}, {**wanted, **parsed}


def matched_field(name: str, reader: RecordNode) -> FieldNode | None:
    """The reader's field that a field of the writer's is, by name or else by alias."""
    by_name = {each.name: each for each in reader.fields}
    by_alias = {alias: each for each in reader.fields for alias in each.aliases}
    return by_name.get(name) or by_alias.get(name)


def _pair(writer: Node, reader: Node) -> Pair:
    match writer, reader:
        case RecordNode(), RecordNode():
            return _records(writer, reader)
        case ArrayNode(), ArrayNode():
            pair = _pair(writer.items, reader.items)
            return {"type": "array", "items": pair[0]}, {"type": "array", "items": pair[1]}
        case MapNode(), MapNode():
            pair = _pair(writer.values, reader.values)
            return {"type": "map", "values": pair[0]}, {"type": "map", "values": pair[1]}
        case _:
            given, wanted = _only_member(writer), _only_member(reader)
            if given is None or wanted is None or (given is writer and wanted is reader):
                return physical(writer), physical(reader)
            pair = _pair(given, wanted)
            return _put(writer, pair[0]), _put(reader, pair[1])


def _only_member(node: Node) -> Node | None:
    """The type that a union holds beside null; a type that is no union itself; None for a union of several."""
    if not isinstance(node, UnionNode):
        return node
    members = not_null(node)
    return members[0] if len(members) == 1 else None


def _put(node: Node, member: Any) -> Any:
    """The node, with `member` for its only member."""
    if not isinstance(node, UnionNode):
        return member
    return ["null" if branch == PrimitiveNode("null") else member for branch in node.branches]


def _records(writer: RecordNode, reader: RecordNode) -> Pair:
    matches = [matched_field(each.name, reader) for each in writer.fields]
    names = [each.name for each in matches if each is not None]
    if len(set(names)) < len(names):
        return physical(writer), physical(reader)  # two fields of the writer are the same one of the reader's: fastavro refuses
    given, wanted = [], {each["name"]: each for each in physical(reader)["fields"]}
    for field, match in zip(writer.fields, matches, strict=True):
        if match is None:
            kind = _unread(field.type)
            wanted[field.name] = {"name": field.name, "type": kind}
        else:
            kind, wanted_kind = _pair(field.type, match.type)
            wanted[match.name] = {**wanted[match.name], "type": wanted_kind}
        given.append({"name": field.name, "type": kind})
    return {**physical(writer), "fields": given}, {**physical(reader), "fields": list(wanted.values())}


def _unread(node: Node) -> Any:
    """As many bytes, and nothing that could be wrong about them."""
    match node:
        case PrimitiveNode("string", _):
            return "bytes"
        case EnumNode():
            return "long"
        case ArrayNode(items):
            return {"type": "array", "items": _unread(items)}
        case MapNode(values):
            return {"type": "map", "values": _unread(values)}
        case UnionNode(branches):
            return [_unread(branch) for branch in branches]
        case RecordNode(name, fields):
            return {"type": "record", "name": name, "fields": [{"name": each.name, "type": _unread(each.type)} for each in fields]}
        case _:
            return physical(node)


class RowDecoder:
    """Decodes bodies that were written with one schema into the columns of another."""

    def __init__(self, writer: SchemaTree, reader: SchemaTree) -> None:
        from fastavro import schemaless_reader

        check_sizes(writer.record)
        self._read = schemaless_reader
        self.schema = arrow_schema(reader.record)
        self._named = has_named_choice(writer.record) or has_named_choice(reader.record)
        given, self._reader = fastavro_pair(writer, reader)
        self._writer = checked_numbers(given)
        self._converts = [(each.name, conversion(each.type, named=self._named)) for each in reader.record.fields]

    def decode(self, bodies: Iterable[Any]) -> tuple[Any, list[int], dict[int, str]]:
        """A record batch of the bodies that could be decoded, their numbers, and the reasons why the others could not."""
        rows: list[list[Any]] = []
        accepted: list[int] = []
        rejected: dict[int, str] = {}
        for number, body in enumerate(bodies):
            try:
                rows.append(self._row(body))
                accepted.append(number)
            except Exception as error:  # hostile bytes make fastavro raise whatever it likes
                rejected[number] = _reason(error)
        try:
            return self._batch(rows), accepted, rejected
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return self._one_by_one(rows, accepted, rejected)

    def _row(self, body: Any) -> list[Any]:
        stream = BytesIO(body)
        try:
            event: Any = self._read(stream, self._writer, self._reader, return_named_type=self._named)
        except NegativeNumberError:
            raise
        except IndexError:
            raise (EOFError if stream.tell() == len(body) else IndexError) from None  # a number that is cut off is an IndexError, too
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} of {len(body)} bytes are left after the event")
        return [event[name] if convert is None else convert(event[name]) for name, convert in self._converts]

    def _batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        columns = zip(*rows, strict=True) if rows else [()] * len(self.schema)
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, self.schema.types, strict=True)]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.record_batch(arrays, schema=self.schema)

    def _one_by_one(
        self, rows: Sequence[Sequence[Any]], accepted: Sequence[int], rejected: dict[int, str]
    ) -> tuple[Any, list[int], dict[int, str]]:
        """A number is too large for its column: find out whose."""
        good: list[Sequence[Any]] = []
        numbers: list[int] = []
        for number, row in zip(accepted, rows, strict=True):
            try:
                self._batch([row])
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                rejected[number] = _reason(error)
            else:
                good.append(row)
                numbers.append(number)
        return self._batch(good), numbers, rejected


def _reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "the value ends in the middle of the event"
        case IndexError():
            return "an enum or a union has a number that its schema does not have"
        case UnicodeDecodeError():
            return f"a string is not UTF-8: {error.reason} at its byte {error.start}"
        case YearError():
            return str(error)
        case OverflowError():
            return "a number is too large for its type"
    text = str(error).split(", '__fastavro")[0]
    return text if len(text) <= 300 else f"{text[:300]}..."
