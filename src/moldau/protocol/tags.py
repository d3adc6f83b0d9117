"""Tagged fields (KIP-482) that nobody here knows: a count, then for each its number, its size and so many bytes."""

from moldau.model.errors import ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.varint import read_uvarint

HEADER_TAGS_MAX = 1000
"""Tagged fields in the header of a request or response; no version has more than one."""


def skip_tags(data: Bytes, position: int, count_max: int = HEADER_TAGS_MAX) -> int:
    """Position after a section of tagged fields none of which is known here. ProtocolError if it is cut off or has too many."""
    count, position = read_uvarint(data, position)
    if count > count_max:
        raise ProtocolError(f"{count} tagged fields, at most {count_max} are taken")
    return skip_fields(data, position, count)


def skip_fields(data: Bytes, position: int, count: int) -> int:
    """Position after `count` tagged fields. ProtocolError if they are cut off."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    if position > len(data):
        raise ProtocolError(f"tagged fields end at byte {position} of {len(data)}")
    return position
