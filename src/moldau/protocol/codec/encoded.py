"""An array of a response whose elements are encoded one by one, before the response is: at most one of them is there as an object.

An element's part that many of them have in common can be an `EncodedArray` of its own: its bytes are then in memory once.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from moldau.protocol.codec.primitives import Writer

if TYPE_CHECKING:
    from moldau.ports.filesystem import Bytes

SHORT_PART = 1024
"""Bytes of a part that is joined with its neighbours. Longer ones may be in memory once for many elements, and stay as they are."""


def joined(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts in their order, those that are short joined with their neighbours."""
    short: list[Any] = []
    for part in parts:
        if len(part) <= SHORT_PART:
            short.append(part)
            continue
        if short:
            yield b"".join(short)
            short = []
        yield part
    if short:
        yield b"".join(short)


class EncodedArray:
    """An encoded list of structs, in place of the list, in a message that is encoded in the same version."""

    __slots__ = ("_count", "_write", "error_codes", "parts")

    def __init__(self, write: Writer) -> None:
        """`write` is the `element_writer` of the elements."""
        self._write = write
        self._count = 0
        self.parts: list[Bytes] = []
        self.error_codes: list[int] = []
        """Those of the elements that have one other than 0."""

    def append(self, element: Any) -> None:
        """Encode one more element. UnencodableError."""
        parts: list[Bytes] = []
        self._write(element, parts.append)
        self.parts += joined(parts)
        self._count += 1
        code = getattr(element, "error_code", 0)
        if code:
            self.error_codes.append(code)

    def join(self) -> None:
        """Make one piece of the bytes so far, for an array that is used many times."""
        self.parts = [b"".join(self.parts)]

    def __len__(self) -> int:
        return self._count

    def as_list(self) -> list[Any]:
        """This, as what the message's field is declared to be."""
        return cast("list[Any]", self)
