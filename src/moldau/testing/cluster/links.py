"""The connections between the processes of a cluster, which can be cut and slowed: `forwarder` does it, in a process of its own."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moldau.testing.cluster import forwarder
from moldau.testing.cluster.forwarder import Pair

HOST = "127.0.0.1"
BACKLOG = 512


class Target(NamedTuple):
    """Where connections lead to. `opener` opens them; empty: brokers, of which each says who it is."""

    name: str
    host: str
    port: int
    opener: str = ""


class Links:
    """Use `start` first and `close` last."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes]
        self._cut: dict[Pair, None] = {}
        self._slow: dict[Pair, tuple[float, float]] = {}

    def start(self, targets: Mapping[str, Target]) -> dict[str, int]:
        """Begin to forward: by the keys of `targets`, the port by which each is reached. OSError."""
        listening = {key: socket.create_server((HOST, 0), backlog=BACKLOG) for key in targets}
        try:
            command = [sys.executable, "-I", "-S", forwarder.__file__]
            numbers = [each.fileno() for each in listening.values()]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=numbers, process_group=0
            )
            self._say({"routes": [[number, *target] for number, target in zip(numbers, targets.values(), strict=True)]})
            return {key: each.getsockname()[1] for key, each in listening.items()}
        finally:
            for each in listening.values():
                each.close()

    def cut(self, pairs: Sequence[Pair]) -> None:
        """Hold back what the first of each pair sends to the second, beside what is held back already."""
        self._cut |= dict.fromkeys(pairs)
        self._tell()

    def slow(self, pairs: Sequence[Pair], delay_s: float, bytes_per_s: float) -> None:
        """Delay it, and limit it unless `bytes_per_s` is 0."""
        self._slow |= dict.fromkeys(pairs, (delay_s, bytes_per_s))
        self._tell()

    def heal(self) -> None:
        """Forward everything, at once, with all that was held back."""
        self._cut, self._slow = {}, {}
        self._tell()

    def close(self) -> None:
        """End all connections."""
        if hasattr(self, "_process"):
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()

    def _tell(self) -> None:
        self._say({"cut": list(self._cut), "slow": [[*pair, *pace] for pair, pace in self._slow.items()]})

    def _say(self, document: Any) -> None:
        """Send a line, and wait until it has effect."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")
        if self._process.stdout.readline() != b"ok\n":
            raise RuntimeError("the process that forwards connections has ended")
