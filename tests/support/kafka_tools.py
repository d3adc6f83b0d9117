"""Kafka's own console tools, all in one Java process: starting one for each call would be most of the time."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from support.java import java_command
from support.maven import kafka_libraries

SOURCE = Path(__file__).parent.parent / "conformance" / "java" / "Tools.java"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMPS = {"3.9.1": "kafka.tools.DumpLogSegments", "4.3.0": DUMP}
"""DumpLogSegments by version."""


class Printed(NamedTuple):
    """What a tool left behind."""

    code: int
    text: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line that has some."""
        return [line.split() for line in self.text.splitlines() if line.strip()]

    def table(self, first: str) -> list[dict[str, str]]:
        """The rows under a heading that begins with this word, by its columns; a column's name may not have spaces."""
        lines = [row for row in self.rows if not row[0].startswith("SLF4J")]
        heading = next(row for row in lines if row[0] == first)
        return [dict(zip(heading, row, strict=False)) for row in lines[lines.index(heading) + 1 :] if len(row) >= len(heading) - 1]


KafkaReads = Callable[..., str]
"""What DumpLogSegments prints of files, with more options; it must not complain."""


def reads_without_complaint(
    dump: Callable[..., Printed], version: str, complaints: re.Pattern[str], passed_over: re.Pattern[str]
) -> KafkaReads:
    """The `dump` of a version, which must print nothing of `complaints` once `passed_over` is taken out; that is not in the text either."""

    def read(files: list[Path], *options: str) -> str:
        done = dump(version, "--files", ",".join(map(str, files)), *options)
        assert done.code == 0, done.text[-3000:]
        text = passed_over.sub("", done.text)
        assert not [line for line in text.splitlines() if complaints.search(line)]
        return text

    return read


class KafkaTools:
    """Use as a context manager."""

    def __init__(self, version: str) -> None:
        quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dlog4j2.level=OFF"]
        java = java_command(kafka_libraries(version), *quiet, str(SOURCE), memory="128m")
        self._process = subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def __call__(self, tool: str, *arguments: str) -> Printed:
        """Run a main class to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *arguments)).encode() + b"\n")
        self._process.stdin.flush()
        code, size = map(int, self._process.stdout.readline().split())
        return Printed(code, self._process.stdout.read(size).decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
