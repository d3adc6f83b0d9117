"""What people and tools ask about transactional ids: which there are, and how each stands (KIP-664, KIP-994)."""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.transactions.states import BY_LABEL, State
from moldau.broker.transactions.transaction import NO_EPOCH

if TYPE_CHECKING:
    from moldau.broker.transactions.machine import Machine


class Filters(NamedTuple):
    """Which ids to list; what is empty, None or below 0 lets all pass."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


class Listed(NamedTuple):
    """One id of a list."""

    transactional_id: str
    producer_id: int
    state: str


def unknown_states(names: Iterable[str]) -> list[str]:
    """Those that are no states."""
    return [name for name in names if name not in BY_LABEL]


def listed(machines: "Iterable[tuple[str, Machine]]", filters: Filters, now_ms: int) -> Iterator[Listed | None]:
    """The ids that pass, and None for each other. PeerError INVALID_REGULAR_EXPRESSION, at the first."""
    states = {BY_LABEL[name] for name in filters.states if name in BY_LABEL}
    producer_ids = frozenset(filters.producer_ids)
    matches = None
    if filters.pattern:
        from moldau.broker.transactions.pattern import compile_pattern

        matches = compile_pattern(filters.pattern)
    for transactional_id, machine in machines:
        state, current = machine.state, machine.current
        if (
            state is not State.DEAD
            and current.epoch != NO_EPOCH
            and (not filters.states or state in states)
            and (not producer_ids or current.producer_id in producer_ids)
            and (filters.longer_than_ms < 0 or now_ms - current.start_ms > filters.longer_than_ms)
            and (matches is None or matches(transactional_id))
        ):
            yield Listed(transactional_id, current.producer_id, state.label)
        else:
            yield None
