"""What the log must hold: A1, A2, A5, A8, A10, and nothing of producers that were fenced; and what consumers must be given: everything
once and in order, nothing before its commit, and no false alarm.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from moldau.testing.history.evidence import SEEN_COMMITTED, Evidence
from moldau.testing.history.history import NONE, POSITION, Outcome, Reader
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
    """A8: what an idempotent producer sends to a partition lands there in the order of sending, unless the broker had to forget it after
    what it had of it before: a batch may then come first that others, on their way to the leader before, are still to follow.
    """
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
        if earlier != NONE and evidence.place[earlier] > offset and not _is_forgotten(evidence, value):
            together = sends.transaction[value] == sends.transaction[earlier] != NONE
            kind = Kind.NONMONOTONIC_SEND_INTERNAL if together else Kind.NONMONOTONIC_SEND
            yield Anomaly(kind, f"{evidence.describe(value)}; before it {evidence.describe(earlier)}")


def _is_forgotten(evidence: Evidence, value: int) -> bool:
    """Whether a broker may not have known the producer of a value when that came."""
    sends, offset = evidence.history.sends, evidence.place[value]
    for before in reversed(range(value)):
        is_alike = sends.producer[before] == sends.producer[value] and sends.partition[before] == sends.partition[value]
        if is_alike and NONE != evidence.place[before] < offset:
            return evidence.evicted_between(sends.begun[before], sends.ended[value])
    return evidence.evicted_between(0.0, sends.ended[value])


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
        if number in used and transaction.reported == Outcome.OK and transaction.commit_asked > at and transaction.ended <= until:
            yield Anomaly(Kind.ZOMBIE, f"fenced at {at:.3f} s: {evidence.describe_transaction(number)}")


def check_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """A6, A7, from each set position on."""
    for reader in evidence.history.readers:
        yield from _check_reader(evidence, reader)


def _check_reader(evidence: Evidence, reader: Reader) -> Iterator[Anomaly]:
    partitions = len(evidence.history.partitions)
    expected = [NONE] * partitions
    """Per partition: the offset after the last record, or the position; NONE: unknown."""
    last_poll = [NONE] * partitions
    last_epoch = [NONE] * partitions
    columns = (reader.partition, reader.offset, reader.value, reader.epoch, reader.poll)
    for partition, offset, value, epoch, poll in zip(*columns, strict=True):
        if value == POSITION and poll == NONE:
            expected[partition] = offset
            last_poll[partition] = last_epoch[partition] = NONE
            continue
        begin = expected[partition]
        certain = evidence.losses.unchanged_before(partition, offset, last_epoch[partition])
        if offset != begin and begin != NONE:
            internal = last_poll[partition] == poll
            where = f"{reader.name} in {evidence.name(partition)}, poll of {_span(reader, poll)}: offset {offset} instead of {begin}"
            if offset < begin:
                kind = Kind.NONMONOTONIC_POLL_INTERNAL if internal else Kind.NONMONOTONIC_POLL
                yield Anomaly(kind, f"{where}, value {value}")
            elif (skipped := next(evidence.between(partition, begin, certain, committed=reader.committed), NONE)) != NONE:
                kind = Kind.POLL_SKIP_INTERNAL if internal else Kind.POLL_SKIP
                yield Anomaly(kind, f"{where}, skipped {evidence.describe(skipped)}")
        expected[partition] = offset + 1
        last_poll[partition], last_epoch[partition] = poll, epoch


def _span(reader: Reader, poll: int) -> str:
    return f"{reader.poll_begun[poll]:.3f}-{reader.poll_ended[poll]:.3f} s"


def check_early_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A9: no poll of read_committed ends with a value whose commit was not asked for yet, least of all by its own transaction."""
    history = evidence.history
    in_transaction = history.sends.transaction
    asked = [entry.commit_asked for entry in history.transactions]
    for reader in history.readers:
        if not reader.committed or not history.transactions:
            continue
        ended, own = reader.poll_ended, reader.poll_transaction
        for value, poll in zip(reader.value, reader.poll, strict=True):
            if poll == NONE or not 0 <= value < len(in_transaction):
                continue
            transaction = in_transaction[value]
            if transaction != NONE and (own[poll] == transaction or ended[poll] < asked[transaction] != inf):
                where = f"{reader.name}, poll of {_span(reader, poll)}"
                yield Anomaly(Kind.PRECOMMITTED_READ, f"{where}: {evidence.describe(value)}")


def check_out_of_range(evidence: Evidence) -> Iterator[Anomaly]:
    """A14: a position at which a record stood, or right after one, is in range, unless a power cut removed it."""
    for entry in evidence.history.out_of_range:
        end = len(evidence.stored[entry.partition])
        if 0 <= entry.offset <= end and not evidence.losses.moved_position(entry.partition, entry.offset, entry.at):
            reader = evidence.history.readers[entry.reader].name
            where = f"{reader} at {entry.at:.3f} s: offset {entry.offset} of {evidence.name(entry.partition)}"
            yield Anomaly(Kind.OUT_OF_RANGE, f"{where}, which is known to reach {end}")
