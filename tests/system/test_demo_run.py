"""The demonstration ends with the same report, however often it is run and wherever it is killed; a planted loss is found and named.

On three brokers, of which it kills one, unless a test says otherwise.
"""

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.demo.brokers import BrokerProcess, ClusterProcesses, Servers
from moldau.demo.options import CLUSTER_FOLDER
from support.demo_events import BAD_LINES, LINES, STEP_MS, write_events
from support.sizes import TORTURE, sized

pytestmark = [pytest.mark.system, pytest.mark.spark]

RUN_LIMIT_S = 600
GONE_LIMIT_S = 60.0
KILLS = sized(1, 20)
CORES = 2 if TORTURE else 1
"""For Spark: with so few events a second one only makes the first wait."""

BROKER = {b"serve", b"moldau.assembly.local_cluster.broker_process"}
"""What is among the words of a broker's process: one alone, one of a cluster."""
AWAY = r"producer \S+: broker \S+ is away: .+; the connection is retried"

LASTING = ("input", "topic", "read", "bad_lines", "dead_letters", "planted_lines", "complete")
"""What does not depend on how many runs it took; neither do counts, and the content of the table."""


def command(directory: Path, events: Path, *more: str) -> list[str]:
    given = ["--dir", str(directory), "--input", str(events), "--key", "who", "--time", "at", "--bad-lines", "dead-letter", "--json"]
    given += ["--small", "--cores", str(CORES), *more]
    return [sys.executable, "-m", "moldau.cli.main", "demo", *given]


def run(directory: Path, events: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(command(directory, events, *more), capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    others = [line for line in done.stderr.splitlines() if not re.fullmatch(AWAY, line)]
    assert others == [], "but that a broker is away, which it is in the midst of it"
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["lag"]["after"] == 0, "whatever killed the run before, this one has told the group"
    return report


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    tiers = [(each["lower_tier"], each["lower"]["count"], each["verdict"], each["completion_watermark_ms"]) for each in topics(report)]
    proof = {name: report["proof"][name] for name in ("rows", "lines", "guids", "content", "expected_content", "checksum_is_the_audits")}
    return {**{name: report[name] for name in LASTING}, "tiers": tiers, "proof": proof, "verdict": report["audit"]["verdict"]}


def topics(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["audit"]["topics"]
    return found


def brokers_of(directory: Path) -> list[int]:
    """Processes that serve a broker's data below `directory`; the other children talk to it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if BROKER.intersection(words) and any(str(directory).encode() in word for word in words):
                found.append(int(entry.name))
    return found


def wait_until_gone(directory: Path) -> None:
    deadline = time.monotonic() + GONE_LIMIT_S
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
    """Every tier has counted every event, and Spark SQL finds the audit's checksum, though a broker was killed; and all that stays so."""
    events, directory, first, _ = whole
    crash = first["crash"]
    assert (first["brokers"], crash["to_send"], crash["partitions"]) == (3, LINES, 6)
    assert crash["broker"] in (1, 2, 3)
    assert LINES // 2 <= crash["sent"] <= LINES
    assert crash["led"] >= 1
    good = LINES - len(BAD_LINES)
    assert (first["read"], first["bad_lines"], first["dead_letters"], first["complete"]) == (LINES, 2, 2, True)
    assert [(each["upper_tier"], each["lower_tier"], each["upper"]["count"], each["lower"]["count"]) for each in topics(first)] == [
        ("producer", "local", good, good),
        ("local", "lake", good, good),
    ]
    checksums = {each[side]["checksum"] for each in topics(first) for side in ("upper", "lower")}
    assert checksums == {first["proof"]["checksum"]}
    assert first["proof"]["content"] == first["proof"]["expected_content"]
    assert {each["completion_watermark_ms"] for each in topics(first)} == {LINES * STEP_MS // 600_000 * 600_000 + 600_000}
    assert first["audit"]["faults"] == []
    assert {each["tier"]: each["count"] for each in first["audit"]["untracked"]}["local"] == len(BAD_LINES)
    assert first["lag"]["after"] == 0
    assert len(first["questions"]) == 4
    picture = ET.parse(first["picture"]).getroot()
    assert len(picture.findall("{*}polyline")) == 6, "three tiers by time of the run, and by day"
    second = run(directory, events)
    assert second["lag"]["before"] == 0
    assert (second["brokers"], second["crash"]) == (3, None), "nothing was published"
    assert second["this_run"] == {"published": 0, "published_bytes": 0, "loaded": 0}
    assert lasting(second) == lasting(first)
    assert (second["proof"], topics(second)) == (first["proof"], topics(first))
    assert second["sizes"] == first["sizes"]
    assert not brokers_of(directory)
    other = subprocess.run(command(directory, events, "--partitions", "7"), capture_output=True, text=True, check=False)
    assert (other.returncode, other.stdout) == (1, "")
    assert "was made with partitions 6, not 7; use another --dir" in other.stderr
    other = subprocess.run(command(directory, events, "--brokers", "1"), capture_output=True, text=True, check=False)
    assert (other.returncode, other.stdout) == (1, "")
    assert "was made with brokers 3, not 1; use another --dir" in other.stderr


def test_a_planted_loss_is_found_and_named(tmp_path: Path) -> None:
    """One event is counted by its host and never sent: topic, ten minutes, host and number are in the report; the rest is complete.

    On one broker, which is not killed.
    """
    events = write_events(tmp_path / "events.jsonl")
    given = [*command(tmp_path / "demo", events), "--plant-loss", "--brokers", "1"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["brokers"], report["crash"]) == (1, None)
    (line,) = report["planted_lines"]
    assert line >= LINES // 2
    start_ms = line * STEP_MS // 600_000 * 600_000
    (fault,) = report["audit"]["faults"]
    assert (fault["topic"], fault["window_start_ms"], fault["verdict"]) == ("events", start_ms, "loss")
    assert (fault["upper_tier"], fault["lower_tier"]) == ("producer", "local")
    (source,) = fault["sources"]
    assert (source["datacenter"], source["service"], source["host"]) == ("local", "events", "events-3")
    assert source["upper"]["count"] - source["lower"]["count"] == 1
    assert source["note"].startswith("1 of ")
    local, lake = topics(report)
    assert (local["upper"]["count"] - local["lower"]["count"], lake["verdict"]) == (1, "complete")
    assert local["completion_watermark_ms"] == lake["completion_watermark_ms"] == start_ms
    assert (report["complete"], report["proof"]["checksum_is_the_audits"], report["proof"]["rows"]) == (False, True, LINES - 3)


@pytest.mark.parametrize("servers", [BrokerProcess, lambda data, log: ClusterProcesses(data, log, 2)], ids=["broker", "cluster"])
def test_brokers_wait_for_those_that_are_going(servers: Callable[[Path, Path], Servers], tmp_path: Path) -> None:
    """The brokers of a killed run have their directory for a moment longer than the run."""
    going = servers(tmp_path / "data", tmp_path / "going.log").start()
    late = threading.Timer(1.0, going.stop)
    late.start()
    with servers(tmp_path / "data", tmp_path / "log") as started:
        assert started.bootstrap
    late.join()


def test_bad_lines_stop_before_anything_is_published(tmp_path: Path) -> None:
    events = write_events(tmp_path / "events.jsonl")
    given = [*command(tmp_path / "demo", events), "--bad-lines", "stop"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 1
    assert f"{events}:77: not JSON: " in done.stderr
    assert not (tmp_path / "demo" / CLUSTER_FOLDER).exists()


@pytest.mark.torture
def test_killed_anywhere_the_next_run_reports_the_same(whole: Whole, tmp_path: Path) -> None:
    """`kill -9` of the whole demonstration at random moments of it, then a run to the end: as if nothing had been; of one broker too."""
    expected = lasting(whole.report)
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    print(f"seed {seed}, one run takes {whole.seconds:.1f} s")
    directory, brokers = tmp_path / "killed", "3"
    for number in range(KILLS):
        process = subprocess.Popen(
            command(directory, whole.events, "--brokers", brokers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(draw.uniform(0.2, whole.seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        wait_until_gone(directory)
        if number % 5 == 4 or number == KILLS - 1:
            report = run(directory, whole.events)
            assert lasting(report) == expected, f"seed {seed}"
            directory, brokers = tmp_path / f"killed-{number}", "1" if brokers == "3" else "3"
