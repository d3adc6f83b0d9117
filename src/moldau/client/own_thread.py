"""A call of librdkafka that may take long, in a thread of its own: it is waited for so long and no longer, and Ctrl-C is heard meanwhile.

What librdkafka calls back during it runs in the thread of who waits, as callbacks of all other calls do.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

_STEP_S = 0.05


class OwnThread:
    """One consumer's; librdkafka's callbacks go through `call_back`."""

    def __init__(self) -> None:
        self._waits = False
        self._left = False
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], Future[None]] | None] = queue.SimpleQueue()

    def call_back(self, call: Callable[[], object]) -> None:
        """Make a callback: at once, or by who waits in `run`. Nobody who has ceased to wait is called."""
        if not self._waits:
            call()
            return
        answer: Future[None] = Future()
        self._calls.put((call, answer))
        while not self._left:
            try:
                answer.result(_STEP_S)
            except TimeoutError:
                if not answer.done():
                    continue
                answer.result()  # it may have come just behind the wait
            return

    def run(self, work: Callable[[], object], timeout_s: float) -> bool:
        """Do it; whether it has ended within `timeout_s`. What it raises is raised. Otherwise it goes on alone, as a daemon."""
        outcome: Future[None] = Future()

        def do() -> None:
            try:
                work()
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(None)
            self._calls.put(None)

        deadline = time.monotonic() + timeout_s
        self._waits = True
        threading.Thread(target=do, name="moldau close", daemon=True).start()
        try:
            while True:
                try:
                    asked = self._calls.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    return False
                if asked is None:
                    outcome.result()
                    return True
                call, answer = asked
                try:
                    call()
                except Exception as error:
                    answer.set_exception(error)
                else:
                    answer.set_result(None)
        finally:
            self._left = True
