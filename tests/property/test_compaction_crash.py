"""A crash at any step of a compaction leaves of each group of segments the old ones or the new one, whole (mission E2).

A log is compacted on the disk that forgets, again and again, and at each operation on the disk in turn, also of the start that follows, the
machine stops: what was not synced is kept, lost or garbled as the seed says. What is there afterwards must be, for each stretch of offsets
that one new segment stands for, exactly what was there before or exactly what compaction makes of it, with indexes that fit; and the next
compaction must end with what an undisturbed one ends with.
"""

import copy
import logging
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from moldau.log import names
from moldau.log.findings import Severity
from moldau.log.verify import verify
from support.compaction import CONFIG, FOLDER, CompactionWorld, KeyValue
from support.sizes import sized

SEEDS = sized(1, 40)
APART = sized(16, 1)
"""Operations between two second crashes; where they begin differs from one first crash to the next."""
SLICES = 8


class PowerCutError(BaseException):
    """The machine stops: nothing catches this, and nothing is done any more."""


def fill() -> CompactionWorld:
    """Two groups of several segments, with tombstones, an aborted transaction over both of them, and files of all kinds.

    Nothing stays of the last segment of the first group, so that only its emptied last batch tells how far the new one reaches.
    """
    world = CompactionWorld(CONFIG._replace(segment_bytes=2000, delete_retention_ms=86_400_000))
    for number in range(8):
        world.append((b"%d" % (number % 5), b"v" * 60), (b"x%d" % number if number < 2 else b"1", None))
        if number == 2:
            world.append((b"0", b"aborted"), (b"y", b"aborted"), producer=(7, 0, 0), transactional=True)
        if number == 6:
            world.append((b"y", b"aborted"), producer=(7, 0, 2), transactional=True)
        if number % 3 == 2:
            world.roll()
    world.end_transaction(7, 0, commit=False)
    world.roll()
    for number in range(12):
        world.append((b"%d" % (number % 7), b"w" * 150), compression=number % 5)
        if number % 3 == 2:
            world.roll()
    world.append((b"active", b"1"))
    world.flush()
    return world


@cache
def expected() -> tuple[dict[int, KeyValue], dict[int, KeyValue], list[tuple[int, int]], int]:
    """What is there before, what after; the stretches that became one segment each; and how many operations it takes."""
    world = fill()
    before, operations = world.content(), world.disk.operations.total()
    world.clean()
    count = world.disk.operations.total() - operations
    bases = world.bases()
    assert len(bases) == 3
    assert world.names(names.TRANSACTION_INDEX) == [f"{0:020d}.txnindex"]
    return before, world.content(), list(pairwise(bases)), count


def cut_power_at(world: CompactionWorld, step: int) -> None:
    """Have the machine stop at the operation with this number from now on."""
    left = [step]

    def count(_operation: str, _path: str) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise PowerCutError
        return False

    world.disk.fail = count


def crashed(world: CompactionWorld, seed: int) -> CompactionWorld:
    """Another world, not started yet, over what a crash leaves of the disk as it is now."""
    after = copy.copy(world)
    after.disk = copy.deepcopy(world.disk)
    after.disk.fail = None
    after.disk.crash(Random(seed))
    return after


def restarted(world: CompactionWorld, seed: int) -> None:
    world.disk.fail = None
    world.disk.crash(Random(seed))
    world.start()


def check(world: CompactionWorld) -> int:
    """Each stretch is old or new, and sound. How many are new."""
    before, after, stretches, _ = expected()
    there, new = world.content(), 0
    for first, end in stretches:
        found, old, cleaned = ({o: c for o, c in each.items() if first <= o < end} for each in (there, before, after))
        assert found in (old, cleaned), (first, end)
        new += found == cleaned
    assert {o: c for o, c in there.items() if o >= stretches[-1][1]} == {o: c for o, c in before.items() if o >= stretches[-1][1]}
    assert world.names(names.CLEANED, names.SWAP) == []
    assert [str(each) for each in verify(world.disk, FOLDER, records=True) if each.severity is not Severity.NOTE] == []
    for offset in range(0, world.log.log_end_offset, 3):
        world.log.read(offset, 100, world.log.log_end_offset, at_least_one=True)
    return new


@pytest.mark.parametrize("part", range(SLICES))
def test_at_every_step(part: int) -> None:
    logging.disable(logging.CRITICAL)
    try:
        _, after, _, count = expected()
        seen = set()
        for step in range(part, count, SLICES):
            cut = fill()
            cut_power_at(cut, step)
            with pytest.raises(PowerCutError):
                cut.clean()
            for seed in range(SEEDS):
                world = crashed(cut, 1000 * step + seed)
                world.start()
                seen.add(check(world))
                world.clean()
                assert world.content() == after
        assert seen, "some steps"
    finally:
        logging.disable(logging.NOTSET)


def test_without_a_crash_all_is_new_and_with_one_at_the_first_step_nothing_is() -> None:
    assert expected()[3] > 120
    world = fill()
    world.clean()
    assert check(world) == 2
    world = fill()
    cut_power_at(world, 0)
    with pytest.raises(PowerCutError):
        world.clean()
    restarted(world, 0)
    assert check(world) == 0


@pytest.mark.parametrize("part", range(SLICES))
def test_at_every_step_of_the_start_that_finishes_a_swap(part: int) -> None:
    """The second crash comes while the start settles what the first one has left."""
    logging.disable(logging.CRITICAL)
    try:
        _, after, _, count = expected()
        for first in range(part, count, SLICES):
            world = fill()
            cut_power_at(world, first)
            with pytest.raises(PowerCutError):
                world.clean()
            if not crashed(world, first).names(names.SWAP):
                continue
            for second in range(first // SLICES % APART, 40, APART):
                again = crashed(world, first)
                cut_power_at(again, second)
                try:
                    again.start()
                except PowerCutError:
                    restarted(again, second)
                again.disk.fail = None
                check(again)
                again.clean()
                assert again.content() == after
    finally:
        logging.disable(logging.NOTSET)
