"""Names, numbers and ids of the log, each with a type of its own so that they cannot be mixed up.

Hot loops may hold them as plain ``int``; whatever is stored or handed between rooms carries the type.
"""

from binascii import Error, a2b_base64, b2a_base64
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
"""Position of a record in its partition: counts records, not bytes."""
FilePosition = NewType("FilePosition", int)
"""Position of a byte in a file."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of a partition; -1 where unknown (KIP-101)."""
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC; -1 where there is none."""

UNKNOWN_OFFSET = Offset(-1)
UNKNOWN_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = TimestampMs(-1)
NO_PRODUCER_ID = ProducerId(-1)
ID_BYTES = 16
"""Of a topic id."""
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")
_TEXT_LENGTH = 22


class TopicPartition(NamedTuple):
    """One partition of one topic. As text, and as the name of its folder: ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogCut(NamedTuple):
    """What the log of a partition must not have since its mirror was promoted: records of `epoch` or earlier ones at `offset` or after."""

    epoch: int
    offset: int


def format_id(value: bytes) -> str:
    """A 16-byte id as Kafka writes it in files and shows it to people: 22 characters of URL-safe base64, without padding."""
    assert len(value) == ID_BYTES, f"an id has {ID_BYTES} bytes, not {len(value)}"
    return b2a_base64(value, newline=False).rstrip(b"=").translate(_TO_URL).decode()


def format_uuid(random: bytes) -> str:
    """16 random bytes as a version 4 UUID (RFC 9562); the module `uuid` takes a quarter of a megabyte of memory."""
    assert len(random) == ID_BYTES, f"a UUID has {ID_BYTES} bytes, not {len(random)}"
    text = bytes((*random[:6], random[6] & 0x0F | 0x40, random[7], random[8] & 0x3F | 0x80, *random[9:])).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def parse_id(text: str) -> bytes:
    """The bytes of an id in that form. ValueError if the text is not one."""
    try:
        value = a2b_base64(text.encode("ascii").translate(_FROM_URL) + b"==", strict_mode=True) if len(text) == _TEXT_LENGTH else b""
    except (Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not an id of {ID_BYTES} bytes") from error
    if len(value) != ID_BYTES:
        raise ValueError(f"{text!r} is not an id of {ID_BYTES} bytes")
    return value
