"""How large a schema may be: what is above is refused with error code 42201 before it costs time or memory.

Each bound is far above what people write by hand or generate, and keeps the work for one schema within a second on a slow machine. What no
count foresees ends at the limits of the process that does the work (`moldau.registry.schemas.remote`).
"""

from collections.abc import Sequence
from typing import Any

from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference

TEXT_CHARACTERS_MAX = 1 << 20
"""Of one schema; a record of `_schemas` holds no more by default (`max.message.bytes`)."""
REFERENCES_MAX = 500
"""Schemas that one schema refers to, directly or not."""
REFERENCE_DEPTH_MAX = 100
"""References of references."""
ALL_CHARACTERS_MAX = 4 << 20
"""Of a schema and everything it refers to."""
JSON_NODES_MAX = 100_000
"""Objects, lists and values of a JSON text: an Avro schema or a JSON Schema."""
PROTOBUF_ELEMENTS_MAX = 20_000
"""Messages, fields, oneofs, enums, constants, ranges, services and methods of a Protobuf file and its imports."""
COMPARED_PAIRS_MAX = 100_000
"""Pairs of parts that are looked at in one comparison of two schemas."""
DIFFERENCES_MAX = 1_000
"""Differences that are kept below one pair of parts, incompatible ones first; more do not help a reader."""


class SchemaTooLargeError(InvalidSchemaError):
    """Too many characters; the registry answers 42209."""


class TooManyPairsError(InvalidSchemaError):
    """A comparison is given up."""

    def __init__(self) -> None:
        super().__init__(f"comparing the two schemas takes more than {COMPARED_PAIRS_MAX:,} pairs of their parts")


def check_size(text: str, references: Sequence[ResolvedReference] = ()) -> None:
    """SchemaTooLargeError, InvalidSchemaError for too many references."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise SchemaTooLargeError(f"The schema has {len(text):,} characters, at most {TEXT_CHARACTERS_MAX:,} are allowed")
    if len(references) > REFERENCES_MAX:
        raise InvalidSchemaError(f"the schema refers to {len(references):,} others, at most {REFERENCES_MAX} are allowed")
    if len(text) + sum(len(each.text) for each in references) > ALL_CHARACTERS_MAX:
        raise SchemaTooLargeError(f"The schema and what it refers to have more than {ALL_CHARACTERS_MAX:,} characters")


def check_nodes(document: Any) -> None:
    """InvalidSchemaError for JSON of too many nodes."""
    waiting, count = [document], 0
    while waiting:
        node = waiting.pop()
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        count += len(children)
        if count > JSON_NODES_MAX:
            raise InvalidSchemaError(f"the schema has more than {JSON_NODES_MAX:,} JSON values")
        waiting += children
