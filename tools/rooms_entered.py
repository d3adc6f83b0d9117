"""Rooms that one request enters: `python tools/rooms_entered.py [--load] [TREE]`.

A room is a package of `src/moldau`, inside `broker` and `lake` one of theirs; a module of `broker` that is in no package is a room of its
own. One request is sent to a broker on fakes (`tests/support/broker_world.py` of the tree), and each call from one room into another is
noted. Printed are, for each way, the rooms in the order in which they are first entered, with the number of calls into each, and the path:
each room with those that it called in parentheses, without the ones that are called everywhere; then the size of the tree. Types, ports
and fakes (`model`, `ports`, `testing`, `adapters`, `assembly`) are no rooms on a way.

`--load` loads a topic into a table as well, with Spark, and prints the rooms that the driver's thread enters.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

LEFT_OUT = ("model", "ports", "testing", "adapters", "assembly")
CALLED_EVERYWHERE = ("protocol", "broker.metrics", "broker.quotas", "broker.security", "broker.admission", "broker.request")
"""Rooms that are called everywhere and call nobody back; the path is drawn without them."""
WAYS: dict[str, Callable[[], Callable[[], object]]] = {}
"""Each prepares a world, and returns what sends the one request."""


def room_of(module: str) -> str | None:
    """The room of a module; None if it has none on a way."""
    first, *more = module.split(".")
    if first != "moldau" or not more or more[0] in LEFT_OUT:
        return None
    return ".".join(more[:2]) if more[0] in ("broker", "lake") else more[0]


class Node:
    """A stay in a room, with the rooms that were entered from there."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.inner: list[Node] = []

    def __str__(self) -> str:
        shown = list(dict.fromkeys(str(each) for each in self.inner if each.room not in CALLED_EVERYWHERE))
        return self.room.removeprefix("broker.") + (f"({', '.join(shown)})" if shown else "")


class Trace:
    """Calls from room to room while it is entered, of this thread."""

    def __init__(self) -> None:
        self.entered: dict[str, int] = {}
        self.modules: set[str] = set()
        self.top = Node("")
        self._stack: list[Node] = [self.top]

    def __enter__(self) -> "Trace":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            here, module = self._stack[-1], frame.f_globals.get("__name__", "")
            room = room_of(module)
            if room is not None:
                self.modules.add(module)
                if here.room != room:
                    self.entered[room] = self.entered.get(room, 0) + 1
                    here.inner.append(entered := Node(room))
                    here = entered
            self._stack.append(here)
        elif event == "return" and len(self._stack) > 1:
            self._stack.pop()


def way(make: Callable[[], Callable[[], object]]) -> Callable[[], Callable[[], object]]:
    """One of `WAYS`."""
    WAYS[make.__name__.replace("_", " ")] = make
    return make


def _world(**settings: Any) -> Any:
    from support.broker_world import BrokerWorld

    world = BrokerWorld(**settings)
    world.create_topic("t")
    return world


def _sends(world: Any, client: Any, request: Any, version: int) -> Callable[[], object]:
    """What sends a request and lets the loop turn."""
    frame = client.frame(request, version)

    def send() -> None:
        client.peer.send(frame)
        world.clock.settle()

    return send


def _produced(before: int) -> Callable[[], object]:
    """Sends a Produce request after so many like it on its connection."""
    from support.broker_world import batch, produce_request

    world = _world()
    world.connect().produce("t", b"x", acks=-1)
    client = world.connect()
    for _ in range(before):
        client.produce("t", b"x", acks=-1)
    return _sends(world, client, produce_request("t", batch(world, b"x"), acks=-1), 9)


@way
def produce() -> Callable[[], object]:
    """The general way: the first request of a connection."""
    return _produced(0)


@way
def produce_shortest() -> Callable[[], object]:
    """A request like the one before."""
    return _produced(2)


@way
def fetch() -> Callable[[], object]:
    """A fetch that finds enough, like the one before."""
    from support.broker_world import fetch_request

    world = _world()
    client = world.connect()
    client.produce("t", b"x")
    client.fetch("t", 0)
    return _sends(world, client, fetch_request("t", 0), 12)


@way
def join_group() -> Callable[[], object]:
    """The first member of a group, whose rebalance waits for no others."""
    from moldau.protocol.api_keys import ApiKey
    from moldau.protocol.messages import load as message

    kind = message(ApiKey.JOIN_GROUP).request
    wanted = [sys.modules[kind.__module__].JoinGroupRequestProtocol("range", b"")]
    world = _world(group_initial_rebalance_delay_ms=0)
    client = world.connect()

    def join(group: str, member_id: str = "") -> Any:
        return kind(group, 6000, 6000, member_id, None, "consumer", wanted)

    client.ask(join("g", client.ask(join("g"), 5).member_id), 5)
    return _sends(world, client, join("h", client.ask(join("h"), 5).member_id), 5)


def load(directory: Path) -> Trace:
    """One load of a topic into a table. Spark's own threads and processes are not seen."""
    from moldau.lake.loading.load import load as run
    from moldau.testing.broker import Broker
    from support.load_world import LoadWorld
    from support.spark import spark_session

    spark = spark_session()
    with Broker(registry=True) as broker:
        world = LoadWorld(broker, directory)
        world.publish(20)
        with Trace() as trace:
            run(spark, world.job)
    return trace


def size_of(source: Path) -> str:
    """Modules of a tree, and the longest."""
    lengths = {path: len(path.read_text().splitlines()) for path in source.rglob("*.py")}
    longest = max(lengths, key=lengths.__getitem__)
    return f"modules: {len(lengths)}; longest: {longest.relative_to(source)} with {lengths[longest]} lines"


def report(name: str, trace: Trace) -> str:
    """One way for a person."""
    rooms = ", ".join(f"{room} {count}" for room, count in trace.entered.items())
    path = max(map(str, trace.top.inner), key=len)
    return f"{name}: {len(trace.entered)} rooms, {len(trace.modules)} modules: {rooms}\n  {path}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Rooms that one request enters.")
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--load", action="store_true")
    arguments = parser.parse_args()
    sys.path[:0] = [str(arguments.tree / "src"), str(arguments.tree / "tests")]
    for name, make in WAYS.items():
        request = make()
        with Trace() as trace:
            request()
        print(report(name, trace))
    if arguments.load:
        with tempfile.TemporaryDirectory() as directory:
            print(report("load", load(Path(directory))))
    print(size_of(arguments.tree / "src" / "moldau"))


if __name__ == "__main__":
    main()
