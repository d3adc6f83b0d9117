"""Which of the batches that a mirror sends are to be written to the log of its target."""

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.header import read_header, verify_crc


def check_known_end(partition: str, log_end_offset: int, known_end: int) -> None:
    """The log has reached an offset that it had reached by what its mirror knows. PeerError OUT_OF_ORDER_SEQUENCE_NUMBER: it has lost
    records since, by an unclean election or with its disk, and what the mirror sends would leave a hole that looks like compaction's.
    """
    if log_end_offset < known_end:
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{partition}: the log ends at {log_end_offset}, and had reached {known_end} when its mirror asked: it has lost records",
        )


def new_batches(records: memoryview, partition: str, log_end_offset: int) -> memoryview:
    """What of `records`, whole batches, lies after the end of the log; the offsets of these are checked no further.

    CorruptBatchError where a batch is cut off, or damaged and left out; PeerError OUT_OF_ORDER_SEQUENCE_NUMBER where one begins before the
    end of the log and does not end there: the log has something else.
    """
    size = len(records)
    position, first = 0, size
    while position < size:
        header = read_header(records, position)
        stop = position + header.size
        if stop > size:
            raise CorruptBatchError(
                f"{partition}: batch at offset {header.base_offset} of {header.size} bytes was cut to {size - position}"
            )
        if first < size:
            pass
        elif header.last_offset >= log_end_offset:
            if header.base_offset < log_end_offset:
                raise PeerError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"{partition}: batch with offsets {header.base_offset} to {header.last_offset}, the log ends at {log_end_offset}",
                )
            first = position
        elif not verify_crc(records[position:stop]):
            raise CorruptBatchError(f"{partition}: batch at offset {header.base_offset}: checksum does not match")
        position = stop
    return records[first:]
