"""A call that takes long is waited for so long and no longer, and its callbacks come where it is waited for."""

import threading
import time

import pytest

from moldau.client import librdkafka
from moldau.client.librdkafka import BoundedCall
from support.late_answers import LateAnswer

LIMIT_S = 10.0


def test_callbacks_and_what_they_raise_go_where_they_belong() -> None:
    """As if librdkafka had been called directly."""
    thread = BoundedCall()
    seen: list[threading.Thread] = []

    def callback() -> None:
        seen.append(threading.current_thread())
        raise ZeroDivisionError

    def work() -> None:
        with pytest.raises(ZeroDivisionError):
            thread.call_back(callback)
        raise KeyError("end")

    with pytest.raises(KeyError):
        thread.run(work, LIMIT_S)
    assert seen == [threading.current_thread()]


def test_outside_of_it_a_callback_is_just_called() -> None:
    thread = BoundedCall()
    called: list[int] = []
    thread.call_back(lambda: called.append(1))
    assert called == [1]


def test_who_has_ceased_to_wait_is_not_called() -> None:
    thread = BoundedCall()
    go_on, ended = threading.Event(), threading.Event()
    called: list[int] = []

    def work() -> None:
        go_on.wait(LIMIT_S)
        thread.call_back(lambda: called.append(1))
        ended.set()

    begun = time.monotonic()
    assert not thread.run(work, 0.01)
    assert time.monotonic() - begun < LIMIT_S
    go_on.set()
    assert ended.wait(LIMIT_S), "the callback does not wait for ever"
    assert called == []


def test_whether_it_has_ended() -> None:
    assert BoundedCall().run(lambda: None, LIMIT_S)


def test_an_answer_that_comes_just_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken for what it is, and the wait's end for nothing: close would fail with it."""
    monkeypatch.setattr(librdkafka, "Future", LateAnswer)
    thread = BoundedCall()
    called: list[int] = []

    def fails() -> None:
        raise TimeoutError("the listener's own")

    def work() -> None:
        thread.call_back(lambda: called.append(1))
        with pytest.raises(TimeoutError, match="the listener's own"):
            thread.call_back(fails)

    assert thread.run(work, LIMIT_S)
    assert called == [1]
