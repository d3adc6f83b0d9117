"""A program that is started again whenever it ends, as a supervisor does."""

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

STOP_LIMIT_S = 30.0


class Program:
    """One process of it; `lines` is what it printed."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()

    def wait_for(self, word: str, limit_s: float) -> None:
        """Until it has said a line that begins so."""
        with self._said:
            assert self._said.wait_for(lambda: self.has_said(word), limit_s), "".join(self.lines)

    def has_said(self, word: str) -> bool:
        """Whether a line begins so."""
        return any(line.startswith(word) for line in self.lines)

    def send(self, number: signal.Signals) -> None:
        """A signal, SIGSTOP for example."""
        self._process.send_signal(number)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll()

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Its exit code."""
        code = self._process.wait(limit_s)
        self._reader.join(limit_s)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self.wait()


class Supervised:
    """Keeps one process of a program going; use as a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.kills = 0
        self.ends: list[str] = []
        """Of those that ended by themselves: the code and the last line."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.program = Program(command)
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while not self._stopping.wait(0.02):
            with self._lock:
                if self.program.poll() is not None:
                    self.ends.append(f"{self.program.wait()}: {''.join(self.program.lines[-1:])}")
                    self.program = Program(self.command)

    def kill(self) -> None:
        """As a crash; another one is started."""
        with self._lock:
            self.kills += 1
            self.program.kill()
            self.program = Program(self.command)

    def wait_for(self, word: str, limit_s: float) -> Program:
        """Until one has said a line that begins so, and runs: that one. It may be another one than now."""
        end = time.monotonic() + limit_s
        while True:
            program = self.program
            if program.has_said(word) and program.poll() is None:
                return program
            assert time.monotonic() < end, f"nothing begins with {word!r}: {self.ends} {program.lines}"
            time.sleep(0.02)

    def replace_by_another(self, word: str, limit_s: float) -> Program:
        """SIGSTOP for one that has said a line that begins so; another one is the supervised one from then on. The one that was stopped."""
        while True:
            program = self.wait_for(word, limit_s)
            with self._lock:
                if self.program is program and program.poll() is None:
                    program.send(signal.SIGSTOP)
                    self.program = Program(self.command)
                    return program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._keeper.join()
        self.program.kill()
