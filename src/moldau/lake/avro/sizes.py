"""How many bytes a value of a type takes: at least, and exactly where all take the same."""

from moldau.lake.avro.nodes import Array, Fixed, Map, Node, Primitive, Record, Union
from moldau.lake.avro.schemas import AvroSchemaError

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


FIXED_BYTES_MAX = 2**31 - 1


def check_sizes(node: Node) -> None:
    """AvroSchemaError for what no event can have: arrays of what takes no bytes (ten bytes could say that there are 2**62), vast fixed."""
    match node:
        case Fixed(name, size) if size > FIXED_BYTES_MAX:
            raise AvroSchemaError(f"fixed {name} has {size} bytes, and no event has more than {FIXED_BYTES_MAX}")
        case Array(items):
            if least_size(items) == 0:
                raise AvroSchemaError("an array of what takes no bytes cannot be read safely")
            check_sizes(items)
        case Map(values):
            check_sizes(values)
        case Record(_, fields):
            for each in fields:
                check_sizes(each.type)
        case Union(branches):
            for branch in branches:
                check_sizes(branch)
        case _:
            return


def least_size(node: Node) -> int:
    """No value of the type takes fewer bytes."""
    match node:
        case Primitive(name, _):
            return _WIDTHS.get(name, 1)
        case Fixed():
            return node.size
        case Record(_, fields):
            return sum(least_size(each.type) for each in fields)
        case _:
            return 1


def width(node: Node) -> int | None:
    """How many bytes each value of the type takes; None if that is not always the same."""
    match node:
        case Primitive(name, _):
            return _WIDTHS.get(name)
        case Fixed():
            return node.size
        case Record(_, fields):
            widths = [width(each.type) for each in fields]
            return None if None in widths else sum(each for each in widths if each is not None)
        case _:
            return None
