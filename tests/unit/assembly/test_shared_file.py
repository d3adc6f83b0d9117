"""Brokers over one file of metadata are one cluster; what does not fit ends the start, and says why."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.assembly.thread import BrokerThread
from moldau.broker.metadata import registration
from moldau.client.cluster import Cluster
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError, MoldauError

LIMIT_S = 30.0
Start = Callable[..., BrokerThread]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers over the file `cluster.sqlite`, by number; none outlives its test."""
    running: list[BrokerThread] = []

    def start(number: int, *settings: str) -> BrokerThread:
        file = f"metadata.store.file={tmp_path / 'cluster.sqlite'}"
        given = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / str(number)}", f"broker.id={number}", file, *settings]
        broker = BrokerThread(BrokerConfig(read_static(settings=given)))
        broker.start()
        running.append(broker)
        return broker

    yield start
    for each in running:
        each.stop()


def wait_known(broker: BrokerThread, *ids: int) -> None:
    """Until these are the brokers in its metadata."""
    end = time.monotonic() + LIMIT_S
    host, port = broker.address
    with Cluster(f"{host}:{port}") as cluster:
        while sorted(cluster.metadata([]).brokers) != [*ids]:
            assert time.monotonic() < end


def test_brokers_of_one_file_know_each_other_and_notice_at_once_that_one_has_left(start: Start) -> None:
    first, second = start(1), start(2)
    wait_known(first, 1, 2)
    wait_known(second, 1, 2)
    first.stop()
    wait_known(second, 2)


def test_the_next_start_finds_the_cluster(start: Start) -> None:
    for _ in range(2):
        broker = start(1)
        host, port = broker.address
        with Cluster(f"{host}:{port}") as cluster:
            cluster.metadata(["kept"], create_missing=True)
        broker.stop()
    broker = start(2)
    host, port = broker.address
    with Cluster(f"{host}:{port}") as cluster:
        assert "kept" in cluster.metadata().topics


def test_an_id_that_another_broker_of_the_file_has_ends_the_start(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start(1)
    monkeypatch.setattr(registration, "TAKEN_MAX_S", 0.5)
    with pytest.raises(CoordinationError, match="/brokers/ids/1: a live broker has registered there; give each broker"):
        start(1, f"log.dirs={tmp_path / 'other'}")


def test_a_directory_of_another_cluster_ends_the_start(start: Start, tmp_path: Path) -> None:
    start(1).stop()
    with pytest.raises(MoldauError, match="belongs to the cluster"):
        start(1, f"metadata.store.file={tmp_path / 'other.sqlite'}")


def test_the_file_needs_a_directory(start: Start, tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match=r"metadata\.store\.file: .*/missing: no such directory"):
        start(1, f"metadata.store.file={tmp_path / 'missing' / 'cluster.sqlite'}")
    assert not (tmp_path / "1" / "meta.properties").exists()


def test_a_file_that_a_broker_holds_alone_is_not_shared(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = BrokerThread(BrokerConfig(read_static(settings=["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'alone'}"])))
    alone.start()
    monkeypatch.setattr("moldau.adapters.sqlite_shared_file.WAIT_S", 0.2)
    try:
        with pytest.raises(CoordinationError, match="in use by another process"):
            start(1, f"metadata.store.file={tmp_path / 'alone' / 'moldau-metadata.sqlite'}")
    finally:
        alone.stop()
