"""Two clusters and mirrors between them, as processes that can be killed; and what committed readers of a topic see in the end."""

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from moldau.adapters import guarded_child
from moldau.testing import Cluster

LIMIT_S = 90.0
STOP_LIMIT_S = 60.0
PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "replica.lag.time.max.ms": 3000}
HASTY = """
import sys
from functools import partial
from pathlib import Path
from moldau.mirror import control, process
control.REPORT_S = control.SAMPLE_S = 0.3
process.LOOK_S = 0.5
if "audit.tier" in Path(sys.argv[3]).read_text():
    from moldau.cli import audit_beside
    audit_beside.AuditorOptions = partial(audit_beside.AuditorOptions, interval_s=0.3)
from moldau.cli.main import main
sys.exit(main())
"""
Seen = list[tuple[Any, ...]]
"""Offset, key, value, timestamp and headers of records, in their order."""


def mirror_text(
    mode: str,
    source: str,
    target: str,
    *,
    name: str = "mirror",
    topics: Sequence[str] = ("orders",),
    source_name: str = "east",
    naming: str = "source.topic",
    more: str = "",
) -> str:
    """A mirror's file; `source_name` and `naming` are a merge's. `more` are lines at its end."""
    is_merge = mode == "merge"
    lines = [
        f'name = "{name}"',
        f'mode = "{mode}"',
        *([f'naming = "{naming}"'] if is_merge else []),
        f'{f"sources.{source_name}" if is_merge else "source"}.bootstrap.servers = "{source}"',
        f'target.bootstrap.servers = "{target}"',
        f"topics.include = {json.dumps(list(topics))}",
        more,
    ]
    return "\n".join(lines)


class MirrorProgram:
    """``moldau mirror run``; may be killed and started again. `hasty`: it looks and reports more often, so that a test waits less."""

    def __init__(self, file: Path, instance: str = "1", *options: str, hasty: bool = False) -> None:
        program = ["-c", HASTY] if hasty else ["-m", "moldau.cli.main"]
        self._command = [sys.executable, *program, "mirror", "run", str(file), "--instance", instance, *options]
        self._process: subprocess.Popen[str] | None = None
        self.log = file.with_name(f"{file.stem}-{instance}.log")

    def start(self) -> None:
        """Start it; it is not waited for. It ends with this process at the latest, also when that is killed."""
        guarded, guard = os.pipe()
        command = [sys.executable, "-I", "-S", guarded_child.__file__, *self._command]
        try:
            with self.log.open("a") as log:
                self._process = subprocess.Popen(command, stdin=guarded, stdout=log, stderr=log, text=True)
        finally:
            os.close(guarded)
            weakref.finalize(self, os.close, guard)

    def kill(self) -> None:
        """SIGKILL, of a process that is paused too."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_LIMIT_S)

    def pause(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send it; it is not waited for."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code, once it ends."""
        assert self._process is not None
        return self._process.wait(STOP_LIMIT_S)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None


class MirrorWorld:
    """A source and a target, each a cluster of so many brokers; and files of mirrors between them."""

    def __init__(self, directory: Path, brokers: int = 1) -> None:
        self.directory = directory
        self.source = Cluster(brokers, directory=directory / "source", settings=SETTINGS)
        self.target = Cluster(brokers, directory=directory / "target", settings=SETTINGS)
        self._mirrors: list[MirrorProgram] = []

    def __enter__(self) -> Self:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in self._mirrors:
            if each.running:
                each.kill()
        self.source.close()
        self.target.close()

    def mirror(self, file: Path, *, hasty: bool = False) -> MirrorProgram:
        """A process of the mirror with this file, which runs; it ends with the world at the latest."""
        program = MirrorProgram(file, hasty=hasty)
        program.start()
        self._mirrors.append(program)
        return program

    def file(self, mode: str, name: str = "mirror", *, is_back: bool = False, **options: Any) -> Path:
        """The file of a mirror from the source to the target, or back; `options` as for `mirror_text`."""
        source, target = (self.target, self.source) if is_back else (self.source, self.target)
        path = self.directory / f"{name}.toml"
        path.write_text(mirror_text(mode, source.bootstrap_servers, target.bootstrap_servers, name=name, **options))
        return path


def committed_end(bootstrap: str, topic: str, partitions: Sequence[int] = range(PARTITIONS)) -> dict[int, Seen]:
    """What readers of committed records see of a topic, by partition, up to where its logs end now."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1] for number in partitions}
        found: dict[int, Seen] = {number: [] for number in partitions}
        ended: set[int] = set()  # where more is written all the time, no end is reported
        while len(ended) < len(found):
            for message in consumer.consume(10_000, 0.1):
                error, number = message.error(), message.partition()
                assert number is not None, "it is about a partition"
                if error is None:
                    offset = message.offset()
                    assert offset is not None, "it has been stored"
                    if offset + 1 >= ends[number]:
                        ended.add(number)
                    if offset >= ends[number]:
                        continue
                    found[number].append((offset, message.key(), message.value(), message.timestamp()[1], message.headers()))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(number)
        return found
    finally:
        consumer.close()
