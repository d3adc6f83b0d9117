"""The load ends when all that the local clusters have is where it reads, or when nothing more arrives: the audit finds what is missing."""

from moldau.demo.arrival import STANDSTILL_S, Arrival


class World:
    """How much is where, and what time it is."""

    def __init__(self) -> None:
        self.published, self.arrived, self.now = 100, 0, 0.0
        self.asked = 0
        self.arrival = Arrival(self.count_published, lambda: self.arrived, lambda: self.now)

    def count_published(self) -> int:
        self.asked += 1
        return self.published

    def complete(self, arrived: int, now: float) -> bool:
        self.arrived, self.now = arrived, now
        return self.arrival.complete()


def test_all_has_arrived_when_as_much_is_there_as_was_published() -> None:
    """More too: a record that a mirror wrote twice is for the audit to find."""
    assert [World().complete(arrived, 0.0) for arrived in (0, 99, 100, 101)] == [False, False, True, True]


def test_what_was_published_is_counted_once() -> None:
    """All hosts have ended when this is asked first: the clusters need not be asked again and again."""
    world = World()
    assert [world.complete(arrived, float(arrived)) for arrived in (10, 20, 100)] == [False, False, True]
    assert world.asked == 1


def test_a_standstill_ends_the_wait() -> None:
    """Claim: so long after the last event, and not so long after the hosts ended; each event begins the time again."""
    world = World()
    assert not world.complete(50, 1_000.0)
    assert not world.complete(50, 1_000.0 + STANDSTILL_S - 0.1)
    assert not world.complete(51, 1_000.0 + STANDSTILL_S)
    assert not world.complete(51, 1_000.0 + 2 * STANDSTILL_S - 0.1)
    assert world.complete(51, 1_000.0 + 2 * STANDSTILL_S)


def test_nothing_published_is_complete() -> None:
    world = World()
    world.published = 0
    assert world.complete(0, 0.0)
