"""A log behaves like a list of batches, whatever happens to it, and a crash takes no more than what was never flushed.

Any sequence of appends, rolls, flushes, truncations, deletions, full disks, clean restarts and crashes (which keep, lose or garble each
unsynced byte and name as they like) is played on a log over a forgetful disk and on a plain list. After every step both must agree; after
a crash the log may be shorter, but: nothing acknowledged as flushed is missing, offsets are dense, and every batch that is served is,
byte for byte, the last one that was written at its offset, or one whose write was refused after its bytes had reached the disk.
"""

import contextlib
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from moldau.log.config import LogConfig
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError, StorageError
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.header import check_batch
from moldau.protocol.records.record import Record
from support.log_machine import DIRECTORY, NOW_MS, LogMachine
from support.one_log import close_clean
from support.searches import max_timestamp_offset, offset_for_timestamp
from support.sizes import sized

PRODUCERS = (11, 22)
EXAMPLES = sized(40, 5000)


class ListMachine(LogMachine):
    """`written` are the batches in the log, `staged` those that wait for a write.

    `history` has the last bytes written at each base offset, `refused` those that were to be written there when the disk failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, int, bytes]] = []
        self.staged: list[tuple[int, int, memoryview]] = []
        self.history: dict[int, bytes] = {}
        self.refused: dict[int, list[bytes]] = {}
        self.content = 0
        self.sequences: dict[int, int] = {}

    @initialize(
        segment_bytes=st.sampled_from([400, 1500, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
        index_bytes=st.sampled_from([48, 4096]),
        open_files_max=st.sampled_from([1, 2, 100]),
    )
    def start(self, segment_bytes: int, interval: int, index_bytes: int, open_files_max: int) -> None:
        self.open_files_max = open_files_max
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=-1,
            message_timestamp_after_max_ms=2**62,
        )
        self.open(clean=False)

    # What happens to the log

    @rule(records=st.integers(1, 4), size=st.integers(0, 300), timestamp=st.integers(0, 40), producer=st.sampled_from((None, *PRODUCERS)))
    def append(self, records: int, size: int, timestamp: int, producer: int | None) -> None:
        base = self.log.staged_end_offset
        batch = self.make_batch(records, size, timestamp, producer)
        if len(batch) > self.config.segment_bytes:
            with pytest.raises(PeerError, match=r"segment\.bytes"):
                self.log.append_as_leader(batch, check_batch(batch), NOW_MS)
            return
        result = self.log.append_as_leader(batch, check_batch(batch), NOW_MS)
        assert (result.base_offset, result.last_offset, result.duplicate) == (base, base + records - 1, False)
        if producer is not None:
            self.sequences[producer] += records
        self.settle_rolled()
        self.staged.append((base, base + records - 1, batch))

    def make_batch(self, records: int, size: int, timestamp: int, producer: int | None) -> memoryview:
        self.content += 1
        value = (b"%d-" % self.content).ljust(size, b"x")
        rows = [Record(number, timestamp + number % 2, 0, None, value, []) for number in range(records)]
        if producer is None:
            return memoryview(bytearray(encode_batch(rows)))
        sequence = self.sequences.setdefault(producer, 0)
        return memoryview(bytearray(encode_batch(rows, producer_id=producer, producer_epoch=0, base_sequence=sequence)))

    def settle_rolled(self) -> None:
        """An append that needed a new segment has written what was staged for the old one."""
        while self.staged and self.staged[0][1] < self.log.log_end_offset:
            self.note_written(self.staged.pop(0))

    def note_written(self, batch: tuple[int, int, memoryview]) -> None:
        base, last, view = batch
        self.written.append((base, last, bytes(view)))
        self.history[base] = bytes(view)

    @rule()
    def write(self) -> None:
        self.log.write_staged()
        while self.staged:
            self.note_written(self.staged.pop(0))
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule(room=st.integers(0, 400), records=st.integers(1, 3), broken=st.booleans())
    def fill_disk(self, room: int, records: int, broken: bool) -> None:
        """The disk has `room` bytes left for the batches of one write; with `broken` not even cutting back works at first."""
        self.write()
        before = self.producer_views()
        self.disk.capacity = self.disk.used() + room
        if broken:
            self.disk.fail = lambda operation, path: operation == "truncate" and path.endswith(".log")
        first_offset, first_sequence = self.log.log_end_offset, self.sequences.get(PRODUCERS[0], 0)
        staged: list[tuple[int, int, memoryview]] = []
        failure = None
        try:
            for number in range(records):
                batch = self.make_batch(1, 100, number, PRODUCERS[0])
                base = self.log.staged_end_offset
                self.log.append_as_leader(batch, check_batch(batch), NOW_MS)
                self.sequences[PRODUCERS[0]] += 1
                staged.append((base, base, batch))
            self.log.write_staged()
        except StorageError as error:
            failure = error
            with contextlib.suppress(StorageError):
                self.log.write_staged()
        if failure is not None:
            assert failure.no_space or broken
            for base, _, batch in staged:
                self.refused.setdefault(base, []).append(bytes(batch))
        for entry in staged:
            if entry[1] < self.log.log_end_offset:
                self.note_written(entry)
        if self.log.log_end_offset == first_offset:
            assert self.producer_views() == before
        self.sequences[PRODUCERS[0]] = first_sequence + self.log.log_end_offset - first_offset
        assert self.log.staged_end_offset == self.log.log_end_offset
        self.disk.capacity = None
        self.disk.fail = None
        self.log.advance_high_watermark(self.log.log_end_offset)

    def producer_views(self) -> list[tuple[int, ...]]:
        return sorted(tuple(view) for view in self.log.active_producers())

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.write()
        offset = self.share_of(share, self.log.high_watermark)
        assert self.log.delete_records(offset) == max(offset, self.log.start_offset)
        self.forget_before(self.log.start_offset)

    @rule(keep=st.integers(0, 2000))
    def retain(self, keep: int) -> None:
        self.write()
        start_offset = self.log.start_offset
        self.log.reconfigure(replace_retention(self.config, keep))
        removed = self.log.apply_retention(NOW_MS)
        self.log.reconfigure(self.config)
        if self.log.size_bytes < keep:
            assert self.log.start_offset == start_offset, (
                "fewer bytes than to be kept only where records deleted before took their files along"
            )
        for segment in removed:
            segment.unlink()
        self.forget_before(self.log.start_offset)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.write()
        offset = self.share_of(share, self.log.log_end_offset)
        end = self.log.truncate_to(offset)
        self.write_checkpoint()
        assert end <= offset
        self.written = [batch for batch in self.written if batch[1] < offset]
        assert end == (self.written[-1][1] + 1 if self.written else end)
        self.relearn_sequences()

    @rule(forward=st.integers(0, 50))
    def truncate_fully(self, forward: int) -> None:
        self.write()
        offset = self.log.log_end_offset + forward
        self.log.truncate_fully_and_start_at(offset)
        self.write_checkpoint()
        self.written.clear()
        self.sequences.clear()
        assert (self.log.start_offset, self.log.log_end_offset) == (offset, offset)

    @rule()
    def restart(self) -> None:
        self.write()
        close_clean(self.log)
        self.write_checkpoint()
        self.open(clean=True)
        assert self.log.recovery is None

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        acknowledged = self.log.flushed_offset
        self.disk.crash(Random(seed))
        self.staged.clear()
        self.open(clean=False)
        assert self.log.log_end_offset >= acknowledged
        assert self.log.start_offset >= self.checkpoint[1]
        self.written = self.read_all()
        for base, _, data in self.written:
            expected = [self.history.get(base), *(self.refused.get(base, []) if base >= acknowledged else [])]
            assert data in expected, f"offset {base} was served with other bytes than were written last"
            self.history[base] = data
        self.relearn_sequences()
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule(seed=st.integers(0, 2**32), damage=st.integers(1, 255))
    @precondition(lambda self: self.log.log_end_offset > self.checkpoint[0])
    def crash_and_damage(self, seed: int, damage: int) -> None:
        """A crash after which one byte after the recovery point is not what it was: it and all that follows must be gone."""
        self.write()
        random = Random(seed)
        self.disk.crash(random)
        self.staged.clear()
        names = self.disk.list(DIRECTORY) if self.disk.exists(DIRECTORY) else []
        logs = [name for name in names if name.endswith(".log") and self.disk.size(f"{DIRECTORY}/{name}")]
        if logs:
            path = f"{DIRECTORY}/{logs[-1]}"
            data = self.disk.read(path)
            position = random.randrange(len(data))
            victim = self.offset_at(data, position)
            if victim is not None and victim >= self.checkpoint[0] and position % 16 > 0:
                file = self.disk.open(path, writable=True)
                file.pwrite(bytes([data[position] ^ damage]), position)
                file.sync()
                file.release()
        self.open(clean=False)
        self.written = self.read_all()
        for base, _, data in self.written:
            start, stop = 16, len(data)
            assert data[start:stop] in [tried[start:stop] for tried in (self.history.get(base, b""), *self.refused.get(base, []))]
        self.history.update({base: data for base, _, data in self.written})
        self.relearn_sequences()
        self.checkpoint = (min(self.checkpoint[0], self.log.log_end_offset), self.log.start_offset)

    def offset_at(self, data: bytes, position: int) -> int | None:
        at = 0
        try:
            for header, view in batches(memoryview(data)):
                if position < at + len(view):
                    return header.base_offset
                at += len(view)
        except CorruptBatchError:  # the crash has left garbage
            return None
        return None

    # What readers and producers see

    @rule(start=st.floats(0, 1), limit=st.floats(0, 1), max_bytes=st.integers(0, 1500), at_least_one=st.booleans())
    @precondition(lambda self: bool(self.written))
    def read(self, start: float, limit: float, max_bytes: int, at_least_one: bool) -> None:
        """One fetch: whole batches from the one that holds the offset, before the one that holds the limit, a last one may be cut."""
        log = self.log
        offset = log.start_offset + round(start * (log.log_end_offset - log.start_offset))
        limit_offset = offset + round(limit * (log.log_end_offset - offset))
        wanted = b"".join(data for _, last, data in self.written if last >= offset and last < limit_offset)
        first = next((len(data) for _, last, data in self.written if last >= offset and last < limit_offset), 0)
        estimate = log.readable_bytes(offset, limit_offset, max_bytes)
        assert estimate == min(len(wanted), max_bytes)
        result = log.read(offset, max_bytes, limit_offset, at_least_one=at_least_one)
        if result.records is None:
            assert not wanted or (first > max_bytes and not at_least_one)
            return
        data = result.records.file.pread(result.records.length, result.records.position)
        result.records.release()
        assert wanted.startswith(data)
        assert len(data) >= min(first, len(wanted))
        assert len(data) <= max(max_bytes, first if at_least_one else 0)

    @rule(producer=st.sampled_from(PRODUCERS), gap=st.integers(1, 9))
    def produce_again(self, producer: int, gap: int) -> None:
        """Each of the last five batches sent twice gets the offset of the first time; gaps and older epochs are refused."""
        self.write()
        own = [
            (header, base, data)
            for base, _, data in self.written
            for header, _ in batches(memoryview(data))
            if header.producer_id == producer and base >= self.log.start_offset
        ]
        if not own:
            return
        newest = own[-1][0]
        assert newest.last_sequence + 1 == self.sequences[producer]
        rows = [Record(0, 1, 0, None, b"again", [])]
        for epoch, sequence, code in (
            (0, newest.last_sequence + 1 + gap, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (-1, newest.last_sequence + 1, ErrorCode.INVALID_PRODUCER_EPOCH),
            (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ):
            batch = memoryview(bytearray(encode_batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)))
            with pytest.raises(PeerError) as refusal:
                self.log.append_as_leader(batch, check_batch(batch), NOW_MS)
            assert refusal.value.code == code
        for header, base, data in own[-5:]:
            result = self.log.append_as_leader(memoryview(bytearray(data)), header, NOW_MS)
            assert (result.base_offset, result.last_offset, result.duplicate) == (base, header.last_offset, True)
        assert not self.log.has_staged

    # The list

    def forget_before(self, offset: int) -> None:
        self.written = [batch for batch in self.written if batch[1] >= offset]

    def relearn_sequences(self) -> None:
        """After records were lost each producer goes on after the last one that is left."""
        views = {view.producer_id: view.last_sequence for view in self.log.active_producers()}
        self.sequences = {producer: views[producer] + 1 for producer in PRODUCERS if producer in views}
        last: dict[int, int] = {}
        for base, _, data in self.written:
            for header, _ in batches(memoryview(data)):
                if header.producer_id >= 0 and base >= self.log.start_offset:
                    last[header.producer_id] = header.last_sequence
        for producer, sequence in last.items():
            assert views[producer] == sequence, f"producer {producer} is remembered up to {views.get(producer)}, its last is {sequence}"

    def read_all(self) -> list[tuple[int, int, bytes]]:
        """Everything in the log, as the list has it."""
        return [(header.base_offset, header.last_offset, bytes(view)) for header, view in self.stored()]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.start_offset <= log.high_watermark <= log.log_end_offset <= log.staged_end_offset
        assert log.flushed_offset <= log.log_end_offset
        assert self.read_all() == self.written
        if self.written:
            self.look_up_times()

    def look_up_times(self) -> None:
        rows = [
            (timestamp, base + number)
            for base, last, data in self.written
            for number, timestamp in enumerate(self.timestamps(data, last - base + 1))
            if base + number >= self.log.start_offset
        ]
        for wanted in (0, 20, max(timestamp for timestamp, _ in rows), 100):
            expected = next(((timestamp, offset) for timestamp, offset in rows if timestamp >= wanted), None)
            found = offset_for_timestamp(self.log, wanted)
            assert (None if found is None else (found.timestamp_ms, found.offset)) == expected
        newest = max(timestamp for timestamp, _ in rows)
        largest = max_timestamp_offset(self.log)
        assert largest is not None
        assert (largest.timestamp_ms, largest.offset) == next(row for row in rows if row[0] == newest)

    @staticmethod
    def timestamps(data: bytes, count: int) -> list[int]:
        found = [record.timestamp for record in iterate(memoryview(data), max_decompressed_bytes=10_000)]
        assert len(found) == count
        return found


def replace_retention(config: LogConfig, keep: int) -> LogConfig:
    return config._replace(retention_bytes=keep)


TestLogAgainstList = ListMachine.TestCase
TestLogAgainstList.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None, report_multiple_bugs=False)
