"""The `moldau` console script as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from moldau.cli.application import application

MOLDAU = str(Path(sys.executable).parent / "moldau")
LIMIT_S = 60.0


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def lines(self) -> list[str]:
        """Lines of standard output."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as a JSON document per line."""
        return [json.loads(line) for line in self.lines]


class Console:
    """Commands against one broker, each within `limit_s`."""

    def __init__(self, bootstrap: str = "", *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self.environment = {**os.environ, "PYTHONWARNINGS": "error"}
        if bootstrap:
            self.environment["MOLDAU_BOOTSTRAP"] = bootstrap

    def __call__(self, *arguments: str, text: str | bytes = b"") -> Done:
        """Run a command to its end, whatever its exit code."""
        data = text.encode() if isinstance(text, str) else text
        done = subprocess.run(
            [MOLDAU, *arguments], input=data, capture_output=True, env=self.environment, timeout=self._limit_s, check=False
        )
        found = Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), done.stdout)
        assert "Traceback" not in found.err, found.err
        return found

    def ok(self, *arguments: str, text: str | bytes = b"") -> Done:
        """Run a command that has to succeed."""
        done = self(*arguments, text=text)
        assert done.code == 0, (arguments, done)
        return done

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command that goes on; its output lines can be read as they come."""
        return subprocess.Popen(
            [MOLDAU, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


class ConsoleInside(Console):
    """The same commands in this process: most of the time of a short one goes into the start of Python."""

    def __call__(self, *arguments: str, text: str | bytes = b"") -> Done:
        """Run a command to its end, whatever its exit code."""
        result = CliRunner(env=self.environment).invoke(application, arguments, input=text, prog_name="moldau")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)


def end(process: "subprocess.Popen[str]", how: signal.Signals) -> tuple[int, str, str]:
    """Send a signal and wait: exit code, the rest of standard output, standard error."""
    process.send_signal(how)
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def values(done: Done) -> Iterable[str]:
    """The values that `consume` printed, in no order."""
    return sorted(done.lines)
