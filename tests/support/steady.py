"""A client in a process of its own that produces to a partition and fetches from it without a pause, and measures the gaps between answers.

client = SteadyClient(address, "served")
...
longest_s, answers = client.since_last()
client.close()

Calls wait for the client, so that they are not for the thread that serves it.
"""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

LIMIT_S = 60.0


class Gaps(NamedTuple):
    """What was seen in a span of time."""

    longest_s: float
    """Between two answers."""
    answers: int


class SteadyClient:
    """See the module."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.steady", address[0], str(address[1]), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def since_last(self) -> Gaps:
        """The gaps since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Gaps(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=LIMIT_S)


def _run(address: tuple[str, int], topic: str) -> None:
    from support.wire import Wire, batch, fetch, produce

    wire = Wire(address)
    wire.socket.settimeout(LIMIT_S)
    records = batch(b"value")
    longest, answers = 0.0, 0
    before = time.monotonic()
    while True:
        produced = wire.ask(produce(topic, records), 9).responses[0].partition_responses[0]
        assert produced.error_code == 0
        for request, version in ((None, 0), (fetch(topic, produced.base_offset), 11)):
            if request is not None:
                fetched = wire.ask(request, version).responses[0].partitions[0]
                assert fetched.error_code == 0
                assert fetched.records
            now = time.monotonic()
            longest, before = max(longest, now - before), now
            answers += 1
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                break
            print(json.dumps([longest, answers]), flush=True)
            longest, answers, before = 0.0, 0, time.monotonic()
    wire.close()


if __name__ == "__main__":
    _run((sys.argv[1], int(sys.argv[2])), sys.argv[3])
