"""Kills at random moments: of the whole process of `moldau load`, its Java included, or of one of its Python tasks. Each event is in the
table once whenever somebody looks, and all are there in the end, for the audit too (missions I1, H4). Fifty at full size.

The process follows a topic into which a producer writes. Commits are of few records: when the first one of those that a producer has just
sent is seen, there are more to come, and the kill meets them.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.lake import python_daemon
from moldau.lake.tables.opening import open_table
from moldau.testing.broker import Broker
from support.load_world import LoadWorld
from support.sizes import sized

pytestmark = [pytest.mark.system, pytest.mark.torture, pytest.mark.spark]

KILLS = sized(3, 50)
LIMIT_S = 300.0
RECORDS = 200
"""Published for each kill."""
PYTHON = f"-m\0{python_daemon.MODULE}\0".encode()
"""In the command of Spark's Python processes. Java's names the module, too, in a setting."""


class Loading:
    """`moldau load --follow` in processes of its own, killed and started again."""

    def __init__(self, world: LoadWorld, directory: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "moldau.cli.main", "load", "--follow", "--name", "torture", "--records-max", "40", "--memory", "512m"),
            *("--bootstrap", world.job.bootstrap_servers, "--registry", world.broker.registry_url, "--to", str(directory / "lake")),
            *("--topics", world.topic, "--partition", "hour", "--compact", "--work-dir", str(directory / "spark")),
        ]
        self._log = directory / "load.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in a session of its own."""
        with self._log.open("ab") as log:
            environment = dict(os.environ)
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def wait_beyond(self, path: str, version: int) -> None:
        """Until the table has a version above this one."""
        deadline = time.monotonic() + LIMIT_S
        while version_of(path) <= version:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to the process and to Java. Python tasks may live on a little, as they may on a cluster: what they write is nobody's."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_a_task(self, chosen: random.Random) -> bool:
        """SIGKILL to one Python process that Spark has started, if there is one."""
        assert self._process is not None
        workers = [pid for pid in _session(self._process.pid) if PYTHON in _command_line(pid)]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen.choice(workers), signal.SIGKILL)
        return True


def version_of(path: str) -> int:
    """The newest version of a table; -1 if there is none."""
    snapshot = open_table(path)
    return -1 if snapshot is None else snapshot.version


def _session(leader: int) -> Iterator[int]:
    """Processes of a session, those of Spark's daemon among them, which has a group of its own."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry)) == leader:
                    yield int(entry)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for_the_rest(world: LoadWorld) -> None:
    """Until everything is loaded and counted. Fifty kills leave many a commit to be made, so it may take long; but it goes on."""
    seen, since = None, time.monotonic()
    while (state := world.state()) != world.complete():
        if state != seen:
            seen, since = state, time.monotonic()
        assert time.monotonic() - since < LIMIT_S, (state, world.complete())
        time.sleep(0.5)


def test_random_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("MOLDAU_SEED", random.randrange(1 << 32)))
    print(f"MOLDAU_SEED={seed}")
    chosen = random.Random(seed)
    with Broker(registry=True) as broker:
        world = LoadWorld(broker, tmp_path / "lake")
        loading = Loading(world, tmp_path)
        table: list[str] = []
        loading.start()
        try:
            for number in range(KILLS):
                version = version_of(world.job.table)
                publisher = threading.Thread(target=world.publish, args=(RECORDS,))
                publisher.start()
                loading.wait_beyond(world.job.table, version)
                time.sleep(chosen.uniform(0, 1.5))  # the moment is what the seed says; nothing depends on it
                what = "a task"
                if number % 3 == 0 or not loading.kill_a_task(chosen):
                    what = "the driver"
                    loading.kill()
                    loading.start()
                publisher.join(LIMIT_S)
                killed_at = version_of(world.job.table)
                rows = [row["n"] for row in world.rows(columns=["n"])]
                dead = [row["value"] for row in world.rows(world.job.dead_letters, ["value"])]
                table.append(f"{number:>3} {what:<12} {killed_at:>7} {len(rows):>6} {len(set(rows)):>8} {len(dead):>6} {len(set(dead)):>8}")
                assert (len(rows), len(dead)) == (len(set(rows)), len(set(dead)))
            wait_for_the_rest(world)
        finally:
            loading.kill()
            print(f"\n{'':>3} {'killed':<12} {'version':>7} {'rows':>6} {'distinct':>8} {'dead':>6} {'distinct':>8}")
            print(*table, sep="\n")
            state = world.state()
            print(f"\n{'killed':<12} {'times':>5} {'rows':>6} {'distinct':>8}  audit")
            for what in ("the driver", "a task"):
                print(f"{what:<12} {sum(what in line for line in table):>5} {state.rows:>6} {state.distinct:>8}  {state.verdict}")
            print(f"published {world.published} events and {world.spoilt} others; in the end {state}")
