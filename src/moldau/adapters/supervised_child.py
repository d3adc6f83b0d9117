"""A child of a supervisor: a `moldau` command of this Python, with its output in a file, found to run by what it prints.

It ends with the supervisor, also when that is killed: see `guarded_child`. Its process group is its own, so that a Ctrl-C at the terminal
is the supervisor's alone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from moldau.adapters import guarded_child
from moldau.adapters.process_identity import identity_of

LAST_LINE_BYTES = 4096
_MAIN = "moldau.cli.main"


class SupervisedChild:
    """See the module. One process after the other."""

    def __init__(self, words: Sequence[str], log: str, environment: Mapping[str, str], says: str = "") -> None:
        """`words` stand after ``moldau``; a line of the output that begins with `says` tells that it has begun its work, if it is given."""
        self.log = log
        self.starts = 0
        self.serves = False
        """Whether the process has begun its work."""
        self.identity = ""
        """Of the process; empty before the first."""
        self._words, self._environment, self._says = words, environment, says
        self._printed = 0
        """Where in the log the output of this process begins, as far as it was not looked through."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; not before the last one has ended."""
        self.close()
        moldau = [sys.executable, "-P", "-m", _MAIN, *self._words]
        self._printed = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guarded_child.__file__, *moldau],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
                env=dict(self._environment),
            )
        self.identity = identity_of(self._process.pid)
        self.starts += 1
        self.serves = not self._says

    def look(self) -> bool:
        """Whether it has begun its work since the last look."""
        if self.serves:
            return False
        with open(self.log, "rb") as log:
            log.seek(self._printed)
            printed = log.read()
        whole = printed[: printed.rfind(b"\n") + 1]
        self._printed += len(whole)
        self.serves = any(line.startswith(self._says.encode()) for line in whole.splitlines())
        return self.serves

    @property
    def ended(self) -> bool:
        """Whether it has no process."""
        return self._process is None or self._process.poll() is not None

    @property
    def how(self) -> str:
        """How it has ended, and if it has failed by itself, with its last line."""
        assert self._process is not None
        code = self._process.returncode
        if code < 0:
            return f"by {signal.Signals(-code).name}"
        line = self._last_line() if code else ""
        return f"with exit code {code}: {line}" if line else f"with exit code {code}"

    @property
    def has_failed(self) -> bool:
        """Whether it has ended otherwise than by a request to stop."""
        assert self._process is not None
        return self._process.returncode != 0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; one that is paused is continued, or it would not receive it."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """After its end: nothing needs to be killed with this process any more."""
        if self._process is not None:
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _last_line(self) -> str:
        with open(self.log, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LAST_LINE_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("Error: ") if lines else ""
