"""Whatever bytes arrive, a decoder gives a message or a ProtocolError, and takes no more memory than a small multiple of them.

The multiple is what Python objects cost: the densest honest messages are arrays of structs of three empty fields, one byte each.
"""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.codec.fields import ListOf, Nested
from support.messages import Case, all_cases, carried, cases, few, values

FRAME_BYTES = 4096
BYTES_PER_BYTE = 64
SLACK_BYTES = 16 * 1024
PATTERNS = [b"\xff", b"\x00", b"\x7f", b"\x01", b"\x80", b"\x7f\xff\xff\xff", b"\x00\x00\x0f\xff", b"\xff\xff\xff\xff\x07", b"\x02\x01"]


def decode_or_refuse(case: Case, data: bytes) -> None:
    with suppress(ProtocolError):
        decode(*case, memoryview(data))


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_cut_off_and_damaged_messages(api_key: ApiKey) -> None:
    for case in cases(api_key):
        check_damage(case)


def check_damage(case: Case) -> None:
    @few
    @given(values(*case), st.integers(0, 1 << 32))
    def damage(message: Any, seed: int) -> None:
        data = encode(message, case.version)
        generator = random.Random(seed)
        for size in generator.sample(range(len(data)), min(20, len(data))):
            with pytest.raises(ProtocolError):
                decode(*case, data[:size])
        damaged = bytearray(data)
        for _ in range(20 if data else 0):
            damaged[generator.randrange(len(data))] = generator.choice((0x00, 0x01, 0x7F, 0x80, 0xFF, generator.randrange(256)))
            decode_or_refuse(case, bytes(damaged))

    damage()


def hostile_frames(seed: int) -> list[bytes]:
    generator = random.Random(seed)
    filler = [pattern * (FRAME_BYTES // len(pattern)) for pattern in PATTERNS]
    noise = [generator.randbytes(FRAME_BYTES) for _ in range(3)]
    heavy = [bytes(generator.choices((0xFF, 0x7F, 0x00, 0x01), (6, 2, 1, 1), k=FRAME_BYTES)) for _ in range(3)]
    starts = [generator.randbytes(generator.randrange(1, 24)) for _ in range(4)]
    return [b""] + filler + noise + heavy + [start + frame[len(start) :] for start in starts for frame in filler]


def test_hostile_frames_take_little_memory() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    frames = hostile_frames(seed)
    for case in all_cases():
        decode_or_refuse(case, b"")  # compiles it
    with tracing():
        for case in all_cases():
            for frame in frames:
                check_memory(case, frame)


def test_the_densest_honest_messages_take_little_memory() -> None:
    """Arrays of the smallest elements there are."""
    dense = [(case, frame) for case in all_cases() for frame in densest_frames(case)]
    assert len(dense) > 400
    with tracing():
        for case, frame in dense:
            check_memory(case, frame)


def densest_frames(case: Case) -> list[bytes]:
    return [
        encode(case.cls(**{field.name: [field.type.element.cls()] * 300}), case.version)
        for field in carried(*case)
        if isinstance(field.type, ListOf) and isinstance(field.type.element, Nested)
    ]


@contextmanager
def tracing() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def check_memory(case: Case, frame: bytes) -> None:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    decode_or_refuse(case, frame)
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before <= BYTES_PER_BYTE * len(frame) + SLACK_BYTES, f"{case}: {peak - before} bytes for {frame[:24]!r}..."
