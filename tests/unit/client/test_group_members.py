"""Members' metadata is read as Kafka's consumers write it, with any fields after it; damaged bytes give no answer, never a wrong one."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.groups import assigned_partitions, subscribed_topics
from moldau.model.identity import TopicPartition
from support.sizes import sized

ASSIGNMENT = bytes.fromhex("0003 00000002 0005 66697273 74 00000002 00000000 00000007 0001 62 00000001 00000001 ffffffff".replace(" ", ""))
"""Version 3: first-0, first-7, b-1, no user data."""
SUBSCRIPTION = bytes.fromhex("0003 00000002 0005 6669727374 0001 62 ffffffff 00000000 00000005 ffff".replace(" ", ""))
"""Version 3: first and b, and fields that came with later versions."""

names = st.text("abcä", min_size=1, max_size=5)


def test_an_assignment() -> None:
    assert assigned_partitions(ASSIGNMENT) == (("b", 1), ("first", 0), ("first", 7))
    assert assigned_partitions(b"") == (), "a member that waits for its share"


def test_a_subscription() -> None:
    assert subscribed_topics(SUBSCRIPTION) == ("b", "first")


@settings(max_examples=sized(50))
@given(st.dictionaries(names, st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True), max_size=4), st.binary(max_size=5))
def test_every_assignment(topics: dict[str, list[int]], added: bytes) -> None:
    data = struct.pack(">hi", 1, len(topics))
    for name, numbers in topics.items():
        text = name.encode()
        data += struct.pack(f">h{len(text)}si{len(numbers)}i", len(text), text, len(numbers), *numbers)
    expected = sorted(TopicPartition(name, number) for name, numbers in topics.items() for number in numbers)
    assert assigned_partitions(data + added) == tuple(expected)


@settings(max_examples=sized(80, 2000))
@given(st.integers(1, len(ASSIGNMENT) - 5))
def test_what_is_cut_off_is_not_read(size: int) -> None:
    assert assigned_partitions(ASSIGNMENT[:size]) is None


@given(st.binary(max_size=30))
def test_anything_else_is_refused_or_read_but_never_breaks(data: bytes) -> None:
    for read in (assigned_partitions, subscribed_topics):
        assert read(data) is None or isinstance(read(data), tuple)
