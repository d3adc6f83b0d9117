"""What consumers must be given: everything once and in order, nothing before its commit, and no false alarm."""

from collections.abc import Iterator
from math import inf

from moldau.testing.history.evidence import Evidence
from moldau.testing.history.history import NONE, POSITION, Reader
from moldau.testing.history.kinds import Anomaly, Kind


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
