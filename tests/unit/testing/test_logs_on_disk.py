"""What the slow reader takes for the log of a partition, where one moves between two directories."""

from collections.abc import Iterator

import pytest

from moldau.log.partition_metadata import write_topic_id
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.moving import check_directories
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import DiskLogEnd, ends_of_logs, logs_on
from moldau.testing.simulation.simulation import Simulation
from support.logs import make_batch

TOPIC_ID = bytes(15) + b"t"
LOG, COPY = "/data/t-0", "/more/t-0.aa-future"


@pytest.fixture
def host() -> Iterator[Host]:
    simulation = Simulation(Options(1, directories=2))
    for path in simulation.host.directories:
        simulation.disk.make_directory(path)
    yield simulation.host
    simulation.close()


def make_log(host: Host, path: str, *, mark: str | None = None) -> None:
    """A log of one record, and the mark of a copy."""
    disk = host.disk
    disk.make_directory(path)
    write_topic_id(disk, path, TOPIC_ID)
    file = disk.open(f"{path}/{0:020}.log", create=True)
    file.append([bytes(make_batch([b"a"]))])
    file.release()
    if mark is not None:
        disk.write_atomically(f"{path}/moldau-move", mark.encode())


@pytest.mark.parametrize(
    ("mark", "has_log", "expected"),
    [("whole t-0", True, [LOG]), ("whole t-0", False, [COPY]), ("copying t-0", False, []), (None, False, [])],
)
def test_a_copy_counts_where_it_is_whole_and_there_is_no_log(host: Host, mark: str | None, has_log: bool, expected: list[str]) -> None:
    make_log(host, COPY, mark=mark)
    if has_log:
        make_log(host, LOG)
    assert [log.path for log in logs_on(host.disk, host.directories)] == expected
    end = DiskLogEnd(1, -1)
    assert ends_of_logs(host.disk, host.directories) == ({(TOPIC_ID, 0): end} if expected else {})


def test_a_replica_in_two_directories_and_a_copy_that_is_left_are_found(host: Host) -> None:
    make_log(host, LOG)
    check_directories([host])
    make_log(host, "/more/t-0")
    with pytest.raises(InvariantError, match="t-0 is in /data/t-0 and in /more/t-0"):
        check_directories([host])
    host.disk.remove_tree("/more/t-0")
    make_log(host, COPY, mark="copying t-0")
    with pytest.raises(InvariantError, match="copy left in broker:/more"):
        check_directories([host])
