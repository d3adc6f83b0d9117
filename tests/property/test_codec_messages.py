"""Messages of every kind and version, drawn from their declarations, and what has to hold of the bytes of each.

They decode to the same value, and nothing may follow them. Cut off they are refused, and damaged they give a message or a ProtocolError.
kafka-python and kio write the same bytes and read the same values, for every (API, version) that they know; `NOT_COMPARED` lists where
another codec does something else, and why that is its own affair.

Whatever bytes arrive, a decoder takes no more memory than a small multiple of them. The multiple is what Python objects cost: the densest
honest messages are arrays of structs of three empty fields, one byte each.
"""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode, encode_into, step_decoder, step_writer
from moldau.protocol.codec.fields import ListOf, Nested
from moldau.protocol.codec.primitives import NO_BOUND
from moldau.protocol.versions import FLEXIBLE_FROM
from support.messages import Case, all_cases, carried, cases, decode_or_refuse, few, values
from support.oracles import ORACLES, Oracle
from support.sizes import sized

UNKNOWN_TAGS = b"\x02\x63\x03abc\x80\x01\x00"  # two of them: number 99 with "abc", number 128 with nothing

NOT_COMPARED = {
    ("kafka-python", "ApiVersionsResponse"): (
        lambda message, version: version > 0 and message.error_code != 0,
        "it reads every ApiVersions response that has an error as version 0, whatever version was asked for",
    ),
    ("kio", "DescribeTransactionsResponse"): (
        lambda message, _: any(state.transaction_start_time_ms < 0 for state in message.transaction_states),
        "it reads no time before 1970 here, where a broker says -1 of a transaction that has not begun",
    ),
}

DAMAGES = sized(8, 20)
FRAME_BYTES = 4096
BYTES_PER_BYTE = 64
SLACK_BYTES = 16 * 1024
PATTERNS = [b"\xff", b"\x00", b"\x7f", b"\x01", b"\x80", b"\x7f\xff\xff\xff", b"\x00\x00\x0f\xff", b"\xff\xff\xff\xff\x07", b"\x02\x01"]


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_messages_of_every_version(api_key: ApiKey) -> None:
    """All claims about one message: to draw it takes longer than to check them."""
    for case in cases(api_key):
        check(case)


def check(case: Case) -> None:
    oracles = [oracle for oracle in ORACLES if oracle.knows(*case)]

    @few
    @given(values(*case), st.integers(0, 1 << 32))
    def holds(message: Any, seed: int) -> None:
        data = encode(message, case.version)
        round_trip(case, message, data)
        for oracle in oracles:
            agree(oracle, case, message, data)
        damage(case, data, random.Random(seed))

    holds()


def round_trip(case: Case, message: Any, data: bytes) -> None:
    assert decode(*case, data) == message
    assert decode(*case, memoryview(b"\x55" + data), 1) == message
    parts: list[bytes | bytearray | memoryview] = [b"header"]
    encode_into(parts, message, case.version)
    assert b"".join(parts) == b"header" + data
    assert in_steps(case, message, data) == (message, len(data))
    with pytest.raises(ProtocolError, match="1 bytes follow it"):
        decode(*case, data + b"\0")


def in_steps(case: Case, message: Any, data: bytes) -> Any:
    """What the decoder in steps makes of what the encoder in steps has made, which has to be `data`."""
    parts: list[bytes | bytearray | memoryview] = []
    for _ in step_writer(case.cls, case.version)(message, parts.append):
        pass
    assert b"".join(parts) == data
    decoding = step_decoder(*case)(data, 0, NO_BOUND)
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value


def agree(oracle: Oracle, case: Case, message: Any, data: bytes) -> None:
    skipped, _ = NOT_COMPARED.get((oracle.name, case.cls.__name__), (lambda *_: False, ""))
    assert oracle.encode(message, case.version) == data
    if not skipped(message, case.version):
        assert oracle.decode(*case, data) == message


def damage(case: Case, data: bytes, generator: random.Random) -> None:
    for size in generator.sample(range(len(data)), min(DAMAGES, len(data))):
        with pytest.raises(ProtocolError):
            decode(*case, data[:size])
    damaged = bytearray(data)
    for _ in range(DAMAGES if data else 0):
        damaged[generator.randrange(len(data))] = generator.choice((0x00, 0x01, 0x7F, 0x80, 0xFF, generator.randrange(256)))
        decode_or_refuse(case, bytes(damaged))


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_unknown_tagged_fields_are_skipped(api_key: ApiKey) -> None:
    for case in cases(api_key):
        first = FLEXIBLE_FROM[api_key]
        if first is not None and case.version >= first:
            data = encode(case.cls(), case.version)
            assert data.endswith(b"\0")  # the section of tagged fields, empty
            assert decode(*case, data[:-1] + UNKNOWN_TAGS) == case.cls()


ZOOKEEPER_ERA = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
OWN = {ApiKey.ALTER_MIRROR}
UNKNOWN = {
    "kafka-python": ZOOKEEPER_ERA | OWN | {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE},
    "kio": ZOOKEEPER_ERA | OWN,
}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_the_other_codecs_know_nearly_everything(oracle: Oracle) -> None:
    missing = {str(case) for api_key in ApiKey if api_key not in UNKNOWN[oracle.name] for case in cases(api_key) if not oracle.knows(*case)}
    assert missing == set()


def hostile_frames(seed: int) -> list[bytes]:
    generator = random.Random(seed)
    filler = [pattern * (FRAME_BYTES // len(pattern)) for pattern in PATTERNS]
    noise = [generator.randbytes(FRAME_BYTES) for _ in range(3)]
    heavy = [bytes(generator.choices((0xFF, 0x7F, 0x00, 0x01), (6, 2, 1, 1), k=FRAME_BYTES)) for _ in range(3)]
    starts = [generator.randbytes(generator.randrange(1, 24)) for _ in range(sized(1, 4))]
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
    """Arrays of the smallest elements there are. Versions of a class that write them as the same bytes read them in the same way."""
    dense = {(case.cls, frame): case for case in all_cases() for frame in densest_frames(case)}
    assert len(dense) > 200
    for case in dense.values():
        decode_or_refuse(case, b"")  # compiles it
    with tracing():
        for (_, frame), case in dense.items():
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
