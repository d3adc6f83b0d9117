"""Compaction loses nothing that counts, whatever is appended, and whenever it runs (mission E1, E2; faults D3, A5, A10).

Batches with keys, tombstones, all codecs, idempotent and transactional producers are appended to a log over a forgetful disk and to a plain
list, while passes of compaction are begun and go on step by step in between, and clean stops, crashes and DeleteRecords happen. At every
step:

* each record that is there is the one that was appended at its offset;
* of each key the newest committed record is there, or it is a tombstone and nothing older of the key is there either;
* nothing is missing from the last stable offset on, or in the active segment;
* a reader of committed records sees no aborted one, and every newest committed one before the last stable offset;
* producers go on with their sequences, bytes that are being sent do not change, and `verify` finds no fault.

At the end, with no transaction open and no retention of tombstones, a log of so many keys has no more records beside its active segment.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.log.findings import Severity
from moldau.log.verify import verify
from moldau.model.steps import drain
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.control import ControlType, decode_end_txn_marker
from support.compaction import CONFIG, CompactionWorld, KeyValue
from support.logs import flush
from support.sizes import sized

if TYPE_CHECKING:
    from moldau.ports.transport import FileRange

EXAMPLES = sized(20, 3000)
KEYS = [b"a", b"b", b"c", b"d" * 46, b"d" * 47, b"e" * 60, b""]
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)), min_size=1, max_size=5)
IDEMPOTENT, TRANSACTIONAL = 5, (7, 8)


@dataclass
class Appended:
    """A batch as it was appended; `marker` in place of records: whether it commits."""

    offset: int
    last_offset: int
    records: list[KeyValue]
    producer_id: int = -1
    last_sequence: int = -1
    transactional: bool = False
    marker: bool | None = None


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.history: list[Appended] = []
        self.flushed = 0
        self.ranges: list[tuple[FileRange, bytes]] = []
        self.number = 0

    @initialize(
        segment_bytes=st.sampled_from([700, 1500, 6000]),
        map_bytes=st.sampled_from([0, 5000, 1 << 20]),
        delete_retention_ms=st.sampled_from([0, 1000]),
        policy=st.sampled_from([{"compact"}, {"compact", "delete"}]),
    )
    def begin(self, segment_bytes: int, map_bytes: int, delete_retention_ms: int, policy: set[str]) -> None:
        self.config = CONFIG._replace(
            segment_bytes=segment_bytes, delete_retention_ms=delete_retention_ms, cleanup_policy=frozenset(policy), retention_ms=-1
        )
        self.world = CompactionWorld(self.config, map_bytes=map_bytes)

    # What is appended

    @rule(records=RECORDS, codec=st.integers(0, 4), step=st.sampled_from([0, 1, 300]))
    def append(self, records: list[KeyValue], codec: int, step: int) -> None:
        self._append(records, codec=codec, step=step)

    @rule(records=RECORDS)
    def append_idempotent(self, records: list[KeyValue]) -> None:
        self._append(records, producer_id=IDEMPOTENT)

    @rule(records=RECORDS, producer_id=st.sampled_from(TRANSACTIONAL), codec=st.sampled_from([0, 2]))
    def append_transactional(self, records: list[KeyValue], producer_id: int, codec: int) -> None:
        self._append(records, producer_id=producer_id, codec=codec, transactional=True)

    def _append(
        self, records: list[KeyValue], *, producer_id: int = -1, codec: int = 0, transactional: bool = False, step: int = 1
    ) -> None:
        self.number += 1
        records = [(key, None if value is None else b"%d-" % self.number + value) for key, value in records]
        sequence = -1 if producer_id < 0 else self._last_sequence(producer_id) + 1
        offset = self.world.append(
            *records,
            compression=codec,
            producer=(producer_id, -1 if producer_id < 0 else 0, sequence),
            transactional=transactional,
            timestamps=[self.world.now_ms + step * (number % 3 - 1) for number in range(len(records))],
        )
        last_sequence = -1 if producer_id < 0 else sequence + len(records) - 1
        self.history.append(Appended(offset, offset + len(records) - 1, records, producer_id, last_sequence, transactional))

    def _last_sequence(self, producer_id: int) -> int:
        return max((each.last_sequence for each in self.history if each.producer_id == producer_id), default=-1)

    def _open(self) -> set[int]:
        """Producers with an open transaction."""
        found = set()
        for each in self.history:
            if each.marker is not None:
                found.discard(each.producer_id)
            elif each.transactional:
                found.add(each.producer_id)
        return found

    @precondition(lambda self: self._open())
    @rule(choice=st.integers(0, 1), commit=st.booleans())
    def end_transaction(self, choice: int, commit: bool) -> None:
        producers = sorted(self._open())
        self._end(producers[choice % len(producers)], commit=commit)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        offset = self.world.end_transaction(producer_id, 0, commit=commit)
        self.history.append(Appended(offset, offset, [], producer_id, marker=commit))

    # What happens to the log

    @rule()
    def roll(self) -> None:
        if self.world.log.log_end_offset > self.world.log.active_base_offset:
            self.world.roll()
            self.flushed = self.world.log.flushed_offset

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        flush(self.world.log)
        self.flushed = self.world.log.flushed_offset
        if checkpoint:
            drain(self.world.manager.checkpoint())

    @rule(steps=st.integers(1, 8), look=st.booleans())
    def compact(self, steps: int, look: bool) -> None:
        if look:
            self.world.look()
        for _ in range(min(steps, 2 * self.world.workers.running)):
            if self.world.workers.running:
                self.world.workers.step()

    @rule()
    def worker_dies(self) -> None:
        if self.world.workers.running:
            self.world.workers.die()

    @rule(ms=st.sampled_from([1, 500, 2000]))
    def time_passes(self, ms: int) -> None:
        self.world.now_ms += ms
        drain(self.world.manager.remove_due(self.world.now_ms))

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        """Records before the start are gone for the model too: nobody can read them."""
        log = self.world.log
        if log.last_stable_offset == log.high_watermark:
            log.delete_records(log.start_offset + int(part * (log.high_watermark - log.start_offset) / 4))

    @rule()
    def restart(self) -> None:
        self._let_go()
        self.world.restart()
        self.flushed = self.world.log.log_end_offset
        serious = [str(each) for each in verify(self.world.disk, "/data", records=True) if each.severity is not Severity.NOTE]
        assert serious == []

    @precondition(lambda self: not self.world.log.start_offset)  # else what recovery knows of producers begins after their batches
    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        self._let_go()
        self.world.disk.crash(Random(seed))
        self.world.start()
        end = self.world.log.log_end_offset
        assert end >= self.flushed
        self.history = [each for each in self.history if each.last_offset < end]
        self.flushed = 0  # what recovery found is not synced yet

    def _let_go(self) -> None:
        for part, _ in self.ranges:
            part.release()
        self.ranges.clear()

    @rule(part=st.floats(0, 1))
    def a_fetch_is_slow(self, part: float) -> None:
        """It has its range of a file, and takes its time to send it."""
        log = self.world.log
        offset = log.start_offset + int(part * (log.high_watermark - log.start_offset))
        records = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True).records
        if records is not None and len(self.ranges) < 5:
            self.ranges.append((records, records.file.pread(records.length, records.position)))

    # What must hold

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        log = self.world.log
        start, stable = log.start_offset, log.last_stable_offset
        there = {offset: content for offset, content in self.world.content().items() if offset >= start}
        appended, committed, aborted = self._expected()
        for offset, content in there.items():
            assert appended[offset] == content
        for offset, content in appended.items():
            if offset >= max(start, min(stable, log.active_base_offset)):
                assert there.get(offset) == content, "nothing goes that may still be needed"
        seen = self._read_committed()
        assert not seen & aborted, "aborted"
        newest: dict[bytes | None, int] = {}
        for offset in sorted(committed):
            if offset >= start:
                newest[appended[offset][0]] = offset
        for key, offset in newest.items():
            if offset in there:
                assert offset in seen or offset >= stable
            else:
                assert appended[offset][1] is None, f"the newest of {key!r}, at {offset}, is lost"
                older = [other for other in there if other in committed and appended[other][0] == key]
                assert older == [], "a deleted key comes back"
        for part, content_then in self.ranges:
            assert part.file.pread(part.length, part.position) == content_then

    def _expected(self) -> tuple[dict[int, KeyValue], set[int], set[int]]:
        """All records by offset; which of them are committed, and which aborted."""
        appended: dict[int, KeyValue] = {}
        committed: set[int] = set()
        aborted: set[int] = set()
        open_offsets: dict[int, list[int]] = {}
        for each in self.history:
            offsets = range(each.offset, each.offset + len(each.records))
            appended.update(zip(offsets, each.records, strict=True))
            if each.marker is not None:
                (committed if each.marker else aborted).update(open_offsets.pop(each.producer_id, []))
            elif each.transactional:
                open_offsets.setdefault(each.producer_id, []).extend(offsets)
            else:
                committed.update(offsets)
        return appended, committed, aborted

    def _read_committed(self) -> set[int]:
        """Offsets of the records that a consumer keeps: as the Java client goes about it, with what the broker tells of aborted ones."""
        log = self.world.log
        due = sorted(log.aborted_transactions(log.start_offset, log.last_stable_offset), key=lambda each: each[1])
        aborting: set[int] = set()
        seen: set[int] = set()
        for header, batch in self.world.batches():
            if header.base_offset >= log.last_stable_offset:
                break
            while due and due[0][1] <= header.last_offset:
                aborting.add(due.pop(0)[0])
            records = list(iterate(memoryview(batch), max_decompressed_bytes=1 << 20))
            if header.is_control:
                marker = decode_end_txn_marker(records[0]) if records else None
                if marker is not None and marker.type is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen.update(record.offset for record in records)
        return seen

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for producer_id in self._open():
            self._end(producer_id, commit=True)
        world = self.world
        if world.log.log_end_offset > world.log.active_base_offset:
            world.roll()
        flush(world.log)
        for _ in range(50):
            world.clean()
            world.now_ms += 2000
            if world.cleaner is None or not world.statistics()["compaction_dirtiest_percent"]:
                break
        self.holds()
        log = world.log
        assert log.active_base_offset == log.log_end_offset
        appended, _, _ = self._expected()
        keys = {key for offset, (key, _) in appended.items() if offset >= log.start_offset}
        visible = [offset for offset in world.content() if offset >= log.start_offset]
        assert len(visible) <= len(keys), (visible, keys)
        self._let_go()
        world.manager.shutdown()


CompactionMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestCompaction = CompactionMachine.TestCase
