"""Programs in Java with other people's libraries, as tests of whole clusters run them."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.supervised import Program

SOURCES = Path(__file__).parents[1] / "conformance" / "java"
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dlog4j2.level=ERROR",
)


def compile_java(libraries: Path, classes: Path, *sources: str) -> str:
    """Compile some of ours: the class path of the programs."""
    subprocess.run(
        [
            "javac",
            "-J-XX:+UseSerialGC",
            "-J-XX:TieredStopAtLevel=1",
            "-cp",
            f"{libraries}/*",
            "-d",
            str(classes),
            *(str(SOURCES / f"{each}.java") for each in sources),
        ],
        check=True,
    )
    return f"{classes}:{libraries}/*"


@contextlib.contextmanager
def java_program(class_path: str, *arguments: str) -> Iterator[Program]:
    """Run a main class until the end of the block. One that has ended before, but by SIGTERM, fails it, with what it printed."""
    program = Program(["java", *_OPTIONS, "-cp", class_path, *arguments])
    try:
        yield program
        assert program.poll() in (None, 128 + signal.SIGTERM), "".join(program.lines)
    except BaseException:
        print(f"{arguments[0]}:", "".join(program.lines[-200:]))
        raise
    finally:
        program.kill()
