"""Members of groups in processes of their own, one kind per mainstream client: started, killed, told to leave, and listened to.

with GroupMember(COMMANDS["java"](server.bootstrap, "g", "t")) as member:
    member.wait_for(lambda: member.assigned == {0, 1, 2}, "its partitions")
    member.taken                                    # [(partition, offset, value), ...], each with its offset committed
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from support.maven import kafka_libraries
from support.npm import node_modules

HERE = Path(__file__).resolve().parent
CONFORMANCE = HERE.parent / "conformance"
LIMIT_S = 30.0
KAFKAJS = "2.2.4"
_KCAT_ASSIGNED = re.compile(r"^% Group .* rebalanced .*: (assigned|revoked)(.*)")


class Command(NamedTuple):
    """How a member is started, and what its environment has besides."""

    arguments: Sequence[str]
    environment: dict[str, str]
    leaves_by_signal: bool = False


Settings = dict[str, str]


def _pairs(settings: Settings) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def _python(client: str) -> Callable[[str, str, str, Settings], Command]:
    def command(bootstrap: str, group: str, topic: str, settings: Settings) -> Command:
        return Command([sys.executable, "-P", str(HERE / "group_member.py"), client, bootstrap, group, topic, *_pairs(settings)], {})

    return command


def _java(bootstrap: str, group: str, topic: str, settings: Settings) -> Command:
    source = CONFORMANCE / "java" / "Member.java"
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libraries('4.3.0')}/*", str(source)]
    return Command([*java, bootstrap, group, topic, *_pairs(settings)], {})


def _kafkajs(bootstrap: str, group: str, topic: str, settings: Settings) -> Command:
    arguments = ["node", str(CONFORMANCE / "javascript" / "member.js"), bootstrap, group, topic, *_pairs(settings)]
    return Command(arguments, {"NODE_PATH": str(node_modules("kafkajs", KAFKAJS)), "KAFKAJS_NO_PARTITIONER_WARNING": "1"})


def _kcat(bootstrap: str, group: str, topic: str, settings: Settings) -> Command:
    if not shutil.which("kcat"):
        assert not os.environ.get("CI"), "kcat is missing: make setup"
        pytest.skip("kcat is missing")
    wanted = {
        "auto.offset.reset": "earliest",
        "session.timeout.ms": settings["session_ms"],
        "heartbeat.interval.ms": "200",
    }
    options = [part for name, value in wanted.items() for part in ("-X", f"{name}={value}")]
    return Command(["kcat", "-b", bootstrap, *options, "-u", "-f", "took %p %o %s\n", "-G", group, topic], {}, leaves_by_signal=True)


COMMANDS: dict[str, Callable[[str, str, str, Settings], Command]] = {
    "confluent-kafka": _python("confluent-kafka"),
    "kafka-python": _python("kafka-python"),
    "aiokafka": _python("aiokafka"),
    "kcat": _kcat,
    "kafkajs": _kafkajs,
    "java": _java,
}


class GroupMember:
    """A running member."""

    def __init__(self, command: Command) -> None:
        self.assigned: set[int] = set()
        self.assignments = 0
        """How often it was told other partitions than it had."""
        self.taken: list[tuple[int, int, str]] = []
        self.output: list[str] = []
        self._leaves_by_signal = command.leaves_by_signal
        self._process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **command.environment},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def leave(self) -> None:
        """Have it leave the group, and wait until it has ended."""
        if self._leaves_by_signal:
            self._process.terminate()
        else:
            assert self._process.stdin is not None
            self._process.stdin.write("leave\n")
            self._process.stdin.flush()
        self._process.wait(LIMIT_S)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds; AssertionError with the member's words after `LIMIT_S`, or when it has ended."""
        until = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > until or self._process.poll() is not None:
                raise AssertionError(
                    f"waited in vain for {what}; the member has {sorted(self.assigned)} and said:\n" + "".join(self.output)
                )
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        self._reader.join(LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            word, *rest = line.split()
            if word == "took":
                self.taken.append((int(rest[0]), int(rest[1]), rest[2]))
            elif word == "assigned":
                self.assigned, self.assignments = {int(each) for each in rest}, self.assignments + 1
            elif found := _KCAT_ASSIGNED.match(line):
                self.assigned = {int(each) for each in re.findall(r"\[(\d+)\]", found[2])} if found[1] == "assigned" else set()
                self.assignments += 1
