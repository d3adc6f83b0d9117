"""Memory that was freed is returned to the system when much of it is kept, and never at the price of a long pause."""

import subprocess
import sys

import pytest

from moldau.assembly.interpreter import FREED, GROWTH, LONGEST_S, RESIDENT_MIN, TRIM_LOOK_S, USED_LOOKS, Heap, HeapTrimmer, glibc_heap
from moldau.testing.clock import FakeClock

KEEPS_PARTS = """
from moldau.assembly.interpreter import glibc_heap, resident_bytes
heap = glibc_heap()
if heap is None:
    print("none none")
else:
    kept = [bytes(2000) for _ in range(50_000)]
    used = heap.used_bytes()
    kept = kept[::10]
    before = resident_bytes()
    heap.trim()
    print(before - resident_bytes(), used - heap.used_bytes())
"""

FREES_LARGE_BLOCKS = """
from moldau.assembly.interpreter import resident_bytes, use_one_heap
use_one_heap()
del [bytearray(30_000_000)][:]
kept = [bytearray(b"x") * 3_000_000 for _ in range(60)]
before = resident_bytes()
kept = kept[::2]
print(before - resident_bytes())
"""


class World:
    """A process whose heaps hold `used` bytes, and `freed` beside them until they are trimmed. It is its own heap."""

    def __init__(self, *, takes_s: float = 0.001, has_heap: bool = True) -> None:
        self.clock = FakeClock()
        self.used = 0
        self.freed = 0
        self.trims = 0
        self._takes_s = takes_s
        self._has_heap = has_heap
        self.told_large = 0
        self.trimmer = HeapTrimmer(self.clock, lambda: self.used + self.freed, self._find, self.clock.monotonic, self._large)

    def _large(self) -> None:
        assert not self.trims
        self.told_large += 1

    def _find(self) -> Heap | None:
        return self if self._has_heap else None

    def trim(self) -> None:
        self.trims += 1
        self.freed = 0
        self.clock.advance_within(self._takes_s)

    def used_bytes(self) -> int:
        return self.used

    def look(self) -> None:
        self.clock.advance(TRIM_LOOK_S)


def test_a_small_process_is_left_alone() -> None:
    world = World()
    world.freed = RESIDENT_MIN - 1
    world.look()
    assert (world.trims, world.told_large) == (0, 0)


def test_what_was_freed_is_returned_and_again_only_after_growth() -> None:
    world = World()
    world.used, world.freed = RESIDENT_MIN, 50 << 20
    world.look()
    assert (world.trims, world.freed) == (1, 0)
    world.freed = GROWTH - 1
    world.look()
    assert world.trims == 1
    world.freed = GROWTH
    world.look()
    assert (world.trims, world.freed) == (2, 0)
    assert world.told_large == 1


def test_what_was_freed_is_returned_without_growth_once_it_is_much() -> None:
    """Such memory would come on top of the next large blocks, which are no part of the heap."""
    world = World()
    world.used = RESIDENT_MIN + FREED
    world.look()
    for freed, trims in ((FREED - 1, 1), (FREED, 2)):
        world.used, world.freed = RESIDENT_MIN + FREED - freed, freed
        for _ in range(USED_LOOKS):
            world.look()
        assert world.trims == trims
    for _ in range(USED_LOOKS):
        world.look()
    assert (world.trims, world.freed) == (2, 0)


def test_a_call_that_took_longer_than_a_request_may_is_the_last() -> None:
    world = World(takes_s=2 * LONGEST_S)
    for _ in range(3):
        world.used += RESIDENT_MIN
        world.look()
    assert world.trims == 1


@pytest.mark.parametrize("ends", ["closed", "no glibc"])
def test_nothing_is_done_after_the_end_or_without_glibc(ends: str) -> None:
    world = World(has_heap=ends == "closed")
    if ends == "closed":
        world.trimmer.close()
    world.used = 2 * RESIDENT_MIN
    world.look()
    world.look()
    assert world.trims == 0
    assert not world.clock.pending


def test_the_real_call_returns_pages_between_others_that_are_used() -> None:
    """Nine of ten objects of 2,000 bytes are freed: the heap says so, and more than half of their bytes leave the process."""
    returned, freed = subprocess.run([sys.executable, "-c", KEEPS_PARTS], capture_output=True, text=True, check=True).stdout.split()
    if returned == "none":
        pytest.skip("no glibc here")
    assert int(returned) > 45_000 * 2000 // 2
    assert int(freed) >= 45_000 * 2000


def test_with_one_heap_large_blocks_leave_the_process_when_they_are_freed() -> None:
    """Every second of 60 blocks of 3 MB is freed; without this they lie in the heap from when a larger one was freed, and stay."""
    if glibc_heap() is None:
        pytest.skip("no glibc here")
    found = subprocess.run([sys.executable, "-c", FREES_LARGE_BLOCKS], capture_output=True, text=True, check=True).stdout
    assert int(found) > 80_000_000
