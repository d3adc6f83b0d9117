"""Whatever a broker sends, the client gives the responses that were due or one PeerError; a size that is only claimed takes no memory."""

import struct
import tracemalloc
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.assembly.interpreter import resident_bytes
from moldau.model.errors import PeerError, ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.rpc import Rpc
from support.rpc_peer import VERSIONS, answer, asked, feed, frame, opened
from support.sizes import sized

thorough = settings(max_examples=sized(100, 5000), deadline=None)
pieces = st.lists(st.integers(1, 40))
damage = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6)


@thorough
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), pieces)
def test_any_split_gives_the_same_responses(sizes: list[int], split: list[int]) -> None:
    rpc = opened()
    calls = [rpc.send(ApiKey.METADATA, MetadataRequest(None))[0] for _ in sizes]
    names = ["n" * size for size in sizes]
    stream = b"".join(answer(call, MetadataResponse(cluster_id=name)) for call, name in zip(calls, names, strict=True))
    answers = feed(rpc, stream, split)
    assert [found.call for found in answers] == calls
    assert [found.response.cluster_id for found in answers] == names


@thorough
@given(st.binary(max_size=300), pieces, st.booleans())
def test_noise_ends_in_one_precise_error(noise: bytes, split: list[int], is_framed: bool) -> None:
    rpc = opened(frame_bytes_max=1000)
    rpc.send(ApiKey.METADATA, MetadataRequest(None))
    with suppress(ProtocolError):
        assert feed(rpc, frame(noise) if is_framed else noise, split) == []


@thorough
@given(damage, pieces)
def test_a_damaged_greeting_opens_the_connection_or_ends_it(changes: list[tuple[int, int]], split: list[int]) -> None:
    rpc = Rpc("test", 4096, 4)
    data = bytearray(answer(asked(rpc.hello()), VERSIONS))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        feed(rpc, bytes(data), split)
    except PeerError:
        assert not rpc.is_open
        return
    if rpc.is_open:
        for api_key in ApiKey:
            with suppress(PeerError):
                rpc.version_for(api_key)
    elif rpc.oldest is None:
        asked(rpc.hello())


def test_a_claimed_size_takes_no_memory() -> None:
    resident = resident_bytes()
    clients = [opened() for _ in range(8)]
    tracemalloc.start()
    try:
        for rpc in clients:
            rpc.send(ApiKey.METADATA, MetadataRequest(None))
            feed(rpc, struct.pack(">i", 250 << 20) + b"\0\0\0\x02")
            assert len(rpc.get_buffer()) == (250 << 20) - 4
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert resident_bytes() - resident < 100 << 20
