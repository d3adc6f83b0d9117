"""How much of the registry one client, and all of them, may take, and how much memory a record takes. The bounds of a schema itself are in
`schemas/language.py`.

Characters take as many bytes each as the widest of a text needs, and small values of JSON (a reference, a tag, an empty list) far more than
the few bytes that they are written with. Without both, what fits into a bound in bytes of JSON takes up to twenty times as much.
"""

import sys
from dataclasses import dataclass

from moldau.model.config.tables.registry import CONNECTIONS_MAX

BODY_BYTES_MAX = 2 << 20
"""A schema of the largest size, with escapes."""
ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of connections and requests."""

    connections_max: int = CONNECTIONS_MAX
    """Of all clients together; a further one is answered 503 and closed."""
    request_s: float = 10.0
    """So long a request may take to arrive, from its first byte, or the connection's beginning, to its last."""
    idle_s: float = 60.0
    """A connection without a request is closed after so long."""
    unread_s: float = 60.0
    """A connection whose client does not take its answer is cut after so long."""
    head_bytes_max: int = 16 << 10
    body_bytes_max: int = BODY_BYTES_MAX
    all_bodies_bytes_max: int = 16 << 20
    """Of all requests under way together; a further one is answered 503."""
    answer_bytes_max: int = ANSWER_BYTES_MAX
    """A longer answer, a list of schemas, is refused: it can be had in pages."""
    all_unread_bytes_max: int = 24 << 20
    """Of answers that clients have not taken; while there are more, each request is answered 503."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Bounds of what is done to understand schemas, in processes of its own."""

    processes: int = 2
    task_s: float = 5.0
    """For one question about one schema, or a pair."""
    memory_bytes: int = 512 << 20
    """Address space of a process."""
    waiting_max: int = 64
    """Questions that wait or are under way; a further one is answered 50002."""
    wait_s: float = 20.0
    """How long a question waits for a process that is free."""
    niceness: int = 5
    """Added to that of the registry."""


BODY_ELEMENTS_MAX = 20_000
"""Values of a body's JSON: decoding more would stop other threads for longer than it should. A schema is one text of it."""


RECORD_COST = 1_000
"""Bytes that a record takes beside its key and value."""
ELEMENT_COST = 150
"""Bytes that a value of JSON takes beside its characters: an entry of an object is one, with its name."""
_WIDEST = 4
_QUOTES_MAX = 4 * BODY_ELEMENTS_MAX


def record_size(key: bytes, value: bytes) -> int:
    """Bytes of memory. The key is kept twice, in the record and in an index."""
    return RECORD_COST + 2 * _characters(key) + _characters(value) + ELEMENT_COST * count_elements(value)


def count_elements(content: bytes) -> int:
    """Not fewer than the values of a JSON text, without decoding it: what opens or parts values outside of texts; quotes, if there are
    more than a body with all the values that it may have needs."""
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    if quotes > _QUOTES_MAX:
        return quotes
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b"[", b"{", b",")))


def _characters(content: bytes) -> int:
    if b"\\u" in content:
        return _WIDEST * len(content)
    return len(content) if content.isascii() else sys.getsizeof(content.decode(errors="replace"))
