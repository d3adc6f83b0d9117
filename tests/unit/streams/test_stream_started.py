"""When a query that Spark runs by the clock, batch after batch without records, has nothing to do. Spark and the sink are pretended."""

import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from moldau.streams.checkpoints import Checkpoint
from moldau.streams.reports import QueryReport
from moldau.streams.started import AT_ONCE, StartedQuery, trigger_of


class Pretended:
    """A query by the clock, whose batches are planned, written and noted as done by the test."""

    def __init__(self, directory: Path, *, planned: int | None = None) -> None:
        self._directory = directory
        for folder in ("offsets", "commits"):
            (directory / folder).mkdir(exist_ok=True)
        self.sink = Mock(idle=None, written=None, failure=None, **{"stop.return_value": True})
        self.spark = Mock()
        self.has_ended = threading.Event()
        self.spark.processAllAvailable.side_effect = self.has_ended.wait
        checkpoint, report, sink = Checkpoint(str(directory)), QueryReport("counts"), self.sink
        self.query = StartedQuery("counts", sink, self.spark, report, checkpoint, planned, by_clock=True)

    def plan(self, number: int) -> None:
        (self._directory / "offsets" / str(number)).touch()

    def write(self, number: int, *, idle: bool) -> None:
        self.sink.written, self.sink.idle = number, number if idle else None

    def note(self, number: int) -> None:
        (self._directory / "commits" / str(number)).touch()


def test_a_run_up_to_the_present_stops_after_a_batch_of_its_own_that_read_nothing(tmp_path: Path) -> None:
    """The batch that the start before had planned may be older than what there is; and Spark has to note the batch as done."""
    pretended = Pretended(tmp_path, planned=7)

    def stops() -> bool:
        pretended.query.stop_at_rest()
        return bool(pretended.spark.stop.called)

    for number, idle in ((7, True), (8, False), (9, True)):
        pretended.write(number, idle=idle)
        assert not stops()
        if number < 9:
            pretended.note(number)
            assert not stops()
    assert not pretended.sink.stop.called
    pretended.sink.stop.return_value = False  # the next one is being written
    pretended.note(9)
    assert not stops()
    pretended.sink.stop.return_value = True
    assert stops()


def test_the_end_of_a_query_that_was_stopped_is_no_failure(tmp_path: Path) -> None:
    """Its next batch was refused. What else has ended it has."""
    pretended = Pretended(tmp_path)
    refused, full = RuntimeError("py4j: moldau.streams.batches.JobStoppingError"), RuntimeError("the disk is full")
    pretended.spark.exception.return_value = refused
    assert pretended.query.failure() is refused
    pretended.write(0, idle=True)
    pretended.note(0)
    pretended.query.stop_at_rest()
    assert pretended.query.failure() is None
    pretended.spark.exception.return_value = full
    assert pretended.query.failure() is full


@pytest.mark.parametrize("ends", [True, False])
def test_a_query_rests_when_a_batch_that_was_planned_since_read_nothing(tmp_path: Path, *, ends: bool) -> None:
    """Or when Spark says so, of one that had no batch yet or has ended. The batch being planned may have looked before."""
    pretended = Pretended(tmp_path)
    pretended.plan(3)
    waits = threading.Thread(target=pretended.query.process_all)
    waits.start()
    while not pretended.spark.processAllAvailable.called:
        time.sleep(0.01)
    for number in (3, 4):
        pretended.write(number, idle=True)
        waits.join(0.3)
        assert waits.is_alive()
    if ends:
        pretended.has_ended.set()
    else:
        pretended.write(5, idle=True)
    waits.join(10)
    assert not waits.is_alive()
    pretended.has_ended.set()


def test_a_query_by_the_clock_pauses_unless_the_job_has_a_trigger() -> None:
    assert [trigger_of(given, by_clock=by_clock) for given in (AT_ONCE, "5 seconds") for by_clock in (True, False)] == [
        "1 second",
        "0 seconds",
        "5 seconds",
        "5 seconds",
    ]
