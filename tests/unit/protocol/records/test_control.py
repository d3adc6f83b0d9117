"""Markers are read from a control batch in its usual layout and in any other, with the same outcome."""

import struct

import pytest

from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker, end_txn_marker_of

KEY, VALUE = struct.Struct(">hh"), struct.Struct(">hi")


def control_batch(key: bytes | None, value: bytes | None, *, compression: Compression = Compression.NONE, headers: int = 0) -> memoryview:
    builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True, compression=compression)
    builder.append(1000, key, value, [("h", b"x")] * headers)
    return memoryview(builder.build())


@pytest.mark.parametrize("kind", list(ControlType))
@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
def test_what_is_written_is_read(kind: ControlType, epoch: int) -> None:
    marker = EndTxnMarker(kind, epoch)
    assert end_txn_marker_of(memoryview(encode_end_txn_marker(marker, producer_id=1, producer_epoch=0, timestamp=10**12))) == marker


@pytest.mark.parametrize(
    ("batch", "marker"),
    [
        (control_batch(KEY.pack(0, 1), VALUE.pack(0, 5)), EndTxnMarker(ControlType.COMMIT, 5)),
        (control_batch(KEY.pack(1, 1), VALUE.pack(1, 5)), EndTxnMarker(ControlType.COMMIT, 5)),
        (control_batch(KEY.pack(0, 0), VALUE.pack(1, 5) + b"more"), EndTxnMarker(ControlType.ABORT, 5)),
        (control_batch(KEY.pack(0, 0) + b"more", VALUE.pack(0, 5)), EndTxnMarker(ControlType.ABORT, 5)),
        (control_batch(KEY.pack(0, 0), VALUE.pack(0, 5), headers=1), EndTxnMarker(ControlType.ABORT, 5)),
        (control_batch(KEY.pack(0, 0), VALUE.pack(0, 5), compression=Compression.GZIP), EndTxnMarker(ControlType.ABORT, 5)),
        (control_batch(KEY.pack(0, 2), VALUE.pack(0, 5)), None),
        (control_batch(KEY.pack(0, -1), VALUE.pack(0, 5)), None),
        (control_batch(None, VALUE.pack(0, 5)), None),
        (control_batch(KEY.pack(0, 1), None), None),
        (control_batch(KEY.pack(0, 1), b"short"), None),
    ],
)
def test_other_layouts_and_other_kinds(batch: memoryview, marker: EndTxnMarker | None) -> None:
    assert end_txn_marker_of(batch) == marker
