"""A reader continues in the target at the record that it reads next in the source: none comes again, none is left out."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.runs import StoredRun, StoredRuns
from moldau.mirror.translation.search import Place, Search, combined
from moldau.model.identity import TopicPartition

KEY = Key("m", "east", bytes(16), 0)
ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def search(offset: int, *runs: tuple[int, int, int, int]) -> dict[TopicPartition, Place]:
    found = Search(offset)
    for each in runs:
        found.add(StoredRuns(KEY, "orders", (), (StoredRun(*each),)))
    return dict(found.found().places)


def test_within_a_run_at_a_gap_and_at_the_end() -> None:
    # offsets 10 to 14 and 20 to 24 of the source are at 100 to 104 and 107 to 111
    runs = (10, 5, 0, 100), (20, 5, 0, 107)
    assert [search(each, *runs)[ONE] for each in (0, 10, 13, 15, 19, 20)] == [
        Place(offset, is_record=True) for offset in (100, 100, 103, 107, 107, 107)
    ]
    assert search(25, *runs)[ONE] == search(99, *runs)[ONE] == Place(112, is_record=False)


def test_runs_may_come_in_any_order() -> None:
    assert search(12, (20, 5, 0, 107), (10, 5, 0, 100)) == search(12, (10, 5, 0, 100), (20, 5, 0, 107))


def test_of_several_partitions_the_first_record_that_one_has_not_read_decides() -> None:
    ended, at_90 = {ONE: Place(200, is_record=False)}, {ONE: Place(90, is_record=True), OTHER: Place(5, is_record=False)}
    assert combined([ended, at_90, {ONE: Place(120, is_record=True)}]) == {ONE: 90, OTHER: 5}
    assert combined([ended, {ONE: Place(300, is_record=False)}]) == {ONE: 300}


RECORDS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 1), st.booleans()), min_size=1, max_size=40)
"""Of each record: the gap before it in the source (compaction, markers), that in the target (markers, records of others), its partition
there, and whether a transaction begins.
"""


def transactions(records: Sequence[tuple[int, int, int, bool]]) -> tuple[list[StoredRuns], dict[int, tuple[int, int]]]:
    """The runs of a mirror, and where each offset is: partition and offset."""
    ends, offset, places = [0, 0], 0, dict[int, tuple[int, int]]()
    stored: list[list[StoredRun]] = [[]]
    for gap, target_gap, partition, begins in records:
        offset += gap
        ends[partition] += target_gap
        if begins:
            stored.append([])
        last = stored[-1][-1] if stored[-1] else None
        if last is not None and (last.end, last.partition, last.target_end) == (offset, partition, ends[partition]):
            stored[-1][-1] = last._replace(records=last.records + 1)
        else:
            stored[-1].append(StoredRun(offset, 1, partition, ends[partition]))
        places[offset] = partition, ends[partition]
        offset += 1
        ends[partition] += 1
    return [StoredRuns(KEY, "orders", (), tuple(runs)) for runs in stored], places


@given(RECORDS, st.integers(0, 200))
def test_as_a_reader_that_looks_at_every_record(records: list[tuple[int, int, int, bool]], offset: int) -> None:
    stored, places = transactions(records)
    found = Search(offset)
    for each in stored:
        found.add(each)
    for partition in (0, 1):
        mine = [(source, target) for source, (number, target) in places.items() if number == partition]
        coming = [target for source, target in mine if source >= offset]
        expected = Place(coming[0], is_record=True) if coming else Place(mine[-1][1] + 1, is_record=False) if mine else None
        assert found.found().places.get(TopicPartition("orders", partition)) == expected
