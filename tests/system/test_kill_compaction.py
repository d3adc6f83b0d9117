"""A server killed (SIGKILL) at any rename of a compaction has the old segments or the new one after its restart (mission E2).

The data is filled once and copied for each kill. A rename is where the state of the files changes; what a power cut makes of them on the
way to the disk is the subject of the property test on the disk that forgets.
"""

import shutil
import time
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import LATEST
from moldau.log.findings import Severity
from moldau.log.verify import verify
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder, batches, iterate
from moldau.testing.broker import Broker
from support.paper import connect, publish
from support.server import ServerProcess

pytestmark = pytest.mark.system

TOPIC = "compacted"
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.ms": 20_000}
HOOK = Path(__file__).parent.parent / "support" / "killed_at_rename"
LIMIT_S = 90.0
Content = dict[int, tuple[bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a server that was stopped: 70 records of 8 keys in four segments, the last one active."""
    directory = tmp_path_factory.mktemp("filled") / "data"
    with Broker(directory=directory, settings={"log.cleaner.enable": False}) as broker:
        broker.create_topic(TOPIC, config=CONFIG)
        with connect(broker) as connection:
            for number in range(70):
                builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=number)
                builder.append(1_300_000_000_000 + 1000 * number, b"%d" % (number % 8), b"%d" % number * 50)
                publish(connection, TOPIC, builder.build())
    assert len(list((directory / f"{TOPIC}-0").glob("*.log"))) == 4
    return directory


def content_of(directory: Path) -> Content:
    """What a broker that compacts nothing finds there and sends."""
    found: Content = {}
    where = TopicPartition(TOPIC, 0)
    with Broker(directory=directory, settings={"log.cleaner.enable": False}) as broker, Cluster(broker.bootstrap_servers) as cluster:
        offset: int = 0
        end = cluster.list_offsets({where: LATEST})[where].offset
        while offset < end:
            for header, batch in batches(cluster.fetch(TOPIC, 0, offset).records):
                found |= {record.offset: (record.key, record.value) for record in iterate(batch, max_decompressed_bytes=1 << 20)}
                offset = max(offset, header.last_offset + 1)
    serious = [str(each) for each in verify(PosixFiles(), str(directory), records=True) if each.severity is not Severity.NOTE]
    assert serious == []
    assert not [path for path in (directory / f"{TOPIC}-0").iterdir() if path.suffix in (".cleaned", ".swap")]
    return found


def compacting(directory: Path, kill_at: int, notes: Path, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """A server that finds something to compact, and kills itself at that rename."""
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HOOK))
        patch.setenv("MOLDAU_TEST_RENAMES", f"{kill_at}:{notes}")
        server = ServerProcess(directory, settings={"log.cleaner.backoff.ms": "10"})
        server.start()
    return server


def cleaned_offset(directory: Path) -> int:
    lines = (
        (directory / "cleaner-offset-checkpoint").read_text().splitlines()[2:] if (directory / "cleaner-offset-checkpoint").exists() else []
    )
    return max((int(line.split()[2]) for line in lines), default=0)


def wait_until_compacted(directory: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while cleaned_offset(directory) < 60:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_dead(server: ServerProcess) -> None:
    deadline = time.monotonic() + LIMIT_S
    while server.running:
        assert time.monotonic() < deadline, "no such rename"
        time.sleep(0.002)
    server.kill()


def test_at_every_rename(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_of(filled)
    assert len(before) == 70
    notes = tmp_path / "undisturbed.txt"
    undisturbed = Path(shutil.copytree(filled, tmp_path / "undisturbed"))
    server = compacting(undisturbed, 10_000, notes, monkeypatch)
    wait_until_compacted(undisturbed)
    assert server.stop() == 0
    after = content_of(undisturbed)
    assert after == {offset: content for offset, content in before.items() if offset >= 63 - 8}, "63 are in closed segments"
    renames = notes.read_text().splitlines()
    assert len(renames) > 12
    outcomes = []
    for number in range(len(renames)):
        directory = Path(shutil.copytree(filled, tmp_path / f"killed-{number}"))
        server = compacting(directory, number, tmp_path / f"{number}.txt", monkeypatch)
        wait_until_dead(server)
        found = content_of(directory)
        assert found in (before, after), renames[number]
        outcomes.append(found == after)
        with Broker(directory=directory) as broker, connect(broker) as connection:
            builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=70)
            builder.append(1_300_000_000_000, b"k", b"v")
            assert publish(connection, TOPIC, builder.build()) == (0, 70), "the producer goes on"
        shutil.rmtree(directory)
    assert outcomes == sorted(outcomes), "the old ones up to some rename, the new one from there on"
    assert outcomes[0] is False
    assert outcomes[-1] is True
