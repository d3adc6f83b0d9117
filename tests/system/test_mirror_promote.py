"""An operator moves a cluster to another place and back: no offset changes, and nothing acknowledged is lost but what a cut names."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.console import ConsoleInside
from support.mirror_world import LIMIT_S, PARTITIONS, MirrorProgram, MirrorWorld, Seen, Writers, committed_end
from support.server import ServerProcess

pytestmark = pytest.mark.system

SECONDS_OF_LOAD = 0.7
COPY = """
name = "{name}"
mode = "copy"

[source]
bootstrap.servers = "{source}"

[target]
bootstrap.servers = "{target}"

[topics]
include = ["orders"]
"""
console = ConsoleInside()


def log_bytes(server: ServerProcess) -> list[bytes]:
    """All that the logs of the topic have, by partition."""
    folders = [server.data / f"orders-{number}" for number in range(PARTITIONS)]
    return [b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders]


def until_equal(world: MirrorWorld) -> None:
    limit = time.monotonic() + LIMIT_S
    while log_bytes(world.source) != log_bytes(world.target):
        assert time.monotonic() < limit, [[len(each) for each in log_bytes(server)] for server in (world.source, world.target)]
        time.sleep(0.1)


def before(seen: dict[int, Seen], offsets: dict[int, int]) -> dict[int, Seen]:
    return {number: [each for each in records if each[0] < offsets[number]] for number, records in seen.items()}


class Operator:
    """Two clusters, A (the world's source) and B, and the files of the mirrors between them."""

    def __init__(self, world: MirrorWorld) -> None:
        self.world = world
        self.there = self._file("there", world.source, world.target)
        self.back = self._file("back", world.target, world.source)
        ConsoleInside(world.source.bootstrap).ok("topic", "create", "orders", "--partitions", str(PARTITIONS))

    def _file(self, name: str, source: ServerProcess, target: ServerProcess) -> Path:
        path = self.world.directory / f"{name}.toml"
        path.write_text(COPY.format(name=name, source=source.bootstrap, target=target.bootstrap))
        return path

    def write(self, server: ServerProcess, seed: int) -> None:
        """Some load, of which everything is acknowledged."""
        with Writers(server.bootstrap, "orders", seed) as writers:
            time.sleep(SECONDS_OF_LOAD)
        assert writers.acknowledged > 100, "writers that write nothing prove nothing"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with MirrorWorld(tmp_path) as world:
        yield Operator(world)


def test_a_planned_move_there_and_back_changes_no_offset_and_loses_nothing(operator: Operator) -> None:
    a, b = operator.world.source, operator.world.target
    there, back = MirrorProgram(operator.there), MirrorProgram(operator.back)
    there.start()
    operator.write(a, 1)

    # there: the producers have stopped, so that nothing is dropped and nothing is left behind
    promoted = console.ok("mirror", "promote", str(operator.there), "--json").json
    assert [(each["state"], each["dropped"], each["left_behind"]) for each in promoted] == [("promoted", None, 0)] * PARTITIONS
    assert committed_end(b.bootstrap, "orders") == committed_end(a.bootstrap, "orders")
    assert "all are promoted" in console.ok("mirror", "promote", str(operator.there)).err
    operator.write(b, 2)
    assert there.stop() == 0

    # the former source follows; it has lost nothing
    followed = console.ok("mirror", "fail-back", str(operator.back), "--json").json
    assert [(each["state"], each["never_mirrored"]) for each in followed] == [("follows", None)] * PARTITIONS
    back.start()
    until_equal(operator.world)
    assert console.ok("mirror", "fail-back", str(operator.back), "--json").json[0]["state"] == "follows", "it may be repeated"

    # the file of the other direction would have the promoted cluster follow: refused
    wrong = console("mirror", "fail-back", str(operator.there), "--discard")
    assert wrong.code == 1
    assert "wrong way round" in wrong.err

    # and back
    promoted = console.ok("mirror", "promote", str(operator.back), "--json").json
    assert [(each["state"], each["dropped"], each["left_behind"]) for each in promoted] == [("promoted", None, 0)] * PARTITIONS
    assert back.stop() == 0
    operator.write(a, 3)
    console.ok("mirror", "fail-back", str(operator.there))
    there.start()
    until_equal(operator.world)
    assert committed_end(b.bootstrap, "orders") == committed_end(a.bootstrap, "orders")
    assert there.stop() == 0


def test_a_failover_under_load_loses_what_the_cut_names_and_fail_back_lists_the_rest(operator: Operator) -> None:
    a, b = operator.world.source, operator.world.target
    there, back = MirrorProgram(operator.there), MirrorProgram(operator.back)
    there.start()
    with Writers(a.bootstrap, "orders", 4) as writers:
        time.sleep(SECONDS_OF_LOAD)
        open_one = Producer({"bootstrap.servers": a.bootstrap, "transactional.id": "stays open", "log_level": 0})
        open_one.init_transactions(LIMIT_S)
        open_one.begin_transaction()
        open_one.produce("orders", "never committed", partition=0)
        open_one.flush(LIMIT_S)
        time.sleep(SECONDS_OF_LOAD)
        refused = console("mirror", "promote", str(operator.there), "--wait", "0.1")
        assert refused.code == 1, "a transaction is open"
        assert "a transaction is open" in refused.out
        a.kill()
        promoted = console.ok("mirror", "promote", str(operator.there), "--now", "--json").json
        a.start()
        time.sleep(SECONDS_OF_LOAD)
    assert writers.acknowledged > 100
    cuts = {each["partition"]: each["offset"] for each in promoted}
    assert promoted[0]["dropped"] is not None, "from the open transaction on"

    # all that was acknowledged before the cuts is there, at its offsets
    of_a = committed_end(a.bootstrap, "orders")
    assert committed_end(b.bootstrap, "orders") == before(of_a, cuts)
    assert "partition halts: promoted" in there.log.read_text(), "of the mirror that still ran"
    operator.write(b, 5)
    assert there.stop() == 0

    # what was never mirrored is listed, and cut only when that is asked for
    was = log_bytes(a)
    listed = console("mirror", "fail-back", str(operator.back), "--json")
    assert listed.code == 1
    assert [each["never_mirrored"][0] for each in listed.json] == list(cuts.values())
    assert log_bytes(a) == was
    saved = operator.world.directory / "saved"
    followed = console.ok("mirror", "fail-back", str(operator.back), "--save", str(saved), "--json").json
    assert [each["never_mirrored"] for each in followed] == [each["never_mirrored"] for each in listed.json]
    kept = [Path(each["saved_in"]).read_bytes() for each in followed]
    assert [cut + lost for cut, lost in zip(log_bytes(a), kept, strict=True)] == was
    assert "never committed" in console.ok("log", "dump", followed[0]["saved_in"], "--records").out

    # then both are the same, and the former source can be promoted
    back.start()
    until_equal(operator.world)
    console.ok("mirror", "promote", str(operator.back))
    assert committed_end(a.bootstrap, "orders") == committed_end(b.bootstrap, "orders")
    assert back.stop() == 0
