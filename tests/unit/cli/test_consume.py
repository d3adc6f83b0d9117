"""What ``moldau consume --group`` commits: every partition that it has looked at, and no record that it has not printed."""

import contextlib
import io
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from moldau.cli.consume import _print_records
from moldau.cli.interruptions import Interruptions
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.record import Columns

if TYPE_CHECKING:
    from moldau.cli.consume import GroupCommitter
    from moldau.cli.partition_reader import PartitionReader, Piece

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def columns(offsets: list[int]) -> Columns:
    found = Columns()
    found.offsets += offsets
    found.values += [b"%d" % offset for offset in offsets]
    return found


class FakeReader:
    """Gives chunks as told; `at` is where whole batches have been read to."""

    def __init__(self, at: dict[TopicPartition, int], chunks: list[tuple[TopicPartition, list[int], int]]) -> None:
        self.at = {where: Offset(offset) for where, offset in at.items()}
        self._chunks = chunks

    def chunks(self) -> "Iterator[Iterator[Piece]]":
        for where, offsets, end in self._chunks:
            yield self._one(where, offsets, end)

    def _one(self, where: TopicPartition, offsets: list[int], end: int) -> "Iterator[Piece]":
        for begin in range(0, len(offsets), 2):
            yield where, columns(offsets[begin : begin + 2])
        self.at[where] = Offset(end)

    def reached(self) -> dict[TopicPartition, Offset]:
        return dict(self.at)


class FakeCommitter:
    """Keeps what is done."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}

    def done(self, positions: dict[TopicPartition, Offset]) -> None:
        self.offsets.update(positions)


def print_all(reader: FakeReader, limit: int | None, output: io.BytesIO, committer: FakeCommitter) -> None:
    def lines(_: TopicPartition, columns: Columns) -> bytes:
        return b"".join((value or b"") + b"\n" for value in columns.values)

    with Interruptions() as interruptions:
        _print_records(cast("PartitionReader", reader), lines, limit, output, cast("GroupCommitter", committer), interruptions)


def printed(reader: FakeReader, limit: int | None, output: io.BytesIO) -> dict[TopicPartition, int]:
    committer = FakeCommitter()
    with contextlib.suppress(KeyboardInterrupt):
        print_all(reader, limit, output, committer)
    return committer.offsets


def test_where_there_was_nothing_to_print_the_group_has_a_place_all_the_same() -> None:
    assert printed(FakeReader({T0: 7, T1: 0}, []), None, io.BytesIO()) == {T0: 7, T1: 0}


def test_a_batch_is_committed_whole_holes_at_its_end_included() -> None:
    assert printed(FakeReader({T0: 0, T1: 3}, [(T0, [0, 1], 5)]), None, io.BytesIO()) == {T0: 5, T1: 3}


@pytest.mark.parametrize(("limit", "offset"), [(1, 1), (2, 2), (3, 5)])
def test_a_limit_in_the_middle_of_a_batch(limit: int, offset: int) -> None:
    output = io.BytesIO()
    assert printed(FakeReader({T0: 0}, [(T0, [0, 1], 5), (T0, [5], 6)]), limit, output)[T0] >= offset
    assert output.getvalue().count(b"\n") == limit


class Interrupted(io.BytesIO):
    """The writes with these numbers are interrupted by a signal each."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = numbers
        self._written = 0

    def write(self, data: Any) -> int:
        self._written += 1
        if self._written in self._numbers:
            signal.raise_signal(signal.SIGTERM)
        return super().write(data)


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupted_batch_is_printed_and_committed_to_its_end_and_nothing_after_it(number: int) -> None:
    output = Interrupted(number)
    assert printed(FakeReader({T0: 0, T1: 4}, [(T0, [0, 1, 2], 3), (T0, [3], 4)]), None, output) == {T0: 3, T1: 4}
    assert output.getvalue() == b"0\n1\n2\n"


def test_a_second_interruption_does_not_wait_for_the_end_of_the_batch() -> None:
    output = Interrupted(3, 4)
    assert printed(FakeReader({T0: 0}, [(T0, [0, 1, 2], 3), (T0, [3, 4, 5], 6)]), None, output) == {T0: 3}


def test_nothing_is_committed_that_did_not_reach_the_output() -> None:
    class Broken(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    committer = FakeCommitter()
    with pytest.raises(BrokenPipeError):
        print_all(FakeReader({T0: 0}, [(T0, [0, 1], 2)]), None, Broken(), committer)
    assert committer.offsets == {}
