"""Programs in Java with other people's libraries, as tests of whole clusters run them."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from support.java import java_command
from support.supervised import Program

SOURCES = Path(__file__).parents[1] / "conformance" / "java"
_QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dlog4j2.level=ERROR")


@contextlib.contextmanager
def java_program(libraries: Path, *arguments: str, classes: Path | None = None) -> Iterator[Program]:
    """Run a main class until the end of the block. One that has ended before, but by SIGTERM, fails it, with what it printed."""
    program = Program(java_command(libraries, *_QUIET, *arguments, classes=classes))
    try:
        yield program
        assert program.poll() in (None, 128 + signal.SIGTERM), "".join(program.lines)
    except BaseException:
        print(f"{arguments[0]}:", "".join(program.lines[-200:]))
        raise
    finally:
        program.kill()
