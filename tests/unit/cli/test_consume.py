"""What ``moldau consume --group`` commits: every partition that it has looked at, and no record that it has not printed."""

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from moldau.cli.consume import _print_records, _Reader
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.record import Record

if TYPE_CHECKING:
    from moldau.cli.group_commits import GroupCommitter

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int) -> Record:
    return Record(offset, 0, 0, None, b"%d" % offset, [])


class FakeReader:
    """Gives chunks as told; `at` is where whole batches have been read to."""

    def __init__(self, at: dict[TopicPartition, int], chunks: list[tuple[TopicPartition, list[int], int]]) -> None:
        self.at = {where: Offset(offset) for where, offset in at.items()}
        self._chunks = chunks

    def chunks(self) -> Iterator[Iterator[tuple[TopicPartition, Record]]]:
        for where, offsets, end in self._chunks:
            yield self._one(where, offsets, end)

    def _one(self, where: TopicPartition, offsets: list[int], end: int) -> Iterator[tuple[TopicPartition, Record]]:
        for offset in offsets:
            yield where, record(offset)
        self.at[where] = Offset(end)

    def reached(self) -> dict[TopicPartition, Offset]:
        return dict(self.at)


class FakeCommitter:
    """Keeps what is done."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}

    def done(self, positions: dict[TopicPartition, Offset]) -> None:
        self.offsets.update(positions)


def printed(reader: FakeReader, limit: int | None, output: io.BytesIO) -> dict[TopicPartition, int]:
    committer = FakeCommitter()
    with contextlib.suppress(KeyboardInterrupt):
        _print_records(
            cast("_Reader", reader), lambda _, record: (record.value or b"") + b"\n", limit, output, cast("GroupCommitter", committer)
        )
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


def test_an_interruption_in_the_middle_of_a_batch_commits_up_to_the_last_record_written() -> None:
    """The third write is interrupted; what is still in the buffer reaches the output before it is committed."""

    class Interrupted(io.BytesIO):
        written = 0
        flushed_at: int | None = None

        def write(self, data: object) -> int:
            self.written += 1
            if self.written == 3:
                raise KeyboardInterrupt
            return 0

        def flush(self) -> None:
            self.flushed_at = self.written

    output = Interrupted()
    assert printed(FakeReader({T0: 0, T1: 4}, [(T0, [0, 1, 2, 3], 4)]), None, output) == {T0: 2, T1: 4}
    assert output.flushed_at == 3


def test_nothing_is_committed_that_did_not_reach_the_output() -> None:
    class Broken(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    committer = FakeCommitter()
    with pytest.raises(BrokenPipeError):
        _print_records(
            cast("_Reader", FakeReader({T0: 0}, [(T0, [0, 1], 2)])), lambda *_: b"x", None, Broken(), cast("GroupCommitter", committer)
        )
    assert committer.offsets == {}
