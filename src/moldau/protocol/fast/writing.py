"""Pieces of answers that have no fixed size, for the fast encoders."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from moldau.protocol.varint import uvarint

NO_TAGS = b"\0"

_int16 = Struct(">h").pack
_int32 = Struct(">i").pack


class LeaderEndpoint(NamedTuple):
    """Address of a broker that an answer names as the current leader (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def count(number: int, *, flexible: bool) -> bytes:
    """How many elements an array has."""
    return uvarint(number + 1) if flexible else _int32(number)


def topic(name_or_id: bytes, *, by_id: bool, flexible: bool) -> bytes:
    """A topic as its version names it: UTF-8 bytes of the name, or the 16 bytes of the id."""
    if by_id:
        assert len(name_or_id) == 16, "a topic id has 16 bytes"
        return name_or_id
    return (uvarint(len(name_or_id) + 1) if flexible else _int16(len(name_or_id))) + name_or_id


def nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """A string or null."""
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (uvarint(len(encoded) + 1) if flexible else _int16(len(encoded))) + encoded


def tags(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Tagged fields, in the order of their tags."""
    if not fields:
        return NO_TAGS
    return uvarint(len(fields)) + b"".join([uvarint(tag) + uvarint(len(value)) + value for tag, value in fields])


def node_endpoints(nodes: Iterable[LeaderEndpoint]) -> bytes:
    """The tagged fields of an answer that says where the leaders are; none without nodes."""
    encoded = [
        _int32(node.node_id)
        + nullable_string(node.host, flexible=True)
        + _int32(node.port)
        + nullable_string(node.rack, flexible=True)
        + NO_TAGS
        for node in nodes
    ]
    return tags([(0, uvarint(len(encoded) + 1) + b"".join(encoded))] if encoded else [])
