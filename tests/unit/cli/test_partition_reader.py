"""`moldau consume` prints nothing that is damaged, everything before it, and with `--skip-damaged` everything after it."""

import tracemalloc
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pytest

from moldau.cli.partition_reader import PartitionReader
from moldau.client.errors import RequestFailedError, TruncationError
from moldau.client.fetched_batches import UnreadableBatchError
from moldau.client.partition_requests import FetchedBatches, FetchLimits, ListedOffset
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TimestampMs, TopicPartition
from moldau.protocol.records.batch import Compression, RecordBatchBuilder
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import compress
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, stamp_crc
from moldau.protocol.varint import uvarint

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

WHERE = TopicPartition("t", 0)
PER_BATCH, BATCHES = 3, 10
END = PER_BATCH * BATCHES


class FakeCluster:
    """A partition of ten batches of three records, the values their offsets; `at_once` batches come with a fetch."""

    def __init__(self, at_once: int = 4, codec: Compression = Compression.NONE) -> None:
        self.batches = []
        self.refused: set[int] = set()
        """Batches that the broker knows to be damaged."""
        self._at_once = at_once
        for number in range(BATCHES):
            builder = RecordBatchBuilder(base_offset=number * PER_BATCH, compression=codec)
            for record in range(PER_BATCH):
                builder.append(1000, b"k", b"%d" % (number * PER_BATCH + record))
            self.batches.append(bytearray(builder.build()))

    def fetch_many(self, positions: Mapping[TopicPartition, int], limits: FetchLimits) -> dict[TopicPartition, FetchedBatches]:
        return {where: self.fetch(*where, offset, limits) for where, offset in positions.items()}

    def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> FetchedBatches:
        number = offset // PER_BATCH
        if number in self.refused:
            raise RequestFailedError(ErrorCode.CORRUPT_MESSAGE, "damaged", WHERE)
        last = min([number + (1 if limits.partition_max_bytes == 1 else self._at_once), *(each for each in self.refused if each > number)])
        return FetchedBatches(memoryview(b"".join(self.batches[number:last])), Offset(END), Offset(END), Offset(0))

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return dict.fromkeys(wanted, ListedOffset(Offset(END), TimestampMs(-1), 0))


def read(
    cluster: FakeCluster, start: int = 0, end: int = END, *, skip_damaged: bool = False, values_only: bool = False
) -> tuple[list[int], UnreadableBatchError | None]:
    reader = PartitionReader(
        cast("Cluster", cluster), {WHERE: Offset(start)}, {WHERE: Offset(end)}, skip_damaged=skip_damaged, values_only=values_only
    )
    found: list[int] = []
    try:
        for chunk in reader.chunks():
            for _, columns in chunk:
                found += [int(value or b"") for value in columns.values]
    except UnreadableBatchError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize(("start", "end"), [(0, END), (1, END - 1), (4, 5), (0, 1), (7, 7)])
def test_everything_between_two_offsets_comes_once(start: int, end: int, values_only: bool, codec: Compression) -> None:
    assert read(FakeCluster(codec=codec), start, end, values_only=values_only) == (list(range(start, end)), None)


def break_value(cluster: FakeCluster, batch: int) -> None:
    cluster.batches[batch][-2] ^= 1


def break_length(cluster: FakeCluster, batch: int) -> None:
    cluster.batches[batch][8] = 0x7F


def break_records(cluster: FakeCluster, batch: int) -> None:
    """The checksum is right, the first record's size is not."""
    cluster.batches[batch][61] = 0x7F
    stamp_crc(cluster.batches[batch])


def refuse(cluster: FakeCluster, batch: int) -> None:
    cluster.refused.add(batch)


def test_a_log_that_was_truncated_ends_the_reading() -> None:
    cluster = FakeCluster()

    def truncated(*_: object) -> None:
        raise TruncationError(WHERE, 9, 6)

    cluster.fetch_many = truncated  # type: ignore[method-assign,assignment]
    with pytest.raises(TruncationError, match="log truncated: records from offset 6 up to 9"):
        list(PartitionReader(cluster, {WHERE: Offset(9)}, {}).chunks())  # type: ignore[arg-type]


DAMAGES = [break_value, break_length, break_records, refuse]


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("batch", [0, 3, 4, 9])
def test_reading_ends_at_damage_with_all_that_is_before_it(damage: object, batch: int, values_only: bool) -> None:
    cluster = FakeCluster()
    damage(cluster, batch)  # type: ignore[operator]
    found, error = read(cluster, values_only=values_only)
    assert found == list(range(batch * PER_BATCH))
    assert error is not None
    assert (error.partition, error.offset) == (WHERE, batch * PER_BATCH)


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("broken", [{0}, {3}, {9}, {4, 5}, {0, 8, 9}])
def test_damage_is_skipped_and_nothing_else(
    damage: object, broken: set[int], values_only: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    for batch in broken:
        damage(cluster, batch)  # type: ignore[operator]
    found, error = read(cluster, skip_damaged=True, values_only=values_only)
    assert error is None
    assert found == [offset for offset in range(END) if offset // PER_BATCH not in broken]
    assert f"partition t-0: the batch at offset {min(broken) * PER_BATCH} is damaged" in capsys.readouterr().err


def test_millions_of_headers_cost_values_nothing_and_are_refused_with_their_offset_elsewhere() -> None:
    """4 KB of zstd stand for them; `moldau consume` took nine seconds and 1.4 GB for twenty million."""
    headers = 2_000_000
    body = b"\0\0\0\1\4ok" + uvarint(headers << 1) + b"\0\1" * headers
    payload = compress(uvarint(len(body) << 1) + body, Compression.ZSTD)
    size = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    bomb = bytearray(assemble(BatchHeader(0, size, -1, 2, 0, Compression.ZSTD, PER_BATCH - 1, 5, 5, -1, -1, -1, 1), payload))
    cluster = FakeCluster(at_once=1)
    cluster.batches[0] = bomb
    tracemalloc.start()
    try:
        chunks = PartitionReader(cast("Cluster", cluster), {WHERE: Offset(0)}, {}, values_only=True).chunks()
        assert [columns.values for _, columns in next(chunks)] == [[b"ok"]]
        assert tracemalloc.get_traced_memory()[1] < 40 * headers
    finally:
        tracemalloc.stop()
    found, error = read(cluster)
    assert (found, error is not None) == ([], True)
    assert "partition t-0: the batch at offset 0 is more than is read: " in str(error)
    assert read(cluster, skip_damaged=True)[0] == list(range(PER_BATCH, END))


def test_an_end_in_the_middle_of_what_is_skipped_is_an_end() -> None:
    cluster = FakeCluster()
    break_value(cluster, 3)
    assert read(cluster, 0, 10, skip_damaged=True) == (list(range(9)), None)
