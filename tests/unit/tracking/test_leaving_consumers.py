"""Leaving the ``with`` of a tracked consumer or a worker: a failure to close is raised, and hides no exception that is on its way."""

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from moldau.client.consumer import Consumer
from moldau.client.failures import CommitError
from moldau.client.librdkafka import timed_out
from moldau.tracking import TrackedConsumer
from moldau.tracking.queue import Worker, WorkQueue
from support.tracked_events import MemoryRegistry

NOBODY = "127.0.0.1:9"

KINDS: list[Callable[[], AbstractContextManager[Any]]] = [
    lambda: TrackedConsumer(NOBODY, MemoryRegistry()),
    lambda: Worker(WorkQueue(NOBODY, "images")),
]


@pytest.fixture(params=KINDS, ids=["consumer", "worker"])
def leaving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Any]:
    def fails(consumer: Consumer, timeout: float | None = None) -> None:
        consumer._session.close(0.0)
        raise CommitError("g", "t", 0, 9, timed_out("nobody answers"))

    monkeypatch.setattr(Consumer, "close", fails)
    made: AbstractContextManager[Any] = request.param()
    return made


def test_a_failure_to_close_is_raised(leaving: AbstractContextManager[Any]) -> None:
    with pytest.raises(CommitError, match="nobody answers"), leaving:
        pass


def test_the_exception_of_the_block_passes(leaving: AbstractContextManager[Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "moldau.client"), contextlib.suppress(ZeroDivisionError), leaving:
        raise ZeroDivisionError
    assert "consumer: while closing: group g, partition t-0 at offset 9: TIMED_OUT: nobody answers" in caplog.text
