"""Segments are read in pieces of whole batches whatever the size of a piece, damage is named, and no faster than allowed."""

import pytest

from moldau.log.batches import BadBatchError
from moldau.log.cleaning.work import DamagedBatchError, Throttle, chunks
from moldau.ports.filesystem import File
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.logs import make_batch


def segment() -> tuple[File, list[bytes]]:
    """Batches of different sizes, from offset 10 on, with holes between."""
    batches = []
    for number, size in enumerate((1, 500, 1, 1, 3000, 1, 90)):
        batch = make_batch([b"x" * size])
        stamp(batch, 10 + 5 * number, 0)
        batches.append(bytes(batch))
    disk = ForgetfulDisk()
    file = disk.open("/s", create=True)
    file.append(batches)
    return file, batches


def unlimited() -> Throttle:
    return Throttle(1e308, lambda: 0.0, lambda _seconds: None)


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 700, 3100, 1 << 20])
def test_whole_batches_whatever_is_read_at_a_time(chunk_bytes: int) -> None:
    file, batches = segment()
    found = [
        (position + at, header.base_offset, data[at : at + header.size])
        for data, position, headers in chunks(file, 0, file.size(), 10, chunk_bytes, unlimited())
        for at, header in headers
    ]
    assert [batch for *_, batch in found] == batches
    assert [offset for _, offset, _ in found] == [10 + 5 * number for number in range(len(batches))]
    assert [position for position, *_ in found] == [sum(map(len, batches[:number])) for number in range(len(batches))]


@pytest.mark.parametrize("chunk_bytes", [61, 1 << 20])
def test_a_damaged_batch_is_named(chunk_bytes: int) -> None:
    file, batches = segment()
    position = len(batches[0]) + len(batches[1])
    file.pwrite(b"?", position + 70)
    with pytest.raises(DamagedBatchError) as raised:
        list(chunks(file, 0, file.size(), 10, chunk_bytes, unlimited()))
    error = raised.value
    assert (error.path, error.position, error.offset, error.last_offset) == ("/s", position, 20, 20)


@pytest.mark.parametrize("missing", [1, 80])
def test_a_file_that_ends_too_early(missing: int) -> None:
    file, _ = segment()
    size = file.size()
    file.truncate(size - missing)
    with pytest.raises(BadBatchError):
        list(chunks(file, 0, size, 10, 200, unlimited()))


def test_no_faster_than_allowed() -> None:
    """A thousand bytes a second: 2,500 take 2.5 s, however long the reading itself takes; pauses are not made up for."""
    time, slept = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        time[0] += seconds
        slept[0] += seconds

    throttle = Throttle(1000, lambda: time[0], sleep)
    for _ in range(25):
        time[0] += 0.02
        throttle.passed(100)
    assert (round(time[0], 6), round(slept[0], 6)) == (2.5, 2.0)
    time[0] += 100
    slept[0] = 0
    throttle.passed(100)
    throttle.passed(1000)
    assert slept[0] == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("rate", [0.0, -5.0])
def test_a_rate_that_makes_no_sense_is_a_very_slow_one(rate: float) -> None:
    slept: list[float] = []
    Throttle(rate, lambda: 0.0, slept.append).passed(3)
    assert slept == [3.0]
