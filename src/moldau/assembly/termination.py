"""The process ends when it is asked to, also when something hangs.

A signal that comes is written to a pipe by the interpreter's own handler, which needs neither the event loop nor a running bytecode, and a
thread of this module reads it there. It notifies the loop, and should the process still run when the time is over, it says so in the log,
with the place where the loop's thread is, and ends it: exit code `FORCED_EXIT_CODE`. Then nothing is flushed or closed, so that the next
start recovers as after a crash (kill -9); what was acknowledged is where it was, in the page cache or on disk.

Should native code hold the interpreter's lock from then on, so that no thread of Python can run, `faulthandler` ends the process a little
later, with all stacks on stderr and exit code 1: its watchdog is a thread that needs no lock. Code that has held the lock since before the
signal keeps both from receiving it. Nothing here calls such code with what a peer can make large.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

_LOG = logging.getLogger(__name__)

FORCED_EXIT_CODE = 70
"""Exit code of a process that did not stop in its time (EX_SOFTWARE)."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOG_LIMIT_S = 1.0
"""How long the last line may take: the thread that hangs may hold the lock of a log handler."""
WATCHDOG_LATER_S = 2.0
_NO_MORE = b"\0"


class TerminationWatch:
    """Receives SIGTERM and SIGINT, from `start` to `close`, both called on the main thread while its loop runs."""

    def __init__(self, asked: Callable[[], object], limit_s: Callable[[], float]) -> None:
        """`asked` is called for each signal, in the thread of the watch. From the first on the process has `limit_s` to end."""
        self._asked = asked
        self._limit_s = limit_s
        self._reader, self._writer = os.pipe()
        self._ended = threading.Event()
        self._before: list[object] = []
        self._wakeup = -1
        self.asked_at: float | None = None
        """When the first signal came (`time.monotonic`)."""

    def start(self) -> None:
        """Receive signals from now on."""
        os.set_blocking(self._writer, False)
        self._before = [signal.signal(number, _noted) for number in SIGNALS]
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="moldau-termination", daemon=True).start()

    def close(self) -> None:
        """The process ends, or continues without this: no limit holds any more."""
        self._ended.set()
        faulthandler.cancel_dump_traceback_later()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.write(self._writer, _NO_MORE)

    def _listen(self) -> None:
        while (data := os.read(self._reader, 1)) != _NO_MORE:
            if data[0] not in SIGNALS:
                continue
            if self.asked_at is None:
                self.asked_at = time.monotonic()
                threading.Thread(target=self._enforce, name="moldau-termination-limit", daemon=True).start()
            self._asked()
        os.close(self._reader)
        os.close(self._writer)

    def _enforce(self) -> None:
        limit_s = self._limit_s()
        faulthandler.dump_traceback_later(limit_s + WATCHDOG_LATER_S, exit=True)
        if not self._ended.wait(limit_s):
            telling = threading.Thread(target=_tell, args=(limit_s,), daemon=True)
            telling.start()
            telling.join(LOG_LIMIT_S)
            os._exit(FORCED_EXIT_CODE)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The interpreter has written the signal's number to the pipe."""


def _tell(limit_s: float) -> None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place = "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    _LOG.error(
        "process ended by force: it did not stop within %.1f s of the signal (shutdown.timeout.ms, shutdown.forced.after.ms); "
        "the next start recovers the logs as after a crash; main thread at %s",
        limit_s,
        place,
    )
