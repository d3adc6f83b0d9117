"""A real `moldau cluster up` in processes of its own, and the commands that let its brokers fail."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from click.testing import CliRunner

from moldau.cli.application import application
from support.supervised import Program

T = TypeVar("T")
LIMIT_S = 120.0
"""For a busy machine; nothing takes that long."""
POLL_S = 0.02


class LocalCluster:
    """One cluster over one directory; `up` again after `down` or `kill_supervisor`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._options = options
        self._program: Program

    def up(self, *options: str) -> Self:
        """Start it, and wait until it says that it listens."""
        command = [sys.executable, "-m", "moldau.cli.main", "cluster", "up", "--data", str(self.directory), *self._options, *options]
        self._program = Program(command)
        self._program.wait_for("listening on ", LIMIT_S)
        return self

    @property
    def bootstrap(self) -> str:
        """All addresses, as printed."""
        (line,) = (line for line in self._program.lines if line.startswith("listening on "))
        return line.split()[2]

    @property
    def lines(self) -> list[str]:
        """What `up` has printed."""
        return self._program.lines

    def run(self, command: str, *arguments: object) -> str:
        """The output of ``moldau cluster COMMAND``, which has to succeed."""
        result = CliRunner().invoke(application, ["cluster", command, *map(str, arguments), "--data", str(self.directory)])
        assert result.exit_code == 0, result.output
        return result.output

    def kill(self, *broker_ids: int) -> None:
        """SIGKILL."""
        self.run("kill", *broker_ids)

    def pause(self, *broker_ids: int) -> None:
        """SIGSTOP."""
        self.run("pause", *broker_ids)

    def resume(self, *broker_ids: int) -> None:
        """SIGCONT."""
        self.run("resume", *broker_ids)

    def restart(self, *broker_ids: int) -> None:
        """Start them again, and wait until they take requests."""
        self.run("restart", *broker_ids, "--timeout", LIMIT_S)

    def status(self) -> dict[str, Any]:
        """What `moldau cluster status --json` prints, also where it reports that brokers or leaders are missing."""
        result = CliRunner().invoke(application, ["cluster", "status", "--json", "--data", str(self.directory)])
        document = json.loads(result.output)
        assert isinstance(document, dict)
        assert result.exit_code == (document["partitions"] is None or bool(document["offline"])), result.output
        return document

    def states(self) -> dict[int, str]:
        """State of each broker's process."""
        return {each["id"]: each["state"] for each in self.status()["brokers"]}

    def partition(self, topic: str, partition: int = 0) -> dict[str, Any] | None:
        """One partition of the status, None where that has none."""
        found = [each for each in self.status()["partitions"] or () if (each["topic"], each["partition"]) == (topic, partition)]
        return found[0] if found else None

    def wait_in_sync(self, topic: str, count: int) -> dict[str, Any]:
        """Until the topic's first partition has a leader and so many replicas in sync: that partition."""

        def in_sync() -> dict[str, Any] | None:
            found = self.partition(topic)
            return found if found is not None and found["leader"] is not None and len(found["isr"]) == count else None

        return wait_for(in_sync)

    def wait_replicas(self, topic: str, replicas: list[int]) -> None:
        """Until the topic's first partition has these replicas, in this order, all in sync."""
        wait_for(lambda: (found := self.partition(topic)) and found["replicas"] == replicas and sorted(found["isr"]) == sorted(replicas))

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL, and wait until others lead what it led."""
        self.kill(broker_id)
        wait_for(lambda: self._led_without(broker_id))

    def kill_leader(self, topic: str) -> None:
        """The same for the broker that leads the topic's first partition."""
        found = wait_for(lambda: self.partition(topic))
        self.kill_broker(found["leader"])

    def recover(self) -> None:
        """Start brokers again that are dead, and wait until all replicas are in sync."""
        if dead := [broker_id for broker_id, state in self.states().items() if state == "dead"]:
            self.restart(*dead)
        wait_for(lambda: self.status()["under_replicated"] == [])

    def _led_without(self, broker_id: int) -> bool:
        partitions = self.status()["partitions"]
        return partitions is not None and all(each["leader"] not in (None, broker_id) for each in partitions)

    def logs(self) -> str:
        """What its brokers printed, for a test that fails."""
        return "\n".join(f"== {each.name}\n{each.read_text()}" for each in sorted((self.directory / "logs").iterdir()))

    def down(self) -> int:
        """SIGTERM: its exit code."""
        self._program.terminate()
        return self._program.wait(LIMIT_S)

    def kill_supervisor(self) -> None:
        """SIGKILL for `up` itself."""
        self._program.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            sys.stderr.write(self.logs())
        if hasattr(self, "_program") and self._program.poll() is None:
            self._program.terminate()
            self._program.wait(LIMIT_S)


def wait_for(what: Callable[[], T | None]) -> T:
    """Until it returns something true: that."""
    end = time.monotonic() + LIMIT_S
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "waited in vain"
        time.sleep(POLL_S)
