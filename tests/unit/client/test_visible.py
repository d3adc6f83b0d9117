"""Readers of committed records see every record of committed transactions and none of aborted ones, from wherever they read."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.fetched_batches import VisibleBatches
from moldau.client.partition_requests import AbortedRecords
from moldau.protocol.records.batch import RecordBatchBuilder, batches
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from support.sizes import sized


class TransactionalLog:
    """Batches of several producers, some in transactions, and which of their offsets a reader of committed records may see."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.visible: set[int] = set()
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first offset, offset of the marker."""
        self.end = 0
        self._open: dict[int, list[int]] = {}

    def append(self, producer: int, count: int, *, transactional: bool) -> None:
        builder = RecordBatchBuilder(
            base_offset=self.end, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=transactional
        )
        for _ in range(count):
            builder.append(0, None, b"%d" % producer)
        offsets = range(self.end, self.end + count)
        if transactional:
            self._open.setdefault(producer, []).extend(offsets)
        else:
            self.visible.update(offsets)
        self.batches.append((self.end + count - 1, builder.build()))
        self.end += count

    def finish(self, producer: int, how: ControlType) -> None:
        marker = encode_end_txn_marker(EndTxnMarker(how, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=self.end)
        written = self._open.pop(producer, [])
        if how is ControlType.COMMIT:
            self.visible.update(written)
        elif written:
            self.aborted.append((producer, written[0], self.end))
        self.batches.append((self.end, marker))
        self.end += 1

    def read(self, position: int) -> set[int]:
        """Offsets from `position` on that are shown, by the bytes and the aborted transactions that a broker would send."""
        data = b"".join(batch for last, batch in self.batches if last >= position)
        stable = min((written[0] for written in self._open.values()), default=self.end)
        aborted = [AbortedRecords(producer, first) for producer, first, marker in self.aborted if marker >= position]
        visible = VisibleBatches(aborted)
        shown: set[int] = set()
        for header, batch in batches(memoryview(data)):
            if header.base_offset >= stable:
                break
            if visible.shows(header, batch):
                shown.update(range(header.base_offset, header.last_offset + 1))
        return {offset for offset in shown if position <= offset < stable}


@settings(max_examples=sized(60))
@given(st.integers(0, 2**32 - 1))
def test_from_wherever_they_read(seed: int) -> None:
    chance = random.Random(seed)
    log = TransactionalLog()
    for _ in range(40):
        producer = chance.randrange(4)
        if chance.random() < 0.7:
            log.append(producer, chance.randrange(1, 4), transactional=producer != 3)
        else:
            log.finish(producer, chance.choice(list(ControlType)))
    for producer in range(3):
        log.finish(producer, chance.choice(list(ControlType)))
    for position in range(0, log.end, 3):
        assert log.read(position) == {offset for offset in log.visible if offset >= position}


def test_the_next_transaction_of_a_producer_is_seen_again() -> None:
    log = TransactionalLog()
    log.append(1, 2, transactional=True)
    log.finish(1, ControlType.ABORT)
    log.append(1, 2, transactional=True)
    log.finish(1, ControlType.COMMIT)
    assert log.read(0) == {3, 4}


def test_without_transactions_everything_is_shown() -> None:
    log = TransactionalLog()
    log.append(-1, 3, transactional=False)
    assert log.read(0) == {0, 1, 2}
