"""An operator moves a cluster to another place and back: no offset changes, and nothing acknowledged is lost but what a cut names."""

import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from moldau.testing import Cluster
from support.console import Console, ConsoleInside, Done
from support.mirror_load import Arrivals, LiveReader, Writers
from support.mirror_world import LIMIT_S, PARTITIONS, MirrorWorld, Seen, committed_end
from support.paper import wait_until

pytestmark = pytest.mark.system

BROKERS = 3
"""Of each cluster."""
SECONDS_OF_LOAD = 0.7
KILLS = 6 if os.environ.get("MOLDAU_TORTURE") else 0
"""Of brokers of the target while a promotion is under way, one in each run."""
console = ConsoleInside()


eventually = partial(wait_until, limit_s=LIMIT_S, pause_s=0.05)


def logs(cluster: Cluster) -> list[set[bytes]]:
    """By partition: what the logs of its replicas have. One, where all are the same."""
    brokers = cluster.directory / "brokers"
    folders = [[brokers / str(each) / f"orders-{number}" for each in cluster.broker_ids] for number in range(PARTITIONS)]
    return [{b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in each} for each in folders]


def log_bytes(cluster: Cluster) -> list[bytes]:
    """The same, once all replicas have it."""
    eventually(lambda: all(len(each) == 1 for each in logs(cluster)), "replicas have the same bytes")
    return [each.pop() for each in logs(cluster)]


def until_equal(world: MirrorWorld) -> None:
    eventually(lambda: log_bytes(world.source) == log_bytes(world.target), "both clusters have the same bytes")


def before(seen: dict[int, Seen], offsets: dict[int, int]) -> dict[int, Seen]:
    return {number: [each for each in records if each[0] < offsets[number]] for number, records in seen.items()}


def last(offsets: dict[int, list[int]]) -> dict[int, int]:
    return {number: each[-1] for number, each in offsets.items() if each}


def continued(offsets: list[int], cut: int) -> list[int]:
    """What a reader has read, without records that were dropped after it had read them."""
    backward = [place for place, (one, other) in enumerate(pairwise(offsets), 1) if other <= one]
    assert len(backward) <= 1
    if not backward:
        return offsets
    return [*(each for each in offsets[: backward[0]] if each < cut), *offsets[backward[0] :]]


def differing(found: dict[int, Seen], expected: dict[int, Seen]) -> dict[int, tuple[int, int, object]]:
    """By partition: how many records there are and should be, and the first that is different."""
    return {
        number: (
            len(found[number]),
            len(records),
            next((pair for pair in zip(found[number], records, strict=False) if len(set(map(repr, pair))) > 1), None),
        )
        for number, records in expected.items()
        if found[number] != records
    }


class Operator:
    """Two clusters, A (the world's source) and B, and the files of the mirrors between them."""

    def __init__(self, world: MirrorWorld) -> None:
        self.world = world
        self.a, self.b = world.source, world.target
        self.there = world.file("copy", "there")
        self.back = world.file("copy", "back", is_back=True)
        ConsoleInside(self.a.bootstrap_servers).ok("topic", "create", "orders", "--partitions", str(PARTITIONS))

    def write(self, cluster: Cluster, seed: int) -> None:
        """Some load, of which everything is acknowledged."""
        with Writers(cluster.bootstrap_servers, "orders", seed) as writers:
            time.sleep(SECONDS_OF_LOAD)
        assert writers.acknowledged > 100, "writers that write nothing prove nothing"

    @staticmethod
    def seen(cluster: Cluster) -> dict[int, Seen]:
        return committed_end(cluster.bootstrap_servers, "orders")

    @staticmethod
    def states(file: Path) -> set[str]:
        """Of the mirror's partitions."""
        return {each["state"] for each in console("mirror", "status", str(file), "--json").json["partitions"]}

    def promote_now(self, file: Path) -> list[dict[str, object]]:
        """The output of a failover."""
        found: list[dict[str, object]] = console.ok("mirror", "promote", str(file), "--now", "--json").json
        return found


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setattr("moldau.mirror.promotion.SETTLE_S", 1.0)
    with MirrorWorld(tmp_path, BROKERS) as world:
        yield Operator(world)


def test_a_planned_move_there_and_back_changes_no_offset_and_loses_nothing(operator: Operator) -> None:
    a, b = operator.a, operator.b
    there = operator.world.mirror(operator.there, hasty=True)
    operator.write(a, 1)

    # there: the producers have stopped, so that nothing is dropped and nothing is left behind
    promoted = console.ok("mirror", "promote", str(operator.there), "--json").json
    assert [(each["state"], each["dropped"], each["left_behind"]) for each in promoted] == [("promoted", None, 0)] * PARTITIONS
    assert operator.seen(b) == operator.seen(a)
    assert "all are promoted" in console.ok("mirror", "promote", str(operator.there)).err
    operator.write(b, 2)
    # the mirror that still runs notices it, though it has nothing to send
    eventually(lambda: operator.states(operator.there) == {"promoted"}, there.log)
    assert there.stop() == 0

    # the former source follows; it has lost nothing
    followed = console.ok("mirror", "fail-back", str(operator.back), "--json").json
    assert [(each["state"], each["never_mirrored"]) for each in followed] == [("follows", None)] * PARTITIONS
    back = operator.world.mirror(operator.back, hasty=True)
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
    assert operator.seen(b) == operator.seen(a)
    assert there.stop() == 0


def test_a_failover_under_load_loses_what_the_cut_names_and_fail_back_lists_the_rest(operator: Operator) -> None:
    a, b = operator.a, operator.b
    there = operator.world.mirror(operator.there, hasty=True)
    with Writers(a.bootstrap_servers, "orders", 4) as writers:
        time.sleep(SECONDS_OF_LOAD)
        open_one = Producer({"bootstrap.servers": a.bootstrap_servers, "transactional.id": "stays open", "log_level": 0})
        open_one.init_transactions(LIMIT_S)
        open_one.begin_transaction()
        open_one.produce("orders", "never committed", partition=0)
        open_one.flush(LIMIT_S)
        eventually(
            lambda: (
                "orders-0   ready" in (out := console("mirror", "promote", str(operator.there), "--now", "--dry-run").out)
                and "a transaction is open" in out.splitlines()[1]
            ),
            "the open transaction is mirrored",
        )
        refused = console("mirror", "promote", str(operator.there), "--wait", "0.1")
        assert refused.code == 1, "A is written to, and a transaction is open"
        assert "not ready" in refused.out
        a.kill(*a.broker_ids)
        promoted = operator.promote_now(operator.there)
        a.restart(*a.broker_ids)
        time.sleep(SECONDS_OF_LOAD)
    assert writers.acknowledged > 100
    cuts = {each["partition"]: each["offset"] for each in promoted}
    assert promoted[0]["dropped"] is not None, "from the open transaction on"

    # all that was acknowledged before the cuts is there, at its offsets
    a.recover()
    b.recover()
    of_a, of_b = operator.seen(a), operator.seen(b)
    assert not differing(of_b, before(of_a, cuts))  # type: ignore[arg-type]
    eventually(lambda: operator.states(operator.there) == {"promoted"}, "the mirror that still ran halts")
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
    back = operator.world.mirror(operator.back, hasty=True)
    until_equal(operator.world)
    console.ok("mirror", "promote", str(operator.back))
    assert operator.seen(a) == operator.seen(b)
    assert back.stop() == 0


def promote_with_kills(operator: Operator, file: Path, cluster: Cluster, drawn: Random) -> Done:
    """A failover, which is repeated until it succeeds; a broker of the cluster dies while it is under way."""
    if not KILLS:
        return console.ok("mirror", "promote", str(file), "--now", "--json")
    process = Console().start("mirror", "promote", str(file), "--now", "--json")
    time.sleep(drawn.uniform(10.0, 11.5))  # it waits ten seconds for logs that do not stand still
    victim = drawn.choice([cluster.controller(), cluster.leader_of("orders", drawn.randrange(PARTITIONS))])
    cluster.kill(victim)
    process.communicate(timeout=LIMIT_S)
    cluster.restart(victim)
    return console.ok("mirror", "promote", str(file), "--now", "--json")


@pytest.mark.torture
@pytest.mark.parametrize("number", range(max(KILLS, 1)))
def test_clients_move_there_and_back_while_they_write_and_read(operator: Operator, number: int) -> None:
    """Claim: while A is written to, B is promoted, and the other way round: what either has acknowledged is in the cluster that was
    promoted, or among what fail-back saves, at its offset; readers of the promoted cluster continue at the cut.
    """
    drawn = Random(number)
    a, b = operator.a, operator.b
    saved = operator.world.directory / "saved"
    for old, new, forward, backward in ((a, b, operator.there, operator.back), (b, a, operator.back, operator.there)):
        mirror = operator.world.mirror(forward)
        eventually(lambda: "orders" in new.topics(), "the mirror creates the topic")  # noqa: B023
        with LiveReader(new.bootstrap_servers, "orders") as reader:
            with (
                Writers(old.bootstrap_servers, "orders", drawn.randrange(1 << 32)) as writers,
                Arrivals(new.bootstrap_servers, "orders") as arrivals,
            ):
                time.sleep(SECONDS_OF_LOAD)
                promote_with_kills(operator, forward, new, drawn)
                eventually(lambda: arrivals.are_everywhere, "producers of the promoted cluster")
                time.sleep(SECONDS_OF_LOAD)
            assert writers.acknowledged > 100
            assert arrivals.refused, "a copy takes nothing of clients"
            assert not arrivals.failures
            new.recover()
            of_new = operator.seen(new)
            eventually(
                lambda: last(reader.offsets) == {each: records[-1][0] for each, records in of_new.items()},  # noqa: B023
                "the reader is at the end",
            )
        assert mirror.stop() == 0
        # B has what A has up to the cuts, and then its own producers' records
        of_old = operator.seen(old)
        listed = console("mirror", "fail-back", str(backward), "--dry-run", "--json").json
        cuts = {each["partition"]: each["never_mirrored"][0] for each in listed}
        assert not differing(before(of_new, cuts), before(of_old, cuts))
        for each, records in of_new.items():
            values = {record[0]: record[2] for record in records if record[0] >= cuts[each]}
            assert arrivals.stored[each].items() <= values.items()
            assert all(value.startswith(b"arrival ") for value in values.values())

        # a reader that was there has each committed record; if it had read any that the cut dropped it went back to the cut
        for each, records in of_new.items():
            assert continued(reader.offsets[each], cuts[each]) == [record[0] for record in records]

        # what A has beyond them is saved, all of it, and then A follows
        was = log_bytes(old)
        followed = console.ok("mirror", "fail-back", str(backward), "--save", str(saved), "--json").json
        kept = [Path(each["saved_in"]).read_bytes() for each in followed]
        assert [cut + lost for cut, lost in zip(log_bytes(old), kept, strict=True)] == was
