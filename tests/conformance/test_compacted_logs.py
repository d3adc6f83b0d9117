"""Kafka's tools and clients read what our compaction leaves (mission E1): holes, emptied batches, delete horizons, markers."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.log import names
from moldau.log.dump import dump
from moldau.testing.broker import Broker
from support.compaction import CONFIG, KEY, CompactionWorld
from support.java import java_command
from support.kafka_tools import DUMPS, KafkaReads, Printed, reads_without_complaint
from support.logs import NOW_MS
from support.maven import kafka_libraries
from support.paper import read_through, wait_until

pytestmark = pytest.mark.system

COMPLAINTS = re.compile("mismatch|out of order|not found in the log|invalid bytes|isvalid: false|exception|ignoring|error", re.IGNORECASE)
LOGGING = re.compile(r"^(SLF4J|log4j:|WARNING: |ERROR StatusLogger).*\n", re.MULTILINE)
PATIENCE_S = 90.0
"""The worker has the lowest priority: on a busy machine it gets little of it."""
PROGRAM = Path(__file__).parent / "java" / "Compacted.java"


def fill(world: CompactionWorld) -> None:
    """All codecs, tombstones, producers that are overwritten by others, transactions that are committed and aborted; in some segments."""
    for number in range(120):
        records = [(b"%d" % (each * number % 19), b"%d " % number * (each + 1) if (number + each) % 11 else None) for each in range(1, 6)]
        times = [NOW_MS + 10 * number + each % 3 for each in range(5)]
        world.append(*records, compression=number % 5, timestamps=times)
        if number % 10 == 3:
            world.append((b"idempotent", b"x"), producer=(5, 0, number // 10))
        if number % 10 == 5:
            for producer_id in (7, 8):
                world.append((b"%d" % (number % 4), b"in a transaction"), producer=(producer_id, 0, number // 10), transactional=True)
        if number % 10 == 8:
            for producer_id in (7, 8):
                world.end_transaction(producer_id, 0, commit=producer_id == 7)
        if number % 20 == 0:
            world.roll()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was compacted twice, so that there are markers with and without a horizon, and its last segment."""
    directory = tmp_path_factory.mktemp("compacted")
    config = CONFIG._replace(segment_bytes=3000, delete_retention_ms=86_400_000)
    world = CompactionWorld(config, files=PosixFiles(), directory=str(directory))
    fill(world)
    world.roll_and_clean()
    world.append((b"idempotent", b"y"), (b"0", b"z"), (b"1", b"z"))
    world.append((b"2", None), (b"3", b"z"))
    world.roll_and_clean()
    assert world.statistics()["compaction_passes"] == 2
    world.manager.shutdown()
    return directory / str(KEY)


def files_of(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


@pytest.fixture(params=DUMPS)
def kafka_reads(request: pytest.FixtureRequest, kafka_dump: Callable[..., Printed]) -> KafkaReads:
    """What the tool of a version prints of files."""
    return reads_without_complaint(kafka_dump, request.param, COMPLAINTS, LOGGING)


def test_there_is_everything_to_read(folder: Path) -> None:
    rows = [row for path in files_of(folder, names.LOG) for row in dump(PosixFiles(), str(path)) if row["row"] == "batch"]
    assert {row["compression"] for row in rows} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {(row["control"], row["delete_horizon"]) for row in rows} == {(False, False), (False, True), (True, False), (True, True)}
    assert [row for row in rows if row["count"] == 0]
    assert len(files_of(folder, names.LOG)) >= 2
    assert files_of(folder, names.TRANSACTION_INDEX)


def test_segments(folder: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(folder, names.LOG)
    text = kafka_reads(files, "--deep-iteration", "--print-data-log")
    rows = [row for path in files for row in dump(PosixFiles(), str(path), records=True)]
    ours = [(str(row["base_offset"]), str(row["last_offset"]), str(row["count"]), str(row["crc"])) for row in rows if row["row"] == "batch"]
    assert re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* crc: (\d+) isvalid: true", text, re.MULTILINE) == ours
    records = [(str(row["offset"]), str(row["timestamp"])) for row in rows if row["row"] == "record"]
    assert re.findall(r"^\| offset: (\d+) CreateTime: (\d+) ", text, re.MULTILINE) == records
    assert len(re.findall(r"deleteHorizonMs: OptionalLong\[", text)) == len([row for row in rows if row.get("delete_horizon")])


def test_indexes(folder: Path, kafka_reads: KafkaReads) -> None:
    files = files_of(folder, names.INDEX, names.TIME_INDEX)
    assert "offset:" in kafka_reads(files)
    kafka_reads(files, "--verify-index-only")
    checked = kafka_reads(files, "--index-sanity-check")
    assert set(re.findall(r"^(.*) (?:passed sanity check|is empty)\.$", checked, re.MULTILINE)) == {str(path) for path in files}
    aborted = kafka_reads(files_of(folder, names.TRANSACTION_INDEX))
    ours = [row for path in files_of(folder, names.TRANSACTION_INDEX) for row in dump(PosixFiles(), str(path))]
    assert len(re.findall(r"producerId: 8", aborted)) == len(ours) > 0


def test_a_java_consumer_reads_a_compacted_topic_from_its_beginning(tmp_path: Path) -> None:
    """It finds the newest value of each key, passes over stretches that hold nothing, and comes to the end; committed records or all."""
    import confluent_kafka

    left = [*range(960, 1001)]
    with Broker(directory=tmp_path, settings={"log.cleaner.backoff.ms": 20}) as broker:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.ms": 50}
        topic = broker.create_topic("compacted", config=config)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "compression.type": "lz4"})
        for number in range(1000):
            producer.produce(topic, b"%d" % number, b"%d" % (number % 40), partition=0, timestamp=NOW_MS + number)
            if number % 20 == 19:
                producer.flush(20)
        producer.produce(topic, b"last", b"last", partition=0, timestamp=NOW_MS + 10_000)
        assert producer.flush(20) == 0
        wait_until(lambda: [offset for offset, _ in read_through(broker, topic)] == left, "all that is overwritten is purged", PATIENCE_S)
        words = (broker.bootstrap_servers, topic, "read_uncommitted", "read_committed")
        command = java_command(kafka_libraries("4.3.0"), str(PROGRAM), *words)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    half = len(lines) // 2
    assert lines[:half] == lines[half:], "there are no transactions"
    *read, end = lines[:half]
    assert end == "end 1001"
    records = [line.split() for line in read]
    assert [int(offset) for offset, *_ in records] == left
    assert {key: value for _, _, key, value in records} == {str(number % 40): str(number) for number in range(960, 1000)} | {"last": "last"}
    assert [int(time) for _, time, *_ in records] == [*range(NOW_MS + 960, NOW_MS + 1000), NOW_MS + 10_000]
