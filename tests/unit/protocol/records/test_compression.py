"""What a codec makes is undone again, by us and by others; what is damaged or becomes too much is refused, whatever it claims."""

import gzip
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from random import Random

import cramjam
import pytest

from moldau.model.errors import BeyondBoundError, CorruptBatchError
from moldau.protocol.records.compression import Compression, compress, decompress

with warnings.catch_warnings():  # about how the package reads its own resources
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec

CODECS = [codec for codec in Compression if codec]
TEXTS = {
    "nothing": b"",
    "a byte": b"x",
    "words": b"the river Moldau " * 9,
    "blocks": bytes(range(256)) * 1000,
    "a gap": bytes(300_000) + b"end",
}

decoders: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: kafka.codec.gzip_decode,
    Compression.SNAPPY: kafka.codec.snappy_decode,
    Compression.LZ4: kafka.codec.lz4_decode,
    Compression.ZSTD: kafka.codec.zstd_decode,
}
encoders: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, kafka.codec.gzip_encode),
    "gzip-of-python": (Compression.GZIP, gzip.compress),
    "snappy-framed": (Compression.SNAPPY, kafka.codec.snappy_encode),
    "snappy-raw": (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (Compression.LZ4, kafka.codec.lz4_encode),
    "lz4-of-cramjam": (Compression.LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (Compression.ZSTD, kafka.codec.zstd_encode),
    "zstd-streamed": (Compression.ZSTD, lambda data: zstd_streamed(data)),
}


def zstd_streamed(data: bytes) -> bytes:
    """As Java writes it: without the size of the content."""
    encoder = cramjam.zstd.Compressor()
    encoder.compress(data)
    return bytes(encoder.finish())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("codec", Compression)
def test_there_and_back(codec: Compression, text: str) -> None:
    data = TEXTS[text]
    compressed = compress(memoryview(data), codec)
    assert decompress(memoryview(compressed), codec, len(data)) == data


@pytest.mark.parametrize("text", [text for text in TEXTS if text != "nothing"])
@pytest.mark.parametrize("codec", CODECS)
def test_others_undo_ours(codec: Compression, text: str) -> None:
    assert decoders[codec](compress(TEXTS[text], codec)) == TEXTS[text]


@pytest.mark.parametrize("text", [text for text in TEXTS if text != "nothing"])
@pytest.mark.parametrize("encoder", encoders)
def test_we_undo_others(encoder: str, text: str) -> None:
    codec, encode = encoders[encoder]
    assert decompress(encode(TEXTS[text]), codec, len(TEXTS[text])) == TEXTS[text]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_levels_count(codec: Compression) -> None:
    random = Random(5)
    data = b" ".join(random.choices([b"%x" % random.getrandbits(random.randint(4, 60)) for _ in range(900)], k=20_000))
    assert len(compress(data, codec, 12 if codec == Compression.LZ4 else 9)) != len(compress(data, codec, 1))


def test_lz4_blocks_stand_alone() -> None:
    """Java's reader refuses linked blocks; bit 5 of the flags says that there are none."""
    assert compress(b"x" * 200_000, Compression.LZ4)[4] & 0x20


def test_snappy_is_framed_as_java_does_it() -> None:
    assert compress(b"", Compression.SNAPPY) == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_too_many_is_refused(codec: Compression) -> None:
    data = TEXTS["blocks"]
    with pytest.raises(BeyondBoundError, match=f"{codec.name.lower()} decompress to more than {len(data) - 1} bytes"):
        decompress(compress(data, codec), codec, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_than_the_bound(codec: Compression) -> None:
    bomb = compress(bytes(64 << 20), codec)
    bound = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BeyondBoundError):
            decompress(bomb, codec, bound)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * bound, "the buffer, and a copy of what is in it"


@pytest.mark.parametrize("codec", CODECS)
def test_the_error_of_a_bomb_keeps_nothing_of_what_came_out(codec: Compression) -> None:
    """An error holds the frames that it passed, and a refusal is kept until its request is answered."""
    bound = 1 << 20
    bomb = compress(bytes(10 * bound), codec)
    with pytest.raises(BeyondBoundError) as refused:
        decompress(bomb, codec, bound)
    kept = [value for frame in refused.traceback[1:] for value in frame.locals.values()]
    assert max(len(value) for value in kept if isinstance(value, bytes | bytearray | memoryview)) <= len(bomb)


@pytest.mark.parametrize("size", [0, 1, 5, 30, 1000])
@pytest.mark.parametrize("codec", CODECS)
def test_a_few_bytes_do_not_reserve_what_they_claim(codec: Compression, size: int) -> None:
    """Two GiB would be allowed; garbage gets no buffer for that."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError):
            decompress(b"\xfe\xff\xff\xff\x07" * (size // 5) + b"\xff" * (size % 5), codec, 1 << 31)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 64 * size


@pytest.mark.parametrize("codec", CODECS)
def test_cut_data_is_refused(codec: Compression) -> None:
    whole = compress(TEXTS["words"], codec)
    for size in range(len(whole)):
        if codec == Compression.SNAPPY and size == 16:
            continue  # between two blocks: the frame has no end of its own
        with pytest.raises(CorruptBatchError):
            decompress(whole[:size], codec, 1 << 20)


def test_snappy_that_claims_too_much_for_its_size() -> None:
    with pytest.raises(CorruptBatchError, match="claim to become 16384"):
        decompress(b"\x80\x80\x01" + b"\0" * 5, Compression.SNAPPY, 1 << 20)


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0", b"\0\0\0\x05abc"])
def test_snappy_blocks_that_do_not_fit(block: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="snappy block"):
        decompress(compress(b"", Compression.SNAPPY) + block, Compression.SNAPPY, 1 << 20)


def test_a_second_gzip_member_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="bytes follow"):
        decompress(gzip.compress(b"one") + gzip.compress(b"two"), Compression.GZIP, 100)


def test_zlib_without_gzip_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="incorrect header"):
        decompress(zlib.compress(b"one"), Compression.GZIP, 100)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="codec 5"):
        decompress(b"", 5, 100)
