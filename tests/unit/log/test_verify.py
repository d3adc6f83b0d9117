"""Verification finds every flipped byte that matters, names file and position, and is silent over a sound directory."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.config import LogConfig
from moldau.log.findings import Finding, Severity
from moldau.log.verify import NoLogError, Totals, verify
from moldau.protocol.records.batch import Record, encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.testing.disk import ForgetfulDisk
from support.logs import NOW_MS, append, create, make_batch, manager_over

SEGMENT = "/data/t-0/00000000000000000000"


def sound_directory() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    log = create(manager, "t", config=LogConfig(segment_bytes=2000, index_interval_bytes=200))
    for number in range(30):
        append(log, make_batch([b"x" * 30] * 3, timestamp=NOW_MS + number, producer_id=7, sequence=3 * number))
    create(manager, "empty")
    manager.shutdown()
    return disk


def rewrite(disk: ForgetfulDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append([data])
    file.release()


def found(disk: ForgetfulDisk, path: str = "/data") -> list[Finding]:
    return list(verify(disk, path, records=True))


def serious(disk: ForgetfulDisk) -> list[str]:
    return [str(finding) for finding in found(disk) if finding.severity is not Severity.NOTE]


def test_a_sound_directory_has_no_findings() -> None:
    disk = sound_directory()
    totals = Totals()
    assert list(verify(disk, "/data", records=True, totals=totals)) == []
    assert (totals.partitions, totals.batches) == (2, 30)
    assert totals.segments > 3
    assert list(verify(disk, "/data/t-0")) == []


@given(st.integers(0, 2**32))
def test_every_damaged_byte_of_a_segment_that_the_checksum_covers_is_found(seed: int) -> None:
    random = Random(seed)
    disk = sound_directory()
    data = bytearray(disk.read(f"{SEGMENT}.log"))
    size = int.from_bytes(data[8:12], "big") + 12
    batch = random.randrange(len(data) // size) * size
    place = batch + random.choice([8, 9, 10, 11, 16, *range(17, size)])
    data[place] ^= random.randint(1, 255)
    rewrite(disk, f"{SEGMENT}.log", bytes(data))
    damages = [finding for finding in found(disk) if finding.severity is Severity.DAMAGE]
    assert (f"{SEGMENT}.log", batch) in [(finding.path, finding.position) for finding in damages]


@given(st.integers(0, 2**32), st.sampled_from([".index", ".timeindex"]))
def test_every_damaged_byte_of_an_index_is_found(seed: int, suffix: str) -> None:
    random = Random(seed)
    disk = sound_directory()
    data = bytearray(disk.read(SEGMENT + suffix))
    data[random.randrange(len(data))] ^= random.randint(1, 255)
    rewrite(disk, SEGMENT + suffix, bytes(data))
    assert any(finding.path == SEGMENT + suffix and finding.severity is Severity.DAMAGE for finding in found(disk))


def test_the_walk_goes_on_behind_a_damaged_batch() -> None:
    disk = sound_directory()
    data = bytearray(disk.read(f"{SEGMENT}.log"))
    size = int.from_bytes(data[8:12], "big") + 12
    data[size - 1] ^= 1
    data[3 * size - 1] ^= 1
    rewrite(disk, f"{SEGMENT}.log", bytes(data))
    lines = serious(disk)
    assert [line.split(": checksum")[0] for line in lines] == [f"damage: {SEGMENT}.log, byte 0", f"damage: {SEGMENT}.log, byte {2 * size}"]


def test_a_torn_tail() -> None:
    disk = sound_directory()
    name = max(name for name in disk.list("/data/t-0") if name.endswith(".log"))
    size = disk.size(f"/data/t-0/{name}")
    disk.open(f"/data/t-0/{name}", writable=True).append([b"torn"])
    [line] = serious(disk)
    assert line.startswith(f"damage: /data/t-0/{name}, byte {size}: 4 bytes are left")


def test_a_missing_segment_is_a_gap() -> None:
    disk = sound_directory()
    logs = [name for name in disk.list("/data/t-0") if name.endswith(".log")]
    disk.remove(f"/data/t-0/{logs[1]}")
    first, second = int(logs[1].split(".")[0]), int(logs[2].split(".")[0])
    assert f"gap: /data/t-0/{logs[2]}, byte 0: offset {second} follows where {first} is due" in serious(disk)


def test_missing_indexes_are_only_noted() -> None:
    disk = sound_directory()
    disk.remove(f"{SEGMENT}.index")
    disk.remove(f"{SEGMENT}.timeindex")
    assert [(finding.severity, finding.path) for finding in found(disk)] == [
        (Severity.NOTE, f"{SEGMENT}.index"),
        (Severity.NOTE, f"{SEGMENT}.timeindex"),
    ]


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("/data/recovery-point-offset-checkpoint", b"0\n1\nt 0 99999\n", "t-0: offset 99999, but the log ends at 90"),
        ("/data/recovery-point-offset-checkpoint", b"0\n7\n", "line 2: '7' entries announced"),
        ("/data/meta.properties", b"version=x", "line 1: version='x'"),
        ("/data/t-0/partition.metadata", b"?", "line 1: 1 lines, not 2"),
        ("/data/t-0/leader-epoch-checkpoint", b"0\n1\n5 1000\n", "last line: epoch 5 begins at offset 1000, the log ends at 90"),
        ("/data/t-0/leader-epoch-checkpoint", b"1\n", "line 1"),
        ("/data/t-0/00000000000000000090.snapshot", b"garbage", "byte 0"),
        ("/data/t-0/00000000000000000500.snapshot", b"\0\1" + bytes(8), "byte 0"),
        (f"{SEGMENT}.txnindex", b"\0" * 35, "byte 34: 1 bytes are left"),
        (f"{SEGMENT}.txnindex", b"\0\1" + bytes(32), "byte 0: entry of version 1"),
    ],
)
def test_damage_beside_the_segments(path: str, data: bytes, expected: str) -> None:
    disk = sound_directory()
    rewrite(disk, path, data)
    assert any(line.startswith(f"damage: {path}, {expected}") for line in serious(disk)), serious(disk)


def directory_with_transactions() -> ForgetfulDisk:
    """Producer 7 aborts and commits in turns, over several segments; 8 is aborted at the end of a transaction that spans all of them."""
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    log = create(manager, "t", config=LogConfig(segment_bytes=1000))

    def write(producer_id: int, sequence: int) -> None:
        records = [Record(0, NOW_MS, 0, None, b"x", [])]
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        append(log, memoryview(bytearray(batch)))

    def end(producer_id: int, how: ControlType) -> None:
        log.append_marker_as_leader(producer_id, 0, EndTxnMarker(how, 0), NOW_MS, transaction_version=1)
        log.write_staged()
        log.advance_high_watermark(log.log_end_offset)

    write(8, 0)
    for sequence in range(20):
        write(7, sequence)
        end(7, ControlType.ABORT if sequence % 2 else ControlType.COMMIT)
    end(8, ControlType.ABORT)
    manager.shutdown()
    return disk


def test_indexes_of_aborted_transactions_are_compared_with_the_markers() -> None:
    disk = directory_with_transactions()
    assert found(disk) == []
    first, *_, last = [f"/data/t-0/{name}" for name in disk.list("/data/t-0") if name.endswith(".txnindex")]
    data = disk.read(first)
    rewrite(disk, first, data[34:])
    assert serious(disk) == [
        f"damage: {first}, byte {len(data) - 34}: no entry for the transaction of producer 7 from offset 3 on, aborted at offset 4"
    ]
    rewrite(disk, first, data[:10] + (4).to_bytes(8, "big") + data[18:])
    assert serious(disk) == [f"damage: {first}, byte 0: entry for producer 7 from offset 4 on, but its transaction begins at offset 3"]
    rewrite(disk, first, data[:2] + (9).to_bytes(8, "big") + data[10:])
    assert serious(disk) == [f"damage: {first}, byte 0: entry for producer 9 from offset 3 on, but it has no abort marker at offset 4"]
    rewrite(disk, first, data)
    rewrite(disk, last, disk.read(last)[:-34])
    assert [(finding.severity, finding.path) for finding in found(disk)] == [(Severity.NOTE, last)]


def test_what_the_next_start_settles_is_noted() -> None:
    disk = sound_directory()
    rewrite(disk, f"{SEGMENT}.log.deleted", b"")
    rewrite(disk, "/data/t-0/00000000000000000001.index", b"")
    disk.remove("/data/t-0/partition.metadata")
    assert serious(disk) == []
    assert len(found(disk)) == 3


def test_preallocated_zeros_of_kafka_are_no_damage() -> None:
    disk = sound_directory()
    for suffix in (".index", ".timeindex"):
        disk.open(SEGMENT + suffix, writable=True).append([bytes(1200)])
    assert found(disk) == []


def test_a_directory_that_is_no_logs_is_not_sound() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/etc")
    disk.make_directory("/etc/rc-0")
    with pytest.raises(NoLogError, match=r"/etc: there is no log here, neither meta\.properties nor a segment"):
        found(disk, "/etc")
    with pytest.raises(NoLogError):
        found(disk, "/etc/rc-0")


def test_a_log_without_its_meta_properties_is_checked() -> None:
    disk = sound_directory()
    disk.remove("/data/meta.properties")
    assert serious(disk) == []
