"""The Java client's transactional producer behind the names of confluent-kafka's: it speaks the transactions of KIP-890 (version 2)."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from support.java import compile_java, java_command
from support.maven import kafka_libraries

SOURCE = Path(__file__).parent.parent.parent / "conformance" / "java" / "Transactional.java"
Delivered = Callable[[KafkaError | None, Any], None]


class JavaProducers:
    """A Java process with producers in it, one command at a time."""

    def __init__(self, bootstrap: str, classes: Path) -> None:
        libraries = kafka_libraries("4.3.0")
        compile_java(libraries, classes, SOURCE)
        quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dlog4j2.level=OFF"]
        java = java_command(libraries, *quiet, "Transactional", bootstrap, classes=classes, memory="128m")
        self._process = subprocess.Popen(
            java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )

    def do(self, *words: object) -> list[str]:
        """Say a command; the lines of its answer, the last is the outcome."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        lines: list[str] = []
        while not lines or lines[-1].startswith(("delivered ", "undelivered ")):
            line = self._process.stdout.readline()
            assert line, "the Java process has ended"
            lines.append(line.rstrip("\n"))
        return lines

    def close(self) -> None:
        """End the process with all its producers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class JavaProducer:
    """One of them, for as much as the workload uses of a producer."""

    def __init__(self, java: JavaProducers, name: str, transactional_id: str, timeout_ms: int) -> None:
        self._java = java
        self._name = name
        self._waiting: dict[str, Delivered] = {}
        self._do("open", transactional_id, timeout_ms)

    def init_transactions(self, timeout: float = 0) -> None:
        """As confluent-kafka's; the time is the client's own."""
        self._do("init")

    def begin_transaction(self) -> None:
        """As confluent-kafka's."""
        self._do("begin")

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Delivered) -> None:
        """As confluent-kafka's; the report comes with a later call."""
        text = value.decode()
        self._waiting[text] = on_delivery
        self._do("send", topic, partition, text)

    def poll(self, timeout: float = 0) -> None:
        """Reports come with the other calls."""

    def commit_transaction(self, timeout: float = 0) -> None:
        """As confluent-kafka's."""
        self._do("commit")

    def abort_transaction(self, timeout: float = 0) -> None:
        """As confluent-kafka's."""
        self._do("abort")

    def close(self) -> None:
        """Give it up without a word."""
        self._do("close")

    def _do(self, word: str, *arguments: object) -> None:
        *reports, outcome = self._java.do(word, self._name, *arguments)
        for report in reports:
            how, text, *offset = report.split()
            delivered = self._waiting.pop(text)
            if how == "delivered":
                delivered(None, _Delivery(int(offset[0])))
            else:
                delivered(KafkaError(KafkaError._FAIL), None)
        kind, _, reason = outcome.partition(" ")
        if kind != "ok":
            code = KafkaError._TIMED_OUT if kind == "again" else KafkaError._FAIL
            raise KafkaException(
                KafkaError(code, reason, fatal=kind == "fatal", retriable=kind == "again", txn_requires_abort=kind == "abort")
            )


class _Delivery:
    """What a delivery report looks at."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset
