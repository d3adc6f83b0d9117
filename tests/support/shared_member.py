"""A process that shares a coordination tree's file: ``python -m support.shared_member FILE NAME TIMEOUT_MS``.

In each session it makes the ephemeral node ``/ids/NAME``, and reads ``/ids`` and ``/counter`` again whenever a watch says that they
changed. It writes a line for each thing that it learns: ``connected ID``, ``suspended ID``, ``expired ID``, ``ids A,B``, ``counter N``.

It reads lines: ``count N`` has it write the counter N times, one after the other; ``many N`` has it make and remove N nodes in one write,
without end; ``close`` ends it.
"""

import asyncio
import os
import sys

from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.adapters.sqlite_shared import SharedSqliteCoordination
from moldau.adapters.threads import LoopBackground
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    Children,
    Create,
    Data,
    Delete,
    GetChildren,
    GetData,
    Multi,
    Outcome,
    SessionEvent,
    SessionState,
    SetData,
    WatchEvent,
)


class Member:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, name: str, timeout_ms: int) -> None:
        self.loop = loop
        self.name = name
        self.left = 0
        self.store = SharedSqliteCoordination(path, LoopClock(loop), loop, timeout_ms)
        self.thread = LoopBackground(loop, threads_max=1)
        self.store.run_on(self.thread)
        self.store.listen(self.heard)
        loop.add_reader(sys.stdin.fileno(), self.command)

    def heard(self, event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, WatchEvent):
            self.read(event.path)
            return
        say(f"{event.state.value} {event.session_id}")
        if event.state is SessionState.CONNECTED:
            self.store.submit(Create("/ids"), ignore)
            self.store.submit(Create("/counter", b"0"), ignore)
            self.store.submit(Create(f"/ids/{self.name}", ephemeral=True), ignore)
            self.read("/ids")
            self.read("/counter")

    def read(self, path: str) -> None:
        self.store.submit((GetChildren if path == "/ids" else GetData)(path, watch=True), self.found)

    def found(self, outcome: Outcome) -> None:
        if isinstance(outcome, Children):
            say(f"ids {','.join(outcome.names)}")
        elif isinstance(outcome, Data):
            say(f"counter {outcome.data.decode()}")

    def command(self) -> None:
        verb, *arguments = sys.stdin.readline().split() or ["close"]
        if verb == "close":
            self.loop.remove_reader(sys.stdin.fileno())
            self.store.close(self.loop.stop)
        elif verb == "many":
            self.make_many(int(arguments[0]))
        else:
            self.left = int(arguments[0])
            self.count()

    def make_many(self, number: int) -> None:
        """Again and again."""
        paths = [f"/many-{self.name}-{each}" for each in range(number)]
        self.store.submit(Multi((*map(Create, paths), *map(Delete, paths))), lambda _: self.make_many(number))

    def count(self, number: int = 1) -> None:
        """Write the next number, or the same one again when it is not known whether it was written."""

        def written(outcome: Outcome) -> None:
            if isinstance(outcome, CoordinationError):
                self.count(number)
            elif number < self.left:
                self.count(number + 1)

        self.store.submit(SetData("/counter", b"%d" % number), written)


def ignore(_: Outcome) -> None:
    """What there is already need not be made."""


def say(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # the test has ended
        os._exit(1)


def main(path: str, name: str, timeout_ms: str) -> None:
    loop = new_event_loop()
    member = Member(loop, path, name, int(timeout_ms))
    loop.run_forever()
    member.thread.close()
    loop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
