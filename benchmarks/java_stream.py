"""Apache Kafka's own producer, which sends to one partition at a constant pace in a process of its own (`SteadyProducer.java`)."""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.maven import kafka_libraries
from systems import KAFKA_VERSION

SOURCE = Path(__file__).with_name("SteadyProducer.java")
END_LIMIT_S = 150.0
"""It may wait for its messages as long as they live."""
JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF")


class Report(NamedTuple):
    """What it saw since it was last asked."""

    gap_s: float
    """The longest time between two acknowledgements."""
    acknowledged: int
    failed: int


class JavaStream:
    """Sends as a context manager."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self._arguments = [bootstrap, topic, str(partition)]
        self._classes = tempfile.TemporaryDirectory(prefix="moldau-bench-")
        self._process: subprocess.Popen[str]

    def report(self) -> Report:
        """Since the last time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the Java producer has ended")
        gap_us, acknowledged, failed = map(int, line.split())
        return Report(gap_us / 1e6, acknowledged, failed)

    def __enter__(self) -> Self:
        libraries = f"{kafka_libraries(KAFKA_VERSION)}/*"
        subprocess.run(["javac", "-cp", libraries, "-d", self._classes.name, str(SOURCE)], check=True)
        command = [*JAVA, "-cp", f"{self._classes.name}:{libraries}", SOURCE.stem, *self._arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=END_LIMIT_S)
        self._classes.cleanup()
