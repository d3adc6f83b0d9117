"""Which clusters a batch has been in is known for every batch that a mirror wrote, in memory that does not grow with what has passed."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.merge.extents import Extents

EAST, WEST = ("east",), ("south", "west")


def test_runs_of_one_producer_with_the_same_chain_are_one_extent() -> None:
    extents = Extents()
    for at, (first, end) in enumerate([(0, 5), (6, 9), (10, 20)]):
        extents.add(1, first, end, EAST, at)
    assert len(extents) == 1
    assert extents.chain(1, 7) == EAST
    # another producer's batch at the same offset is not meant by it
    assert extents.chain(2, 7) is None


def test_another_chain_begins_another_extent() -> None:
    extents = Extents()
    extents.add(1, 0, 5, EAST, 0)
    extents.add(1, 5, 9, WEST, 0)
    assert [extents.chain(1, each) for each in (0, 4, 5, 8, 9)] == [EAST, EAST, WEST, WEST, None]


def test_a_topic_that_was_made_again_has_what_is_newer() -> None:
    extents = Extents()
    extents.add(1, 0, 100, EAST, 0)
    extents.add(1, 0, 5, WEST, 1)
    assert extents.chain(1, 3) == WEST
    assert extents.chain(1, 50) is None


def test_what_was_read_together_is_dropped_together() -> None:
    # two readings; where a process that takes over has to read from follows the position
    extents = Extents()
    extents.add(1, 0, 5, EAST, 0)
    extents.begin_round()
    extents.add(1, 6, 9, EAST, 40)
    assert [extents.read_from(each) for each in (0, 4, 5, 8, 9)] == [0, 0, 40, 40, None]
    extents.drop_before(5)
    assert len(extents) == 1
    extents.drop_before(9)
    assert len(extents) == 0


RUNS = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4), st.sampled_from([EAST, WEST]), st.booleans()), max_size=30)


@given(RUNS, st.integers(0, 60))
def test_as_if_each_offset_were_remembered(runs: list[tuple[int, int, tuple[str, ...], bool]], position: int) -> None:
    extents, model, end = Extents(), dict[tuple[int, int], tuple[str, ...]](), 0
    for at, (producer, count, chain, begins) in enumerate(runs):
        if begins:
            extents.begin_round()
        extents.add(producer, end, end + count, chain, at)
        model |= {(producer, offset): chain for offset in range(end, end + count)}
        end += count + 1  # a marker
    extents.drop_before(position)
    for (producer, offset), chain in model.items():
        if offset >= position:
            assert extents.chain(producer, offset) == chain
