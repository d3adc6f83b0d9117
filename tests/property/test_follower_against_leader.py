"""A follower that copies its leader's log by fetches has the same log, whatever happens to either.

A leader's log with plain, idempotent and transactional batches, markers, new leader epochs and deleted records is copied in chunks that end
anywhere to a follower with other segment sizes, while the follower rolls, flushes, finds its disk full, restarts and crashes, and while
compaction takes whole batches out of what it has not fetched yet. After every step the follower's batches are byte for byte the leader's;
producers, leader epochs, last stable offset and aborted transactions are those of a log that recovery makes of the same bytes, and as long
as nothing was left out they are the leader's own.
"""

import contextlib
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.log.config import LogConfig
from moldau.log.damage import Holes
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import CorruptBatchError, StorageError
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import check_batch, read_header
from moldau.protocol.records.record import Record
from moldau.testing.disk import ForgetfulDisk
from support.log_machine import DIRECTORY, NOW_MS, PARTITION
from support.logs import ongoing
from support.one_log import close_clean, flush, new_disk
from support.searches import max_timestamp_offset
from support.sizes import sized

PRODUCERS = (11, 22, 33)
EXAMPLES = sized(25, 3000)
CRC_STARTS_AT = 17


def open_log(
    disk: ForgetfulDisk, config: LogConfig, recovery_point: int, start_offset: int, *, clean: bool, holes: Holes = Holes.IN_SEGMENTS
) -> PartitionLog:
    return PartitionLog.open(
        disk,
        DIRECTORY,
        PARTITION,
        config,
        recovery_point=recovery_point,
        start_offset=start_offset,
        clean=clean,
        now_ms=NOW_MS,
        holes=holes,
    )


def batches_of(log: PartitionLog) -> list[bytes]:
    """All batches, byte for byte; the first may begin before the log start."""
    found: list[bytes] = []
    offset = log.start_offset
    while (part := log.read(offset, 0, log.log_end_offset, at_least_one=True).records) is not None:
        found.append(part.file.pread(part.length, part.position))
        part.release()
        offset = read_header(found[-1]).last_offset + 1
    return found


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    """What OffsetForLeaderEpoch answers, for each epoch up to the newest with a record."""
    return [log.end_offset_for_epoch(epoch) for epoch in range(log.latest_epoch + 1)]


def state_of(log: PartitionLog) -> tuple[object, ...]:
    start, end = log.start_offset, log.log_end_offset
    middle = (start + end) // 2
    aborted = [log.aborted_entries(first, last) for first, last in ((start, end), (start, middle), (middle, end)) if first < last]
    return sorted(log.active_producers()), epochs_of(log), log.last_stable_offset, aborted, max_timestamp_offset(log)


class FollowerMachine(RuleBasedStateMachine):
    """`source` has the batches of the leader that a follower may fetch: all but those that compaction has removed."""

    def __init__(self) -> None:
        super().__init__()
        self.leader_disk, self.disk = new_disk(), new_disk()
        self.source: list[bytes] = []
        self.sequences: dict[int, int] = {}
        self.content = 0
        self.epoch = 0
        self.recovery_point = 0
        self.is_exact = True
        """Whether the follower has fetched everything that the leader ever had."""

    @initialize(
        leader_segment=st.sampled_from([300, 1000, 100_000]),
        segment=st.sampled_from([150, 400, 1500, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
        index_bytes=st.sampled_from([48, 4096]),
    )
    def start(self, leader_segment: int, segment: int, interval: int, index_bytes: int) -> None:
        config = LogConfig(retention_ms=-1, message_timestamp_after_max_ms=2**62)
        self.leader = open_log(self.leader_disk, config._replace(segment_bytes=leader_segment), 0, 0, clean=False)
        self.leader.lead_epoch(0)
        self.config = config._replace(segment_bytes=segment, index_interval_bytes=interval, segment_index_bytes=index_bytes)
        self.follower = open_log(self.disk, self.config, 0, 0, clean=False)

    # The leader

    @rule(producer=st.sampled_from((-1, *PRODUCERS)), count=st.integers(1, 4), size=st.integers(0, 200), transactional=st.booleans())
    def produce(self, producer: int, count: int, size: int, transactional: bool) -> None:
        self.content += 1
        value = (b"%d-" % self.content).ljust(size, b"x")
        rows = [Record(number, NOW_MS + self.content % 7, 0, None, value, []) for number in range(count)]
        transactional = producer >= 0 and (transactional or producer in ongoing(self.leader))
        if producer < 0:
            data = encode_batch(rows)
        else:
            sequence = self.sequences.get(producer, 0)
            data = encode_batch(rows, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional)
        if len(data) > self.leader.config.segment_bytes:
            return
        self.sequences[producer] = self.sequences.get(producer, 0) + count
        batch = memoryview(bytearray(data))
        self.leader.append_as_leader(batch, check_batch(batch), NOW_MS)
        self.write_leader()

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from((ControlType.COMMIT, ControlType.ABORT)), coordinator=st.integers(0, 2))
    def end(self, producer: int, kind: ControlType, coordinator: int) -> None:
        known = {each.producer_id: each.coordinator_epoch for each in self.leader.active_producers()}
        marker = EndTxnMarker(kind, max(coordinator, known.get(producer, -1)))
        self.leader.append_marker_as_leader(producer, 0, marker, NOW_MS, transaction_version=1)
        self.write_leader()

    @rule(producer=st.sampled_from(PRODUCERS), other=st.sampled_from((-1, *PRODUCERS)), count=st.integers(1, 4), commit=st.booleans())
    def transact(self, producer: int, other: int, count: int, commit: bool) -> None:
        """A whole transaction with a batch of another producer in between."""
        self.produce(producer, count, 10, transactional=True)
        self.produce(other, 1, 100, transactional=False)
        self.end(producer, ControlType.COMMIT if commit else ControlType.ABORT, 0)

    def write_leader(self) -> None:
        offset = self.leader.log_end_offset
        self.leader.write_staged()
        self.leader.advance_high_watermark(self.leader.log_end_offset)
        part = self.leader.read(offset, 0, self.leader.log_end_offset, at_least_one=True).records
        assert part is not None
        self.source.append(part.file.pread(part.length, part.position))
        part.release()

    @rule(step=st.integers(1, 3))
    def change_leader_epoch(self, step: int) -> None:
        self.epoch += step
        self.leader.lead_epoch(self.epoch)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Where the log starts may be in the middle of a batch; a follower that ends before that begins anew."""
        start, end = self.leader.start_offset, self.leader.log_end_offset
        self.leader.delete_records(start + round(share * (end - start)))

    @rule(share=st.floats(0, 1))
    def delete_what_is_not_fetched(self, share: float) -> None:
        start, end = self.follower.log_end_offset, self.leader.log_end_offset
        if start < end:
            self.leader.delete_records(max(self.leader.start_offset, start + 1 + round(share * (end - start - 1))))
            self.fetch(share)

    @rule(seed=st.integers(0, 2**32))
    def compact(self, seed: int) -> None:
        """Some batches are gone that the follower has not fetched."""
        random = Random(seed)
        kept = []
        for batch in self.source:
            header = read_header(batch)
            if header.base_offset < self.follower.log_end_offset or header.producer_id >= 0 or random.random() < 0.5:
                kept.append(batch)
            else:
                self.is_exact = False
        self.source = kept

    # The follower

    def stream(self, offset: int) -> list[bytes]:
        """What the leader sends to a fetch from `offset` on."""
        return [batch for batch in self.source if read_header(batch).last_offset >= offset]

    def begin_anew(self) -> None:
        if self.follower.log_end_offset < self.leader.start_offset:
            self.follower.truncate_fully_and_start_at(self.leader.start_offset)
            self.write_checkpoint()
            self.is_exact = False

    @rule(share=st.floats(0, 1))
    def fetch(self, share: float) -> None:
        """One chunk, which ends anywhere after its first batch."""
        self.begin_anew()
        stream = self.stream(self.follower.log_end_offset)
        if not stream:
            return
        start_offset, data = self.follower.start_offset, b"".join(stream)
        chunk = data[: max(len(stream[0]), round(share * len(data)))]
        end, size = self.follower.log_end_offset, 0
        for batch in stream:
            size += len(batch)
            if size <= len(chunk):
                end = read_header(batch).last_offset + 1
        assert self.follower.append_as_follower(memoryview(chunk), NOW_MS) == end
        assert (self.follower.start_offset, self.follower.log_end_offset) == (start_offset, end)
        self.show_all()

    def show_all(self) -> None:
        self.follower.advance_high_watermark(self.follower.log_end_offset)
        if self.follower.take_cut() is not None:
            self.write_checkpoint()

    @rule(share=st.floats(0, 1), seed=st.integers(0, 2**32))
    def fetch_damaged(self, share: float, seed: int) -> None:
        """A bit that has changed on the way: nothing of the chunk is written."""
        self.begin_anew()
        stream = self.stream(self.follower.log_end_offset)
        if stream:
            random, before = Random(seed), state_of(self.follower)
            number = round(share * (len(stream) - 1))
            damaged = bytearray(stream[number])
            damaged[random.randrange(CRC_STARTS_AT, len(damaged))] ^= 1 << random.randrange(8)
            with pytest.raises(CorruptBatchError):
                self.follower.append_as_follower(memoryview(b"".join([*stream[:number], damaged, *stream[number + 1 :]])), NOW_MS)
            assert state_of(self.follower) == before

    @rule(back=st.integers(1, 3))
    def fetch_again(self, back: int) -> None:
        """Batches that the log has already are refused."""
        had = batches_of(self.follower)[-back:]
        if had:
            with pytest.raises(CorruptBatchError):
                self.follower.append_as_follower(memoryview(b"".join(had)), NOW_MS)

    @rule(room=st.integers(0, 600))
    def fill_disk(self, room: int) -> None:
        """The disk has `room` bytes left: what fits of the chunk may be there, and the rest is fetched again."""
        self.begin_anew()
        stream = self.stream(self.follower.log_end_offset)
        if stream:
            self.disk.capacity = self.disk.used() + room
            with contextlib.suppress(StorageError):
                self.follower.append_as_follower(memoryview(b"".join(stream)), NOW_MS)
            self.disk.capacity = None
            self.show_all()

    @rule()
    def flush(self) -> None:
        flush(self.follower)
        assert self.follower.flushed_offset == self.follower.log_end_offset

    @rule()
    def write_checkpoint(self) -> None:
        self.recovery_point = self.follower.flushed_offset

    @rule()
    def restart(self) -> None:
        start_offset = self.follower.start_offset
        close_clean(self.follower)
        self.write_checkpoint()
        self.follower = open_log(self.disk, self.config, self.recovery_point, start_offset, clean=True)
        assert self.follower.recovery is None

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        """What was flushed is there, whether or not a checkpoint says so, and whatever the leader has compacted."""
        durable = self.follower.flushed_offset
        start_offset = self.follower.start_offset
        self.disk.crash(Random(seed))
        self.follower = open_log(self.disk, self.config, self.recovery_point, start_offset, clean=False)
        assert self.follower.log_end_offset >= durable
        assert self.follower.start_offset == min(start_offset, self.follower.log_end_offset)
        if not self.follower.size_bytes:  # the file of leader epochs may be that of the log before it began anew
            self.follower.truncate_fully_and_start_at(self.follower.start_offset)
            self.write_checkpoint()

    # What both have

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "follower"):
            return
        follower = self.follower
        assert follower.start_offset <= follower.high_watermark == follower.log_end_offset == follower.staged_end_offset
        copied = batches_of(follower)
        assert copied == [batch for batch in self.stream(follower.start_offset) if read_header(batch).last_offset < follower.log_end_offset]
        assert state_of(follower) == state_of(self.recovered(copied))

    def recovered(self, copied: list[bytes]) -> PartitionLog:
        """The log that a start makes of these batches, of which it knows nothing."""
        disk, start_offset = new_disk(), self.follower.start_offset
        disk.make_directory(DIRECTORY)
        base_offset = min(start_offset, read_header(copied[0]).base_offset) if copied else start_offset
        disk.open(f"{DIRECTORY}/{base_offset:020d}.log", create=True, writable=True).append(copied)
        return open_log(disk, LogConfig(), 0, start_offset, clean=False, holes=Holes.ANYWHERE)

    @invariant()
    @precondition(lambda self: self.is_exact)
    def has_what_the_leader_has(self) -> None:
        if not hasattr(self, "follower") or self.follower.log_end_offset != self.leader.log_end_offset:
            return
        assert sorted(self.follower.active_producers()) == sorted(self.leader.active_producers())
        if self.leader.start_offset == 0:
            assert state_of(self.follower) == state_of(self.leader)


TestFollowerAgainstLeader = FollowerMachine.TestCase
TestFollowerAgainstLeader.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None, report_multiple_bugs=False)
