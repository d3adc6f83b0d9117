"""Transactions that read and write. Consume, transform, produce: each record up to the group's offset has one copy, and copies stand in the
order of their originals; an original that a producer without idempotence has stored at several offsets is as many records. A9: no circle of
transactions of which each read what the next one wrote (G1c by write-read edges only).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from math import inf

from moldau.testing.history.evidence import Evidence
from moldau.testing.history.history import NONE
from moldau.testing.history.kinds import Anomaly, Kind


def check_copies(evidence: Evidence) -> Iterator[Anomaly]:
    """For every group that some producer copies for. A partition is copied to one partition, so that order is defined.

    Where a power cut lost copies or the group's offsets, exactly once does not hold, and nothing is checked.
    """
    copies = _copies(evidence)
    groups = {producer.copies_for for producer in evidence.history.producers} - {""} - _lossy(evidence)
    for group in sorted(groups):
        of_group = copies.get(group, {})
        yield from _doubled(evidence, group, of_group)
        yield from _lost(evidence, group, of_group)
        yield from _reordered(evidence, group, of_group)


def _lossy(evidence: Evidence) -> set[str]:
    """Groups of which offsets, originals or copies were lost, or state of their transactions."""
    sends, producers, losses = evidence.history.sends, evidence.history.producers, evidence.losses
    found = {
        producer.copies_for
        for producer in producers
        if losses.lost_group(producer.copies_for) or losses.transactional_id_after(producer.transactional_id, -inf) != inf
    }
    for value, source in enumerate(sends.source):
        if source != NONE and any(losses.of(sends.partition[each]) for each in (value, source)):
            found.add(producers[sends.producer[value]].copies_for)
    return found


def _copies(evidence: Evidence) -> dict[str, dict[int, list[int]]]:
    """Per group, per original: its copies that are visible."""
    sends, producers = evidence.history.sends, evidence.history.producers
    found: dict[str, dict[int, list[int]]] = {}
    for value, source in enumerate(sends.source):
        if source != NONE and evidence.visible[value]:
            found.setdefault(producers[sends.producer[value]].copies_for, {}).setdefault(source, []).append(value)
    return found


def _doubled(evidence: Evidence, group: str, copies: dict[int, list[int]]) -> Iterator[Anomaly]:
    for source, found in copies.items():
        if len(found) > 1 and len(found) > len(evidence.places(source)):
            which = "; ".join(evidence.describe(copy) for copy in found)
            yield Anomaly(Kind.COPY_DOUBLED, f"group {group} copied {evidence.describe(source)} {len(found)} times: {which}")


def _lost(evidence: Evidence, group: str, copies: dict[int, list[int]]) -> Iterator[Anomaly]:
    """The last look at the group's offsets counts: it is unknown at which moment an offset was passed."""
    reached = {sight.partition: sight.offset for sight in evidence.history.offsets_seen if sight.group == group}
    for partition, offset in reached.items():
        for value in evidence.between(partition, 0, max(offset, 0), committed=True):
            if value not in copies:
                yield Anomaly(Kind.COPY_LOST, f"group {group} is at {offset} and has no copy of {evidence.describe(value)}")


def _reordered(evidence: Evidence, group: str, copies: dict[int, list[int]]) -> Iterator[Anomaly]:
    """An original at several offsets: for each of its copies the first of them counts that is possible, so that only what has no order at
    all is reported.

    It may have fewer copies than offsets, those up to the group's; which of its offsets became known first says nothing. One that follows
    on another of the same original, which has too many, is reported as COPY_DOUBLED.
    """
    sends, place = evidence.history.sends, evidence.place
    stored = sorted(
        (sends.partition[copy], place[copy], source, copy) for source, found in copies.items() for copy in found if place[copy] != NONE
    )
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    for partition, _, source, copy in stored:
        places = evidence.places(source)
        if not places:
            continue
        key = (partition, sends.partition[source])
        reached, before, its_source = last.get(key, (NONE, NONE, NONE))
        following = bisect_right(places, reached)
        if following == len(places):
            if its_source == source and len(copies[source]) > len(places):
                continue
            yield Anomaly(Kind.COPY_REORDERED, f"group {group}: {evidence.describe(copy)} stands after {evidence.describe(before)}")
            following = 0
        last[key] = (places[following], copy, source)


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
