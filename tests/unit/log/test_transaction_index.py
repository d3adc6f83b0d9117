"""A search in the index of aborted transactions finds what an obvious one finds, and reads few entries however many there are."""

import random

import pytest

from moldau.log import transaction_index
from moldau.log.cache import SegmentCache
from moldau.log.transaction_index import BLOCK, TransactionIndex, TransactionIndexEntry
from moldau.testing.disk import ForgetfulDisk

PATH = "/data/t-0/00000000000000000000.txnindex"


@pytest.fixture
def index() -> TransactionIndex:
    disk = ForgetfulDisk()
    disk.make_directory("/data")
    disk.make_directory("/data/t-0")
    return TransactionIndex(disk, SegmentCache(disk), PATH, 0, new=True)


def transactions(seed: int, count: int) -> list[TransactionIndexEntry]:
    """As a log makes them: some ongoing at any time, each begun where the log ended then."""
    choice = random.Random(seed)
    ongoing: list[int] = []
    made: list[TransactionIndexEntry] = []
    offset = 0
    while len(made) < count:
        if not ongoing or choice.random() < 0.5:
            ongoing.append(offset)
        else:
            first = ongoing.pop(choice.randrange(len(ongoing)))
            made.append(TransactionIndexEntry(first % 7, first, offset, min(ongoing, default=offset + 1)))
        offset += 1
    return made


def obvious(entries: list[TransactionIndexEntry], first: int, end: int) -> list[TransactionIndexEntry]:
    return [each for each in entries if each.last_offset >= first and each.first_offset < end]


@pytest.mark.parametrize("seed", range(5))
def test_a_search_finds_what_an_obvious_one_finds(index: TransactionIndex, seed: int) -> None:
    choice = random.Random(seed)
    entries = transactions(seed, 3 * BLOCK + 17)
    for number, aborted in enumerate(entries):
        index.add(aborted)
        if number % 100 == 99:
            index.store()
        if number % 60 == 59:
            first = choice.randrange(aborted.last_offset + 1)
            end = first + choice.choice((1, 10, 1000))
            assert index.overlapping(first, end)[0] == obvious(entries[: number + 1], first, end)
        if number % 200 == 150:
            kept = choice.randrange(number)
            index.keep(kept)
            assert index.overlapping(0, 1 << 40)[0] == entries[:kept]
            for lost in entries[kept : number + 1]:
                index.add(lost)
    index.replace(entries[5:])
    for first in range(0, entries[-1].last_offset, 37):
        assert index.overlapping(first, first + 5)[0] == obvious(entries[5:], first, first + 5)


def test_below_a_transaction_that_stays_open_a_search_does_not_read_all_entries(
    index: TransactionIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 transactions after the first record of one that is ongoing: every fetch of that record read all of them, 20 ms."""
    for number in range(10_000):
        index.add(TransactionIndexEntry(7, 2 * number + 1, 2 * number + 2, 0))
    index.store()
    assert index.overlapping(0, 1) == ([], False)
    read = 0

    def counted(*fields: int) -> TransactionIndexEntry:
        nonlocal read
        read += 1
        return TransactionIndexEntry(*fields)

    monkeypatch.setattr(transaction_index, "TransactionIndexEntry", counted)
    for offset in (0, 1, 9_999, 19_999):
        index.overlapping(offset, offset + 1)
    assert read < 4 * (2 * 10_000 / BLOCK + BLOCK + 20)
