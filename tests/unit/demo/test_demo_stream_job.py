"""The stream job's process at the end of the demonstration. No process is started."""

from concurrent.futures import Future
from pathlib import Path
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.demo.children import ChildError
from moldau.demo.stream_job import DemoStreamJob
from moldau.model.errors import WorldError


def raising(error: Exception) -> Any:
    def call(*_: Any) -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("stop", "wait"),
    [(lambda *_: None, raising(TimeoutExpired("job", 60))), (raising(WorldError("no broker answers", retriable=True)), lambda *_: None)],
)
def test_a_job_that_does_not_end_is_named(stop: Any, wait: Any, tmp_path: Path) -> None:
    """With its log: it hangs after the order to stop, or the broker cannot be asked."""
    job = object.__new__(DemoStreamJob)
    job._operator = SimpleNamespace(stop=stop, status=lambda _: {"queries": [{}]})  # type: ignore[assignment]
    job._child = SimpleNamespace(process=SimpleNamespace(wait=wait))  # type: ignore[assignment]
    job._log = tmp_path / "stream-job.log"
    with pytest.raises(ChildError, match=r"the stream job was not stopped: .*; .*stream-job\.log has more"):
        job._stopped()


def test_late_events_wait_for_the_watermark() -> None:
    """What the thread that follows the job has seen; where that thread has failed, its failure."""
    job: Any = object.__new__(DemoStreamJob)
    job._watermark_ms, job._end = 10, Future()
    job.wait_for_watermark(10)
    job._end.set_exception(ChildError("the stream job has ended"))
    with pytest.raises(ChildError, match="the stream job has ended"):
        job.wait_for_watermark(11)
