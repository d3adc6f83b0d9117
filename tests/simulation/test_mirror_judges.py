"""What the judges of simulated mirrors expect, where a simple comparison would be wrong."""

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.mirror.partitions import Halt, SourcePartition
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.mirrors.copy_judge import check_newest
from moldau.testing.simulation.mirrors.draining import Ends, drained
from moldau.testing.simulation.mirrors.judge import MirrorError
from moldau.testing.simulation.mirrors.logs import log_of, settled_end
from moldau.testing.simulation.mirrors.work import Progress
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import Simulation

COMPACTED = TopicPartition("compacted", 0)


def message(offset: int, key: bytes) -> SimulatedMessage:
    return SimulatedMessage(b"v%d" % offset, key, [], 1_000_000, "compacted", 0, offset)


def test_a_compacted_target_may_lack_what_has_a_newer_record_of_its_key() -> None:
    """Claim: the source's replicas compact their logs each at its own time, and the mirror has read another one than the judge."""
    source = [message(83, b"3"), message(84, b"2"), message(137, b"3")]
    check_newest(COMPACTED, source, [message(84, b"2"), message(137, b"3")], 138)
    check_newest(COMPACTED, source, [message(84, b"2")], 100)
    with pytest.raises(MirrorError, match="compacted-0: offset 84 is None, in the source it is"):
        check_newest(COMPACTED, source, [message(83, b"3"), message(137, b"3")], 138)
    with pytest.raises(MirrorError, match="offset 83 is"):
        check_newest(COMPACTED, source, [message(83, b"2"), message(84, b"2"), message(137, b"3")], 138)


def records(offset: int, producer_id: int) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=offset, leader_epoch=5, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    builder.append(1_000_000, None, b"x")
    return builder.build()


def marker(offset: int, producer_id: int) -> bytes:
    commit = EndTxnMarker(ControlType.COMMIT, 0)
    return encode_end_txn_marker(commit, producer_id=producer_id, producer_epoch=0, timestamp=1_000_000, base_offset=offset, leader_epoch=5)


@pytest.mark.parametrize(("cut", "end"), [(1, 0), (3, 0), (4, 4), (5, 4), (7, 4), (8, 8)])
def test_a_cut_ends_a_log_before_each_transaction_that_is_open_there(cut: int, end: int) -> None:
    """Claim: at 7 the transaction from 5 on is open, and without its records the one from 4 on, too, whose marker is at 6."""
    log = log_of([records(0, 8), records(1, 9), marker(2, 9), marker(3, 8), records(4, 9), records(5, 8), marker(6, 9), marker(7, 8)])
    assert settled_end(log, 5, cut) == end
    assert settled_end(log, 4, cut) == cut, "of later epochs it says nothing"


def host(position: int, halt: Halt | None) -> Any:
    progress = {SourcePartition("source", b"id", "t", 0): Progress(position, halt)}
    return SimpleNamespace(process=SimpleNamespace(work=SimpleNamespace(progress=lambda: progress)))


@pytest.mark.parametrize(("halt", "ends"), [(None, [2, 2, 3]), (Halt.TRUNCATED, [2])])
def test_a_position_after_the_end_is_explained(halt: Halt | None, ends: list[int]) -> None:
    """Claim: by a marker that came after the end was measured, or by a halt; there is a wait until one of them is seen."""
    partition, left, sim = TopicPartition("t", 0), list(ends), Simulation(Options(1))

    async def measure() -> Ends:
        return {partition: (b"id", left.pop(0))}

    async def main() -> None:
        assert await drained(sim, [host(3, halt)], measure) == ({} if halt is None else {partition: halt})
        assert left == []

    try:
        sim.run(main())
    finally:
        sim.close()
