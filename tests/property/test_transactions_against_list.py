"""A log with transactions behaves like a list of batches and markers, whatever happens to it.

Any sequence of batches, commits, aborts (by transactions of version 1 and 2), markers that come late or twice, rolls, flushes, lagging high
watermarks, full disks, deletions, retention, truncations, clean restarts and crashes is played on a log over a forgetful disk and on a
list. After every step: the last stable offset, the ongoing transactions and the aborted ones of any range are those of the list; and a
reader of committed records who fetches in pieces of any size gets exactly the records that are in no transaction or in a committed one.
"""

import contextlib
from random import Random
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from moldau.log.config import LogConfig
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker, decode_end_txn_marker
from moldau.protocol.records.header import BatchHeader, check_batch
from moldau.protocol.records.record import Record
from support.log_machine import DIRECTORY, NOW_MS, LogMachine
from support.logs import ongoing
from support.one_log import close_clean
from support.sizes import sized

PRODUCERS = (11, 22, 33)
EXAMPLES = sized(40, 5000)

BATCH, COMMIT, ABORT = "batch", "commit", "abort"


class Event(NamedTuple):
    """A batch or a marker in the log; `producer` -1 for none."""

    base: int
    last: int
    producer: int
    epoch: int
    transactional: bool
    kind: str
    values: tuple[bytes | None, ...] = ()


class Span(NamedTuple):
    """A transaction by the list; `end` -1 while it is ongoing."""

    producer: int
    first: int
    end: int
    aborted: bool


def spans(events: list[Event]) -> list[Span]:
    """The transactions of a list, by the offsets of their markers, those without one last."""
    ended: list[Span] = []
    begun: dict[int, int] = {}
    for event in events:
        if event.kind != BATCH:
            first = begun.pop(event.producer, None)
            if first is not None:
                ended.append(Span(event.producer, first, event.base, event.kind == ABORT))
        elif event.transactional:
            begun.setdefault(event.producer, event.base)
    return ended + [Span(producer, first, -1, aborted=False) for producer, first in begun.items()]


class TransactionMachine(LogMachine):
    """`written` are the events in the log, `staged` those that wait for a write; `epochs` and `sequences` what a producer sends next."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Event] = []
        self.staged: list[Event] = []
        self.content = 0
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    @initialize(segment_bytes=st.sampled_from([300, 1000, 100_000]), interval=st.sampled_from([0, 200, 4096]))
    def start(self, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1)
        self.open(clean=False)

    # What producers and coordinators do

    def stage(self, producer: int, count: int, *, transactional: bool) -> Event:
        """One batch, with the next sequence of its producer."""
        self.content += 1
        values = tuple(b"%d-%d" % (self.content, number) for number in range(count))
        rows = [Record(number, NOW_MS, 0, None, value, []) for number, value in enumerate(values)]
        epoch, sequence = self.epochs.setdefault(producer, 0 if producer >= 0 else -1), self.sequences.get(producer, 0)
        if producer < 0:
            data = encode_batch(rows)
        else:
            data = encode_batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
        batch = memoryview(bytearray(data))
        try:
            result = self.log.append_as_leader(batch, check_batch(batch), NOW_MS)
        finally:
            self.settle_rolled()
        assert not result.duplicate
        self.sequences[producer] = sequence + count
        event = Event(result.base_offset, result.last_offset, producer, epoch, transactional, BATCH, values)
        self.staged.append(event)
        return event

    def settle_rolled(self) -> None:
        """An append that needed a new segment, even one that was refused, has written what was staged for the old one."""
        while self.staged and self.staged[0].last < self.log.log_end_offset:
            self.written.append(self.staged.pop(0))

    def ongoing(self) -> dict[int, int]:
        return {span.producer: span.first for span in spans(self.written + self.staged) if span.end < 0}

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def write_in_transaction(self, producer: int, count: int) -> None:
        self.stage(producer, count, transactional=True)

    @rule(producer=st.sampled_from((-1, *PRODUCERS)), count=st.integers(1, 3))
    def write_outside(self, producer: int, count: int) -> None:
        if producer in self.ongoing():
            with pytest.raises(PeerError) as refusal:
                self.stage(producer, count, transactional=False)
            assert refusal.value.code == ErrorCode.INVALID_TXN_STATE
            return
        self.stage(producer, count, transactional=False)

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from((COMMIT, ABORT)), version=st.sampled_from((1, 2)))
    def end(self, producer: int, kind: str, version: int) -> None:
        """Also where there is no transaction: the partition was added and nothing written to it."""
        epoch = self.epochs.get(producer, 0) + (version == 2)
        self.mark(producer, epoch, kind, version)
        if version == 2:
            self.epochs[producer] = epoch
            self.sequences[producer] = 0

    def mark(self, producer: int, epoch: int, kind: str, version: int) -> None:
        marker = EndTxnMarker(ControlType.COMMIT if kind == COMMIT else ControlType.ABORT, 0)
        result = self.log.append_marker_as_leader(producer, epoch, marker, NOW_MS, transaction_version=version)
        self.settle_rolled()
        self.staged.append(Event(result.base_offset, result.last_offset, producer, epoch, True, kind))

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from((COMMIT, ABORT)), behind=st.integers(0, 2))
    def mark_late(self, producer: int, kind: str, behind: int) -> None:
        """A marker of an earlier transaction of version 2 never ends the one that is ongoing."""
        known = {view.producer_id: view.epoch for view in self.log.active_producers()}.get(producer)
        if known is None or known < behind:
            return
        if behind or producer in self.ongoing():
            end_offset = self.log.staged_end_offset
            with pytest.raises(PeerError) as refusal:
                self.mark(producer, known - behind, kind, 2)
            assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert self.log.staged_end_offset == end_offset
        else:
            self.mark(producer, known, kind, 2)

    # What happens to the log

    @rule()
    def write(self) -> None:
        self.log.write_staged()
        self.settle_rolled()
        assert not self.staged

    @rule(share=st.floats(0, 1))
    def advance(self, share: float) -> None:
        """The high watermark may lag behind what is written, by whole batches."""
        ends = [event.last + 1 for event in self.written if event.last >= self.log.high_watermark]
        if ends:
            self.log.advance_high_watermark(ends[round(share * (len(ends) - 1))])

    @rule(room=st.integers(0, 500), seed=st.integers(0, 2**32))
    def fill_disk(self, room: int, seed: int) -> None:
        """The disk has `room` bytes left for a few batches and markers; what is not written never was."""
        self.write()
        random = Random(seed)
        epochs, sequences = dict(self.epochs), dict(self.sequences)
        before = (self.views(), self.log.log_end_offset)
        self.disk.capacity = self.disk.used() + room
        try:
            for _ in range(random.randint(1, 4)):
                producer = random.choice(PRODUCERS)
                if random.random() < 0.5:
                    self.stage(producer, 1, transactional=True)
                else:
                    self.end(producer, random.choice((COMMIT, ABORT)), random.choice((1, 2)))
            self.log.write_staged()
        except StorageError:
            with contextlib.suppress(StorageError):
                self.log.write_staged()
        self.disk.capacity = None
        self.settle_rolled()
        self.staged.clear()
        self.epochs, self.sequences = epochs, sequences
        if self.log.log_end_offset == before[1]:
            assert self.views() == before[0]
        else:
            self.relearn()

    def views(self) -> tuple[object, ...]:
        return sorted(self.log.active_producers()), self.log.last_stable_offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.write()
        self.log.delete_records(self.share_of(share, self.log.last_stable_offset))

    @rule(keep=st.integers(0, 1500))
    def retain(self, keep: int) -> None:
        self.write()
        stable_offset = self.log.last_stable_offset
        self.log.reconfigure(self.config._replace(retention_bytes=keep))
        for segment in self.log.apply_retention(NOW_MS):
            segment.unlink()
        self.log.reconfigure(self.config)
        assert self.log.start_offset <= stable_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.write()
        offset = self.share_of(share, self.log.log_end_offset)
        self.log.truncate_to(offset)
        self.write_checkpoint()
        self.written = [event for event in self.written if event.last < offset]
        self.relearn()

    @rule(damage=st.booleans())
    def restart(self, damage: bool) -> None:
        """In order; with `damage` the indexes of aborted transactions are not what they were."""
        self.write()
        close_clean(self.log)
        self.write_checkpoint()
        if damage:
            for name in self.disk.list(DIRECTORY):
                if name.endswith(".txnindex"):
                    file = self.disk.open(f"{DIRECTORY}/{name}", writable=True)
                    file.pwrite(b"\xff", 0)
                    file.release()
        self.open(clean=True)
        assert self.log.recovery is None

    @rule(seed=st.integers(0, 2**32), damage=st.booleans())
    def crash(self, seed: int, damage: bool) -> None:
        """With `damage` a bit of each index of aborted transactions is not what it was."""
        acknowledged, random = self.log.flushed_offset, Random(seed)
        self.disk.crash(random)
        for name in self.disk.list(DIRECTORY) if damage and self.disk.exists(DIRECTORY) else ():
            if name.endswith(".txnindex") and (data := self.disk.read(f"{DIRECTORY}/{name}")):
                at = random.randrange(len(data))
                file = self.disk.open(f"{DIRECTORY}/{name}", writable=True)
                file.pwrite(bytes((data[at] ^ 1 << random.randrange(8),)), at)
                file.release()
        self.staged.clear()
        self.open(clean=False)
        assert self.log.log_end_offset >= acknowledged
        gone = [event for event in self.written if event.last < self.log.start_offset]
        self.written = gone + self.read_all()
        self.relearn()

    def relearn(self) -> None:
        """After records were lost each producer goes on after what is left of it."""
        views = {view.producer_id: view for view in self.log.active_producers()}
        self.epochs = {producer: view.epoch for producer, view in views.items()}
        self.sequences = {producer: view.last_sequence + 1 for producer, view in views.items()}

    # What readers see

    def read_all(self) -> list[Event]:
        """Everything in the log, as events."""
        return [self.event_of(header, view) for header, view in self.stored()]

    def event_of(self, header: BatchHeader, view: memoryview) -> Event:
        records = list(iterate(view, max_decompressed_bytes=10_000))
        kind, values = BATCH, tuple(record.value for record in records)
        if header.is_control:
            marker = decode_end_txn_marker(records[0])
            assert marker is not None
            kind, values = COMMIT if marker.type is ControlType.COMMIT else ABORT, ()
        return Event(
            header.base_offset, header.last_offset, header.producer_id, header.producer_epoch, header.is_transactional, kind, values
        )

    @rule(max_bytes=st.integers(0, 700), share=st.floats(0, 1))
    @precondition(lambda self: bool(self.written))
    def consume(self, max_bytes: int, share: float) -> None:
        """As Kafka's consumers do: a transaction is left out from its first offset to its marker."""
        log = self.log
        limit = log.last_stable_offset
        offset = start = log.start_offset + round(share * (limit - log.start_offset))
        values: list[bytes | None] = []
        while offset < limit:
            read = log.read(offset, max_bytes, limit, at_least_one=True)
            assert read.records is not None
            begins = sorted(log.aborted_in(read, offset, limit), key=lambda each: each[1])
            data = read.records.file.pread(read.records.length, read.records.position)
            read.records.release()
            aborted: set[int] = set()
            for header, view in batches(memoryview(data)):
                while begins and begins[0][1] <= header.last_offset:
                    aborted.add(begins.pop(0)[0])
                if header.is_control:
                    aborted.discard(header.producer_id)
                elif not header.is_transactional or header.producer_id not in aborted:
                    values += [record.value for record in iterate(view, max_decompressed_bytes=10_000) if record.offset >= start]
                offset = header.last_offset + 1
        assert values == [value for value_offset, value in self.committed() if start <= value_offset < limit]

    def committed(self) -> list[tuple[int, bytes | None]]:
        """Offsets and values in no transaction, or in one that was committed."""
        known = spans(self.written)
        found: list[tuple[int, bytes | None]] = []
        for event in self.written:
            inside = [
                span
                for span in known
                if span.producer == event.producer and span.first <= event.base <= (span.end if span.end >= 0 else event.base)
            ]
            if event.kind == BATCH and not (event.transactional and any(span.aborted for span in inside)):
                found += [(event.base + number, value) for number, value in enumerate(event.values)]
        return found

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log, start = self.log, self.log.start_offset
        assert log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert self.read_all() == [event for event in self.written if event.last >= start]
        begun = ongoing(log)
        known = spans(self.written + self.staged)
        for span in known:
            if span.end < 0:
                assert self.is_begin(begun.get(span.producer), span)
        assert begun.keys() <= self.ongoing().keys()
        ended = [span for span in known if span.end >= log.high_watermark]
        sure = [*begun.values(), *[span.first for span in ended if self.first_left(span) is not None]]
        perhaps = [*sure, *[span.first for span in ended]]
        assert log.last_stable_offset in {
            min(log.high_watermark, max(start, min(unstable, default=log.high_watermark))) for unstable in (sure, perhaps)
        }
        known = spans(self.written)
        for first, end in self.ranges():
            found = log.aborted_transactions(first, end)
            for span in known:
                if span.aborted and span.end >= first and span.first < end:
                    is_next = bool(found) and found[0][0] == span.producer and self.is_begin(found[0][1], span)
                    if is_next:
                        found.pop(0)
                    assert is_next or (self.first_left(span) or end) >= end
            assert not found

    def first_left(self, span: Span) -> int | None:
        """The first of a transaction's batches that the log still has."""
        inside = (span.first, span.end if span.end >= 0 else self.log.staged_end_offset)
        bases = [
            event.base
            for event in self.written + self.staged
            if event.kind == BATCH and event.producer == span.producer and event.last >= self.log.start_offset
        ]
        return min((base for base in bases if inside[0] <= base < inside[1]), default=None)

    def is_begin(self, offset: int | None, span: Span) -> bool:
        """Whether a log may say that the transaction begins here. What began before the start of the log it may have forgotten."""
        left = self.first_left(span)
        if offset is None:
            return left is None
        latest = span.end if span.end >= 0 else self.log.staged_end_offset
        return span.first <= offset <= (latest if left is None else left)

    def ranges(self) -> list[tuple[int, int]]:
        start, end = self.log.start_offset, self.log.log_end_offset
        middle = (start + end) // 2
        return [(first, last) for first, last in ((start, end), (start, middle), (middle, end), (middle, middle + 1)) if first < last]


TestTransactionsAgainstList = TransactionMachine.TestCase
TestTransactionsAgainstList.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None, report_multiple_bugs=False)
