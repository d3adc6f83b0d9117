"""Several registries, one of which writes: when it dies, leaves or sleeps, another takes over, and nothing is lost or doubled (F1)."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.model.errors import MoldauError
from moldau.registry.client import RegistryClient
from moldau.registry.records import SchemaKey, SchemaVersion, encode_key, encode_schema
from moldau.registry.schemas_topic import SchemasTopicWriter, WriterFencedError
from moldau.testing import Broker
from support.registry import Rest, running_registry
from support.registry_process import RegistryProcess
from support.server import ServerProcess

pytestmark = pytest.mark.system

PATIENCE_S = 60.0
SESSION_S = 6.0
"""The shortest that brokers allow by default."""


def eventually(true: Callable[[], bool]) -> None:
    """Wait until it is so. A registry that a busy machine kept from its heartbeats is no writer for a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Registering:
    """Registers one schema after the other, each until it is acknowledged, at whichever registry answers."""

    def __init__(self, urls: list[str], name: str) -> None:
        self.acknowledged: dict[str, int] = {}
        self.failures: list[str] = []
        self._name = name
        self._client = RegistryClient(",".join(urls), timeout_s=20)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Until so many are acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, (len(self.acknowledged), self.failures[-3:])
            time.sleep(0.01)

    def stop(self) -> None:
        """Let the last one be acknowledged."""
        self._done.set()
        self._thread.join(PATIENCE_S)
        self._client.close()

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            text = f'{{"type":"fixed","name":"{self._name}{number}","size":{number + 1}}}'
            try:
                self.acknowledged[text] = self._client.register(f"{self._name}-{number}", text)
                number += 1
            except MoldauError as error:
                self.failures.append(str(error))


def check(urls: list[str], acknowledged: dict[str, int]) -> None:
    """Each schema has the id that was acknowledged, at every registry; no id has two; no version is there twice."""
    assert len(set(acknowledged.values())) == len(acknowledged)
    for url in urls:
        found = Rest(url).ok("GET", "/schemas")
        assert {each["schema"]: each["id"] for each in found}.items() >= acknowledged.items()
        assert len({(each["subject"], each["version"]) for each in found}) == len(found)
        assert len({each["id"] for each in found}) == len({each["schema"] for each in found})


def test_the_writer_is_killed_and_another_takes_over(broker: Broker) -> None:
    group = ("--group", "killed", "--topic", "killed", "--session-timeout", str(SESSION_S))
    with RegistryProcess(broker.bootstrap_servers, *group) as first:
        Rest(first.url).ok("POST", "/subjects/first/versions", {"schema": '"string"'})  # so it is the writer
        with (
            running_registry(broker.bootstrap_servers, group="killed", topic="killed", session_timeout_s=SESSION_S) as second,
            running_registry(broker.bootstrap_servers, group="killed", topic="killed", session_timeout_s=SESSION_S) as third,
        ):
            registering = Registering([second.url, third.url], "Kill")
            try:
                registering.wait_for(20)
                first.kill()
                registering.wait_for(len(registering.acknowledged) + 20)
            finally:
                registering.stop()
            eventually(lambda: second.writes != third.writes)
            check([second.url, third.url], registering.acknowledged)


def test_a_writer_that_stops_hands_over_at_once_and_what_it_answered_is_seen_everywhere(broker: Broker) -> None:
    """Every registry shows a schema the moment it was acknowledged by any."""
    options = {"group": "stopped", "topic": "stopped"}
    with running_registry(broker.bootstrap_servers, **options) as first:
        Rest(first.url).ok("POST", "/subjects/first/versions", {"schema": '"string"'})
        with running_registry(broker.bootstrap_servers, **options) as second:
            for number in range(5):
                told = Rest(second.url).ok(
                    "POST", f"/subjects/s{number}/versions", {"schema": f'{{"type":"fixed","name":"S","size":{number + 1}}}'}
                )
                for url in (first.url, second.url):
                    assert Rest(url).ok("GET", f"/schemas/ids/{told['id']}")["guid"] == told["guid"]
            assert Rest(second.url)("POST", "/subjects/s1/versions", {"schema": '"int"'}).code == 409, "errors come back as they are"
            eventually(lambda: first.writes)
            started = time.monotonic()
            first.stop()
            Rest(second.url).ok("POST", "/subjects/last/versions", {"schema": '"long"'})
            eventually(lambda: second.writes)
            assert time.monotonic() - started < PATIENCE_S
            assert len(Rest(second.url).ok("GET", "/subjects")) == 7


def test_a_writer_that_slept_finds_itself_replaced_and_hands_on_what_it_is_asked(broker: Broker) -> None:
    """It is stopped for longer than its session, and woken with requests waiting for it."""
    group = ("--group", "slept", "--topic", "slept", "--session-timeout", str(SESSION_S))
    with RegistryProcess(broker.bootstrap_servers, *group) as sleeper:
        Rest(sleeper.url).ok("POST", "/subjects/first/versions", {"schema": '"string"'})
        with running_registry(broker.bootstrap_servers, group="slept", topic="slept", session_timeout_s=SESSION_S) as other:
            registering = Registering([other.url], "Sleep")
            try:
                registering.wait_for(5)
                sleeper.suspend()
                registering.wait_for(len(registering.acknowledged) + 10)
                eventually(lambda: other.writes)
                waiting = Registering([sleeper.url], "Woken")
                try:
                    sleeper.resume()
                    waiting.wait_for(10)
                finally:
                    waiting.stop()
            finally:
                sleeper.resume()
                registering.stop()
            acknowledged = registering.acknowledged | waiting.acknowledged
            check([other.url, sleeper.url], acknowledged)
            assert sleeper.stop() == 0


def test_what_a_former_writer_still_sends_is_refused_by_the_log(broker: Broker) -> None:
    """The fence itself: after somebody took over, not one record of the one before gets in."""
    broker.create_topic("fenced", 1, {"cleanup.policy": "compact"})
    write = (encode_key(SchemaKey("s", 1)), encode_schema(SchemaVersion("s", 1, 1, '"string"')))
    former, present = (SchemasTopicWriter(broker.bootstrap_servers, "fenced", "fence") for _ in range(2))
    assert former.take_over() == 1
    assert former.append_all([write, write]) == 3
    assert present.take_over() == 4
    with pytest.raises(WriterFencedError, match="fenced"):
        former.append_all([write])
    assert not former.ready
    assert present.append_all([write]) == 5, "nothing came between"
    former.close()
    present.close()


def test_the_commands_run_and_end(broker: Broker) -> None:
    with RegistryProcess(broker.bootstrap_servers, "--group", "cli", "--topic", "cli") as process:
        assert Rest(process.url).ok("GET", "/subjects") == []
        assert process.stop() == 0
    broker.create_topic("not-compacted")
    with pytest.raises(AssertionError, match=r"topic not-compacted has cleanup\.policy=delete"):
        RegistryProcess(broker.bootstrap_servers, "--topic", "not-compacted")


def test_a_second_signal_ends_a_registry_that_is_stopping_at_once(tmp_path: Path) -> None:
    """The broker does not answer, so that leaving the group takes a while. Two signals that are alike may be taken for one."""
    with ServerProcess(tmp_path) as server, RegistryProcess(server.bootstrap, "--session-timeout", str(SESSION_S)) as process:
        Rest(process.url).ok("POST", "/subjects/first/versions", {"schema": '"string"'})
        server.suspend()
        process.interrupt()
        code = process.stop()
        server.resume()
        assert code == 130


def test_a_second_signal_does_not_wait_for_the_registry_beside_a_broker(tmp_path: Path) -> None:
    """The broker stops in order all the same."""
    server = ServerProcess(tmp_path, arguments=["--registry", "127.0.0.1:0"])
    with server:
        eventually(lambda: any(line.startswith("schema registry listening on ") for line in server.output))
        os.kill(server.pid, signal.SIGINT)
        assert server.stop() == 130
    assert "stopped" in "".join(server.output)
    assert "Traceback" not in "".join(server.output)


def test_a_broker_and_its_registry_in_one_process(tmp_path: Path) -> None:
    """`moldau serve --registry`: what was registered is there after a restart; when the broker says that it listens the registry does too;
    a port that is taken ends both with one line."""
    server = ServerProcess(tmp_path, arguments=["--registry", "127.0.0.1:0"])
    for _ in range(2):
        with server:
            eventually(lambda: any(line.startswith("schema registry listening on ") for line in server.output))
            url = next(line.split()[-1] for line in server.output if line.startswith("schema registry listening on "))
            assert Rest(url).ok("POST", "/subjects/kept/versions", {"schema": '"string"'})["id"] == 1
            assert server.stop() == 0
            server.output.clear()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with ServerProcess(tmp_path, arguments=["--registry", address]):  # which waits for the broker's line
        assert Rest(f"http://{address}").ok("GET", "/subjects") == ["kept"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        both = ServerProcess(tmp_path, arguments=["--registry", address])
        with pytest.raises(AssertionError, match="the server ended at its start"):
            both.start()
        assert both.stop() == 1
        assert f"Error: the schema registry cannot listen on {address}: address already in use; stop" in "".join(both.output)
        assert "choose another address with --registry\n" in "".join(both.output)
