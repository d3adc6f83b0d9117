"""A broker that has lost its last data directory ends by itself; a start that failed leaves nothing that stands in the way of the next."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.testing.broker import Broker
from support.console import Console
from support.server import STOP_LIMIT_S, ServerProcess

pytestmark = pytest.mark.system

KAFKA = "version=1\nbroker.id=3\nnode.id=3\ncluster.id=abcdefghijklmnopqrstuv\n"
STORE = "moldau-metadata.sqlite"


def lose(data: Path) -> None:
    """Put a file where the directory was: nothing can be made in it, and no user's rights get around that."""
    data.rename(data.with_name("moved"))
    data.write_text("")


def until_ended(running: Callable[[], bool]) -> None:
    end = time.monotonic() + STOP_LIMIT_S
    while running():
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.005)


def test_a_process_that_has_lost_its_last_directory_ends_with_code_1(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    lose(server.data)
    done = Console(server.bootstrap)("topic", "create", "t")
    assert done.code == 1
    assert "created" not in done.out
    until_ended(lambda: server.running)
    assert server.stop() == 1
    critical = [line for line in server.output if "all log directories offline" in line]
    assert len(critical) == 1
    assert "Traceback" not in "".join(server.output)


def test_a_broker_in_a_thread_stops_serving_and_can_be_started_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(directory=data) as broker:
        lose(data)
        assert Console(broker.bootstrap_servers)("topic", "create", "t").code == 1
        until_ended(lambda: broker.running)
        data.unlink()
        data.with_name("moved").rename(data)
        broker.restart()
        assert broker.running
        broker.create_topic("u")


def refused(*arguments: str) -> str:
    done = Console()("serve", "--listen", "127.0.0.1:0", *arguments)
    assert done.code == 1
    return done.err


def test_a_refused_start_leaves_nothing_and_adoption_then_works(tmp_path: Path) -> None:
    kafka, fresh = tmp_path / "kafka", tmp_path / "fresh"
    kafka.mkdir()
    (kafka / "meta.properties").write_text(KAFKA)
    assert "--adopt" in refused("--data", str(kafka))
    assert [path.name for path in kafka.iterdir()] == ["meta.properties"]
    assert "--adopt" in refused("--data", str(fresh), "--data", str(kafka))
    assert [path.name for path in kafka.iterdir()] == ["meta.properties"]
    assert list(fresh.iterdir()) == []
    with ServerProcess(kafka, arguments=["--adopt"]):
        assert (kafka / STORE).exists()


def test_a_directory_whose_identity_cannot_be_understood_is_left_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\nbroker.id=3\ncluster.id=abcdefghijklmnopqrstuv\n")
    for arguments in ([], ["--adopt"]):
        assert "without node.id" in refused("--data", str(data), *arguments)
        assert [path.name for path in data.iterdir()] == ["meta.properties"]
    (data / "meta.properties").write_text(KAFKA)
    with ServerProcess(data, arguments=["--adopt"]):
        assert (data / STORE).exists()


def test_a_start_that_fails_for_another_reason_leaves_no_store_and_no_identity(tmp_path: Path) -> None:
    """The second directory is in use; the first, which was new, may serve another start, for which a new cluster's id is drawn."""
    fresh, used = tmp_path / "fresh", tmp_path / "used"
    with ServerProcess(tmp_path / "main", arguments=["--data", str(used)]):
        (used / "meta.properties").unlink()
        assert ".lock" in refused("--data", str(fresh), "--data", str(used))
    assert not (fresh / STORE).exists()
    assert not (fresh / "meta.properties").exists()
    with ServerProcess(fresh):
        pass


def test_adoption_beside_the_store_of_another_cluster_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data"):
        pass
    (tmp_path / "data" / "meta.properties").write_text(KAFKA)
    said = refused("--data", str(tmp_path / "data"), "--adopt")
    assert str(tmp_path / "data" / STORE) in said
    assert "move the file away" in said
    assert (tmp_path / "data" / STORE).exists(), "this start has not made it"
