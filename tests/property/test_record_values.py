"""Values read alone are those of whole records, whatever the records are; and no bytes make the quick loop read what is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import PeerError
from moldau.protocol.records.batch import RecordBatchBuilder, iterate
from moldau.protocol.records.header import HEADER_SIZE, read_header
from moldau.protocol.records.skim import read_values

SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 20_000])
OCTETS = st.none() | st.binary(max_size=5) | SIZES.map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(0, 2**40), OCTETS, OCTETS, HEADERS), min_size=1, max_size=80)


def batch(records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    builder = RecordBatchBuilder(base_offset=7)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return bytes(builder.build())


@given(RECORDS)
def test_values_alone_are_the_values_of_the_records(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    data, found = batch(records), list[bytes | None]()
    read_values(data[HEADER_SIZE:], read_header(data).record_count, found.append)
    assert found == [value for _, _, value, _ in records]


@given(RECORDS, st.data())
def test_damaged_records_are_refused_or_have_values_within_them(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], data: st.DataObject
) -> None:
    whole = bytearray(batch(records))
    at = data.draw(st.integers(HEADER_SIZE, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found: list[bytes | None] = []
    try:
        read_values(bytes(whole[HEADER_SIZE:]), len(records), found.append)
    except PeerError:
        with pytest.raises(PeerError):
            list(iterate(memoryview(whole), max_decompressed_bytes=1 << 20))
    else:
        assert len(found) == len(records)
        assert sum(len(value or b"") for value in found) <= len(whole)
