"""What a run of a job refuses and reports. Claim and Spark are pretended: neither a broker nor Java is started."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, PropertyMock

import pytest

from moldau.lake.reading.event_shape import SUFFIX_PROPERTY
from moldau.model.errors import WorldError
from moldau.streams import queries, runner
from moldau.streams.errors import BatchError, CheckpointError
from moldau.streams.queries import JobQuery
from moldau.streams.reports import JobOrder, JobReport, JobState, OrderKind, QueryReport
from moldau.streams.runner import JobRun
from moldau.streams.shape import JobShape, Operator, QueryShape, read_shape, write_shape
from moldau.streams.state_topic import StateBoard

BEFORE = JobReport("flights", "a1", "host", 17, "", 1, 1000, 5000, JobState.STOPPED, "/elsewhere", None, (QueryReport("counts", "r1", 7),))


class PretendedClaim:
    """Keeps what is reported."""

    job = "flights"

    def __init__(self) -> None:
        self.before: JobReport | None = BEFORE
        self.states: list[JobState] = []
        self.queries: tuple[QueryReport, ...] = ()

    def take(self) -> None:
        """No other process runs the job."""

    def confirm(self) -> None:
        """Nor takes it over."""

    def write(self, queries: list[QueryReport], state: JobState = JobState.RUNNING, error: str | None = None, **_: object) -> None:
        self.states.append(state)
        self.queries = tuple(queries)


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> PretendedClaim:
    made = PretendedClaim()
    monkeypatch.setattr(runner, "StateTopic", Mock(return_value=Mock(read_if_there=StateBoard)))
    monkeypatch.setattr(runner, "JobClaim", lambda *_: made)
    monkeypatch.setattr(queries, "inputs_of", lambda _: ("topics moldau, subscribe flights",))
    monkeypatch.setattr(queries, "operators_of", lambda _: ())
    monkeypatch.setattr(queries, "topics_read", lambda *_: set())
    monkeypatch.setattr(runner, "runs_by_clock", lambda _: False)
    monkeypatch.setattr(runner, "task_counted_inputs", lambda _: {})
    return made


Job = Callable[..., JobRun]


@pytest.fixture
def job(claim: PretendedClaim, tmp_path: Path) -> Job:
    """Makes a run of the job whose one query writes `frame`."""

    def make(frame: Any = None, name: str = "flights", on_begun: Callable[[], object] = lambda: None) -> JobRun:
        output = Mock(place="topic counts")
        output.of_generation.return_value = output
        query = JobQuery("counts", frame, (output,), "append", "0 seconds")
        return JobRun(
            name, "", str(tmp_path), SimpleNamespace(version="4.3.0", sparkContext=Mock(), conf=Mock()), [query], on_begun=on_begun
        )

    return make


def checkpoint(directory: Path, run: str, *batches: int) -> None:
    """As Spark leaves it after these batches."""
    (directory / "counts" / "offsets").mkdir(parents=True)
    (directory / "counts" / "metadata").write_text(json.dumps({"id": run}))
    for number in batches:
        (directory / "counts" / "offsets" / str(number)).touch()


def test_a_start_that_is_refused_changes_nothing_for_the_next(claim: PretendedClaim, job: Job) -> None:
    """It reports the checkpoint that the outputs were written with, which is not here: so the next start is refused as well."""
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"up to 7 were written with the checkpoint of id r1 in /elsewhere; in .* there is none"):
            job().run(once=True, fresh=False)
        assert (claim.states[-1], claim.queries) == (JobState.FAILED, BEFORE.queries)
        claim.before = replace(BEFORE, queries=claim.queries)


@pytest.mark.parametrize(("batches", "end"), [((), "no batch"), ((3, 4, 5), "batch 5")])
def test_an_older_copy_of_the_checkpoint_is_refused(batches: tuple[int, ...], end: str, job: Job, tmp_path: Path) -> None:
    """The outputs would take its next batches, which read something else, for those that they have."""
    checkpoint(tmp_path, "r1", *batches)
    with pytest.raises(
        CheckpointError, match=rf"query counts: its outputs have batch 7, and the checkpoint in .*/counts ends with {end}: it is"
    ):
        job().run(once=True, fresh=False)


def frame_of(*, active: list[bool], error: Exception | None = None) -> tuple[Any, Any]:
    """A DataFrame that can be started, and its query, which says so often whether it is active."""
    frame = Mock()
    writer = frame.writeStream.foreachBatch.return_value.queryName.return_value.outputMode.return_value.option.return_value
    started = writer.trigger.return_value.start.return_value
    type(started).isActive = PropertyMock(side_effect=active)
    started.exception.return_value, started.recentProgress = error, []
    return frame, writer.trigger.return_value.start


def test_a_query_that_fails_while_it_is_looked_at(claim: PretendedClaim, job: Job) -> None:
    """It was active at the first look, and has failed at the second: the job has failed, and was not just stopped."""
    claim.before = None
    frame, _ = frame_of(active=[True, False, False, False], error=RuntimeError("SparkException: the disk is full"))
    with pytest.raises(BatchError, match="job flights, query counts, failed: SparkException: the disk is full"):
        job(frame).run(once=True, fresh=False)
    assert claim.states == [JobState.FAILED]


def test_a_job_has_begun_when_its_queries_have_written(claim: PretendedClaim, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, between two batches."""
    claim.before = None
    monkeypatch.setattr(runner, "REPORT_S", 0)
    frame, start = frame_of(active=[])
    looks = 0
    begun: list[int] = []

    def active() -> bool:
        nonlocal looks
        looks += 1
        sink = frame.writeStream.foreachBatch.call_args.args[0]
        if looks == 3:
            assert sink._gate.acquire()  # a batch is being written
            sink.written = 0
        if looks == 5:
            assert not begun
            sink._gate.release()
        return looks < 9

    type(start.return_value).isActive = PropertyMock(side_effect=active)
    job(frame, on_begun=lambda: begun.append(looks)).run(once=False, fresh=False)
    assert begun == [5]


def test_a_java_that_has_ended_is_one_line(claim: PretendedClaim, job: Job) -> None:
    """As where a signal is for the whole group of processes. py4j makes another connection then, which is refused."""
    claim.before = None
    gone = ConnectionRefusedError(111, "Connection refused")
    frame, start = frame_of(active=[True])
    started = start.return_value
    type(started).isActive = PropertyMock(side_effect=gone)
    type(started).recentProgress = PropertyMock(side_effect=gone)
    started.stop.side_effect = gone
    with pytest.raises(BatchError, match=r"job flights: Spark has ended: \[Errno 111\] Connection refused"):
        job(frame).run(once=False, fresh=False)


def test_a_batch_that_fails_while_the_job_stops(claim: PretendedClaim, job: Job) -> None:
    """The order to stop comes while it is written; it ends with its failure. The batch of a job that was stopped in order is none."""
    claim.before = None
    frame, start = frame_of(active=[True] * 9)
    run = job(frame)
    started = start.return_value

    def begin() -> Any:
        run.stop()
        sink = frame.writeStream.foreachBatch.call_args.args[0]
        with pytest.raises(BatchError):
            sink(Mock(), 0)  # there is no checkpoint
        return started

    start.side_effect = begin
    with pytest.raises(BatchError, match="query counts: there is no checkpoint in"):
        run.run(once=False, fresh=False)
    assert claim.states == [JobState.FAILED]
    frame, _ = frame_of(active=[True] * 9)
    run = job(frame)
    run.stop()
    run.run(once=False, fresh=False)
    assert claim.states == [JobState.FAILED, JobState.STOPPED]


def test_a_fresh_start_sets_the_checkpoints_aside(claim: PretendedClaim, job: Job, tmp_path: Path) -> None:
    """A job with other operators is refused with its checkpoint; fresh, it begins without one, and what was there is kept."""
    checkpoint(tmp_path, "r1", 6, 7)
    write_shape(str(tmp_path), JobShape("flights", "4.3.0", {"counts": QueryShape((), (Operator("Join"),), (), "append")}))
    with pytest.raises(CheckpointError, match=r"stateful operator 1 is missing: it was Join;.* Undo .*; or run it with --fresh"):
        job().run(once=True, fresh=False)
    assert not claim.states
    frame, start = frame_of(active=[False])

    def begin() -> Any:
        assert not (tmp_path / "counts").exists()
        return start.return_value

    start.side_effect = begin
    job(frame).run(once=True, fresh=True)
    (aside,) = tmp_path.glob("_before-*")
    assert {each.name for each in aside.iterdir()} == {"counts", "job.json"}
    assert sorted(each.name for each in (aside / "counts" / "offsets").iterdir()) == ["6", "7"]
    now = read_shape(str(tmp_path))
    assert now is not None
    assert now.queries["counts"].operators == ()
    assert (claim.states, claim.queries) == ([JobState.STOPPED], (QueryReport("counts", outputs=("topic counts",)),))


def test_a_fresh_start_leaves_another_jobs_checkpoints(job: Job, tmp_path: Path) -> None:
    checkpoint(tmp_path, "r1", 7)
    write_shape(str(tmp_path), JobShape("arrivals", "4.3.0", {}))
    with pytest.raises(CheckpointError, match=r"it is the checkpoint of job arrivals\. Undo the change, or give .* outputs$"):
        job().run(once=True, fresh=True)
    assert {each.name for each in tmp_path.iterdir()} == {"counts", "job.json"}


def test_a_fresh_start_that_cannot_set_them_aside(claim: PretendedClaim, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, and what it reports is still of the checkpoint that is there."""
    checkpoint(tmp_path, "r1", 7)
    monkeypatch.setattr(os, "rename", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    with pytest.raises(CheckpointError, match=r"_before-.*: cannot be made of the checkpoints: operation not permitted"):
        job().run(once=True, fresh=True)
    assert (claim.states, claim.queries) == ([JobState.FAILED], BEFORE.queries)


def test_a_query_that_fails_while_it_settles(claim: PretendedClaim, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to do then, as one that stands where it is to: the job has failed, and a switch does not take it for settled."""
    claim.before = None
    seen: list[tuple[JobState, bool]] = []

    def write(_: object, state: JobState = JobState.RUNNING, __: object = None, *, settled: bool = False, **___: object) -> JobOrder:
        seen.append((state, settled))
        return JobOrder("a1", 1, OrderKind.SETTLE)

    monkeypatch.setattr(claim, "write", write)
    monkeypatch.setattr(runner, "REPORT_S", 0.0)
    monkeypatch.setattr(runner, "Settling", Mock(return_value=Mock(step=lambda: True)))
    frame, start = frame_of(active=[True] * 9)
    started = start.return_value

    def begin() -> Any:
        sink = frame.writeStream.foreachBatch.call_args.args[0]
        with pytest.raises(BatchError):
            sink(Mock(), 0)  # there is no checkpoint
        return started

    start.side_effect = begin
    with pytest.raises(BatchError, match="query counts: there is no checkpoint in"):
        job(frame).run(once=False, fresh=False)
    assert seen[-1] == (JobState.FAILED, False)


def test_what_the_thread_starts_after_a_job_has_no_generation(claim: PretendedClaim, job: Job) -> None:
    """Its dead letters would go beside those of the job's generation."""
    claim.before = None
    frame, start = frame_of(active=[False])
    run = job(frame)
    seen: dict[str, str | None] = {}
    run._spark.sparkContext.setLocalProperty = seen.__setitem__

    def begin() -> Any:
        assert seen == {SUFFIX_PROPERTY: "@2"}
        return start.return_value

    start.side_effect = begin
    run._enter(2, "flights@2")
    run._start(run.queries[0], once=True)
    assert start.called
    assert seen == {SUFFIX_PROPERTY: None}


def test_a_generation_becomes_current_at_the_second_try(claim: PretendedClaim, job: Job) -> None:
    """Where the brokers were away at the first one: its own claim is given up once, and the job's never."""
    run = job()
    beside, of_job = Mock(), Mock()
    run._claim = beside
    of_job.write.side_effect = [WorldError("no broker answers", retriable=True), None, None]
    with pytest.raises(WorldError):
        run.become_current(of_job, settled=True)
    beside.abandon.assert_not_called()
    for _ in ("the second try", "what follows has failed, and it is done again"):
        run.become_current(of_job, settled=True)
    beside.abandon.assert_called_once()
    of_job.abandon.assert_not_called()
    assert run._claim is of_job
