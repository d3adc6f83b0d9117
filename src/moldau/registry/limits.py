"""How much of the registry one client, and all of them, may take. The bounds of a schema itself are in `schemas/bounds.py`."""

from dataclasses import dataclass

from moldau.model.registry_defaults import CONNECTIONS_MAX

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
