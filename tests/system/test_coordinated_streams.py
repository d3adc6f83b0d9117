"""Groups as of the 2011 paper, over a real ZooKeeper or the file that brokers of a host share: threads, brokers, sessions, tools' view."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from moldau.assembly.thread import BrokerThread
from moldau.client import ConsumedMessage, MessageStream, MessageStreams, Producer, create_coordinated_streams
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from support import zookeeper
from support.pages import ROOT, block_with
from support.paper import wait_until

pytestmark = pytest.mark.system
needs_java = pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")

LIMIT_S = 120.0
PARTITIONS = 6


class RunningBroker:
    """A broker with a topic; `tree` says where its metadata is."""

    def __init__(self, directory: Path, tree: str, **options: Any) -> None:
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", tree, "zookeeper.session.timeout.ms=30000"]
        self.options = {"session_timeout_ms": 30_000} | options
        self.broker = BrokerThread(BrokerConfig(read_static(settings=settings)))
        self.broker.start()
        self.bootstrap = "{}:{}".format(*self.broker.address)
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic("t", PARTITIONS)

    def publish(self, first: int, count: int) -> None:
        with Producer(self.bootstrap) as producer:
            for number in range(first, first + count):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)

    def streams(self, group: str, count: int = 1, **options: Any) -> MessageStreams:
        options = self.options | options
        return create_coordinated_streams({"t": count}, group_id=group, **options)

    def stop(self) -> None:
        self.broker.stop()


class Running(RunningBroker):
    """Over ZooKeeper, below a node of its own."""

    def __init__(self, directory: Path) -> None:
        self.server = zookeeper.shared_server()
        self.root = f"/{directory.name}"
        self.connect = f"{zookeeper.HOST}:{self.server.port}{self.root}"
        super().__init__(directory, f"zookeeper.connect={self.connect}", zookeeper_connect=self.connect)
        self.tool = KazooClient(f"{zookeeper.HOST}:{self.server.port}")
        self.tool.start()

    def tree(self, path: str) -> dict[str, bytes]:
        """The data of a node's children."""
        path = self.root + path
        return {name: self.tool.get(f"{path}/{name}")[0] for name in sorted(self.tool.get_children(path))}

    def committed(self, group: str) -> dict[str, bytes]:
        return self.tree(f"/consumers/{group}/offsets/t")

    def stop(self) -> None:
        self.tool.stop()
        self.tool.close()
        super().stop()


@pytest.fixture
def shared_file(tmp_path: Path) -> Iterator[RunningBroker]:
    path = tmp_path / "metadata"
    running = RunningBroker(tmp_path / "data", f"metadata.store.file={path}", metadata_store_file=str(path))
    yield running
    running.stop()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.stop()


class Readers:
    """A thread for each stream, and what they have read."""

    def __init__(self, *streams: MessageStream) -> None:
        self.seen: list[ConsumedMessage] = []
        self.threads = [threading.Thread(target=self.read, args=(stream,)) for stream in streams]
        for thread in self.threads:
            thread.start()

    def read(self, stream: MessageStream) -> None:
        for message in stream:
            self.seen.append(message)

    def numbers(self) -> list[int]:
        return sorted(int(message.payload) for message in self.seen)


def eventually(ready: Callable[[], bool], what: str) -> None:
    wait_until(ready, what, LIMIT_S)


@needs_java
def test_a_group_shares_one_copy_another_group_has_its_own_and_the_tree_is_as_kafka_08_has_it(running: Running) -> None:
    running.publish(0, 600)
    with running.streams("g", 2) as one, running.streams("g") as two, running.streams("other") as other:
        readers = Readers(*one, *two)
        others = Readers(*other)
        eventually(lambda: len(one.assignment()) == 4 and len(two.assignment()) == 2, "a range for each of three threads")
        running.publish(600, 600)
        eventually(lambda: set(readers.numbers()) == set(range(1200)), "all messages in the group")
        eventually(lambda: others.numbers() == list(range(1200)), "all in the other one")
        ids = running.tree("/consumers/g/ids")
        assert [json.loads(data)["subscription"] for data in ids.values()] in ([{"t": 2}, {"t": 1}], [{"t": 1}, {"t": 2}])
        assert all(json.loads(data).keys() == {"version", "subscription", "pattern", "timestamp"} for data in ids.values())
        owners = running.tree("/consumers/g/owners/t")
        threads = sorted(f"{name}-{number}" for name, data in ids.items() for number in range(json.loads(data)["subscription"]["t"]))
        assert [owners[str(number)].decode() for number in range(PARTITIONS)] == [thread for thread in threads for _ in range(2)]
        for stream in one:
            assert [where.partition for where in stream.partitions()] == [
                number
                for number in range(PARTITIONS)
                if owners[str(number)].endswith(b"-1") == (stream is one[1]) and number in partitions_of(one)
            ]
    assert running.committed("g") == running.committed("other") == {str(number): b"200" for number in range(PARTITIONS)}
    assert running.tree("/consumers/g/ids") == running.tree("/consumers/g/owners/t") == {}


def partitions_of(streams: MessageStreams) -> set[int]:
    return {where.partition for where in streams.assignment()}


@needs_java
def test_a_member_that_leaves_hands_over_and_a_group_continues_where_it_was(running: Running) -> None:
    running.publish(0, 300)
    with running.streams("g") as one:
        two = running.streams("g")
        readers = Readers(*one, *two)
        eventually(lambda: len(one.assignment()) == len(two.assignment()) == 3, "half of them each")
        running.publish(300, 300)
        eventually(lambda: len(set(readers.numbers())) == 600, "all messages")
        two.close()
        eventually(lambda: len(one.assignment()) == PARTITIONS, "all partitions")
        running.publish(600, 60)
        eventually(lambda: len(set(readers.numbers())) == 660, "what came after")
    assert {int(offset) for offset in running.committed("g").values()} == {110}
    running.publish(660, 6)
    with running.streams("g") as again:
        found = [again[0].poll(LIMIT_S) for _ in range(6)]
    assert sorted(int(message.payload) for message in found if message is not None) == list(range(660, 666))


@needs_java
def test_a_member_whose_session_expires_registers_again_and_nothing_is_skipped(running: Running) -> None:
    running.publish(0, 60)
    with running.streams("g", auto_commit_interval_ms=100) as one:
        readers = Readers(*one)
        eventually(lambda: len(readers.numbers()) == 60, "all messages")
        (path,) = running.tree("/consumers/g/ids")
        before = running.tool.get(f"{running.root}/consumers/g/ids/{path}")[1].ephemeralOwner
        client = one._feeder._source._loop.tree._client  # type: ignore[attr-defined]
        zookeeper.end_session(running.server, (client._session_id, client._session_passwd))

        def is_registered_again() -> bool:
            stat = running.tool.exists(f"{running.root}/consumers/g/ids/{path}")
            return stat is not None and stat.ephemeralOwner != before and len(running.tree("/consumers/g/owners/t")) == PARTITIONS

        eventually(is_registered_again, "another session")
        running.publish(60, 60)
        eventually(lambda: set(readers.numbers()) == set(range(120)), "what came after")
    assert set(running.committed("g").values()) == {b"20"}


CHILD = """
import sys
from moldau.client import create_coordinated_streams
with create_coordinated_streams("t", group_id="g", zookeeper_connect=sys.argv[1], session_timeout_ms=4_000) as streams:
    for message in streams[0]:
        print(int(message.payload), flush=True)
"""


class Child:
    """A member in a process of its own."""

    def __init__(self, connect: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", CHILD, connect], stdout=subprocess.PIPE, text=True)
        self.seen: list[int] = []
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.seen.append(int(line))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()


@needs_java
def test_a_process_that_is_stopped_for_longer_than_its_session_and_one_that_is_killed(running: Running) -> None:
    with running.streams("g") as one:
        readers, child = Readers(*one), Child(running.connect)

        def seen() -> set[int]:
            return {*readers.numbers(), *child.seen}

        try:
            eventually(lambda: len(one.assignment()) == PARTITIONS / 2, "half of them")
            running.publish(0, 300)
            child.process.send_signal(signal.SIGSTOP)
            eventually(lambda: len(one.assignment()) == PARTITIONS, "all of them, since the session of the other one is over")
            running.publish(300, 300)
            eventually(lambda: seen() == set(range(600)), "all messages, without it")
            child.process.send_signal(signal.SIGCONT)
            eventually(lambda: len(one.assignment()) == PARTITIONS / 2, "half of them again")
            running.publish(600, 300)
            eventually(lambda: seen() == set(range(900)), "all messages, with it")
        finally:
            child.end()
        eventually(lambda: len(one.assignment()) == PARTITIONS, "all of them for good")
        running.publish(900, 60)
        eventually(lambda: seen() == set(range(960)), "all messages")
    assert set(running.committed("g").values()) == {b"160"}


@needs_java
@pytest.mark.parametrize("dual", [False, True])
def test_offsets_in_the_brokers(running: Running, dual: bool) -> None:
    running.publish(0, 60)
    with running.streams("g", offsets_storage="kafka", dual_commit=dual) as one:
        assert len({message.payload for message in islice(one[0], 60)}) == 60
        one[0].finish()
        one.commit()
        assert len(running.committed("g")) == (PARTITIONS if dual else 0)
    running.publish(60, 6)
    with running.streams("g", offsets_storage="kafka") as again:
        found = [again[0].poll(LIMIT_S) for _ in range(6)]
    assert sorted(int(message.payload) for message in found if message is not None) == list(range(60, 66))


@needs_java
def test_a_group_that_begins_at_the_end_has_committed_where_it_began(running: Running) -> None:
    running.publish(0, 60)
    with running.streams("g", auto_offset_reset="largest") as one:
        eventually(lambda: len(one.assignment()) == PARTITIONS and len(running.committed("g")) == PARTITIONS, "its partitions")
        running.publish(60, 6)
    with running.streams("g", auto_offset_reset="largest") as one:
        found = [one[0].poll(LIMIT_S) for _ in range(6)]
    assert sorted(int(message.payload) for message in found if message is not None) == list(range(60, 66))


@needs_java
def test_the_example_of_the_page_on_clients(running: Running) -> None:
    running.publish(0, 60)
    program = block_with(ROOT / "docs" / "clients.md", "python", "create_coordinated_streams")
    program = program.replace("page-views", "t").replace("localhost:2181/moldau", running.connect)
    seen: list[bytes] = []

    def count(payload: bytes) -> None:
        seen.append(payload)
        if len(seen) == 30:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        exec(program, {"count": count})
    assert len(set(seen)) == 30, "half of them, in the first of two streams"
    assert sum(map(int, running.committed("counters").values())) == 29, "not the one that it was interrupted in"


def test_over_the_file_that_brokers_of_a_host_share(shared_file: RunningBroker) -> None:
    shared_file.publish(0, 300)
    with shared_file.streams("g") as one:
        two = shared_file.streams("g")
        readers = Readers(*one, *two)
        eventually(lambda: len(one.assignment()) == len(two.assignment()) == 3, "half of them each")
        shared_file.publish(300, 300)
        eventually(lambda: len(set(readers.numbers())) == 600, "all messages")
        two.close()
        eventually(lambda: len(one.assignment()) == PARTITIONS, "all partitions")
    shared_file.publish(600, 6)
    with shared_file.streams("g") as again:
        found = [again[0].poll(LIMIT_S) for _ in range(6)]
    assert sorted(int(message.payload) for message in found if message is not None) == list(range(600, 606))


def test_without_zookeeper_the_streams_end_with_an_error_that_says_so() -> None:
    with pytest.raises(Exception, match=r"no session with the coordination tree within 0.5 s \(connection_timeout_ms\)"):
        create_coordinated_streams("t", group_id="g", zookeeper_connect="127.0.0.1:9", connection_timeout_ms=500)[0].poll(LIMIT_S)
