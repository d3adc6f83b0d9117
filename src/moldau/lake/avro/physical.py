"""A schema as fastavro takes it: without logical types, so that it hands over plain numbers and bytes, which become Arrow values without a
Python datetime each; and without names, since fastavro resolves two schemas by name wrongly where one of them defines a type in place and
the other refers to it.
"""

from typing import Any

from moldau.lake.avro.nodes import MISSING, ArrayNode, EnumNode, FieldNode, FixedNode, MapNode, Node, PrimitiveNode, RecordNode, UnionNode


def physical(node: Node) -> Any:
    """The schema without logical types and names, with defaults as values: what fastavro takes."""
    return _Physical().of(node)


class _Physical:
    """What fastavro takes, made from nodes: every name replaced by its type, since fastavro resolves two schemas by name wrongly
    where one of them defines a type in place and the other refers to it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        match node:
            case PrimitiveNode(name, _):
                return name
            case ArrayNode(items):
                return {"type": "array", "items": self.of(items)}
            case MapNode(values):
                return {"type": "map", "values": self.of(values)}
            case UnionNode(branches):
                return [self.of(branch) for branch in branches]
            case _:
                if node.name not in self._made:
                    self._made[node.name] = self._definition(node)
                return self._made[node.name]

    def _definition(self, node: FixedNode | EnumNode | RecordNode) -> dict[str, Any]:
        common = {"name": node.name, "aliases": sorted(node.aliases)}
        match node:
            case FixedNode():
                return {"type": "fixed", **common, "size": node.size}
            case EnumNode():
                default = {} if node.default is None else {"default": node.default}
                return {"type": "enum", **common, "symbols": list(node.symbols), **default}
            case RecordNode():
                return {"type": "record", **common, "fields": [self._field(each) for each in node.fields]}

    def _field(self, field: FieldNode) -> dict[str, Any]:
        default = {} if field.default is MISSING else {"default": default_value(field.default, field.type)}
        return {"name": field.name, "type": self.of(field.type), "aliases": list(field.aliases), **default}


def default_value(default: Any, node: Node) -> Any:
    """The value of a default in JSON, as fastavro would read it: bytes are written as text."""
    match node:
        case PrimitiveNode("bytes", _) | FixedNode():
            return default.encode("latin-1")
        case PrimitiveNode("float" | "double", _):
            return float(default)
        case ArrayNode(items):
            return [default_value(each, items) for each in default]
        case MapNode(values):
            return {name: default_value(each, values) for name, each in default.items()}
        case UnionNode(branches):
            return default_value(default, next((branch for branch in branches if _may_be(default, branch)), branches[0]))
        case RecordNode(_, fields):
            return {each.name: default_value(default.get(each.name, each.default), each.type) for each in fields}
        case _:
            return default


def _may_be(default: Any, branch: Node) -> bool:
    """Whether a default is of this type of a union; since Avro 1.12 it need not be the first."""
    match branch:
        case PrimitiveNode("null", _):
            return default is None
        case PrimitiveNode("boolean", _):
            return isinstance(default, bool)
        case PrimitiveNode("int" | "long", _):
            return isinstance(default, int) and not isinstance(default, bool)
        case PrimitiveNode("float" | "double", _):
            return isinstance(default, int | float) and not isinstance(default, bool)
        case EnumNode(_, symbols):
            return default in symbols
        case ArrayNode():
            return isinstance(default, list)
        case MapNode():
            return isinstance(default, dict)
        case RecordNode(_, fields):
            return isinstance(default, dict) and all(each.name in default or each.default is not MISSING for each in fields)
        case _:
            return isinstance(default, str)
