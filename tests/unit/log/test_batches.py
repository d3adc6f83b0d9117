"""Walking over a file of batches: what is yielded, and how each kind of damage is named."""

import struct
import zlib
from collections.abc import Iterator

import pytest

from moldau.log.batches import SCAN_WINDOW, BadBatchError, OldFormatError, find, scan, walk
from moldau.ports.filesystem import File
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.one_log import make_batch

Step = tuple[int, int]


def stretch(*sizes: int) -> tuple[bytes, list[Step]]:
    """Batches of two records with values of these sizes; bytes, and position and base offset of each."""
    data, steps = bytearray(), []
    for number, size in enumerate(sizes):
        batch = make_batch(b"x" * size, b"y")
        stamp(batch, 2 * number, 0)
        steps.append((len(data), 2 * number))
        data += batch
    return bytes(data), steps


def file_of(data: bytes) -> File:
    file = ForgetfulDisk().open("x.log", create=True)
    file.append([data])
    return file


def walked(data: bytes, offset: int = 0) -> Iterator[Step]:
    return ((position, header.base_offset) for position, header in walk(file_of(data), 0, len(data), offset))


def scanned(data: bytes, offset: int = 0) -> Iterator[Step]:
    for span, header, view in scan(file_of(data), 0, len(data), offset):
        assert bytes(view) == data[span.position : span.position + span.size]
        assert (header.base_offset, header.last_offset) == (span.base_offset, span.last_offset)
        yield span.position, span.base_offset


@pytest.mark.parametrize("sizes", [(), (1,), (10, 5000, 3, 4090, 1), (SCAN_WINDOW, 5, SCAN_WINDOW + 1, 7), (100,) * 300])
def test_every_batch_is_found_whatever_the_window(sizes: tuple[int, ...]) -> None:
    data, steps = stretch(*sizes)
    assert list(walked(data)) == steps
    assert list(scanned(data)) == steps


def test_finding_gives_the_batch_that_holds_an_offset() -> None:
    data, steps = stretch(10, 10, 10)
    for offset in range(6):
        found = find(file_of(data), 0, len(data), 0, offset)
        assert found is not None
        assert (found[0], found[1].base_offset) == steps[offset // 2]
    assert find(file_of(data), 0, len(data), 0, 6) is None


@pytest.mark.parametrize("cut", [1, 11, 12, 30, 60, 61, 70])
def test_a_torn_batch_ends_the_walk_with_its_place(cut: int) -> None:
    data, steps = stretch(100, 100)
    torn = data[: steps[1][0] + cut]
    for steps_of in (walked, scanned):
        found = steps_of(torn)
        assert next(found) == steps[0]
        with pytest.raises(BadBatchError) as caught:
            next(found)
        assert (caught.value.path, caught.value.position, caught.value.offset) == ("x.log", steps[1][0], 2)


def test_zeros_and_garbage_are_no_batches() -> None:
    data, _ = stretch(100)
    for tail in (bytes(5000), b"\xff" * 5000, bytes(range(256)) * 4):
        for steps_of in (walked, scanned):
            with pytest.raises(BadBatchError, match=r"x\.log"):
                list(steps_of(data + tail))


def test_only_a_scan_sees_a_flipped_bit_in_the_records() -> None:
    data, steps = stretch(100, 100)
    data = data[:-1] + bytes([data[-1] ^ 1])
    assert list(walked(data)) == steps
    with pytest.raises(BadBatchError, match="at byte 178, offset 2: checksum"):
        list(scanned(data))


def test_offsets_must_rise() -> None:
    data, _ = stretch(10)
    for steps_of in (walked, scanned):
        with pytest.raises(BadBatchError, match="base offset 0 where at least 2 is due"):
            list(steps_of(data + data))


def test_a_batch_of_an_older_format_is_named_with_file_and_offset() -> None:
    """Message format 1: offset, size, CRC-32, magic, attributes, timestamp, key, value."""
    body = struct.pack(">bbqi", 1, 0, 1000, -1) + struct.pack(">i", 3) + b"abc"
    message = struct.pack(">qiI", 4, len(body) + 4, zlib.crc32(body)) + body
    data, _ = stretch(10, 10)
    for steps_of in (walked, scanned):
        with pytest.raises(OldFormatError, match=r"x\.log: batch of message format 1 at byte 172, offset 4"):
            list(steps_of(data + message + bytes(100)))
    damaged = message[:-1] + b"X"
    with pytest.raises(BadBatchError):
        list(scanned(data + damaged + bytes(100)))
