"""The four codecs of record batches, and how to undo them without trusting what they say.

A few bytes can stand, or claim to stand, for gigabytes. So every decoder writes into a buffer that never grows beyond
`max.decompressed.bytes`, and gets there only by filling it. Where the data does not say how long it becomes (lz4, zstd as Java writes
it), it is first tried with eight times its size, then with four times more each time. A claim (snappy) is believed only as far as
the codec can make so much of so few bytes.

Snappy comes in two shapes: raw, and in the frame of the Java library (xerial): a magic, two versions, then blocks with a size before each.
Both are read; the framed one is written, as Kafka's own clients do. `cramjam` is imported when a codec of it is first used.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct

from moldau.model.errors import BeyondBoundError, CorruptBatchError
from moldau.ports.filesystem import Bytes


class Compression(IntEnum):
    """Codecs by their number in a batch's attributes. The names in lower case are the values of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_GZIP_WINDOW = 31  # 32 KiB window, with a gzip header and trailer
_SNAPPY_RATIO_MAX = 64
_FIRST_TRY_RATIO = 8
_FIRST_TRY_BYTES = 64 * 1024
_GROWTH = 4
_UNWRITTEN = bytes.fromhex("9be1c04d5f7a2e83")
"""Stands at the end of a buffer until a decoder gets there. A batch that ends in these very bytes, in a full buffer, is refused."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"  # version, least version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


def compress(data: Bytes, codec: int, level: int | None = None) -> bytes:
    """`data` as Kafka's clients expect it of this codec. `level` means what it means to the codec; None is the codec's own choice."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            encoder = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
            return encoder.compress(data) + encoder.flush()
        case Compression.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Compression.LZ4:
            import cramjam

            # Java's reader takes only frames whose blocks do not refer to each other.
            lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            lz4.compress(bytes(data))
            return bytes(lz4.finish())
        case Compression.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
        case _:
            raise AssertionError(f"codec {codec}")


def decompress(data: Bytes, codec: int, max_bytes: int) -> bytes:
    """`data` decompressed, at most `max_bytes`. CorruptBatchError if it is malformed or unfinished, BeyondBoundError if it becomes
    more.
    """
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _decompress_gzip(data, max_bytes)
        case Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case Compression.LZ4:
            import cramjam

            return _decompress_into(cramjam.lz4.decompress_into, data, Compression.LZ4, max_bytes)
        case Compression.ZSTD:
            import cramjam

            return _decompress_into(cramjam.zstd.decompress_into, data, Compression.ZSTD, max_bytes)
        case _:
            raise CorruptBatchError(f"records are compressed with the unknown codec {codec}")


def _decompress_into(decoder: Callable[[Bytes, Bytes], int], data: Bytes, codec: Compression, max_bytes: int) -> bytes:
    """Try with ever larger buffers, as long as they are too small and not yet at the bound.

    Too small a buffer and malformed data raise the same error; only the text of a library below differs. But the decoder stops at
    the end of the one, and somewhere before it with the other.
    """
    from cramjam import DecompressionError

    capacity = min(max_bytes, max(_FIRST_TRY_BYTES, len(data) * _FIRST_TRY_RATIO))
    while True:
        output = bytearray(capacity)
        output[-len(_UNWRITTEN) :] = _UNWRITTEN[:capacity]
        try:
            size = decoder(data, output)
        except DecompressionError as error:
            stopped_early = output.endswith(_UNWRITTEN)
            del output  # an error holds the frames that it passes
            if stopped_early:
                raise _refused(codec, data, str(error)) from error
            if capacity == max_bytes:
                raise _beyond(codec, data, max_bytes) from error
        else:
            return bytes(memoryview(output)[:size])
        capacity = min(max_bytes, capacity * _GROWTH)


def _decompress_gzip(data: Bytes, max_bytes: int) -> bytes:
    """One gzip member, as every client writes it. A second one is refused: a batch of empty ones would cost the square of its size."""
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    try:
        decompressed = decoder.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise _refused(Compression.GZIP, data, str(error)) from error
    if len(decompressed) > max_bytes:
        del decompressed
        raise _beyond(Compression.GZIP, data, max_bytes)
    if not decoder.eof or decoder.unused_data:
        raise _refused(Compression.GZIP, data, "bytes follow the end" if decoder.eof else "they are cut off")
    return decompressed


def _compress_xerial(data: memoryview) -> bytes:
    import cramjam

    parts: list[Bytes] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    """The sizes that the blocks claim are added up and checked first; then there is one buffer for all."""
    import cramjam

    if not data:
        raise _refused(Compression.SNAPPY, data, "they are cut off")
    try:
        blocks = list(_xerial_blocks(data)) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        size = sum(sizes)
        if size > len(data) * _SNAPPY_RATIO_MAX:
            raise _refused(Compression.SNAPPY, data, f"they claim to become {size}")
        if size > max_bytes:
            raise _beyond(Compression.SNAPPY, data, max_bytes)
        output = memoryview(bytearray(size))
        position = 0
        for block, block_size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, output[position : position + block_size])
            position += block_size
    except cramjam.DecompressionError as error:
        raise _refused(Compression.SNAPPY, data, str(error)) from error
    return bytes(output)


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    if position > len(data):
        raise CorruptBatchError(f"snappy frame of {len(data)} bytes is shorter than its header")
    while position < len(data):
        start = position + _INT32.size
        size = _INT32.unpack_from(data, position)[0] if start <= len(data) else -1
        position = start + size
        if size < 0 or position > len(data):
            raise CorruptBatchError(f"snappy block of {size} bytes at byte {start} does not fit in records of {len(data)} bytes")
        yield data[start:position]


def _refused(codec: Compression, data: Bytes, reason: str) -> CorruptBatchError:
    return CorruptBatchError(f"{len(data)} bytes of {codec.name.lower()} do not decompress: {reason}")


def _beyond(codec: Compression, data: Bytes, max_bytes: int) -> BeyondBoundError:
    return BeyondBoundError(f"{len(data)} bytes of {codec.name.lower()} decompress to more than {max_bytes} bytes")
