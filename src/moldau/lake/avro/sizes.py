"""How many bytes a value of a type takes: at least, and exactly where all take the same."""

from moldau.lake.avro.nodes import Array, Fixed, Map, Node, Primitive, Record, Union
from moldau.lake.avro.schemas import AvroSchemaError

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def check_counts(node: Node) -> None:
    """AvroSchemaError for arrays of what takes no bytes: a value of ten bytes could say that it has 2**62 of them."""
    match node:
        case Array(items):
            if least_size(items) == 0:
                raise AvroSchemaError("an array of what takes no bytes cannot be read safely")
            check_counts(items)
        case Map(values):
            check_counts(values)
        case Record(_, fields):
            for each in fields:
                check_counts(each.type)
        case Union(branches):
            for branch in branches:
                check_counts(branch)
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
