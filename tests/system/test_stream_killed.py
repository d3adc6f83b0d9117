"""Wherever the driver of a job is killed, topic and table have each row once in the end, as a count of all events has it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.streams.points import DIE_AT, DIE_ONCE, POINTS
from moldau.testing.broker import Broker
from support import stream_jobs
from support.sizes import TORTURE
from support.stream_jobs import Counts, counted, events, in_table, in_topic, send, updates_of

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.torture]

_END_S = 600
_BETWEEN_OUTPUTS = "topic written"
"""Of a batch: that of every run. The others come in `make torture`."""


def run(broker: Broker, directory: Path, source: str, sink: str, point: str | None, once: Path) -> int:
    """The exit code of a run of the job, which dies at the point."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if point is not None:
        environment |= {DIE_AT: point, DIE_ONCE: str(once)}
    command = [sys.executable, stream_jobs.__file__, broker.bootstrap_servers, str(directory), source, sink, "--once"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=_END_S)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode


def test_killed_at_each_point(broker: Broker, tmp_path: Path) -> None:
    """One job, whose driver dies at one point after the other, each time over new events; the last run is left alone.

    Each batch writes the counts that it has changed, and a count only grows, so that a row which is there twice is one that was doubled.
    """
    source, sink = (broker.create_topic(broker.unique_topic(name), 2) for name in ("in", "out"))
    table = tmp_path / "lake" / sink
    lines = []
    for hour, point in enumerate([*(POINTS if TORTURE else [_BETWEEN_OUTPUTS]), None]):
        send(broker.bootstrap_servers, source, events(60 * hour, 60 * hour + 60))
        code = run(broker, tmp_path, source, sink, point, tmp_path / f"died at {point}")
        assert code == (0 if point is None else -signal.SIGKILL)
        lines.append((point or "not killed", len(in_topic(broker.bootstrap_servers, sink)), len(in_table(table))))
    print(f"\n{'killed at':<18} {'rows in topic':>14} {'rows in table':>14}")
    for point, rows_of_topic, rows_of_table in lines:
        print(f"{point:<18} {rows_of_topic:>14} {rows_of_table:>14}")
    of_topic, of_table = updates_of(in_topic(broker.bootstrap_servers, sink)), updates_of(in_table(table))
    assert of_topic == of_table
    greatest: Counts = {}
    for start, airport, count in of_topic:
        greatest[start, airport] = max(count, greatest.get((start, airport), 0))
    assert greatest == counted(events(0, 60 * len(lines)))
