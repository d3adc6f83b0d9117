"""`moldau registry` in a process of its own, to be killed and stopped."""

import os
import queue
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

START_LIMIT_S = 60.0


class RegistryProcess:
    """A registry over the cluster of `bootstrap`, on a free port."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "moldau.cli.main", "registry", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *arguments]
        self.output: list[str] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()
        while True:
            line = lines.get(timeout=START_LIMIT_S)
            if line is None:
                self.kill()
                raise AssertionError("the registry ended at its start:\n" + "".join(self.output))
            if line.startswith("listening on "):
                self.url = line.split()[2]
                return

    def _read(self, lines: "queue.Queue[str | None]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            lines.put(line)
        lines.put(None)

    def suspend(self) -> None:
        """Stop its clock: SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT."""
        os.kill(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(30)
        self._reader.join(30)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
