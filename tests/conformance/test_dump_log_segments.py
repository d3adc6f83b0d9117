"""Kafka's own DumpLogSegments reads all files of our logs and finds nothing to complain of (mission A3, A13).

It also says what our `moldau log dump` says, batch by batch and record by record.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.log.config import LogConfig
from moldau.log.dump import Row, dump
from moldau.log.manager import LogManager
from moldau.log.partition_log import PartitionLog
from moldau.log.verify import verify
from moldau.protocol.records.batch import Record, encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker
from support.kafka_tools import DUMPS, KafkaReads, Printed, reads_without_complaint
from support.logs import NOW_MS, append, create, flush, make_batch, manager_over

pytestmark = pytest.mark.system

COMPLAINTS = re.compile(
    "mismatch|non-consecutive|out of order|not found in the log|invalid bytes|isvalid: false|exception|ignoring|error", re.IGNORECASE
)
NOT_A_COMPLAINT = re.compile(
    r"^(SLF4J|log4j:|WARNING: |ERROR StatusLogger).*\n|^Non-consecutive offsets in .*/0*(\d+)\.log\n  -1 is followed by \2\n", re.MULTILINE
)
"""What logging libraries say; and what Kafka 4.3's tool says of the first record of every segment that does not begin at 0, its own too."""
BATCHES = 120
TRANSACTIONS = 40


def write_log(manager: LogManager, topic: str, config: LogConfig) -> None:
    """Batches of all codecs, with and without a producer, with times that rise, stand still and fall."""
    log = create(manager, topic, config=config)
    sequence = 0
    for number in range(BATCHES):
        values = [b"%d-%d " % (number, place) + b"moldau " * (number % 40) for place in range(1 + number % 7)]
        timestamp = NOW_MS - 10_000 + (number * 37) % 500
        batch = make_batch(values, timestamp=timestamp, compression=number % 5)
        if number % 3 == 0:
            batch = make_batch(values, timestamp=timestamp, producer_id=4711, sequence=sequence, compression=number % 5)
            sequence += len(values)
        append(log, batch)
        if number % 10 == 0:
            flush(log)


def write_transactions(manager: LogManager, topic: str, config: LogConfig) -> None:
    """Three producers in turns: one whose transactions have the same epoch, one with a new epoch each time, one that does not end."""
    log = create(manager, topic, config=config)
    sequence = 0
    for number in range(TRANSACTIONS):
        write_in_transaction(log, 11, 0, sequence, number)
        sequence += 2
        write_in_transaction(log, 22, number, 0, number)
        for producer_id, epoch, version in ((11, 0, 1), (22, number + 1, 2)):
            how = ControlType.ABORT if (number + producer_id) % 3 else ControlType.COMMIT
            log.append_marker_as_leader(producer_id, epoch, EndTxnMarker(how, 5), NOW_MS, transaction_version=version)
        log.write_staged()
        if number == TRANSACTIONS // 2:
            write_in_transaction(log, 33, 4, 0, number)
    flush(log)


def write_in_transaction(log: PartitionLog, producer_id: int, epoch: int, sequence: int, number: int) -> None:
    records = [Record(place, NOW_MS, 0, b"k", b"%d" % number, []) for place in range(2)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    append(log, memoryview(bytearray(batch)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that were closed: rolled, stamped by the broker, with transactions; and some as a kill leaves them, recovered."""
    directory = tmp_path_factory.mktemp("ours")
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    small = LogConfig(segment_bytes=6000, index_interval_bytes=500)
    write_log(manager, "rolled", small)
    write_log(manager, "stamped", LogConfig(segment_bytes=20_000, message_timestamp_type="LogAppendTime"))
    write_transactions(manager, "transactions", small)
    manager.shutdown()
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    write_log(manager, "recovered", small)
    write_transactions(manager, "recovered-transactions", small)
    for _, log in manager.logs():
        log.close()
    segment = max((directory / "recovered-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes() + b"torn")
    (directory / ".lock").unlink()  # the lock of the manager that was killed is on the file that had this name
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    cut = {key.topic: log.recovery.bytes_cut for key, log in manager.logs() if log.recovery}
    assert cut == {"recovered": 4, "recovered-transactions": 0, "rolled": 0, "stamped": 0, "transactions": 0}
    manager.shutdown()
    return directory


def files_of(data: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in data.glob("*-0/*") if path.suffix in suffixes)


@pytest.fixture(params=DUMPS)
def kafka_reads(request: pytest.FixtureRequest, kafka_dump: Callable[..., Printed]) -> KafkaReads:
    """What the tool of a version prints of files."""
    return reads_without_complaint(kafka_dump, request.param, COMPLAINTS, NOT_A_COMPLAINT)


def our_rows(files: list[Path], *, records: bool = False) -> list[Row]:
    return [row for path in files for row in dump(PosixFiles(), str(path), records=records)]


def test_there_is_something_to_read(data: Path) -> None:
    assert len(files_of(data, ".log")) > 10
    assert len(files_of(data, ".snapshot")) > 5
    assert sum(path.stat().st_size for path in files_of(data, ".index")) > 100
    assert list(verify(PosixFiles(), str(data), records=True)) == []


BATCH_LINE = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) producerId: (-?\d+)"
    r" producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) .*position: (\d+) (CreateTime|LogAppendTime): (\d+) size: (\d+)"
    r" magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: true",
    re.MULTILINE,
)
BATCH_FIELDS = (
    *("base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id", "producer_epoch", "leader_epoch"),
    *("position", "timestamp_type", "max_timestamp", "size", "compression", "crc"),
)
RECORD_LINE = re.compile(r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (\d+) .* key: (.*) payload: (.*)$", re.MULTILINE)


def test_segments(data: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(data, ".log")
    text = kafka_reads(files, "--deep-iteration", "--print-data-log")
    ours = our_rows(files, records=True)
    batches = [tuple(str(row[name]) for name in BATCH_FIELDS) for row in ours if row["row"] == "batch"]
    assert len(batches) == 3 * BATCHES + 2 * (4 * TRANSACTIONS + 1)
    assert batches == [(*fields[:12], fields[12].lower(), fields[13]) for fields in BATCH_LINE.findall(text)]
    markers = [(str(row["offset"]), row["control"].upper()) for row in ours if "control" in row and row["row"] == "record"]
    assert len(markers) == 4 * TRANSACTIONS
    assert markers == re.findall(r"^\| offset: (\d+) .* endTxnMarker: (\w+) coordinatorEpoch: 5$", text, re.MULTILINE)
    records = [row for row in ours if row["row"] == "record" and "control" not in row]
    found = [(str(row["offset"]), str(row["timestamp"]), row["key"].decode(), row["value"].decode()) for row in records]
    assert found == RECORD_LINE.findall(text)


def test_indexes(data: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(data, ".index", ".timeindex")
    text = kafka_reads(files)
    ours = our_rows(files)
    offsets = [(str(row["offset"]), str(row["log_position"])) for row in ours if row["row"] == "offset"]
    times = [(str(row["timestamp"]), str(row["offset"])) for row in ours if row["row"] == "time"]
    assert re.findall(r"^offset: (\d+) position: (\d+)$", text, re.MULTILINE) == offsets
    assert re.findall(r"^timestamp: (\d+) offset: (\d+)$", text, re.MULTILINE) == times
    assert offsets
    assert times
    kafka_reads(files, "--verify-index-only")
    checked = kafka_reads(files, "--index-sanity-check")
    sound = set(re.findall(r"^(.*) (?:passed sanity check|is empty)\.$", checked, re.MULTILINE))
    assert sound == {str(path) for path in files}


PRODUCER_LINE = re.compile(
    r"^producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+) lastTimestamp: \d+"
    r"(?: firstSequence: \d+ lastSequence: (\d+) lastOffset: (\d+) offsetDelta: (\d+) timestamp: (\d+))?",
    re.MULTILINE,
)
PRODUCER_FIELDS = ("producer_id", "epoch", "coordinator_epoch", "transaction_start")
BATCH_OF_PRODUCER_FIELDS = ("last_sequence", "last_offset", "offset_delta", "timestamp")


def as_kafka_shows(row: Row) -> tuple[str, ...]:
    """A producer; one without a batch in its epoch has no more than that said of it."""
    batch = [str(row[name]) if row["last_offset"] >= 0 else "" for name in BATCH_OF_PRODUCER_FIELDS]
    return (*[str(row[name]) for name in PRODUCER_FIELDS], *batch)


def test_producer_snapshots(data: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(data, ".snapshot")
    theirs = []
    for producer_id, epoch, coordinator, start, *batch in PRODUCER_LINE.findall(kafka_reads(files)):
        number = re.search(r"\d+", start)  # OptionalLong[12], Some(12), OptionalLong.empty, None
        theirs.append((producer_id, epoch, coordinator, "-1" if number is None else number[0], *batch))
    ours = [as_kafka_shows(row) for row in our_rows(files) if row["row"] == "producer"]
    assert len(ours) > 10
    assert any(row[3] != "-1" for row in ours)
    assert ours == theirs


ABORTED_LINE = re.compile(r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", re.MULTILINE)
ABORTED_FIELDS = ("producer_id", "first_offset", "last_offset", "last_stable_offset")


def test_aborted_transactions(data: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(data, ".txnindex")
    assert len(files) > 4
    theirs = ABORTED_LINE.findall(kafka_reads(files))
    ours = [tuple(str(row[name]) for name in ABORTED_FIELDS) for row in our_rows(files)]
    assert len(ours) > TRANSACTIONS
    assert ours == theirs
    closed, recovered = (
        [path.read_bytes() for path in files if path.parent.name == name] for name in ("transactions-0", "recovered-transactions-0")
    )
    assert closed == recovered
