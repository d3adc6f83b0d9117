"""Checkpoint files are Kafka's text, and a damaged one says where it is damaged."""

import contextlib

import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.checkpoints import format_lines, format_offsets, parse_lines, parse_offsets, read_offsets
from moldau.log.damage import DamagedFileError
from moldau.model.identity import TopicPartition
from moldau.testing.disk import ForgetfulDisk

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


def test_the_text_is_kafkas() -> None:
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("a-b_c.d", 12): 0}
    assert without_checksum(format_offsets(offsets)) == b"0\n2\norders 0 17\na-b_c.d 12 0\n"
    assert format_offsets({}) == b"0\n0\n"
    assert without_checksum(format_lines(["0 0", "1 25"])) == b"0\n2\n0 0\n1 25\n"


def test_the_last_line_ends_with_a_checksum_of_blanks() -> None:
    """Whoever splits lines at white space, as Kafka does, does not see it. CRC-32C of the bytes before: 1 is a tab."""
    data = format_lines(["0 0"])
    bits = format(crc32c(b"0\n1\n0 0"), "032b")
    assert data == b"0\n1\n0 0" + bits.replace("0", " ").replace("1", "\t").encode() + b"\n"
    assert data.decode().split() == ["0", "1", "0", "0"]


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 99)), st.integers(0, 2**40), min_size=1, max_size=4), st.data())
def test_no_flipped_bit_and_no_cut_gives_other_numbers(offsets: dict[TopicPartition, int], draw: st.DataObject) -> None:
    """Damage is seen, also where a digit becomes another one; what Kafka wrote, without a checksum, is believed."""
    whole = format_offsets(offsets)
    place = draw.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << draw.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), whole[:place]):
        if damaged:
            with pytest.raises(DamagedFileError):
                parse_offsets(damaged, "x")
    assert parse_offsets(without_checksum(whole), "x") == offsets


def without_checksum(data: bytes) -> bytes:
    return data.rstrip(b" \t\n") + b"\n"


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=8))
def test_what_is_written_is_read(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(offsets), "x") == offsets


def test_a_file_that_kafka_has_only_created_has_no_entries() -> None:
    assert parse_lines(b"", "x") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n0\n", "/d/x, line 1: version '1', not 0"),
        (b"zero\n", "/d/x, line 1: version 'zero', not 0"),
        (b"0\n", "/d/x, line 2: '' entries announced, 0 found"),
        (b"0\n2\nt 0 1\n", "/d/x, line 2: '2' entries announced, 1 found"),
        (b"0\n1\nt 0 1\nt 1 1\n", "/d/x, line 2: '1' entries announced, 2 found"),
        (b"0\n-1\n", "/d/x, line 2"),
        (b"0\n2\nt 0 1\nt 0\n", "/d/x, line 4: 't 0' is not TOPIC PARTITION OFFSET"),
        (b"0\n1\nt zero 1\n", "/d/x, line 3"),
        (b"0\n1\nt 0 1 2\n", "/d/x, line 3"),
        (b"0\n1\n\xff\n", "/d/x, byte 4: not text"),
        (b"\0\0\0\0", "/d/x, line 1"),
    ],
)
def test_damage_is_named_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        parse_offsets(data, "/d/x")
    assert str(caught.value).startswith(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(DamagedFileError):
        parse_offsets(data, "x")


def test_a_missing_file_has_no_entries() -> None:
    disk = ForgetfulDisk()
    assert read_offsets(disk, "/x") == {}
    disk.write_atomically("/x", b"0\n1\nt 3 9\n")
    assert read_offsets(disk, "/x") == {TopicPartition("t", 3): 9}
