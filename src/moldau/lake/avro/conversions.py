"""From fastavro's values to those that Arrow takes."""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

from moldau.lake.avro.schemas import (
    ArrayNode,
    AvroSchemaError,
    EnumNode,
    FixedNode,
    MapNode,
    Node,
    PrimitiveNode,
    RecordNode,
    UnionNode,
    default_value,
    not_null,
)
from moldau.lake.avro.types import MILLISECONDS, date_range, decimal_type, merged_numbers

Convert = Callable[[Any], Any] | None
"""None where they are the same."""
_EXACT = Context(prec=100)


class YearError(OverflowError):
    """A date or timestamp that is in no year from 1 to 9999."""

    def __init__(self) -> None:
        super().__init__("a date or timestamp is in no year from 1 to 9999")


def convert_default(default: Any, node: Node) -> Any:
    """What Arrow takes for a default of the reader's schema, written as JSON. AvroSchemaError for a date that Spark does not have."""
    convert = conversion(node, named=False)
    value = default_value(default, node)
    try:
        return value if convert is None else convert(value)
    except YearError as error:
        raise AvroSchemaError(f"the default {default!r}: {error}") from error


def conversion(node: Node, *, named: bool) -> Convert:
    """Of values of a type; `named`: where a union offers named types, values come as (name, value)."""
    match node:
        case PrimitiveNode(_, logical) | FixedNode(_, _, _, logical):
            plain: Convert = None
            if decimal_type(logical) is not None:
                assert logical is not None
                scale = logical.scale
                plain = lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)  # noqa: E731
            elif isinstance(node, PrimitiveNode) and (years := date_range(node)) is not None:
                assert logical is not None
                plain = _dated(*years, 1000 if logical.name in MILLISECONDS else 1)
            return _unwrapped(plain) if named and isinstance(node, FixedNode) else plain
        case EnumNode():
            return _unwrapped(None) if named else None
        case RecordNode():
            convert = _convert_record(node, named=named)
            return _unwrapped(convert) if named else convert
        case ArrayNode(items):
            item = conversion(items, named=named)
            return None if item is None else lambda values: [item(value) for value in values]
        case MapNode(values):
            entry = conversion(values, named=named)
            if entry is None:
                return lambda value: list(value.items())
            return lambda value: [(name, entry(each)) for name, each in value.items()]
        case UnionNode():
            return _convert_union(node, named=named)


def _dated(least: int, most: int, factor: int) -> Convert:
    def convert(value: int) -> int:
        if least <= value <= most:
            return value * factor
        raise YearError

    return convert


def _convert_record(node: RecordNode, *, named: bool) -> Convert:
    converts = [(each.name, conversion(each.type, named=named)) for each in node.fields]
    if all(convert is None for _, convert in converts):
        return None
    return lambda value: {name: value[name] if convert is None else convert(value[name]) for name, convert in converts}


def _convert_union(node: UnionNode, *, named: bool) -> Convert:
    members = not_null(node)
    if merged_numbers(node) is not None or not members:
        return None
    if len(members) == 1:
        only = conversion(members[0], named=named)
        return None if only is None else lambda value: None if value is None else only(value)
    choose = _chooser(members)
    converts = [conversion(member, named=named) for member in members]

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
                raise AvroSchemaError("a union of more than two types holds two sizes of number: their values cannot be distinguished")
            kinds.setdefault(kind, number)

    def choose(value: Any) -> int:
        if isinstance(value, tuple):
            return kinds[value[0]]
        if isinstance(value, dict):
            for number, member in enumerate(members):
                if isinstance(member, RecordNode) and {each.name for each in member.fields} == value.keys():
                    return number
        return kinds[type(value)]

    return choose


def _python_kinds(member: Node) -> list[Any]:
    match member:
        case PrimitiveNode(name, _):
            return [{"boolean": bool, "int": int, "long": int, "float": float, "double": float, "bytes": bytes, "string": str}[name]]
        case FixedNode(name):
            return [name, bytes]
        case EnumNode(name):
            return [name, str]
        case RecordNode(name):
            return [name]
        case ArrayNode():
            return [list]
        case MapNode():
            return [dict]
        case UnionNode():
            raise AvroSchemaError("a union stands directly in a union")


def _unwrapped(convert: Convert) -> Callable[[Any], Any]:
    def unwrap(value: Any) -> Any:
        inner = value[1] if isinstance(value, tuple) else value
        return inner if convert is None else convert(inner)

    return unwrap


def has_named_choice(node: Node) -> bool:
    """Whether some union in the schema offers several types, a named one among them."""
    match node:
        case UnionNode(branches):
            members = not_null(node)
            named = any(isinstance(member, (RecordNode, EnumNode, FixedNode)) for member in members)
            return (named and len(members) > 1) or any(has_named_choice(branch) for branch in branches)
        case RecordNode(_, fields):
            return any(has_named_choice(each.type) for each in fields)
        case ArrayNode(items):
            return has_named_choice(items)
        case MapNode(values):
            return has_named_choice(values)
        case _:
            return False
