"""A12: while no fault is there, every operation ends and every record reaches its readers within a limit."""

from bisect import bisect_right
from collections.abc import Iterator
from math import inf

from moldau.testing.history.evidence import SEEN_COMMITTED, Evidence
from moldau.testing.history.history import NONE
from moldau.testing.history.kinds import Anomaly, Kind

STUCK_S = 30.0
"""Longer than a session timeout, a rebalance and a transaction's time-out in the runs."""


class _Calm:
    """The spans of time without a fault."""

    def __init__(self, evidence: Evidence) -> None:
        self.begins = [0.0]
        self.ends: list[float] = []
        for outage in sorted(evidence.history.outages, key=lambda entry: entry.begun):
            if outage.begun <= self.begins[-1]:  # overlaps the one before
                self.begins[-1] = max(self.begins[-1], outage.ended)
            else:
                self.ends.append(outage.begun)
                self.begins.append(outage.ended)
        self.ends.append(inf)
        self.next_long = [len(self.begins)] * (len(self.begins) + 1)
        """Per span: itself or the first after it that is longer than STUCK_S."""
        for place in reversed(range(len(self.begins))):
            long = self.ends[place] - self.begins[place] > STUCK_S
            self.next_long[place] = place if long else self.next_long[place + 1]

    def stuck(self, begin: float, end: float) -> float:
        """What lasted from `begin` to `end`: the seconds of a calm in it that was longer than STUCK_S; else 0."""
        if end - begin <= STUCK_S:
            return 0.0
        first = max(bisect_right(self.begins, begin) - 1, 0)
        for place in (first, self.next_long[first + 1]):
            if place < len(self.begins):
                calm = min(end, self.ends[place]) - max(begin, self.begins[place])
                if calm > STUCK_S:
                    return calm
        return 0.0


def check_progress(evidence: Evidence) -> Iterator[Anomaly]:
    """Sends, ends of transactions and commits of offsets; and for each reader that reads by itself, each visible record."""
    history = evidence.history
    calm = _Calm(evidence)
    limits = [min(producer.gone_at, history.ended) for producer in history.producers]
    sends = history.sends
    for value, begun in enumerate(sends.begun):
        if stuck := calm.stuck(begun, min(sends.ended[value], limits[sends.producer[value]])):
            yield Anomaly(Kind.STUCK, f"{stuck:.1f} s without a fault: {evidence.describe(value)}")
    for number, entry in enumerate(history.transactions):
        if stuck := calm.stuck(entry.commit_asked, min(entry.ended, limits[entry.producer])):
            yield Anomaly(Kind.STUCK, f"{stuck:.1f} s without a fault: {evidence.describe_transaction(number)}")
    for commit in history.offset_commits:
        if commit.transaction == NONE and (stuck := calm.stuck(commit.begun, min(commit.ended, history.ended))):
            where = f"group {commit.group}, {evidence.name(commit.partition)}"
            yield Anomaly(Kind.STUCK, f"{stuck:.1f} s without a fault: commit of offset {commit.offset}, {where}, at {commit.begun:.3f} s")
    yield from _late_records(evidence, calm)


def _late_records(evidence: Evidence, calm: _Calm) -> Iterator[Anomaly]:
    """From the time a record could be had to its first sight by any read_committed reader, if that one polled already. A reader that has
    much to read is late only where it is given nothing of the partition for long.
    """
    sends = evidence.history.sends
    waiting = bytearray(flags & SEEN_COMMITTED for flags in evidence.seen)
    for reader in evidence.history.readers:
        if reader.committed and reader.poll_begun:
            given: dict[int, tuple[int, float]] = {}
            for partition, value, poll in zip(reader.partition, reader.value, reader.poll, strict=True):
                if poll == NONE:
                    continue
                latest, began = given.get(partition, (NONE, reader.poll_begun[0]))
                if latest not in (NONE, poll):
                    began = reader.poll_ended[latest]
                given[partition] = poll, began
                if not 0 <= value < len(waiting) or not waiting[value]:
                    continue
                waiting[value] = 0
                transaction = sends.transaction[value]
                there = sends.ended[value] if transaction == NONE else evidence.history.transactions[transaction].ended
                if there != inf and (stuck := calm.stuck(max(there, began), reader.poll_ended[poll])):
                    yield Anomaly(Kind.STUCK, f"{stuck:.1f} s without a fault until {reader.name} saw {evidence.describe(value)}")
