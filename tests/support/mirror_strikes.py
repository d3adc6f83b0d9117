"""Strikes at a mirror and its clusters while records flow, and what the target has in the end.

writers ─> source ─> mirror ─> target ─> reader, which measures the stalls
             ^         ^         ^
             └─────────┴─────────┴── killed or paused, again and again
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from moldau.testing import Cluster
from support.console import ConsoleInside
from support.mirror_load import LiveReader, Writers
from support.mirror_world import LIMIT_S, PARTITIONS, MirrorWorld, Seen, committed_end

TOPIC = "orders"
APART_S = (0.2, 1.0)
"""Between two strikes."""
DOWN_S_MAX = 1.0
"""Before what was killed is started again."""
PAUSE_S_MAX = 8.0
"""Longer than a session of a broker or of a mirror's process lasts."""
MIRROR, SOURCE, TARGET = "mirror", "leader of the source", "leader of the target"


@dataclass(frozen=True)
class Strikes:
    """What a run does."""

    name: str
    rounds: tuple[tuple[str, ...], ...]
    """In turn: what is struck at the same time."""
    pauses: bool = False
    """SIGSTOP and SIGCONT instead of SIGKILL."""


ALONE = {name: ((name,),) for name in (MIRROR, SOURCE, TARGET)}
IN_TURN = Strikes("each killed in turn", tuple((name,) for name in ALONE))
ALL_STRIKES = (
    IN_TURN,
    *(Strikes(f"{name} killed", rounds) for name, rounds in ALONE.items()),
    Strikes("all three killed at once", (tuple(ALONE),)),
    *(Strikes(f"{name} paused", rounds, pauses=True) for name, rounds in ALONE.items()),
)


@dataclass(frozen=True)
class Outcome:
    """What a run has shown."""

    mode: str
    brokers: int
    """Of each cluster."""
    strikes: str
    count: int
    """Of processes that were struck."""
    records: int
    """That committed readers of the source see."""
    lost: int
    doubled: int
    misplaced: int
    """Partitions that have what they should, and not in its order."""
    stall_s: float
    """The longest time in which a reader of committed records of the target got none of a partition."""
    seed: int

    @property
    def is_exact(self) -> bool:
        """Whether the target has what the source has."""
        return not (self.lost or self.doubled or self.misplaced)

    def __str__(self) -> str:
        found = f"{self.records} records, {self.lost} lost, {self.doubled} doubled, {self.misplaced} partitions in another order"
        return f"{self.mode}, {self.brokers} brokers, {self.strikes}: {self.count} strikes, {found}, longest stall {self.stall_s:.1f} s"


class Victim(Protocol):
    """What can be struck."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> None:
        """After a kill."""

    def pause(self) -> None:
        """SIGSTOP."""

    def resume(self) -> None:
        """SIGCONT."""


class Leader:
    """The leader of one partition of a topic, drawn for each strike."""

    def __init__(self, cluster: Cluster, topic: str, drawn: Random) -> None:
        self._cluster = cluster
        self._topic = topic
        self._drawn = drawn
        self._struck = cluster.broker_ids[0]

    def kill(self) -> None:
        """See Victim."""
        self._draw()
        self._cluster.kill(self._struck)

    def start(self) -> None:
        """See Victim. Each strike finds all replicas in sync: two brokers that fail one after the other are not what is shown here."""
        self._cluster.restart(self._struck)
        self._cluster.wait_until_in_sync()

    def pause(self) -> None:
        """See Victim."""
        self._draw()
        self._cluster.pause(self._struck)

    def resume(self) -> None:
        """See Victim."""
        self._cluster.resume(self._struck)
        self._cluster.wait_until_in_sync()

    def _draw(self) -> None:
        if self._topic in self._cluster.topics():
            self._struck = self._cluster.leader_of(self._topic, self._drawn.randrange(PARTITIONS))


def run_strikes(directory: Path, mode: str, strikes: Strikes, count: int, *, brokers: int, seed: int) -> Outcome:
    """Mirror a topic that is written all the time, strike so often, and compare when all is mended and mirrored."""
    drawn = Random(seed)
    with MirrorWorld(directory, brokers) as world:
        ConsoleInside(world.source.bootstrap_servers).ok("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        target_topic = TOPIC if mode == "copy" else f"east.{TOPIC}"
        mirror = world.mirror(world.file(mode))
        victims: dict[str, Victim] = {
            MIRROR: mirror,
            SOURCE: Leader(world.source, TOPIC, drawn),
            TARGET: Leader(world.target, target_topic, drawn),
        }
        with (
            Writers(world.source.bootstrap_servers, TOPIC, seed) as writers,
            LiveReader(world.target.bootstrap_servers, target_topic) as reader,
        ):
            struck, number = 0, 0
            while struck < count:
                if number % 2:  # at any moment; but a mirror that never has time to start shows nothing
                    _wait_for_more(reader)
                number += 1
                time.sleep(drawn.uniform(*APART_S))
                names = strikes.rounds[number % len(strikes.rounds)]
                _strike([victims[name] for name in names], strikes, drawn, brokers)
                struck += len(names)
            time.sleep(APART_S[1])
            reader.stop()
        assert writers.acknowledged > 1_000, "writers that write nothing prove nothing"
        world.source.recover()
        world.target.recover()
        outcome = _judge(world, mode, strikes, struck, reader, target_topic, seed)
        assert mirror.stop() == 0, mirror.log
        return outcome


def _wait_for_more(reader: LiveReader) -> None:
    before, limit = reader.records, time.monotonic() + LIMIT_S
    while reader.records == before:
        assert time.monotonic() < limit, "nothing is mirrored"
        time.sleep(0.05)


def _strike(victims: Sequence[Victim], strikes: Strikes, drawn: Random, brokers: int) -> None:
    for each in victims:
        each.pause() if strikes.pauses else each.kill()
    if strikes.pauses:
        time.sleep(drawn.uniform(0.5, PAUSE_S_MAX))
    elif brokers > 1:
        time.sleep(drawn.uniform(0.0, DOWN_S_MAX))
    for each in victims:
        each.resume() if strikes.pauses else each.start()


def _judge(world: MirrorWorld, mode: str, strikes: Strikes, count: int, reader: LiveReader, target_topic: str, seed: int) -> Outcome:
    """The target has what committed readers of the source see, in each partition in its order; a copy at the same offsets."""

    def seen(cluster: Cluster, topic: str) -> dict[int, Seen]:
        found = committed_end(cluster.bootstrap_servers, topic)
        return found if mode == "copy" else {number: [each[1:] for each in records] for number, records in found.items()}

    expected = seen(world.source, TOPIC)
    limit = time.monotonic() + LIMIT_S
    while True:
        found = seen(world.target, target_topic)
        if found == expected or time.monotonic() > limit or any(len(found[each]) > len(expected[each]) for each in expected):
            break
        time.sleep(0.2)
    differing = [each for each in expected if found[each] != expected[each]]
    missing = [_counted(expected[each]) - _counted(found[each]) for each in differing]
    more = [_counted(found[each]) - _counted(expected[each]) for each in differing]
    misplaced = [one for one, lost, doubled in zip(differing, missing, more, strict=True) if not lost and not doubled]
    return Outcome(
        mode,
        len(world.source.broker_ids),
        strikes.name,
        count,
        sum(map(len, expected.values())),
        sum(each.total() for each in missing),
        sum(each.total() for each in more),
        len(misplaced),
        reader.stall_s,
        seed,
    )


def _counted(records: Seen) -> Counter[str]:
    """By what they are: headers are lists."""
    return Counter(map(repr, records))
