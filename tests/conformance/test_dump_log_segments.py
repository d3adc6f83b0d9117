"""Kafka's own DumpLogSegments reads our segments, indexes, snapshots and finds nothing to complain of (mission A3, A13).

It also says what our `moldau log dump` says, batch by batch and record by record.
"""

import re
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.log.config import LogConfig
from moldau.log.dump import Row, dump
from moldau.log.manager import LogManager
from moldau.log.verify import verify
from support.kafka import java
from support.logs import NOW_MS, append, create, flush, make_batch, manager_over

pytestmark = pytest.mark.system

TOOLS = {"3.9.1": "kafka.tools.DumpLogSegments", "4.3.0": "org.apache.kafka.tools.DumpLogSegments"}
COMPLAINTS = re.compile(
    "mismatch|non-consecutive|out of order|not found in the log|invalid bytes|isvalid: false|exception|ignoring|error", re.IGNORECASE
)
NOT_A_COMPLAINT = re.compile(
    r"^(SLF4J|log4j:|WARNING: |ERROR StatusLogger).*\n|^Non-consecutive offsets in .*/0*(\d+)\.log\n  -1 is followed by \2\n", re.MULTILINE
)
"""What logging libraries say; and what Kafka 4.3's tool says of the first record of every segment that does not begin at 0, its own too."""
BATCHES = 120


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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three logs: rolled and closed; stamped by the broker and closed; and one as a kill leaves it, recovered."""
    directory = tmp_path_factory.mktemp("ours")
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    small = LogConfig(segment_bytes=6000, index_interval_bytes=500)
    write_log(manager, "rolled", small)
    write_log(manager, "stamped", LogConfig(segment_bytes=20_000, message_timestamp_type="LogAppendTime"))
    manager.shutdown()
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    write_log(manager, "recovered", small)
    for _, log in manager.logs():
        log.close(clean=False)
    segment = max((directory / "recovered-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes() + b"torn")
    (directory / ".lock").unlink()  # the lock of the manager that was killed is on the file that had this name
    manager = manager_over(PosixFiles(), str(directory))
    manager.start(NOW_MS)
    assert [log.recovery.bytes_cut for _, log in manager.logs() if log.recovery] == [4, 0, 0]
    manager.shutdown()
    return directory


def files_of(data: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in data.glob("*-0/*") if path.suffix in suffixes)


def kafka_reads(version: str, files: list[Path], *options: str) -> str:
    done = java(version, TOOLS[version], "--files", ",".join(map(str, files)), *options)
    assert done.returncode == 0, done.stdout[-3000:]
    text = NOT_A_COMPLAINT.sub("", done.stdout)
    assert not [line for line in text.splitlines() if COMPLAINTS.search(line)]
    return text


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


@pytest.mark.parametrize("version", TOOLS)
def test_segments(data: Path, version: str) -> None:
    files = files_of(data, ".log")
    text = kafka_reads(version, files, "--deep-iteration", "--print-data-log")
    ours = our_rows(files, records=True)
    batches = [tuple(str(row[name]) for name in BATCH_FIELDS) for row in ours if row["row"] == "batch"]
    assert len(batches) == 3 * BATCHES
    assert batches == [(*fields[:12], fields[12].lower(), fields[13]) for fields in BATCH_LINE.findall(text)]
    records = [row for row in ours if row["row"] == "record"]
    found = [(str(row["offset"]), str(row["timestamp"]), row["key"].decode(), row["value"].decode()) for row in records]
    assert found == RECORD_LINE.findall(text)


@pytest.mark.parametrize("version", TOOLS)
def test_indexes(data: Path, version: str) -> None:
    files = files_of(data, ".index", ".timeindex")
    text = kafka_reads(version, files)
    ours = our_rows(files)
    offsets = [(str(row["offset"]), str(row["log_position"])) for row in ours if row["row"] == "offset"]
    times = [(str(row["timestamp"]), str(row["offset"])) for row in ours if row["row"] == "time"]
    assert re.findall(r"^offset: (\d+) position: (\d+)$", text, re.MULTILINE) == offsets
    assert re.findall(r"^timestamp: (\d+) offset: (\d+)$", text, re.MULTILINE) == times
    assert offsets
    assert times
    kafka_reads(version, files, "--verify-index-only")
    checked = kafka_reads(version, files, "--index-sanity-check")
    sound = set(re.findall(r"^(.*) (?:passed sanity check|is empty)\.$", checked, re.MULTILINE))
    assert sound == {str(path) for path in files}


PRODUCER_LINE = re.compile(
    r"^producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: -?\d+ currentTxnFirstOffset: (?:None|OptionalLong\.empty)"
    r" lastTimestamp: \d+ firstSequence: \d+ lastSequence: (\d+) lastOffset: (\d+) offsetDelta: (\d+) timestamp: (\d+)",
    re.MULTILINE,
)
PRODUCER_FIELDS = ("producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "timestamp")


@pytest.mark.parametrize("version", TOOLS)
def test_producer_snapshots(data: Path, version: str) -> None:
    files = files_of(data, ".snapshot")
    theirs = PRODUCER_LINE.findall(kafka_reads(version, files))
    ours = [tuple(str(row[name]) for name in PRODUCER_FIELDS) for row in our_rows(files) if row["row"] == "producer"]
    assert len(ours) > 5
    assert ours == theirs
