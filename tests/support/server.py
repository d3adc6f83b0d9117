"""A real `moldau serve` in a process of its own, for tests that need what only a process has: a pid, a kill, a memory."""

import contextlib
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0


class ServerProcess:
    """One server over one data directory; may be stopped, killed and started again on the same port."""

    def __init__(
        self,
        data: Path,
        *,
        settings: dict[str, str] | None = None,
        arguments: Sequence[str] = (),
        open_files_max: int | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.within = within
        """A command that runs the server's, as `ip netns exec NAME` does; it is replaced by the server."""
        self.environment = environment or {}
        """Variables of the process beside those of this one."""
        self.open_files_max = open_files_max
        """RLIMIT_NOFILE of the process, soft and hard; None: as for this one."""
        self.settings = settings or {}
        self.arguments = list(arguments)
        self.bootstrap = f"{host}:0"
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it says that it listens."""
        command = [*self.within, sys.executable, "-m", "moldau.cli.main", "serve"]
        command += ["--listen", self.bootstrap, "--data", str(self.data), *self.arguments]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if self.open_files_max is not None:  # its first look at the limit is long after this: it is still being loaded
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self.open_files_max, self.open_files_max))
        lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process, lines), daemon=True)
        self._reader.start()
        while True:
            try:
                line = lines.get(timeout=START_LIMIT_S)
            except queue.Empty:
                self.kill()
                raise AssertionError("the server did not say that it listens:\n" + "".join(self.output)) from None
            if line is None:
                raise AssertionError("the server ended at its start:\n" + "".join(self.output))
            if line.startswith("listening on "):
                self.bootstrap = line.split()[2]
                return

    def _read(self, process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            lines.put(line)
        lines.put(None)

    def kill(self) -> None:
        """End it as a power cut would end the process: SIGKILL."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Stop its clock, so to say: SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        code = self._process.wait(STOP_LIMIT_S)
        if self._reader is not None:
            self._reader.join(STOP_LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def resident_bytes(self) -> int:
        """Resident memory of the process (Linux)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def peak_bytes(self, *, forget: bool = False) -> int:
        """The most resident memory that the process has had (Linux), since its start or since the last time that was forgotten."""
        if forget:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.running:
            self.stop()
