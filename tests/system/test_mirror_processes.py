"""Processes of mirrors as an operator sees them: one that is replaced, one that two signals stop while its clusters are down."""

import re
import signal
from pathlib import Path

import pytest

from moldau.cli.exit_codes import DONE, FAILED
from moldau.client.cluster import Cluster as ClusterClient
from support.mirror_world import MirrorProgram, MirrorWorld, mirror_text
from support.paper import wait_until

pytestmark = pytest.mark.system

LIMIT_S = 30.0


def test_of_two_processes_of_one_instance_each_names_the_other_and_the_first_ends(tmp_path: Path) -> None:
    with MirrorWorld(tmp_path) as world, ClusterClient(world.target.bootstrap_servers) as target:
        world.source.create_topic("orders")
        file = world.file("copy")
        first = world.mirror(file, hasty=True)
        wait_until(lambda: any(each.name == "orders" for each in target.topics()), "it mirrors", limit_s=LIMIT_S, pause_s=0.1)
        second = world.mirror(file, hasty=True)
        assert first.wait() == FAILED
        log = first.log.read_text()  # that of the second, too
        assert re.search(rf"takes over this instance from another process, .+ host=\S+ pid={first.pid} ", log), log
        ended = rf"Error: FENCED_INSTANCE_ID: another process \(host \S+, pid {second.pid}\) runs as instance 1 of mirror mirror now"
        assert re.search(ended, log), log
        assert second.running
        assert second.stop() == DONE


def test_two_signals_end_a_process_whose_target_is_down_in_order(tmp_path: Path) -> None:
    """Claim: what cannot be reached is in the log by then; the second signal does not cut off the end that the first one began."""
    file = tmp_path / "mirror.toml"
    file.write_text(mirror_text("merge", "nowhere.invalid:9092", "127.0.0.1:9"))
    program = MirrorProgram(file)
    program.start()
    wait_until(lambda: program.log.read_text().count("broker does not answer") == 2, "both are named", limit_s=LIMIT_S, pause_s=0.1)
    program.signal(signal.SIGTERM)
    program.signal(signal.SIGTERM)
    assert program.wait() == DONE
    begin, *lines = program.log.read_text().splitlines()
    assert begin == "mirror mirror (merge of east) runs as instance 1"
    assert all("broker does not answer, trying again: mirror=mirror cluster=" in line for line in lines), lines
    causes = "\n".join(lines)
    assert "cluster=target broker=127.0.0.1:9 reason=cannot connect: connection refused" in causes
    assert re.search(r"cluster=source east broker=nowhere\.invalid:9092 reason=cannot connect: [a-z]", causes), causes
