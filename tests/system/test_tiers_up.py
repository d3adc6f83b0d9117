"""Tiers come up by one file, records get from local clusters to the aggregate, what is killed comes again, and all end in order
(missions F3, G1, H2).
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.adapters.process_identity import is_alive
from moldau.assembly.local_cluster.plan import free_ports
from moldau.cli.application import application
from moldau.tiers.state import existing_tiers_state
from support.console import Console
from support.supervised import Program

pytestmark = pytest.mark.system

LIMIT_S = 90.0
FILE = """\
name = "small"
[clusters.ewr]
kind = "local"
datacenter = "EWR"
port = {ewr}
[clusters.jfk]
kind = "local"
datacenter = "JFK"
port = {jfk}
[clusters.all]
kind = "aggregate"
datacenter = "EWR"
port = {all}
[categories.tracking]
clusters = {{ EWR = "ewr", JFK = "jfk" }}
aggregates = ["all"]
[topics.orders]
category = "tracking"
partitions = 1
[mirrors.merge]
from = ["ewr", "jfk"]
to = "all"
mode = "merge"
topics.include = ["orders"]
[auditors.all]
"""

SEVERAL = """\
name = "several"
[clusters.all]
kind = "local"
datacenter = "EWR"
brokers = 2
port = {all}
[categories.tracking]
clusters = {{ EWR = "all" }}
[topics.orders]
category = "tracking"
partitions = 1
"""


def eventually(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


class SmallTiers:
    """`moldau tiers up` in a process of its own."""

    def __init__(self, directory: Path, text: str) -> None:
        names = ("ewr", "jfk", "all")
        self.ports = dict(zip(names, free_ports(), strict=False))
        self.file, self.data = directory / "small.toml", directory / "data"
        self.file.write_text(text.format(**self.ports))
        self.start()

    def start(self) -> None:
        self.program = Program([sys.executable, "-m", "moldau.cli.main", "tiers", "up", str(self.file), "--data", str(self.data)])

    def bootstrap(self, cluster: str) -> str:
        return f"127.0.0.1:{self.ports[cluster]}"

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(application, ["tiers", *words, "--data", str(self.data)])
        return done.exit_code, done.output

    def seen(self, cluster: str) -> list[str]:
        """The values in the topic, sorted; none while it does not exist."""
        return sorted(Console(self.bootstrap(cluster))("consume", "orders", "--until-end", "--timeout", "5").lines)

    def status(self) -> dict[str, dict[str, Any]]:
        _, output = self.run("status", "--json")
        return {each["name"]: each for each in json.loads(output)["processes"]}

    def send(self, cluster: str, text: str) -> None:
        Console(self.bootstrap(cluster)).ok("produce", "orders", text=f"{text}\n")


@contextmanager
def running(directory: Path, text: str) -> Iterator[SmallTiers]:
    found = SmallTiers(directory, text)
    try:
        yield found
    finally:
        if found.program.poll() is None:
            found.program.terminate()
            found.program.wait()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallTiers]:
    with running(tmp_path, FILE) as found:
        yield found


@pytest.fixture
def several(tmp_path: Path) -> Iterator[SmallTiers]:
    with running(tmp_path, SEVERAL) as found:
        yield found


def test_tiers_come_up_carry_records_survive_kills_and_go_down(small: SmallTiers) -> None:
    small.program.wait_for("small is up: 5 processes", LIMIT_S)
    # all processes are there, at the addresses of the file
    code, output = small.run("status")
    assert code == 0, output
    assert {name: each["state"] for name, each in small.status().items()} == dict.fromkeys(
        ("broker.ewr", "broker.jfk", "broker.all", "auditor.all", "mirror.merge"), "up"
    )

    # what is sent to either local cluster is in the aggregate
    small.send("ewr", "one")
    small.send("jfk", "two")
    eventually(lambda: small.seen("all") == ["one", "two"])

    # a mirror and a broker are killed, and are started again in other processes
    before = small.status()
    assert small.run("kill", "mirror.merge", "broker.jfk")[0] == 0
    eventually(lambda: all(small.status()[name]["restarts"] == 1 for name in ("mirror.merge", "broker.jfk")))
    eventually(lambda: small.run("status")[0] == 0)
    assert small.status()["mirror.merge"]["pid"] != before["mirror.merge"]["pid"]
    assert small.status()["broker.ewr"] == before["broker.ewr"]
    small.program.wait_for("mirror.merge ended, by SIGKILL", LIMIT_S)

    # then records still get there, each once
    small.send("jfk", "three")
    eventually(lambda: small.seen("all") == ["one", "three", "two"])

    # a second one over the same directory is refused, and changes nothing
    code, output = small.run("up", str(small.file))
    assert (code, output.splitlines()[-1]) == (1, f"Error: {small.data}: `moldau tiers up` runs here already")

    # `down` stops all, in order, without an error
    processes = existing_tiers_state(str(small.data)).processes(str(small.data))
    assert small.run("down") == (0, "small is down\n")
    assert small.program.wait() == 0
    assert not any(is_alive(each.process) for each in processes)
    code, output = small.run("status")
    assert code == 1
    assert "`moldau tiers up` does not run" in output


def test_a_broker_of_several_comes_again_and_a_killed_supervisor_leaves_nothing_behind(several: SmallTiers) -> None:
    several.program.wait_for("several is up", LIMIT_S)
    # one of two brokers is killed: it is started again, in another process
    before = several.status()["broker.all.2"]["pid"]
    assert several.run("kill", "broker.all.2") == (0, f"broker.all.2 is killed: pid {before}\n")
    eventually(lambda: several.status()["broker.all.2"]["pid"] not in (None, before))
    several.program.wait_for("broker.all.2 ended; it is started again", LIMIT_S)
    several.send("all", "one")

    # all processes end when `up` is killed; the next `up` finds what they had
    processes = existing_tiers_state(str(several.data)).processes(str(several.data))
    several.program.kill()
    eventually(lambda: not any(is_alive(each.process) for each in processes))
    several.start()
    several.program.wait_for("several is up", LIMIT_S)
    assert several.seen("all") == ["one"]

    # a restart in order takes another process too
    assert several.run("restart", "cluster.all")[0] == 0
    assert several.seen("all") == ["one"]

    # what is not there is named with what there is
    code, output = several.run("kill", "broker.al.2")
    assert code == 1
    assert "there is no process 'broker.al.2' of these tiers, did you mean 'broker.all.2'?; there are cluster.all, broker.all.1" in output
