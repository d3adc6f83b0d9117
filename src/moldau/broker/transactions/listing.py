"""The list of transactional ids with their states, for people and tools (KIP-664, KIP-994).

Patterns for ids (KIP-1152) are matched by RE2, whose syntax RE2/J in Kafka has too, on the broker's thread. RE2 takes time linear in the
text; Python's `re` backtracks, and takes exponential time for some short patterns. A pattern is compiled once per request and not kept
after it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.transactions.transaction import BY_LABEL, NO_EPOCH, TransactionState
from moldau.model.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from moldau.broker.transactions.machine import Machine

LENGTH_MAX = 1000
"""Characters of a pattern."""
INSTRUCTIONS_MAX = 2000
"""Of a compiled pattern: the time for one character of a text grows with them, to 30 us."""
STEPS_MAX = 1_000_000
"""Instructions times characters of one text: 15 ms."""
MEMORY_BYTES_MAX = 1024 * 1024
"""Memory of a compiled pattern and of the states that it caches while it matches."""


class ListingFilters(NamedTuple):
    """Which ids to list; what is empty, None or below 0 lets all pass."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


class TransactionListing(NamedTuple):
    """One id of a list."""

    transactional_id: str
    producer_id: int
    state: str


def unknown_states(names: Iterable[str]) -> list[str]:
    """Those that are no states."""
    return [name for name in names if name not in BY_LABEL]


def listed(machines: "Iterable[tuple[str, Machine]]", filters: ListingFilters, now_ms: int) -> Iterator[TransactionListing | None]:
    """The ids that pass, and None for each other. PeerError INVALID_REGULAR_EXPRESSION, at the first."""
    states = {BY_LABEL[name] for name in filters.states if name in BY_LABEL}
    producer_ids = frozenset(filters.producer_ids)
    matches = None
    if filters.pattern:
        matches = compile_pattern(filters.pattern)
    for transactional_id, machine in machines:
        state, current = machine.state, machine.current
        if (
            state is not TransactionState.DEAD
            and current.epoch != NO_EPOCH
            and (not filters.states or state in states)
            and (not producer_ids or current.producer_id in producer_ids)
            and (filters.longer_than_ms < 0 or now_ms - current.start_ms > filters.longer_than_ms)
            and (matches is None or matches(transactional_id))
        ):
            yield TransactionListing(transactional_id, current.producer_id, state.label)
        else:
            yield None


def compile_pattern(text: str) -> Callable[[str], bool]:
    """Whether a text matches the pattern as a whole. PeerError INVALID_REGULAR_EXPRESSION: malformed, too large, or no RE2 syntax
    (lookaround, backreferences, repetitions above 1,000); and from a match, for a text that is too long for so large a pattern.
    """
    if len(text) > LENGTH_MAX:
        raise PeerError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern has {len(text)} characters; the limit is {LENGTH_MAX}")
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        raise PeerError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"invalid pattern: {_reason(error)}") from error
    finally:
        re2.purge()  # the library keeps the last 128 patterns
    if compiled.programsize > INSTRUCTIONS_MAX:
        message = f"the pattern has {compiled.programsize} instructions; the limit is {INSTRUCTIONS_MAX}"
        raise PeerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    fullmatch, size, length_max = compiled.fullmatch, compiled.programsize, STEPS_MAX // compiled.programsize

    def matches(candidate: str) -> bool:
        if len(candidate) > length_max:
            message = f"a pattern of {size} instructions takes ids of up to {length_max} characters; one has {len(candidate)}"
            raise PeerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
        return fullmatch(candidate) is not None

    return matches


def _reason(error: Exception) -> str:
    """RE2 gives its reasons as bytes, which end in the part of the pattern that it refuses."""
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
