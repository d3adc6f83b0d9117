"""A well-behaved client in a process of its own, which measures how long a server keeps it waiting while others do what they do.

with StallWatch(address) as watch:
    ...
assert watch.longest_s < 0.5
"""

import socket
import struct
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

PAUSE_S = 0.005
LIMIT_S = 120.0
_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""An ApiVersions request of version 0 with its size: the least that a broker can be asked."""


class StallWatch:
    """Asks the server for its versions without pause; `longest_s` is the longest wait for an answer, once it has been left."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._process: subprocess.Popen[str]
        self.longest_s = 0.0
        self.answers = 0

    def __enter__(self) -> Self:
        command = [sys.executable, __file__, self._address[0], str(self._address[1])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "asking\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        output, _ = self._process.communicate(timeout=LIMIT_S)
        longest, answers = output.split()
        self.longest_s = float(longest)
        self.answers = int(answers)


def _watch(address: tuple[str, int]) -> None:
    import select

    longest, answers = 0.0, 0
    with socket.create_connection(address, timeout=LIMIT_S) as connected:
        first = True
        while True:
            asked = time.monotonic()
            connected.sendall(_VERSIONS)
            (size,) = struct.unpack(">i", _read(connected, 4))
            _read(connected, size)
            if not first:
                longest = max(longest, time.monotonic() - asked)
                answers += 1
            else:
                print("asking", flush=True)
                first = False
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                break
    print(longest, answers)


def _read(connected: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connected.recv(count - len(data))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        data += piece
    return data


if __name__ == "__main__":
    _watch((sys.argv[1], int(sys.argv[2])))
