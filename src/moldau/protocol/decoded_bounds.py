"""How much may be decoded of one request.

A few bytes of a request can become an object of several hundred bytes, and as much again in its answer. Two bounds keep that in check: on
the bytes that are not records (:mod:`moldau.protocol.framing`, :mod:`moldau.protocol.fast.cursor`), and on the elements of all its
arrays together, plain numbers too: for each number of a partition there may be an object in the answer. Tagged fields count as elements,
known or not: two bytes of a request cost as much time as a short text.
"""

from typing import Never

from moldau.model.errors import ProtocolError

NO_BOUND = 1 << 31


def too_many_elements(elements_max: int) -> Never:
    """Refuse a request with more elements."""
    raise ProtocolError(f"more than {elements_max} elements, the most that are taken (request.decoded.elements.max)")
