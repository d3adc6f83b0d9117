"""A9: no circle of transactions of which each read what the next one wrote (G1c by write-read edges only)."""

from collections import Counter
from collections.abc import Iterator

from moldau.testing.history.evidence import Evidence
from moldau.testing.history.history import NONE
from moldau.testing.history.kinds import Anomaly, Kind

Edges = dict[int, set[int]]


def check_flow(evidence: Evidence) -> Iterator[Anomaly]:
    """Each circle once; two that share a transaction may be reported as one."""
    readers_of = _flow(evidence)
    writers_of: Edges = {}
    for writer, readers in readers_of.items():
        for reader in readers:
            writers_of.setdefault(reader, set()).add(writer)
    left = readers_of.keys() | writers_of.keys()
    while left := _fed(writers_of, _fed(readers_of, left)):
        circle = _walk(readers_of, left)
        yield Anomaly(Kind.CIRCULAR_FLOW, ", read by ".join(map(evidence.describe_transaction, [*circle, circle[0]])))
        left -= set(circle)


def _flow(evidence: Evidence) -> Edges:
    """Per transaction that wrote: those that polled something of it as their input."""
    in_transaction = evidence.history.sends.transaction
    flow: Edges = {}
    for reader in evidence.history.readers:
        for value, poll in zip(reader.value, reader.poll, strict=True):
            if poll != NONE and 0 <= value < len(in_transaction):
                target, source = reader.poll_transaction[poll], in_transaction[value]
                if target != NONE and source not in (NONE, target):
                    flow.setdefault(source, set()).add(target)
    return flow


def _fed(edges: Edges, among: set[int]) -> set[int]:
    """`among` without those to which no edge leads, again and again until each has one."""
    feeders = Counter(target for source in among for target in edges.get(source, ()) if target in among)
    left = set(among)
    free = [number for number in among if number not in feeders]
    while free:
        number = free.pop()
        left.discard(number)
        for target in edges.get(number, ()):
            if target in left:
                feeders[target] -= 1
                if feeders[target] == 0:
                    free.append(target)
    return left


def _walk(edges: Edges, among: set[int]) -> list[int]:
    """A circle: each of `among` leads to another of them."""
    path: dict[int, None] = {}
    number = next(iter(among))
    while number not in path:
        path[number] = None
        number = next(target for target in edges[number] if target in among)
    numbers = list(path)
    return numbers[numbers.index(number) :]
