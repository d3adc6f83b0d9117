"""The demonstration ends with the same report, however often it is run and wherever it is killed; nothing missing, nothing doubled."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.lake.demo.broker_process import BrokerProcess

pytestmark = pytest.mark.system

LINES = 2_000
BAD_LINES = (77, 1_500)
RUN_LIMIT_S = 300
TORTURE = os.environ.get("MOLDAU_TORTURE") == "1"
KILLS = 20 if TORTURE else 2

VOLATILE = ("this_run", "steps", "log_bytes", "lake_bytes", "lake_files", "table_version", "questions", "lag")
"""What depends on how many runs it took."""


def write_events(path: Path) -> Path:
    """Events of 50 keys, one in ten without a key, over ten days, two lines no events."""
    draw = random.Random(1)
    with path.open("w") as file:
        for number in range(1, LINES + 1):
            if number in BAD_LINES:
                file.write(f"line {number} is no event\n")
                continue
            event = {
                "id": number,
                "who": None if number % 10 == 0 else f"w{draw.randrange(50)}",
                "at": number * 432_000,
                "x": draw.random(),
            }
            file.write(json.dumps(event) + "\n")
    return path


def command(directory: Path, events: Path, *more: str) -> list[str]:
    given = ["--dir", str(directory), "--input", str(events), "--key", "who", "--time", "at", "--bad-lines", "dead-letter", "--json", *more]
    return [sys.executable, "-m", "moldau.cli.main", "demo", *given]


def run(directory: Path, events: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(command(directory, events, *more), capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "a machine reads this"
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["lag"]["after"] == 0, "whatever killed the run before, this one has told the group"
    return report


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in VOLATILE}


def brokers_of(directory: Path) -> list[int]:
    """Processes that serve a broker's data below `directory`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and str(directory / "broker").encode() in words:
                found.append(int(entry.name))
    return found


def wait_until_gone(directory: Path) -> None:
    deadline = time.monotonic() + 10
    while brokers_of(directory):
        assert time.monotonic() < deadline, "the broker of a killed run lives on"
        time.sleep(0.05)


class Whole(NamedTuple):
    """A run that nothing disturbed."""

    events: Path
    directory: Path
    report: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    directory = tmp_path_factory.mktemp("whole")
    events = write_events(directory / "events.jsonl")
    begun = time.monotonic()
    report = run(directory / "demo", events)
    return Whole(events, directory / "demo", report, time.monotonic() - begun)


def test_a_second_run_adds_nothing_and_reports_the_same(whole: Whole) -> None:
    events, directory, first, _ = whole
    assert (first["read"], first["published"], first["stored"], first["dead_letters"]) == (LINES, LINES, LINES - 2, 2)
    assert (first["missing"], first["doubled"], first["complete"]) == (0, 0, True)
    assert len(set(first["checksums"].values())) == 1
    assert first["lag"] == {"group": "moldau-demo", "before": LINES, "after": 0}
    second = run(directory, events)
    assert second["lag"]["before"] == 0
    assert second["this_run"] == {"published": 0, "published_bytes": 0, "loaded": 0}
    assert lasting(second) == lasting(first)
    assert (second["log_bytes"], second["lake_bytes"]) == (first["log_bytes"], first["lake_bytes"])
    assert not brokers_of(directory)
    other = subprocess.run(command(directory, events, "--partitions", "7"), capture_output=True, text=True, check=False)
    assert (other.returncode, other.stdout) == (1, "")
    assert "was made with partitions 6, not 7; use another --dir" in other.stderr


def test_a_broker_waits_for_one_that_is_going(tmp_path: Path) -> None:
    """The broker of a killed run has its directory for a moment longer than the run."""
    going = BrokerProcess(tmp_path / "data", tmp_path / "going.log").start()
    late = threading.Timer(1.0, going.stop)
    late.start()
    with BrokerProcess(tmp_path / "data", tmp_path / "log") as broker:
        assert broker.bootstrap
    late.join()


def test_bad_lines_stop_before_anything_is_published(tmp_path: Path) -> None:
    events = write_events(tmp_path / "events.jsonl")
    given = [*command(tmp_path / "demo", events), "--bad-lines", "stop"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 1
    assert f"{events}:77: not JSON: " in done.stderr
    assert not (tmp_path / "demo" / "broker").exists()


@pytest.mark.torture
def test_killed_anywhere_the_next_run_reports_the_same(whole: Whole, tmp_path: Path) -> None:
    """`kill -9` of the whole demonstration at random moments of it, then a run to the end: as if nothing had been."""
    expected = lasting(whole.report)
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    print(f"seed {seed}, one run takes {whole.seconds:.1f} s")
    directory = tmp_path / "killed"
    for number in range(KILLS):
        process = subprocess.Popen(command(directory, whole.events), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(draw.uniform(0.2, whole.seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        wait_until_gone(directory)
        if number % 5 == 4 or number == KILLS - 1:
            report = run(directory, whole.events)
            assert {**lasting(report), "table": expected["table"]} == expected, f"seed {seed}"
            directory = tmp_path / f"killed-{number}"
