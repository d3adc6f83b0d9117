"""A registry that stops, or cannot start, leaves nothing open, and does not wait for a broker that has ended (F1)."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.client.cluster import Cluster
from moldau.model.errors import MoldauError
from moldau.registry import election, server
from moldau.registry.changes import Changes
from moldau.registry.schemas_topic import Follower
from moldau.registry.server import RegistryServer
from moldau.testing import Broker
from support.registry import Rest, running_registry
from support.scripted_broker import SILENCE, ScriptedBroker

pytestmark = pytest.mark.system

PATIENCE_S = 30.0


def eventually(true: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def threads() -> set[threading.Thread]:
    """The threads of registries that live; one of another test may be among them."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("moldau-registry")}


def sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(each).startswith("socket:")
        except OSError:  # that of the listing itself
            continue
    return count


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("two", 2, {"cleanup.policy": "compact"})
        yield running


def test_a_registry_that_was_stopped_leaves_no_thread_and_no_socket(broker: Broker) -> None:
    before, others = sockets(), threads()
    with running_registry(broker.bootstrap_servers, group="ends", topic="ends") as registry:
        Rest(registry.url).ok("POST", "/subjects/a/versions", {"schema": '"string"'})
        mine = {each.name for each in threads() - others}
        assert {"moldau-registry-http", "moldau-registry-election", "moldau-registry-follower"} <= mine
        assert sockets() > before
    eventually(lambda: threads() <= others)
    eventually(lambda: sockets() <= before)


def test_a_start_that_fails_leaves_no_thread_and_no_socket(broker: Broker) -> None:
    """No broker there; a topic that cannot hold schemas."""
    with Cluster(broker.bootstrap_servers) as probe:  # the broker's side of connections is open for a moment longer
        probe.metadata([])
    before, others = sockets(), threads()
    for bootstrap, topic in (("127.0.0.1:1", "_schemas"), (broker.bootstrap_servers, "two")):
        registry = RegistryServer(bootstrap, "127.0.0.1:0", topic=topic)
        with pytest.raises(MoldauError):
            registry.start()
        registry.stop()
        with pytest.raises(RuntimeError, match="has not been started"):
            _ = registry.url
    assert threads() <= others
    eventually(lambda: sockets() <= before)


def test_a_broker_whose_registry_cannot_start_does_not_run_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`with Broker(registry=True)` that fails is never entered: nothing would stop the broker."""

    def fail(self: RegistryServer) -> str:
        raise OSError("no port")

    monkeypatch.setattr(RegistryServer, "start", fail)
    broker = Broker(registry=True)
    with pytest.raises(OSError, match="no port"):
        broker.start()
    assert not broker.running
    broker.close()


def test_a_registry_that_starts_again_knows_only_what_the_log_says(broker: Broker) -> None:
    """What was deleted for good while it was down, and compacted away, left no record that would take it back."""
    registry = RegistryServer(broker.bootstrap_servers, "127.0.0.1:0", group="again", topic="again")
    Rest(registry.start()).ok("POST", "/subjects/a/versions", {"schema": '"string"'})
    registry.stop()
    broker.delete_topic("again")
    assert Rest(registry.start()).ok("GET", "/subjects?deleted=true") == []
    registry.stop()


def test_a_registry_whose_broker_is_gone_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would leave its group before; for that it waits a moment, not until its requests have timed out after 30 s."""
    others = threads()
    monkeypatch.setattr(election, "_LEAVE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server, "_GRACE_S", 0)
    with Broker() as broker:
        registry = RegistryServer(broker.bootstrap_servers, "127.0.0.1:0")
        rest = Rest(registry.start())
        rest.ok("POST", "/subjects/a/versions", {"schema": '"string"'})
    hanging = threading.Thread(target=lambda: rest("POST", "/subjects/b/versions", {"schema": '"int"'}))
    hanging.start()
    start = time.monotonic()
    registry.stop()
    assert time.monotonic() - start < 10
    hanging.join()
    eventually(lambda: threads() <= others)


def test_a_topic_that_was_deleted_is_not_written_to_and_look_ups_continue(broker: Broker) -> None:
    """What is in memory is of the former log: an id given from it would stand in the new one beside nothing."""
    with running_registry(broker.bootstrap_servers, group="lost", topic="lost") as registry:
        rest = Rest(registry.url)
        rest.ok("POST", "/subjects/a/versions", {"schema": '"string"'})
        broker.delete_topic("lost")
        broker.create_topic("lost", 1, {"cleanup.policy": "compact"})
        answer = rest("POST", "/subjects/b/versions", {"schema": '"int"'})
        assert (answer.status, answer.code) == (500, 50002), answer
        assert "deleted or truncated" in answer.body["message"]
        assert rest.ok("GET", "/subjects/a/versions") == [1]
        assert rest.ok("POST", "/subjects/a/versions", {"schema": '"string"'})["id"] == 1


def test_a_silent_broker_is_waited_for_no_longer_when_the_client_is_interrupted() -> None:
    with ScriptedBroker(lambda _request: SILENCE) as silent, Cluster(f"127.0.0.1:{silent.port}") as cluster:
        ended: list[str] = []

        def ask() -> None:
            try:
                cluster.metadata([])
            except MoldauError as error:
                ended.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: bool(silent.requests))
        cluster.interrupt()
        asking.join(PATIENCE_S / 3)
        assert len(ended) == 1
        with pytest.raises(MoldauError, match="interrupted"):
            cluster.metadata([])


def test_a_registry_that_is_still_reading_its_topic_can_be_stopped(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading may take minutes: who stops a broker does not wait for the registry beside it to have started."""
    reading = threading.Event()

    def apply(self: Follower, _fetched: object) -> int:
        reading.set()
        return self.position

    monkeypatch.setattr(Follower, "_apply", apply)
    registry = RegistryServer(broker.bootstrap_servers, "127.0.0.1:0", group="long", topic="long")
    broker.create_topic("long", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("long", b"{}", b"{}")
    assert producer.flush(PATIENCE_S) == 0
    ended: list[str] = []

    def start() -> None:
        with pytest.raises(MoldauError) as raised:
            registry.start()
        ended.append(str(raised.value))

    starting = threading.Thread(target=start)
    starting.start()
    assert reading.wait(PATIENCE_S)
    registry.stop()
    starting.join(PATIENCE_S)
    assert len(ended) == 1


def test_requests_that_a_stop_does_not_wait_for_are_answered_and_leave_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server printed a traceback for each that was under way."""
    monkeypatch.setattr(election, "_LEAVE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server, "_GRACE_S", 0)
    waiting, go_on = threading.Semaphore(0), threading.Event()

    def wait(*_: object) -> None:
        waiting.release()
        go_on.wait(PATIENCE_S)

    statuses: list[int] = []
    with Broker() as broker:
        registry = RegistryServer(broker.bootstrap_servers, "127.0.0.1:0")
        rest = Rest(registry.start())
        monkeypatch.setattr(Changes, "carry_out", wait)
        hanging = [
            threading.Thread(target=lambda: statuses.append(rest("PUT", "/config", {"compatibility": "NONE"}).status)) for _ in range(15)
        ]
        for each in hanging:
            each.start()
        for _ in hanging:
            assert waiting.acquire(timeout=PATIENCE_S)
        registry.stop()
        go_on.set()
        for each in hanging:
            each.join(PATIENCE_S)
    assert statuses == [503] * 15
    assert "Traceback" not in caplog.text


def test_a_request_for_which_there_is_no_memory_has_one_line(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    with running_registry(broker.bootstrap_servers, group="full", topic="full") as registry:
        monkeypatch.setattr(Changes, "carry_out", fail)
        answer = Rest(registry.url)("PUT", "/config", {"compatibility": "NONE"})
        assert answer.status == 503
        monkeypatch.setattr(registry.state, "apply", fail)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("full", b"{}", b"{}")
        assert producer.flush(PATIENCE_S) == 0
        eventually(lambda: "registry topic no longer read" in caplog.text)
        assert Rest(registry.url).ok("GET", "/subjects") == []
    assert "out of memory" in caplog.text
    assert "Traceback" not in caplog.text
