"""Where each leader epoch begins and ends, as followers and consumers ask for it (KIP-101)."""

import pytest

from moldau.log.damage import DamagedFileError
from moldau.log.leader_epochs import LeaderEpochs, decode_leader_epochs

ENTRIES = [(0, 0), (2, 10), (5, 20)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 20)), (4, (2, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_begins_and_the_newest_with_the_log(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset_of(asked, 33) == answer


def test_an_epoch_before_the_first_ends_where_that_begins() -> None:
    assert LeaderEpochs([(3, 7)]).end_offset_of(1, 33) == (1, 7)
    assert LeaderEpochs().end_offset_of(0, 0) == (-1, -1)


@pytest.mark.parametrize(("asked", "answer"), [(-1, (-1, -1)), (2, (2, 20)), (5, (5, 30)), (6, (5, 30)), (8, (8, 33)), (9, (-1, -1))])
def test_the_epoch_that_is_led_with_is_known_before_it_has_a_record(asked: int, answer: tuple[int, int]) -> None:
    """A new leader that did not know where its own epoch begins sent followers away until the first append (KAFKA-10706)."""
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.begin_term(8, 30)
    assert epochs.end_offset_of(asked, 33 if asked == 8 else 30) == answer
    assert (epochs.entries, epochs.latest, epochs.changed) == (ENTRIES, 5, False)


def test_without_entries_an_earlier_epoch_ends_where_the_one_that_is_led_with_begins() -> None:
    epochs = LeaderEpochs()
    epochs.begin_term(4, 7)
    assert [epochs.end_offset_of(epoch, 7) for epoch in (3, 4, 5)] == [(3, 7), (4, 7), (-1, -1)]


def test_the_epoch_that_is_led_with_becomes_an_entry_with_its_first_record() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.begin_term(8, 30)
    epochs.assign(8, 30)
    assert (epochs.entries, epochs.term, epochs.changed) == ([*ENTRIES, (8, 30)], None, True)
    assert not epochs.begin_term(8, 40)
    assert epochs.end_offset_of(8, 40) == (8, 40)


@pytest.mark.parametrize("end", [30, 25])
def test_truncation_drops_the_epoch_that_is_led_with_also_where_nothing_is_cut_off(end: int) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.begin_term(8, 30)
    epochs.truncate_end(end)
    assert (epochs.term, epochs.end_offset_of(8, end), epochs.end_offset_of(5, end)) == (None, (-1, -1), (5, end))
    epochs.begin_term(8, end)
    epochs.clear()
    assert epochs.end_offset_of(8, 0) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (19, 2), (20, 5), (1000, 5)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert LeaderEpochs(ENTRIES).epoch_of(offset) == epoch


def test_the_epoch_of_an_offset_before_all_is_unknown() -> None:
    assert LeaderEpochs([(3, 7)]).epoch_of(6) == -1


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (6, 30, [*ENTRIES, (6, 30)]),
        (5, 25, ENTRIES),
        (6, 20, [(0, 0), (2, 10), (6, 20)]),
        (6, 5, [(0, 0), (6, 5)]),
        (1, 30, [(0, 0), (1, 30)]),
    ],
)
def test_a_new_entry_drops_those_that_contradict_it(epoch: int, start: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(epoch, start)
    assert epochs.entries == left
    assert epochs.changed == (left != ENTRIES)


@pytest.mark.parametrize(("end", "left"), [(21, ENTRIES), (20, ENTRIES[:2]), (11, ENTRIES[:2]), (10, ENTRIES[:1]), (0, [])])
def test_truncating_the_end_drops_epochs_without_records(end: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_end(end)
    assert epochs.entries == left
    assert epochs.changed == (left != ENTRIES)


@pytest.mark.parametrize(
    ("start", "left"), [(0, ENTRIES), (4, [(0, 4), (2, 10), (5, 20)]), (10, [(2, 10), (5, 20)]), (15, [(2, 15), (5, 20)]), (40, [(5, 40)])]
)
def test_truncating_the_start_keeps_the_epoch_that_wrote_it(start: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_start(start)
    assert epochs.entries == left
    assert epochs.changed == (left != ENTRIES)


@pytest.mark.parametrize(("entries", "changed"), [([(3, 7)], True), ([(0, 0), (2, 5), (3, 7)], False)])
def test_a_log_takes_over_what_another_with_its_records_knows(entries: list[tuple[int, int]], *, changed: bool) -> None:
    epochs, other = LeaderEpochs(entries), LeaderEpochs([(0, 0), (2, 5), (3, 7)])
    epochs.take_from(other)
    assert (epochs.entries, epochs.changed) == (other.entries, changed)
    epochs.truncate_end(6)
    assert other.latest == 3


def test_the_file_is_kafkas() -> None:
    data = LeaderEpochs(ENTRIES).encode()
    assert data.rstrip() == b"0\n3\n0 0\n2 10\n5 20"
    assert decode_leader_epochs(data, "x").entries == ENTRIES
    assert decode_leader_epochs(b"", "x").entries == []
    assert not decode_leader_epochs(data, "x").changed


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n1\n0 x\n", b"0\n1\n-1 5\n", b"x\n", b"0\n2\n3 5\n2 9\n"]
)
def test_other_bytes_are_refused_with_file_and_line(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match="some/file"):
        decode_leader_epochs(data, "some/file")


def test_where_an_epoch_and_all_before_it_end() -> None:
    """A term without a record does not count."""
    epochs = LeaderEpochs([(2, 10), (5, 20)])
    epochs.begin_term(9, 30)
    assert [epochs.end_up_to(epoch, 30) for epoch in (-1, 1, 2, 4, 5, 8, 9)] == [10, 10, 20, 20, 30, 30, 30]
    assert LeaderEpochs().end_up_to(0, 7) == 7, "what is of an unknown epoch is earlier"
