"""Avro bodies row by row through fastavro: every shape there is, and the judge of what the fast decoder doubts.

What is stricter than fastavro: bytes left over behind an event are an error (they are what a wrong schema id looks like), and so are
numbers that do not fit their type.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa

from moldau.lake.avro.evolution import fastavro_pair
from moldau.lake.avro.schemas import Array, AvroSchema, AvroSchemaError, Enum, Fixed, Map, Node, Primitive, Record, Union, default_value
from moldau.lake.avro.types import MILLISECONDS, arrow_schema, decimal_type, merged_numbers, not_null

Convert = Callable[[Any], Any] | None
"""From fastavro's value to one that Arrow takes; None where they are the same."""
_EXACT = Context(prec=100)


class RowDecoder:
    """Decodes bodies that were written with one schema into the columns of another."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        from fastavro import schemaless_reader

        _check_counts(writer.record)
        self._read = schemaless_reader
        self.schema = arrow_schema(reader.record)
        self._named = _has_named_choice(writer.record) or _has_named_choice(reader.record)
        self._writer, self._reader = fastavro_pair(writer, reader)
        self._converts = [(each.name, _convert(each.type, named=self._named)) for each in reader.record.fields]

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
        except IndexError:
            raise (EOFError if stream.tell() == len(body) else IndexError) from None  # a number that is cut off is an IndexError, too
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} of {len(body)} bytes are left over behind the event")
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


def convert_default(default: Any, node: Node) -> Any:
    """What Arrow takes for a default of the reader's schema, written as JSON."""
    convert = _convert(node, named=False)
    value = default_value(default, node)
    return value if convert is None else convert(value)


def _reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "the value ends in the middle of the event"
        case IndexError():
            return "an enum or a union has a number that its schema does not have"
        case UnicodeDecodeError():
            return f"a string is not UTF-8: {error.reason} at its byte {error.start}"
        case OverflowError():
            return "a number is too large for its type"
    text = str(error).split(", '__fastavro")[0]
    return text if len(text) <= 300 else f"{text[:300]}..."


def _convert(node: Node, *, named: bool) -> Convert:
    match node:
        case Primitive(_, logical) | Fixed(_, _, _, logical):
            plain: Convert = None
            if decimal_type(logical) is not None:
                assert logical is not None
                scale = logical.scale
                plain = lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)  # noqa: E731
            elif isinstance(node, Primitive) and node.name == "long" and logical is not None and logical.name in MILLISECONDS:
                plain = lambda value: value * 1000  # noqa: E731
            return _unwrapped(plain) if named and isinstance(node, Fixed) else plain
        case Enum():
            return _unwrapped(None) if named else None
        case Record():
            convert = _convert_record(node, named=named)
            return _unwrapped(convert) if named else convert
        case Array(items):
            item = _convert(items, named=named)
            return None if item is None else lambda values: [item(value) for value in values]
        case Map(values):
            entry = _convert(values, named=named)
            if entry is None:
                return lambda value: list(value.items())
            return lambda value: [(name, entry(each)) for name, each in value.items()]
        case Union():
            return _convert_union(node, named=named)


def _convert_record(node: Record, *, named: bool) -> Convert:
    converts = [(each.name, _convert(each.type, named=named)) for each in node.fields]
    if all(convert is None for _, convert in converts):
        return None
    return lambda value: {name: value[name] if convert is None else convert(value[name]) for name, convert in converts}


def _convert_union(node: Union, *, named: bool) -> Convert:
    members = not_null(node)
    if merged_numbers(node) is not None or not members:
        return None
    if len(members) == 1:
        only = _convert(members[0], named=named)
        return None if only is None else lambda value: None if value is None else only(value)
    choose = _chooser(members)
    converts = [_convert(member, named=named) for member in members]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        number = choose(value)
        convert_member = converts[number]
        return {f"member{number}": value if convert_member is None else convert_member(value)}

    return convert


def _chooser(members: Sequence[Node]) -> Callable[[Any], int]:
    """Which member of a union a value of fastavro's belongs to; named types come as (name, value) if the writer had a union too."""
    kinds: dict[Any, int] = {}
    for number, member in enumerate(members):
        for kind in _python_kinds(member):
            if kind in kinds and kind in (int, float):
                raise AvroSchemaError("a union of more than two types holds two sizes of number: their values cannot be told apart")
            kinds.setdefault(kind, number)

    def choose(value: Any) -> int:
        if isinstance(value, tuple):
            return kinds[value[0]]
        if isinstance(value, dict):
            for number, member in enumerate(members):
                if isinstance(member, Record) and {each.name for each in member.fields} == value.keys():
                    return number
        return kinds[type(value)]

    return choose


def _python_kinds(member: Node) -> list[Any]:
    match member:
        case Primitive(name, _):
            return [{"boolean": bool, "int": int, "long": int, "float": float, "double": float, "bytes": bytes, "string": str}[name]]
        case Fixed(name):
            return [name, bytes]
        case Enum(name):
            return [name, str]
        case Record(name):
            return [name]
        case Array():
            return [list]
        case Map():
            return [dict]
        case Union():
            raise AvroSchemaError("a union stands directly in a union")


def _unwrapped(convert: Convert) -> Callable[[Any], Any]:
    def unwrap(value: Any) -> Any:
        inner = value[1] if isinstance(value, tuple) else value
        return inner if convert is None else convert(inner)

    return unwrap


def _has_named_choice(node: Node) -> bool:
    """Whether some union in the schema offers several types, a named one among them."""
    match node:
        case Union(branches):
            members = not_null(node)
            named = any(isinstance(member, (Record, Enum, Fixed)) for member in members)
            return (named and len(members) > 1) or any(_has_named_choice(branch) for branch in branches)
        case Record(_, fields):
            return any(_has_named_choice(each.type) for each in fields)
        case Array(items):
            return _has_named_choice(items)
        case Map(values):
            return _has_named_choice(values)
        case _:
            return False


def _check_counts(node: Node) -> None:
    """AvroSchemaError for arrays of what takes no bytes: a value of ten bytes could say that it has 2**62 of them."""
    match node:
        case Array(items):
            if _least_size(items) == 0:
                raise AvroSchemaError("an array of what takes no bytes cannot be read safely")
            _check_counts(items)
        case Map(values):
            _check_counts(values)
        case Record(_, fields):
            for each in fields:
                _check_counts(each.type)
        case Union(branches):
            for branch in branches:
                _check_counts(branch)
        case _:
            return


def _least_size(node: Node) -> int:
    match node:
        case Primitive(name, _):
            return {"null": 0, "float": 4, "double": 8}.get(name, 1)
        case Fixed():
            return node.size
        case Record(_, fields):
            return sum(_least_size(each.type) for each in fields)
        case _:
            return 1
