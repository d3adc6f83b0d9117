"""The index of runs answers as a look at every run does, whatever it has dropped: or it does not answer."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.following.run_index import RunIndex
from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.runs import StoredRun, StoredRuns
from moldau.mirror.translation.search import Found, Place, Search
from moldau.model.identity import TopicPartition

KEY, BUSY = Key("m", "east", bytes(16), 0), Key("m", "east", bytes(16), 1)
ORDERS = TopicPartition("orders", 0)


def stored(*runs: tuple[int, int, int, int], key: Key = KEY, origins: tuple[str, ...] = ()) -> StoredRuns:
    return StoredRuns(key, "orders", origins, tuple(StoredRun(*run) for run in runs))


def place(index: RunIndex, offset: int) -> Place | None:
    found = index.find(KEY, offset)
    return None if found is None else found.places.get(ORDERS)


def test_runs_of_one_transaction_with_several_origins_are_put_in_order() -> None:
    """Claim: records that were in another cluster before are between those that were not, in a record of their own."""
    index = RunIndex(is_whole=True)
    index.add([stored((0, 5, 0, 100), (10, 5, 0, 110)), stored((5, 5, 0, 105), origins=("west",))])
    assert [place(index, each) for each in (4, 7, 12, 15)] == [
        Place(104, is_record=True),
        Place(107, is_record=True),
        Place(112, is_record=True),
        Place(115, is_record=False),
    ]
    assert len(index) == 1, "runs that follow each other in both are one"


def test_after_a_truncation_of_the_source_the_newer_records_count() -> None:
    index = RunIndex(is_whole=True)
    index.add([stored((0, 100, 0, 0))])
    index.add([stored((100, 50, 0, 101))])
    index.add([stored((90, 20, 0, 152))])
    assert [place(index, each) for each in (89, 90, 109, 110)] == [
        Place(89, is_record=True),
        Place(152, is_record=True),
        Place(171, is_record=True),
        Place(172, is_record=False),
    ]


def test_without_a_run_it_answers_only_where_none_can_be_missing() -> None:
    assert RunIndex(is_whole=True).find(KEY, 5) == Found(-1, {})
    assert RunIndex(is_whole=False).find(KEY, 5) is None


def test_the_partition_with_the_most_runs_loses_the_older_ones() -> None:
    index = RunIndex(10, is_whole=True)
    index.add([stored((5, 1, 0, 50))])
    for each in range(100):
        index.add([stored((each * 2, 1, 0, each * 3), key=BUSY)])
        assert len(index) <= 10
    assert place(index, 0) == Place(50, is_record=True), "the other one keeps its run"
    assert index.find(BUSY, 10) is None
    assert index.find(BUSY, 198) == Found(0, {ORDERS: Place(297, is_record=True)})


RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
"""Of each run: the gap before it in the source, how many records, their partition in the target, the gap before them there."""


def transactions(runs: Sequence[tuple[int, int, int, int]]) -> list[StoredRuns]:
    source, ends, found = 0, [0, 0, 0], list[StoredRuns]()
    for gap, records, partition, target_gap in runs:
        source += gap
        ends[partition] += target_gap
        found.append(stored((source, records, partition, ends[partition])))
        source += records
        ends[partition] += records
    return found


@given(RUNS, st.integers(0, 250), st.integers(1, 50), st.integers(0, 40))
def test_as_a_search_of_every_run(runs: list[tuple[int, int, int, int]], offset: int, runs_max: int, skipped: int) -> None:
    written = transactions(runs)
    index, search = RunIndex(runs_max, is_whole=skipped == 0), Search(offset)
    for number, each in enumerate(written):
        search.add(each)
        if number >= skipped:
            index.add([each])
    found = index.find(KEY, offset)
    if found is None:
        assert skipped or runs_max < len(written), "all runs are in memory"
        return
    # where runs were not read at all, partitions may be missing that only these went to
    assert {target: where for target, where in search.found().places.items() if not skipped or target in found.places} == found.places
