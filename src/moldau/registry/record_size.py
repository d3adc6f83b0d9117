"""How much memory a record of ``_schemas`` takes once it is applied, at most: computed from its bytes, before anything is decoded.

Characters take as many bytes each as the widest of a text needs, and small values of JSON (a reference, a tag, an empty list) far more than
the few bytes that they are written with. Without both, what fits into a bound in bytes of JSON takes up to twenty times as much.
"""

import sys

from moldau.registry.limits import BODY_ELEMENTS_MAX

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
