"""What is sent and what is received: messages and sets of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Names and bytes; a name may come several times in a sequence."""


@dataclass(slots=True)
class Message:
    """A payload of bytes, and what may go with it. `timestamp` is in ms since 1970; None: the moment of sending.

    Text is sent as UTF-8. A message without a value (None) is a tombstone: compaction deletes its key.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers | None = None
    timestamp: int | None = None

    @property
    def payload(self) -> bytes:
        """The value as bytes, by the paper's name; nothing for a tombstone."""
        return self.value.encode() if isinstance(self.value, str) else self.value or b""


@dataclass(slots=True)
class ConsumedMessage(Message):
    """A message in a log: `offset` is its address in the partition. Values and keys are bytes."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


class MessageSet(tuple[Message, ...]):
    """Messages that are sent in one call: ``MessageSet(Message(b"one"), b"two")``. Bytes and text are messages without a key."""

    __slots__ = ()

    def __new__(cls, *messages: Message | bytes | str) -> "MessageSet":
        """A set of these, in this order."""
        return super().__new__(cls, messages_of(messages))


def messages_of(given: Iterable[Message | bytes | str]) -> list[Message]:
    """Each of these as a message. TypeError for what can be none."""
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"a value is bytes, text, a Message or several of these, not {type(given).__name__}")
    found = []
    for each in given:
        if not isinstance(each, Message):
            if not isinstance(each, bytes | bytearray | memoryview | str):
                raise TypeError(f"a message set holds messages, bytes and text, not {type(each).__name__}")
            each = Message(each if isinstance(each, str) else bytes(each))
        found.append(each)
    return found


class Delivered(NamedTuple):
    """Where a delivered message is in the log. `offset` is None without an acknowledgement (acks 0); `timestamp` in ms since 1970."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None
