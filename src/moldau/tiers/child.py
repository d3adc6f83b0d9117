"""One child of the supervisor: started, found to run by what it prints, and started again after a pause when it has ended."""

import os
import signal
import subprocess
import sys

from moldau.adapters import guarded_child
from moldau.adapters.process_identity import identity_of
from moldau.model.config.static import ENVIRONMENT_PREFIX
from moldau.tiers.processes import PlannedProcess
from moldau.tiers.state import TierProcess, log_of

LAST_LINE_BYTES = 4096
_MAIN = "moldau.cli.main"


class Child:
    """See the module. It ends with the supervisor, also when that is killed: see `guarded_child`. Its process group is its own, so that a
    Ctrl-C at the terminal is the supervisor's alone.
    """

    def __init__(self, planned: PlannedProcess, directory: str) -> None:
        self.planned = planned
        self.log = log_of(directory, planned.name)
        self.starts = 0
        self.serves = False
        """Whether the process has begun its work."""
        self._printed = 0
        """Where in the log the output of this process begins, as far as it was not looked through."""
        self._process: subprocess.Popen[bytes] | None = None
        self._identity = ""

    def start(self) -> None:
        """Start it; not before the last one has ended."""
        self.close()
        moldau = [sys.executable, "-P", "-m", _MAIN, *self.planned.words]
        self._printed = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guarded_child.__file__, *moldau],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
                env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)},
            )
        self._identity = identity_of(self._process.pid)
        self.starts += 1
        self.serves = not self.planned.says

    def look(self) -> bool:
        """Whether it has begun its work since the last look."""
        if self.serves:
            return False
        with open(self.log, "rb") as log:
            log.seek(self._printed)
            printed = log.read()
        whole = printed[: printed.rfind(b"\n") + 1]
        self._printed += len(whole)
        self.serves = any(line.startswith(self.planned.says.encode()) for line in whole.splitlines())
        return self.serves

    @property
    def ended(self) -> bool:
        """Whether it has no process."""
        return self._process is None or self._process.poll() is not None

    @property
    def state(self) -> TierProcess:
        """For the file."""
        planned = self.planned
        return TierProcess(planned.kind.value, planned.name, planned.address, self._identity, max(0, self.starts - 1), self.serves)

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
