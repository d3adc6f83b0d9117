"""A writer's and a reader's schema as fastavro is given them: fields that the reader does not have are read too, and dropped later.

fastavro passes over such fields without looking whether they are there: an event that was cut off in one of them would be taken for
whole, and the more so the fewer columns are read. So the reader's schema gets them as well. They are read as what takes least:
text as bytes, symbols as numbers; nobody looks at them.
"""

from typing import Any

from moldau.lake.avro.nodes import Array, Enum, Field, Map, Node, Primitive, Record, Union, not_null
from moldau.lake.avro.physical import physical
from moldau.lake.avro.schemas import AvroSchema

Pair = tuple[Any, Any]


def fastavro_pair(writer: AvroSchema, reader: AvroSchema) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The two schemas; None for a reader's that is the writer's."""
    parsed: dict[str, Any] = {"__fastavro_parsed": True, "__named_schemas": {}}
    same = physical(writer.record)
    if same == physical(reader.record):
        return {**same, **parsed}, None
    given, wanted = _records(writer.record, reader.record)
    return {**given, **parsed}, {**wanted, **parsed}


def matched_field(name: str, reader: Record) -> Field | None:
    """The reader's field that a field of the writer's is, by name or else by alias."""
    by_name = {each.name: each for each in reader.fields}
    by_alias = {alias: each for each in reader.fields for alias in each.aliases}
    return by_name.get(name) or by_alias.get(name)


def _pair(writer: Node, reader: Node) -> Pair:
    match writer, reader:
        case Record(), Record():
            return _records(writer, reader)
        case Array(), Array():
            pair = _pair(writer.items, reader.items)
            return {"type": "array", "items": pair[0]}, {"type": "array", "items": pair[1]}
        case Map(), Map():
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
    if not isinstance(node, Union):
        return node
    members = not_null(node)
    return members[0] if len(members) == 1 else None


def _put(node: Node, member: Any) -> Any:
    """The node, with `member` for its only member."""
    if not isinstance(node, Union):
        return member
    return ["null" if branch == Primitive("null") else member for branch in node.branches]


def _records(writer: Record, reader: Record) -> Pair:
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
        case Primitive("string", _):
            return "bytes"
        case Enum():
            return "long"
        case Array(items):
            return {"type": "array", "items": _unread(items)}
        case Map(values):
            return {"type": "map", "values": _unread(values)}
        case Union(branches):
            return [_unread(branch) for branch in branches]
        case Record(name, fields):
            return {"type": "record", "name": name, "fields": [{"name": each.name, "type": _unread(each.type)} for each in fields]}
        case _:
            return physical(node)
