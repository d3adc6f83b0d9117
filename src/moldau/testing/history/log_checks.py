"""What the log must hold: A1, A2, A5, A8, A10, and nothing of producers that were fenced."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from moldau.testing.history.evidence import SEEN_COMMITTED, Evidence
from moldau.testing.history.history import NONE, Outcome
from moldau.testing.history.kinds import Anomaly, Kind


def check_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """A1, A2: what must have been stored was polled by a read_committed reader. A5: what certainly was not stored was not."""
    sent_to = evidence.history.sends.partition
    for value, flags in enumerate(evidence.seen):
        if flags & SEEN_COMMITTED:
            if evidence.outcome(value) == Outcome.FAILED:
                yield Anomaly(Kind.ABORTED_READ, evidence.describe(value))
        elif evidence.must_be_kept(value):
            polled_to, place = evidence.polled_to[sent_to[value]], evidence.place[value]
            if place == NONE or place >= polled_to:
                yield Anomaly(Kind.UNSEEN, evidence.describe(value))
            else:
                yield Anomaly(Kind.LOST_WRITE, f"offset {polled_to} was polled, never {evidence.describe(value)}")


def check_send_order(evidence: Evidence) -> Iterator[Anomaly]:
    """A8: what an idempotent producer sends to a partition lands there in the order of sending."""
    sends, producers = evidence.history.sends, evidence.history.producers
    last: dict[tuple[int, int], int] = {}
    for value, offset in enumerate(evidence.place):
        if offset == NONE:
            continue
        producer = sends.producer[value]
        if not producers[producer].idempotent:
            continue
        key = (producer, sends.partition[value])
        earlier = last.get(key, NONE)
        last[key] = value
        if earlier != NONE and evidence.place[earlier] > offset:
            together = sends.transaction[value] == sends.transaction[earlier] != NONE
            kind = Kind.NONMONOTONIC_SEND_INTERNAL if together else Kind.NONMONOTONIC_SEND
            yield Anomaly(kind, f"{evidence.describe(value)}; before it {evidence.describe(earlier)}")


def check_whole_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """A10: of a transaction everything is seen or nothing."""
    history = evidence.history
    seen: dict[int, int] = {}
    missing: dict[int, int] = {}
    for value, transaction in enumerate(history.sends.transaction):
        if transaction != NONE and history.sends.outcome[value] != Outcome.FAILED and transaction not in evidence.broken:
            side = seen if evidence.seen[value] & SEEN_COMMITTED else missing
            side.setdefault(transaction, value)
    for transaction, value in missing.items():
        if transaction in seen:
            yield Anomaly(Kind.TORN_TRANSACTION, f"seen: {evidence.describe(seen[transaction])}; never seen: {evidence.describe(value)}")
        elif transaction in evidence.proved_by_offset:
            yield Anomaly(Kind.TORN_TRANSACTION, f"its group offset was seen; never {evidence.describe(value)}")


def check_fencing(evidence: Evidence) -> Iterator[Anomaly]:
    """Once another producer is ready with the same transactional id, nothing of the older one succeeds that was begun afterwards.

    Until a power cut that lost the coordinator's state: the epoch of the newer one, or of the older, may be among it.
    """
    history = evidence.history
    fenced_at = [inf] * len(history.producers)
    fenced_until = [inf] * len(history.producers)
    by_id: dict[str, list[int]] = {}
    for number, entry in enumerate(history.producers):
        if entry.transactional_id and entry.ready_at != inf:
            by_id.setdefault(entry.transactional_id, []).append(number)
    for numbers in by_id.values():
        numbers.sort(key=lambda number: history.producers[number].ready_at)
        for older, newer in pairwise(numbers):
            fenced_at[older] = history.producers[newer].ready_at
            fenced_until[older] = evidence.losses.epoch_lost(history, older)
    sends = history.sends
    for value, producer in enumerate(sends.producer):
        if sends.outcome[value] == Outcome.OK and sends.begun[value] > fenced_at[producer] and sends.ended[value] <= fenced_until[producer]:
            yield Anomaly(Kind.ZOMBIE, f"fenced at {fenced_at[producer]:.3f} s: {evidence.describe(value)}")
    used = {*sends.transaction, *(entry.transaction for entry in history.offset_commits)}
    for number, transaction in enumerate(history.transactions):
        at, until = fenced_at[transaction.producer], fenced_until[transaction.producer]
        if number in used and transaction.told == Outcome.OK and transaction.commit_asked > at and transaction.ended <= until:
            yield Anomaly(Kind.ZOMBIE, f"fenced at {at:.3f} s: {evidence.describe_transaction(number)}")
