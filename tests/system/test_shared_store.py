"""Processes that share a coordination tree's file, killed and stopped at any moment: the others see at once which are gone, and miss no
change.
"""

import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.sizes import TORTURE

pytestmark = pytest.mark.system

PATIENCE_S = 60.0
"""For a busy machine; nothing here takes that long."""
KILLS = 200 if TORTURE else 12
TESTS = Path(__file__).parent.parent


class Member:
    """A process of :mod:`support.shared_member`, and what it has written."""

    def __init__(self, path: Path, name: str, timeout_ms: int) -> None:
        self.path, self.name, self.timeout_ms = path, name, timeout_ms
        self.last: dict[str, str] = {}
        """By the first word of a line the rest of the last one."""
        self.counted: list[int] = []
        self.start()

    def start(self) -> None:
        self.last.clear()
        command = [sys.executable, "-m", "support.shared_member", str(self.path), self.name, str(self.timeout_ms)]
        self.process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True)
        self.reader.start()

    def _read(self, process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    def command(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def wait(self, key: str, value: str | None = None) -> float:
        """Until its last line of this kind says this, or is there at all: how long that took."""
        begun = time.monotonic()
        while key not in self.last or value not in (None, self.last[key]):
            try:
                kind, _, rest = self.lines.get(timeout=PATIENCE_S).strip().partition(" ")
            except queue.Empty:
                raise AssertionError(f"{self.name} waits for {key} {value}; last: {self.last}") from None
            self.last[kind] = rest
            if kind == "counter":
                self.counted.append(int(rest))
        return time.monotonic() - begun

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Wait until it has ended: its exit status."""
        status = self.process.wait(PATIENCE_S)
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        return status

    def close(self) -> None:
        self.command("close")
        assert self.end() == 0


class Members:
    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.path, self.timeout_ms = path, timeout_ms
        self.all: list[Member] = []

    def start(self, *names: str) -> list[Member]:
        """Start them at the same moment, and wait until each sees all."""
        started = [Member(self.path, name, self.timeout_ms) for name in names]
        self.all += started
        self.see_each_other()
        return started

    def see_each_other(self, without: str = "") -> None:
        live = [each for each in self.all if each.name != without]
        names = ",".join(sorted(each.name for each in live))
        for each in live:
            each.wait("ids", names)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


@pytest.fixture
def members(file: Path, request: pytest.FixtureRequest) -> Iterator[Members]:
    made = Members(file, getattr(request, "param", 60_000))
    yield made
    for each in made.all:
        each.kill()


def test_a_killed_process_is_missed_at_once_whatever_it_did(members: Members) -> None:
    """With a session timeout of a minute only the end of the process itself can be the cause."""
    chance = random.Random(1)
    members.start("a", "b", "c", "d")
    waits = []
    for _ in range(KILLS):
        victim = chance.choice(members.all)
        if chance.random() < 0.7:
            victim.command("many 30")
            time.sleep(chance.random() * 0.1)  # which moment it is killed at
        victim.kill()
        begun = time.monotonic()
        members.see_each_other(without=victim.name)
        waits.append(time.monotonic() - begun)
        victim.start()
        members.see_each_other()
    print(f"seen by all after a kill: median {sorted(waits)[len(waits) // 2] * 1000:.1f} ms, longest {max(waits) * 1000:.1f} ms")
    assert max(waits) < 20, "a third of the session timeout"


def test_all_killed_at_once_leave_a_file_that_the_next_ones_can_use(members: Members) -> None:
    members.start("a", "b", "c", "d")
    for each in members.all:
        each.command("many 30")
    for round_ in range(5):
        time.sleep(0.05 * round_)  # which moment they are killed at
        for each in members.all:
            each.process.kill()
        for each in members.all:
            each.end()
            each.start()
        members.see_each_other()
        for each in members.all:
            each.command("many 30")


@pytest.mark.parametrize("members", [2000], indirect=True)
def test_a_stopped_process_loses_its_session_and_learns_it_first_when_it_continues(members: Members) -> None:
    one, *_ = members.start("a", "b", "c", "d")
    session_id = one.last["connected"]
    one.signal(signal.SIGSTOP)
    begun = time.monotonic()
    members.see_each_other(without="a")
    waited_s = time.monotonic() - begun
    assert waited_s > 1.9
    one.signal(signal.SIGCONT)
    one.wait("suspended", session_id)
    one.wait("expired", session_id)
    one.last.clear()
    one.wait("ids", "a,b,c,d")
    assert int(one.last["connected"]) > int(session_id)
    members.see_each_other()
    print(f"ended {waited_s:.2f} s after SIGSTOP; timeout 2 s")


def test_no_watch_misses_the_last_change_whoever_is_killed_meanwhile(members: Members) -> None:
    chance = random.Random(2)
    writer, *others = members.start("a", "b", "c", "d")
    writer.command("count 1000")
    for _ in range(KILLS // 2):
        victim = chance.choice(others)
        victim.kill()
        victim.start()
        victim.wait("ids")
    for each in members.all:
        each.wait("counter", "1000")
        assert each.counted[-1] == 1000
    for each in members.all:
        each.close()
    assert sorted(each.name for each in members.path.parent.iterdir()) == ["tree.db"]
