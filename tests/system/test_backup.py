"""A data directory is saved and put back as docs/backup.md says, by the commands that it prints."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from support.console import MOLDAU, Console
from support.pages import ROOT, block_with
from support.server import ServerProcess

pytestmark = pytest.mark.system

PAGE = ROOT / "docs" / "backup.md"
ACKNOWLEDGED = 500


class Place:
    """A broker's directory `d` and its backup `b`."""

    def __init__(self, directory: Path) -> None:
        self.d, self.b = directory / "d", directory / "b"

    def do(self, title: str) -> str:
        """What the block of the page under this title prints."""
        path = f"{Path(MOLDAU).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "D": str(self.d), "B": str(self.b), "PATH": path}
        script = block_with(PAGE, "sh", f"# {title}\n")
        done = subprocess.run(["sh", "-e", "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def server(self, *arguments: str) -> ServerProcess:
        return ServerProcess(self.d, arguments=arguments)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def numbers(first: int, count: int) -> str:
    return "".join(f"{number}\n" for number in range(first, first + count))


def fill(moldau: Console) -> None:
    moldau.ok("topic", "create", "orders", "--partitions", "1", "--config", "retention.ms=123456789")
    moldau.ok("produce", "orders", text=numbers(0, ACKNOWLEDGED))
    moldau.ok("consume", "orders", "--group", "billing", "--max", "100")


def read(moldau: Console) -> list[int]:
    return [int(line) for line in moldau.ok("consume", "orders", "--until-end").lines]


def committed(moldau: Console) -> int:
    return int(moldau.ok("group", "reset", "billing", "--shift-by", "0", "--export").lines[0].split(",")[-1])


def is_as_it_was(server: ServerProcess) -> None:
    moldau = Console(server.bootstrap)
    assert read(moldau)[:ACKNOWLEDGED] == list(range(ACKNOWLEDGED))
    assert committed(moldau) == 100
    assert "123456789" in moldau.ok("config", "describe", "--topic", "orders").out
    assert "offline:" not in "".join(server.output)
    moldau.ok("produce", "orders", text="-1\n")
    assert read(moldau)[-1] == -1


def test_a_copy_of_a_stopped_broker(place: Place) -> None:
    with place.server() as server:
        fill(Console(server.bootstrap))
    place.do("stopped")
    with place.server() as server:
        Console(server.bootstrap).ok("topic", "delete", "orders")
    place.do("restore")
    with place.server() as server:
        is_as_it_was(server)


def test_a_copy_of_a_running_broker_that_is_written_to_meanwhile(place: Place) -> None:
    """Every record that was acknowledged before the copy is in it, and then a part of what came during it, without a gap."""
    with place.server() as server:
        moldau = Console(server.bootstrap)
        fill(moldau)
        stop, rounds = threading.Event(), 0

        def write() -> None:
            nonlocal rounds
            while not stop.is_set():
                moldau.ok("produce", "orders", text=numbers(ACKNOWLEDGED + 50 * rounds, 50))
                rounds += 1
                if rounds == 1:
                    begun.set()

        begun = threading.Event()
        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(60)
        try:
            assert place.do("running").startswith("OK: ")
        finally:
            stop.set()
            writer.join()
    place.do("restore")
    with place.server() as server:
        found = read(Console(server.bootstrap))
        assert found == list(range(len(found)))
        assert len(found) >= ACKNOWLEDGED + 50
        is_as_it_was(server)


def test_one_partition_from_an_older_copy(place: Place) -> None:
    with place.server() as server:
        fill(Console(server.bootstrap))
    place.do("stopped")
    with place.server() as server:
        Console(server.bootstrap).ok("produce", "orders", text=numbers(ACKNOWLEDGED, 10))
    place.do("partition")
    with place.server() as server:
        is_as_it_was(server)


def test_an_older_copy_of_a_partition_stays_offline_unless_the_loss_is_accepted(place: Place) -> None:
    with place.server() as server:
        fill(Console(server.bootstrap))
    place.do("stopped")
    with place.server() as server:
        Console(server.bootstrap).ok("produce", "orders", text=numbers(ACKNOWLEDGED, 10))
    place.do("partition")
    (place.d / ".moldau_accepted_loss").unlink()
    with place.server() as server:
        assert Console(server.bootstrap)("consume", "orders", "--until-end", "--timeout", "2").code == 1
        assert "but was on disk up to offset" in "".join(server.output)


def test_a_copy_without_its_metadata_store(place: Place) -> None:
    with place.server() as server:
        fill(Console(server.bootstrap))
    for path in place.d.glob("moldau-metadata.sqlite*"):
        path.unlink()
    with place.server("--adopt") as server:
        moldau = Console(server.bootstrap)
        assert read(moldau) == list(range(ACKNOWLEDGED))
        assert committed(moldau) == 100
        assert "123456789" not in moldau.ok("config", "describe", "--topic", "orders").out
