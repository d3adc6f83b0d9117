"""Tagged fields (KIP-482) that nobody here knows: a count, then for each its number, its size and so many bytes."""

from moldau.model.errors import ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.varint import read_uvarint


def skip_tags(data: Bytes, position: int) -> int:
    """Position after a section of tagged fields none of which is known here. ProtocolError if it is cut off."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    if position > len(data):
        raise ProtocolError(f"tagged fields end at byte {position} of {len(data)}")
    return position
