"""Background work runs elsewhere, its answers on the loop, and a few threads do it all."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from moldau.adapters import threads
from moldau.adapters.event_loop import new_event_loop
from moldau.adapters.threads import LoopBackground


def run(story: Callable[[LoopBackground, asyncio.AbstractEventLoop], object], answers: Sequence[object], expected: int) -> None:
    """Run a story on a loop until so many answers are there."""
    loop = new_event_loop("asyncio")
    background = LoopBackground(loop, threads_max=3)

    async def play() -> None:
        story(background, loop)
        while len(answers) < expected:
            await asyncio.sleep(0.001)

    try:
        loop.run_until_complete(asyncio.wait_for(play(), 10))
        assert background.running == 0
    finally:
        background.close()
        loop.close()


def test_results_and_errors_come_back_on_the_loops_thread() -> None:
    answers: list[tuple[object, str, bool]] = []

    def done(result: object, error: BaseException | None) -> None:
        answers.append((result, str(error), threading.current_thread() is threading.main_thread()))

    def fail() -> object:
        raise OSError("no such luck")

    def story(background: LoopBackground, _: asyncio.AbstractEventLoop) -> None:
        background.run(lambda: threading.current_thread().name, done)
        background.run(fail, done)

    run(story, answers, 2)
    assert (None, "no such luck", True) in answers
    ((name, error, here),) = [answer for answer in answers if answer[0] is not None]
    assert (str(name)[:18], error, here) == ("moldau-background-", "None", True)


def test_what_has_to_come_before_the_first_thread_does_once() -> None:
    loop = new_event_loop("asyncio")
    seen: list[tuple[str, int]] = []
    before = threading.active_count()
    background = LoopBackground(loop, before_first=lambda: seen.append(("first", threading.active_count() - before)))
    answers: list[object] = []

    async def play() -> None:
        for _ in range(3):
            background.run(lambda: None, lambda *answer: answers.append(answer))
        while len(answers) < 3:
            await asyncio.sleep(0.001)

    try:
        assert seen == []
        loop.run_until_complete(asyncio.wait_for(play(), 10))
        assert seen == [("first", 0)]
    finally:
        background.close()
        loop.close()


def test_no_more_threads_than_allowed() -> None:
    answers: list[object] = []
    names: set[str] = set()
    gate = threading.Event()

    def work() -> None:
        names.add(threading.current_thread().name)
        gate.wait(5)

    def story(background: LoopBackground, _: asyncio.AbstractEventLoop) -> None:
        for _number in range(20):
            background.run(work, lambda result, error: answers.append(error))
        assert background.running == 20
        gate.set()

    run(story, answers, 20)
    assert answers == [None] * 20
    assert len(names) <= 3


def test_an_answer_after_the_loops_end_is_dropped() -> None:
    loop = new_event_loop("asyncio")
    background = LoopBackground(loop)
    gate = threading.Event()
    background.run(lambda: gate.wait(5), lambda result, error: pytest.fail("nobody listens any more"))
    loop.close()
    gate.set()
    background.close()


def test_a_stop_drops_what_has_not_begun_and_does_not_wait_for_what_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CUT_OFF_S", 0.01)
    loop = new_event_loop("asyncio")
    background = LoopBackground(loop, threads_max=1)
    begun, gate, ended = threading.Event(), threading.Event(), []

    def long() -> None:
        begun.set()
        gate.wait(20)

    background.run(long, lambda result, error: None)
    background.run(lambda: ended.append("another"), lambda result, error: None)
    assert begun.wait(20)
    background.cut_off()
    loop.close()
    gate.set()
    background.close()
    assert ended == []


@pytest.mark.parametrize("name", ["asyncio", "uvloop", "auto", ""])
def test_loops_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvloop")
    monkeypatch.setenv("MOLDAU_LOOP", "asyncio")
    loop = new_event_loop(name)
    assert type(loop).__module__.startswith("uvloop" if name in ("uvloop", "auto") else "asyncio")
    loop.close()


def test_a_loop_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="twisted"):
        new_event_loop("twisted")
