"""A data directory that Apache Kafka wrote is taken over: the same records, the same ids, nothing deleted (mission A3).

Kafka 3.9 is stopped cleanly, Kafka 4.3 is killed.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.log.adopt import KEEP_EVERYTHING, AdoptedTopic, cluster_id_of
from moldau.log.config import LogConfig
from moldau.log.directory import ForeignDirectoryError
from moldau.log.findings import Severity
from moldau.log.manager import LogManager
from moldau.log.verify import verify
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from support.kafka import CLUSTER_ID, KafkaProcess
from support.kafka_fill import TOPICS, Contents, Seen, committed, fill, first_offset
from support.logs import NOW_MS, append, flush, make_batch, manager_over, ongoing, records_of
from support.server import ServerProcess

pytestmark = pytest.mark.system

LATE_MS = NOW_MS + 100 * 365 * 24 * 60 * 60 * 1000
CLEAN_MARK = ".kafka_cleanshutdown"
MAY_CHANGE = ("meta.properties", "checkpoint", ".index", ".timeindex", CLEAN_MARK)
"""Files whose bytes may be others afterwards: what is written anew from the log, and the identity, which is kept beside."""


@dataclass
class Left:
    """What a Kafka that is gone has left: what it held, its log directory, its files by name with a digest."""

    contents: Contents
    directory: Path
    files: dict[str, str]
    copy: Path
    """The directory once more."""


def digests(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("3.9.1", KafkaProcess.stop), id="3.9 stopped", marks=pytest.mark.long),
        pytest.param(("4.3.0", KafkaProcess.kill), id="4.3 killed"),
    ],
)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    version: str
    end: Callable[[KafkaProcess], None]
    version, end = request.param
    settings = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "1000"}
    with KafkaProcess(version, tmp_path_factory.mktemp("kafka"), settings) as kafka:
        contents = fill(kafka.bootstrap, newer_groups=not version.startswith("3."))
        end(kafka)
    copy = tmp_path_factory.mktemp("copy") / "logs"
    shutil.copytree(kafka.logs, copy)
    return Left(contents, kafka.logs, digests(kafka.logs), copy)


def seen_by_us(manager: LogManager, topic: str, partition: int) -> list[Seen]:
    log = manager.get(TopicPartition(topic, partition))
    assert log is not None, manager.problem(TopicPartition(topic, partition))
    return [Seen(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in records_of(log)]


def assert_same_records(manager: LogManager, contents: Contents) -> None:
    for (topic, partition), records in contents.records.items():
        assert seen_by_us(manager, topic, partition) == records, (topic, partition)


def assert_same_transactions(manager: LogManager) -> None:
    """Of those that have ended the one that was aborted is known, and the one that hangs holds its log's last stable offset down."""
    ended, hanging = (manager.get(TopicPartition(topic, 0)) for topic in ("transactions", "hanging"))
    assert ended is not None
    assert hanging is not None
    assert ended.last_stable_offset == ended.high_watermark
    assert [first_offset for _, first_offset in ended.aborted_transactions(0, ended.log_end_offset)] == [31]
    assert (hanging.last_stable_offset, len(ongoing(hanging))) == (0, 1)


def assert_nothing_lost(left: Left) -> None:
    now = digests(left.directory)
    gone = set(left.files) - set(now) - {CLEAN_MARK}
    assert all(name.endswith(".snapshot") for name in gone), "recovery makes the state of producers anew; nothing else goes"
    changed = [name for name, digest in left.files.items() if now.get(name) not in (digest, None) and not name.endswith(MAY_CHANGE)]
    assert not changed


def test_adoption(left: Left) -> None:
    """One long dialogue: each step stands on the one before."""
    files, path = PosixFiles(), str(left.directory)
    assert sum(name.startswith("rolled-0/") and name.endswith(".log") for name in left.files) >= 3
    findings = [finding for finding in verify(files, path, records=True) if finding.severity is not Severity.NOTE]
    assert {finding.severity for finding in findings} <= {Severity.GAP}
    assert all("compacted-0" in finding.path or "__" in finding.path for finding in findings), findings

    # Refused, and untouched.
    with pytest.raises(ForeignDirectoryError, match=r"was written by another system.*--adopt"):
        manager_over(files, path).start(NOW_MS)
    assert_nothing_lost(left)

    # Adopted: topics and ids are Kafka's.
    assert cluster_id_of(files, [path]) == CLUSTER_ID
    manager = manager_over(files, path, cluster_id=CLUSTER_ID)
    manager.start(NOW_MS, adopt=True)
    adopted = {topic.name: topic for topic in manager.adopt_topics()}
    for name, (partitions, _) in TOPICS.items():
        assert replace(adopted[name], first_epochs={}) == AdoptedTopic(name, left.contents.topic_ids[name], partitions, KEEP_EVERYTHING)
    assert {name: topic.topic_id for name, topic in adopted.items()} == left.contents.topic_ids
    assert "__consumer_offsets" in adopted
    assert "__cluster_metadata" not in adopted
    assert_same_records(manager, left.contents)
    assert_same_transactions(manager)

    # Nothing goes, however late it is.
    assert drain(manager.apply_retention(LATE_MS)) == 0
    drain(manager.remove_due(LATE_MS))
    assert_nothing_lost(left)
    manager.shutdown()
    assert_nothing_lost(left)
    kept = left.directory / "meta.properties.adopted"
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == left.files["meta.properties"]

    # It is ours from now on, also after a crash, and goes on where Kafka ended.
    manager = manager_over(files, path, cluster_id=CLUSTER_ID)
    manager.start(NOW_MS)
    assert_same_records(manager, left.contents)
    assert_same_transactions(manager)
    for topic in ("rolled", "compacted", "transactions"):
        log = manager.get(TopicPartition(topic, 0))
        assert log is not None
        end_offset = log.log_end_offset
        append(log, make_batch([b"ours"]))
        flush(log)
        assert (log.log_end_offset, records_of(log)[-1].offset) == (end_offset + 1, end_offset)
    for _, log in manager.logs():
        log.close()
    (left.directory / ".lock").unlink()
    manager = manager_over(files, path, cluster_id=CLUSTER_ID, config=LogConfig(retention_ms=1))
    manager.start(NOW_MS)
    assert_same_transactions(manager)
    for topic in ("rolled", "compacted", "transactions"):
        assert seen_by_us(manager, topic, 0)[:-1] == left.contents.records[topic, 0]
        assert seen_by_us(manager, topic, 0)[-1].value == b"ours"
    drain(manager.apply_retention(LATE_MS))
    drain(manager.remove_due(LATE_MS))
    for topic in ("rolled", "compacted", "transactions"):
        assert seen_by_us(manager, topic, 0)[:-1] == left.contents.records[topic, 0], "nobody has registered these topics"
    manager.shutdown()
    gone = set(left.files) - set(digests(left.directory)) - {CLEAN_MARK}
    assert all(name.endswith(".snapshot") for name in gone), "a newer snapshot takes the place of an older one"


def test_producers_are_known_on(left: Left) -> None:
    """What an idempotent producer sent to Kafka is a duplicate to us too."""
    manager = manager_over(PosixFiles(), str(left.directory), cluster_id=CLUSTER_ID)
    manager.start(NOW_MS, adopt=True)
    log = manager.get(TopicPartition("rolled", 0))
    assert log is not None
    [producer] = log.active_producers()
    assert producer.last_sequence == len(left.contents.records["rolled", 0]) - 1
    manager.shutdown()


def test_groups_are_known_on(left: Left) -> None:
    """What groups committed to Kafka they find with us, in memory as in Kafka's records; members go on from there."""
    with ServerProcess(left.copy, arguments=["--adopt"]) as server:
        for group, expected in left.contents.groups.items():
            assert committed(server.bootstrap, group, expected) == expected, group
            assert first_offset(server.bootstrap, group, "codecs") == expected["codecs", 0][0]
        server.stop()
        assert not [line for line in server.output if "ERROR" in line]
