"""A broker of our own beside the demonstration: started for it, and gone when it is gone, whatever ends it.

The broker's process reads a pipe that nobody writes to. When this process ends, also by ``kill -9``, the pipe's other end closes and the
broker kills itself at once. A broker that lived on would still take what the dead producer left in its socket, behind the back of the
next run.
"""

import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
_IN_USE = "in use by another"
"""What a broker says whose directory another one still has."""

_CHILD = """
import os, signal, sys, threading
def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
from moldau.cli.main import main
sys.argv[0] = "moldau"
main()
"""


class BrokerStartError(RuntimeError):
    """The broker did not come up; the message ends with what it said."""


class BrokerProcess:
    """`moldau serve` on a free port of the loopback interface, with its data in `data`; what it prints goes to `log`."""

    def __init__(self, data: Path, log: Path) -> None:
        self._data = data
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def start(self) -> Self:
        """Wait until it takes requests. A broker of a killed run, which still holds the lock for a moment, is waited for."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            start = self._log.stat().st_size if self._log.exists() else 0
            if self._try(deadline):
                return self
            said = self._log.read_bytes()[start:].decode(errors="replace")
            if _IN_USE not in said or time.monotonic() > deadline:
                raise BrokerStartError(f"the broker did not start; {self._log} ends with: {said.strip()[-600:]}")
            time.sleep(0.2)

    def _try(self, deadline: float) -> bool:
        command = [sys.executable, "-c", _CHILD, "serve", "--listen", "127.0.0.1:0", "--data", str(self._data)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self._process = process
        assert process.stdout is not None
        said = b""
        while b"listening on " not in said or not said.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(process.stdout.fileno(), 4096) if ready else b""
            if not part:
                self._kill()
                return False
            said += part
        self.bootstrap = said.partition(b"listening on ")[2].split()[0].decode()
        return True

    def stop(self) -> None:
        """Stop it in good order."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
